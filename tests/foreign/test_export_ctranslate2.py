"""CTranslate2 writes the same symbols as the model that was exported to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from foreign_tiny import TEXTS, classifier, language, translator
from tokenizers import Tokenizer

import anaphora as an
from anaphora.data.symbols import EOS
from anaphora.errors import AnaphoraError

pytest.importorskip("transformers")
ctranslate2 = pytest.importorskip("ctranslate2")


@pytest.mark.parametrize(
    "settings", [{}, {"norm_first": False}, {"positions": "rotary", "activation": "gelu"}, {"tie": False}]
)
def test_a_language_model_goes_on_equally(settings: dict[str, Any], tmp_path: Path) -> None:
    m = language(**settings)
    m.export(tmp_path / "out", to="ctranslate2")
    tokens = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    begun = tokens.encode("the d")
    assert begun.ids == [m.begin, *m.tokenizer_.encode("the d")]
    engine = ctranslate2.Generator(str(tmp_path / "out"), device="cpu")
    (found,) = engine.generate_batch(
        [begun.tokens], max_length=8, sampling_topk=1, include_prompt_in_result=False,
        suppress_sequences=[["<pad>"], ["<s>"], ["<unk>"]],
    )  # fmt: skip
    ids = found.sequences_ids[0]
    ids = ids[: ids.index(EOS)] if EOS in ids else ids
    (ours,) = m.sample("the d", temperature=0, length=8)
    known = m.tokenizer_.decode(begun.ids[1:])
    assert m.tokenizer_.decode([*begun.ids[1:], *ids])[len(known) :] == ours


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"norm_first": False},
        {"norm_first": False, "embedding_norm": True},
        {"joint": False, "source_tokens": "char", "positions": "learned"},
        {"positions": "rotary"},
        {"positions": "rotary", "rotary_base": 100.0, "rotary_share": 0.5, "norm_first": False},
    ],
)
def test_a_translator_translates_equally(settings: dict[str, Any], tmp_path: Path) -> None:
    m = translator(**settings)
    m.export(tmp_path / "out", to="ctranslate2")
    tokens = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    engine = ctranslate2.Translator(str(tmp_path / "out"), device="cpu")
    found = engine.translate_batch(
        [tokens.encode(text).tokens for text in TEXTS], beam_size=1, max_decoding_length=12
    )
    spelled = {spelling: i for i, spelling in enumerate(m.tokenizer_.target.spellings)}
    written = [m.tokenizer_.target.decode([spelled[one] for one in row.hypotheses[0]]) for row in found]
    assert written == m.predict(TEXTS, beam=1, max_length=12)


def test_a_translator_of_others_is_sent_to_their_converter(tmp_path: Path) -> None:
    translator(norm_first=False, joint=True, tie=True).export(tmp_path / "hf", to="hf")
    with pytest.raises(AnaphoraError, match="ct2-transformers-converter"):
        an.load(tmp_path / "hf", device="cpu").export(tmp_path / "out", to="ctranslate2")


def test_what_does_not_write_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AnaphoraError, match="CTranslate2 writes texts"):
        classifier().export(tmp_path / "out", to="ctranslate2")
