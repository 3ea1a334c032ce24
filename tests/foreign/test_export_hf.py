"""What `transformers` makes of an exported folder equals what the model makes, in logits, ids and generated symbols."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_tiny import TEXTS, classifier, language, tagger, translator

import anaphora as an
from anaphora.data.symbols import BOS, EOS, UNK
from anaphora.errors import AnaphoraError

transformers = pytest.importorskip("transformers")

LANGUAGE = {
    "gpt2": {"positions": "sinusoidal"},
    "gpt2-learned-gelu": {"positions": "learned", "activation": "gelu"},
    "gpt2-untied-shared-keys": {"positions": "none", "tie": False, "kv_heads": 1, "activation": "silu"},
    "gpt2-text": {"lines": False},
    "gpt_neox": {"positions": "rotary", "activation": "gelu-tanh"},
    "gpt_neox-shared-keys": {"positions": "rotary", "kv_heads": 1, "rotary_share": 0.5, "parallel": True},
    "opt": {"norm_first": False, "positions": "sinusoidal"},
}


def opened(folder: Path, kind: str) -> Any:
    found = getattr(transformers, kind).from_pretrained(folder)
    return found.eval() if hasattr(found, "eval") else found


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert ours.shape == theirs.shape
    assert float((ours - theirs).abs().max()) < 1e-5 * max(1.0, float(ours.abs().max()))


@pytest.mark.parametrize("name", LANGUAGE)
def test_a_language_model_gives_equal_logits_and_goes_on_equally(name: str, tmp_path: Path) -> None:
    m = language(**LANGUAGE[name])
    m.export(tmp_path / "out", to="hf")
    theirs = opened(tmp_path / "out", "AutoModelForCausalLM")
    assert theirs.config.model_type == name.split("-")[0]
    rows = torch.randint(4, m.tokenizer_.size, (3, 11), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        close(m.model_.eval()(rows), theirs(rows).logits)
    _same_ids(m.tokenizer_, tmp_path / "out", [m.begin], [])
    _goes_on_equally(m, theirs)


def _same_ids(tokenizer: Any, folder: Path, before: list[int], after: list[int]) -> None:
    theirs = opened(folder, "AutoTokenizer")
    for text in (*TEXTS, "an unknown Wörd </s>"):
        assert theirs(text).input_ids == [*before, *tokenizer.encode(text), *after]
        if UNK not in tokenizer.encode(text):  # which we write as a word of its own
            assert theirs.decode(tokenizer.encode(text)) == tokenizer.decode(tokenizer.encode(text))


def _goes_on_equally(m: an.LanguageModel, theirs: Any) -> None:
    prompt = [m.begin, *m.tokenizer_.encode("the d")]
    (ours,) = m.sample("the d", temperature=0, length=8)
    found = theirs.generate(torch.tensor([prompt]), max_new_tokens=8, do_sample=False)[
        0, len(prompt) :
    ].tolist()
    found = found[: found.index(EOS)] if EOS in found else found
    whole = m.tokenizer_.decode([*prompt[1:], *found])
    assert whole[len(m.tokenizer_.decode(prompt[1:])) :] == ours


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"activation": "gelu", "tie": False},
        {"norm_first": False, "embedding_norm": True, "activation": "silu"},
    ],
)
def test_a_masked_language_model_gives_equal_logits(settings: dict[str, Any], tmp_path: Path) -> None:
    m = language("masked", **settings)
    m.export(tmp_path / "out", to="hf")
    theirs = opened(tmp_path / "out", "AutoModelForMaskedLM")
    rows = torch.randint(4, m.tokenizer_.size, (3, 9), generator=torch.Generator().manual_seed(1))
    lengths = torch.tensor([9, 6, 3])
    mask = (torch.arange(9) < lengths[:, None]).long()
    with torch.no_grad():
        ours, found = m.model_.eval()(rows, lengths), theirs(rows, attention_mask=mask).logits
    close(ours[mask.bool()], found[mask.bool()])
    _same_ids(m.tokenizer_, tmp_path / "out", [BOS], [])


@pytest.mark.parametrize(
    "settings", [{}, {"classes": 2}, {"norm_first": False, "embedding_norm": True}, {"pooling": "first-tanh"}]
)
def test_a_classifier_gives_equal_scores(settings: dict[str, Any], tmp_path: Path) -> None:
    m = classifier(**settings)
    m.export(tmp_path / "out", to="hf")
    theirs, tokens = (
        opened(tmp_path / "out", kind) for kind in ("AutoModelForSequenceClassification", "AutoTokenizer")
    )
    given = tokens(TEXTS, return_tensors="pt", padding=True)
    ours = torch.tensor(m.session.outputs(m._encode(TEXTS))).float()
    with torch.no_grad():
        found = theirs(**given).logits
    close(ours, found)
    assert [theirs.config.id2label[int(i)] for i in found.argmax(1)] == m.predict(TEXTS)
    _same_ids(m.inputs_.tokenizer, tmp_path / "out", [BOS], [EOS])


def test_a_number_comes_in_its_own_unit(tmp_path: Path) -> None:
    m = an.Classifier(
        "transformer", target="number", pooling="first", max_tokens=20, hidden=16, layers=1, heads=2, steps=1
    )
    m.fit([("a b", 100.0), ("c d", 300.0), ("a d", 250.0)] * 4, verbose=False).export(
        tmp_path / "out", to="hf"
    )
    theirs, tokens = (
        opened(tmp_path / "out", kind) for kind in ("AutoModelForSequenceClassification", "AutoTokenizer")
    )
    with torch.no_grad():
        found = theirs(**tokens(["a b", "c"], return_tensors="pt", padding=True)).logits[:, 0]
    assert found.tolist() == pytest.approx(m.predict(["a b", "c"]), rel=1e-5)


@pytest.mark.parametrize(
    "settings", [{}, {"norm_first": False, "embedding_norm": True, "activation": "gelu"}]
)
def test_a_tagger_gives_equal_scores_for_every_word(settings: dict[str, Any], tmp_path: Path) -> None:
    m = tagger(**settings)
    m.export(tmp_path / "out", to="hf")
    theirs = opened(tmp_path / "out", "AutoModelForTokenClassification")
    words = torch.randint(4, m.tokenizer_.size, (2, 7))
    with torch.no_grad():
        close(m.model_.eval()(words, torch.tensor([7, 7])), theirs(words).logits)
    assert list(theirs.config.id2label.values()) == list(m.learnt_.tags)
    tokens = opened(tmp_path / "out", "AutoTokenizer")
    sentence = ["the", "dog", "unheard"]
    ours = [m.tokenizer_.encode(word)[0] for word in sentence]
    assert tokens(sentence, is_split_into_words=True).input_ids == ours


TRANSLATORS = {
    "pegasus": {"tie": False},
    "pegasus-joint": {"joint": True, "tie": True, "activation": "gelu"},
    "pegasus-learned": {"positions": "learned", "joint": False, "source_tokens": "char", "kv_heads": 1},
    "marian": {"norm_first": False},
    "marian-joint": {"norm_first": False, "joint": True, "tie": True},
}


@pytest.mark.parametrize("name", TRANSLATORS)
def test_a_translator_gives_equal_logits_and_translates_equally(name: str, tmp_path: Path) -> None:
    m = translator(**TRANSLATORS[name])
    m.export(tmp_path / "out", to="hf")
    theirs, tokens = (opened(tmp_path / "out", kind) for kind in ("AutoModelForSeq2SeqLM", "AutoTokenizer"))
    assert theirs.config.model_type == name.split("-")[0]
    given = tokens(TEXTS, return_tensors="pt", padding=True)
    assert [
        row[:n].tolist() for row, n in zip(given.input_ids, given.attention_mask.sum(1), strict=True)
    ] == [[*m.tokenizer_.source.encode(text), EOS] for text in TEXTS]
    target = torch.randint(4, m.tokenizer_.target.size, (3, 6))
    lengths = given.attention_mask.sum(1)
    with torch.no_grad():
        ours = m.model_.eval()(given.input_ids, lengths, target)
        found = theirs(**given, decoder_input_ids=target).logits
        written = theirs.generate(**given, max_new_tokens=12)[:, 1:]
    close(ours, found[..., : ours.shape[-1]])
    best = m.predict(TEXTS, beam=1, max_length=12, details=True)
    for one, row in zip(best, written.tolist(), strict=True):
        ended = row[: row.index(EOS)] if EOS in row else row
        assert one.text == m.tokenizer_.target.decode(ended)


def test_what_has_no_counterpart_is_named_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(AnaphoraError, match=r"positions = 'alibi' \(it must be"):
        language(positions="alibi").export(tmp_path / "out", to="hf")
    with pytest.raises(AnaphoraError, match=r"pooling = 'mean' \(it must be 'first-tanh'\)"):
        classifier(pooling="mean").export(tmp_path / "out", to="hf")
    with pytest.raises(AnaphoraError, match="attention_window = 3"):
        language(attention_window=3).export(tmp_path / "out", to="hf")
    with pytest.raises(AnaphoraError, match="characters=none"):
        tagger(characters="conv", character_hidden=8).export(tmp_path / "out", to="hf")
    assert not list(tmp_path.iterdir())


def test_an_export_gives_way_and_anything_else_does_not(tmp_path: Path) -> None:
    m = language()
    m.export(tmp_path / "out", to="hf")
    m.export(tmp_path / "out", to="hf", force=True)
    assert json.loads((tmp_path / "out" / "export.json").read_text())["class"] == "GPT2LMHeadModel"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(AnaphoraError, match="something else than an export"):
        m.export(tmp_path / "mine", to="hf", force=True)
    assert (tmp_path / "mine" / "thesis.txt").is_file()
