"""Tokenizers of models that translate between many languages, M2M-100 and NLLB: a symbol for each language among the others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from anaphora.data.numbering import Numbering
from anaphora.data.tokenizers import PairTokenizer, Tokenizer
from anaphora.data.tokenizers_own import EngineTokenizer
from anaphora.data.tokenizers_pieces import PieceTokenizer
from anaphora.errors import RunError
from anaphora.foreign.generation import Writing
from anaphora.foreign.pairs import around_of, file_data, fitting, listed, numbering_for
from anaphora.foreign.reading import read_json
from anaphora.foreign.words import read_engine

MODEL = "sentencepiece.bpe.model"
_CODE = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")  # eng_Latn, as NLLB writes them
_M2M = (
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy id ig "
    "ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so "
    "sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu"
)
CODES = {"m2m100": _M2M.split(), "wmt21": ["en", "ha", "is", "ja", "cs", "ru", "zh", "de"]}
"""In the order in which `transformers` numbers them behind the pieces of ``vocab.json``."""


def many_languages(folder: Path, size: int, writing: Writing, *, trust: bool) -> PairTokenizer:
    """The tokenizer of a model with ``size`` symbols. The languages are those that ``tokenizer_config.json`` and the generation
    config name, if any; others are chosen later. Raises as `read_pair`."""
    with fitting(folder):
        return _read(folder, size, writing, trust)


def _read(folder: Path, size: int, writing: Writing, trust: bool) -> PairTokenizer:
    said = read_json(folder / "tokenizer_config.json")
    if said.get("legacy_behaviour"):
        raise ValueError(
            "legacy_behaviour = true puts the language behind a text, where the end must come last"
        )
    side, ids = (
        _pieces(folder, size, writing, said)
        if (folder / MODEL).is_file() and (folder / "vocab.json").is_file()
        else _engine(folder, size, writing, said, trust)
    )
    ours = side.numbering.numbers  # type: ignore[attr-defined]
    around = replace(
        around_of(writing, side.numbering, ()),  # type: ignore[attr-defined]
        languages={code: ours[i] for code, i in ids.items()},
    )
    source, target = (str(said.get(name) or "") for name in ("src_lang", "tgt_lang"))
    around = around.between(source, "" if around.first else target)
    return PairTokenizer(side, side, True, around)


def _pieces(
    folder: Path, size: int, writing: Writing, said: Mapping[str, Any]
) -> tuple[Tokenizer, dict[str, int]]:
    """M2M-100: a model of sentencepiece, a vocabulary that numbers its pieces, and the languages behind it."""
    vocabulary = listed(read_json(folder / "vocab.json"), size)
    kind = str(said.get("language_codes", "m2m100"))
    if kind not in CODES:
        raise ValueError(f"language_codes = {kind!r} (known: {', '.join(CODES)})")
    ids = {code: len(vocabulary) + i for i, code in enumerate(CODES[kind])}
    if len(vocabulary) + len(ids) > size:
        raise ValueError(f"{len(vocabulary)} pieces and {len(ids)} languages are more than {size} symbols")
    marks = [f"__{code}__" for code in ids]
    if "<unk>" not in vocabulary:
        raise ValueError("vocab.json has no <unk>")
    numbering = numbering_for(size, writing, vocabulary.index("<unk>"))
    return PieceTokenizer(file_data(folder / MODEL), [*vocabulary, *marks], numbering, whole=marks), ids


def _engine(
    folder: Path, size: int, writing: Writing, said: Mapping[str, Any], trust: bool
) -> tuple[Tokenizer, dict[str, int]]:
    """NLLB: ``tokenizer.json``, whose languages are special symbols."""
    if not (folder / "tokenizer.json").is_file():
        raise RunError(
            f"{folder} has neither {MODEL} with vocab.json (M2M-100) nor a tokenizer.json (NLLB); save it with a tokenizer of "
            "`transformers`."
        )
    engine = read_engine(folder, trust)
    known = engine.get_vocab(with_added_tokens=True)
    ids = {one: i for one, i in sorted(known.items(), key=lambda pair: pair[1]) if _CODE.fullmatch(one)}
    if not ids:
        raise ValueError("it has no symbols of languages such as eng_Latn")
    numbering: Numbering = numbering_for(size, writing, known.get("<unk>", writing.unknown))
    return EngineTokenizer(engine, lowercase=False, raw=False, numbering=numbering, quiet=True), ids
