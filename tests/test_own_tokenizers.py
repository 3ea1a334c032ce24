"""Tokenizers of the user's own: functions that cut texts, and those of the `tokenizers` library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

import anaphora as an
from anaphora.data.symbols import SPELLINGS, UNK
from anaphora.data.tokenizers.own import CutTokenizer, EngineTokenizer
from anaphora.errors import DataError, RunError, SettingsError

TEXTS = ["a good film", "a bad film", "so good", "so bad"]
LABELLED = [(text, "pos" if "good" in text else "neg") for text in TEXTS] * 4
PAIRS = [(text, text.upper()) for text in TEXTS] * 4
TINY: dict[str, Any] = {"steps": 2, "valid_every": 2, "save_every": 2, "hidden": 8, "batch_tokens": 64}


def byte_level() -> tokenizers.Tokenizer:
    """Three merges over bytes, as GPT-2 has thousands."""
    engine = tokenizers.Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    engine.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=270, initial_alphabet=alphabet))
    return engine


def words() -> tokenizers.Tokenizer:
    engine = tokenizers.Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1, "good": 2}, unk_token="[UNK]"))
    engine.pre_tokenizer = pre_tokenizers.Whitespace()
    return engine


def halves(text: str) -> list[str]:
    return [text[: len(text) // 2], text[len(text) // 2 :]]


def test_pieces_that_give_the_text_back_are_joined_by_nothing() -> None:
    made = CutTokenizer.learn(list, ["ab ba"], vocab_size=99, lowercase=False, raw=False)
    assert made.spellings == [*SPELLINGS, "a", "b", " "]
    assert made.decode(made.encode("b a")) == "b a"
    assert made.decode([*made.encode("ax")]) == "a<unk>"


def test_other_pieces_are_joined_by_spaces() -> None:
    made = CutTokenizer.learn(str.split, ["b a  a"], vocab_size=99, lowercase=True, raw=False)
    assert made.spellings == [*SPELLINGS, " a", " b"]
    assert made.encode("B c") == [5, UNK]
    assert made.decode(made.encode("b  A")) == "b a" == made.normalized("b  A")


def test_running_text_keeps_its_lines() -> None:
    made = CutTokenizer.learn(str.split, ["a b\nc"], vocab_size=99, lowercase=False, raw=True)
    assert made.spellings[made.line_break] == "\n"
    assert made.decode(made.encode("a\nb c")) == "a\nb c"


def test_a_library_tokenizer_keeps_its_numbers_behind_the_special_symbols() -> None:
    made = EngineTokenizer(words(), lowercase=False, raw=False)
    assert made.encode("a good one") == [5, 6, 4]
    assert made.decode([5, UNK, 6, 3, 6]) == "a <unk> good"
    assert made.size == 7
    with pytest.raises(DataError, match="no symbol for a line break"):
        _ = made.line_break
    assert EngineTokenizer(byte_level(), lowercase=False, raw=True).line_break > 4


@pytest.mark.parametrize(
    ("m", "data", "x"),
    [
        (an.Classifier("lstm", **TINY), LABELLED, "a good film"),
        (an.Translator("lstm-attention", **TINY), PAIRS, "a bad film"),
        (an.LanguageModel("lstm", lines=True, **TINY), TEXTS * 8, "so good"),
        (an.LanguageModel("lstm", bptt=4, **TINY), TEXTS * 8, "so good"),
    ],
    ids=["classify", "translate", "lines", "stream"],
)
def test_a_run_keeps_a_library_tokenizer(m: Any, data: Any, x: str, tmp_path: Path) -> None:
    m.set_params(tokenizer=byte_level()).fit(data, valid=data, out=tmp_path / "run")
    again = an.load(tmp_path / "run")
    (ask,) = [getattr(one, "read" if m.command == "language" else "predict") for one in (again,)]
    assert ask([x]) == (m.read([x]) if m.command == "language" else m.predict([x]))
    assert type(m).resume(tmp_path / "run", steps=4).result_.steps == 4


def test_a_file_of_the_library_is_a_tokenizer(tmp_path: Path) -> None:
    byte_level().save(str(tmp_path / "tokenizer.json"))
    for given in (tmp_path / "tokenizer.json", str(tmp_path / "tokenizer.json")):
        m = an.Classifier("lstm", tokenizer=given, **TINY).fit(LABELLED, valid=LABELLED)
    m.save(tmp_path / "saved")
    (tmp_path / "tokenizer.json").unlink()
    assert an.load(tmp_path / "saved").predict(TEXTS) == m.predict(TEXTS)
    with pytest.raises(SettingsError, match=r"tokenizer = .* cannot be read"):
        an.Classifier("lstm", tokenizer=str(tmp_path / "none.json"), **TINY).fit(LABELLED)


def test_the_sides_of_a_translator_may_differ(tmp_path: Path) -> None:
    m = an.Translator("lstm-attention", tokenizer=byte_level(), target_tokenizer=str.split, **TINY)
    m.fit(PAIRS, valid=PAIRS, out=tmp_path / "run")
    assert m.tokenizer_.target.spellings[4] == " A" or " FILM" in m.tokenizer_.target.spellings
    with pytest.raises(RunError, match=r"target_tokenizer = .* is code that the run names"):
        an.load(tmp_path / "run")
    assert an.load(tmp_path / "run", target_tokenizer=str.split).predict(TEXTS) == m.predict(TEXTS)
    plain = an.Translator("lstm-attention", source_tokens="char", target_tokens="word", **TINY).fit(PAIRS)
    assert (plain.tokenizer_.source.kind, plain.tokenizer_.target.kind) == ("char", "word")
    with pytest.raises(SettingsError, match="joint = true makes one vocabulary of both"):
        an.Translator("transformer", source_tokens="char")
    with pytest.raises(SettingsError, match="no place beside a tokenizer of your own"):
        an.Translator("lstm", source_tokens="char", tokenizer=str.split)


def test_patterns_in_a_run_need_leave(tmp_path: Path) -> None:
    engine = byte_level()
    engine.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(tokenizers.Regex(r"\d|\D+"), "isolated"), engine.pre_tokenizer]
    )
    m = an.Classifier("lstm", tokenizer=engine, **TINY).fit(LABELLED, valid=LABELLED, out=tmp_path / "run")
    with pytest.raises(RunError, match=r"patterns of its own.*trust=True") as raised:
        an.load(tmp_path / "run")
    assert "\n" not in str(raised.value)
    assert an.load(tmp_path / "run", trust=True).predict(TEXTS) == m.predict(TEXTS)


def test_what_is_no_tokenizer_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text(json.dumps({"a": 1}))
    with pytest.raises(DataError, match="is not a tokenizer of the `tokenizers` library"):
        an.Classifier("lstm", tokenizer=str(tmp_path / "odd.json"), **TINY).fit(LABELLED)
    with pytest.raises(SettingsError, match="must cut a text into a list of texts, but gave a int"):
        an.Classifier("lstm", tokenizer=len, **TINY).fit(LABELLED)
    with pytest.raises(SettingsError, match=r"must be a function of a text, or have a method tokenize"):
        an.Classifier("lstm", tokenizer=object(), **TINY).fit(LABELLED)


def test_a_fast_tokenizer_of_transformers_is_one(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=words())
    m = an.Classifier("lstm", tokenizer=fast, **TINY).fit(LABELLED, valid=LABELLED, out=tmp_path / "run")
    assert an.load(tmp_path / "run").predict(TEXTS) == m.predict(TEXTS)
