"""What a folder of `transformers` says of a translator beside its weights: symbols, how outputs are written, tokenizers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import Tensor

from anaphora.data.symbols import BOS, EOS, PAD, UNK
from anaphora.data.tokenizers import Tokenizer
from anaphora.data.tokenizers.pieces import PieceTokenizer
from anaphora.data.tokenizers.vocabularies import Numbering
from anaphora.errors import AnaphoraError
from anaphora.files.writing import make_folder, write_new
from anaphora.foreign.pairs import CODES, MODEL
from anaphora.foreign.words import tokenizer_json

_STOPPING: dict[str, Any] = {"first": True, "likely": False, "exact": "never"}
_ENGINES = {"m2m_100": "NllbTokenizer"}
_CLASSES = {"t5": "T5Tokenizer", "mt5": "T5Tokenizer", "pegasus": "PegasusTokenizer"}


def borrowed(m: Any) -> tuple[Numbering, Numbering] | None:
    """How the symbols of source and target are numbered where they came from; None where they are ours."""
    found = [getattr(side, "numbering", None) for side in (m.tokenizer_.source, m.tokenizer_.target)]
    if any(one is None or all(i is None for i in one.special) for one in found):
        return None
    return found[0], found[1]  # type: ignore[return-value]


def stored(m: Any, kind: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """What a file holds of ``tensors``: Marian makes its sines itself."""
    if kind != "marian" or not m.settings_.sine_halves:
        return tensors
    return {name: one for name, one in tensors.items() if not name.endswith("embed_positions.weight")}


def config_of(m: Any, words: Numbering) -> dict[str, Any]:
    """The ids of special symbols, as the model had them."""
    around = m.tokenizer_.around
    start = words.order[around.start]
    pad = words.special[PAD]
    begins = None if around.languages else (*around.before, *around.first, None)[0]
    found: dict[str, Any] = {
        "bos_token_id": None if begins is None else words.order[begins],
        "pad_token_id": start if pad is None and around.start == BOS else pad,
        "eos_token_id": words.order[EOS],
        "decoder_start_token_id": start,
        "forced_eos_token_id": words.order[EOS] if around.ends else None,
    }
    if around.first:
        found["forced_bos_token_id"] = words.order[around.first[0]]
    return found


def generation_of(m: Any, words: Numbering) -> dict[str, Any]:
    """How outputs are searched for, by their names."""
    s = m.settings_
    found = config_of(m, words) | {"num_beams": s.beam, "do_sample": False}
    if s.beam > 1:
        found |= {"length_penalty": s.length_penalty, "early_stopping": _STOPPING[s.stopping]}
    if s.max_length:
        found["max_length"] = s.max_length + 1
    found |= {"min_length": s.min_length} if s.min_length else {}
    found |= {"no_repeat_ngram_size": s.no_repeat} if s.no_repeat else {}
    if m.tokenizer_.around.never:
        found["bad_words_ids"] = [[words.order[i]] for i in m.tokenizer_.around.never]
    return found


def write_tokenizers(folder: Path, m: Any, kind: str, longest: int) -> None:
    """The tokenizers as they came, for a model of the type ``kind``."""
    source, target = m.tokenizer_.source, m.tokenizer_.target
    said = {"model_max_length": longest, "clean_up_tokenization_spaces": False}
    if m.tokenizer_.around.languages:
        said |= _directions(m)
    if not isinstance(source, PieceTokenizer):
        places = [(folder, source)] if m.tokenizer_.joint else [(folder, source), (folder / "target", target)]
        for place, side in places:
            make_folder(place)
            _json(place / "tokenizer.json", tokenizer_json(side))
            spelled = _special(side, m)
            _json(
                place / "tokenizer_config.json",
                {"tokenizer_class": _ENGINES.get(kind, "PreTrainedTokenizerFast"), **spelled, **said},
            )
        return
    if source.codes:
        _marian(folder, source, target, said | _special(source, m))
        return
    if kind == "m2m_100":
        write_new(folder / MODEL, source.data)
        pieces = source.vocabulary[: len(source.vocabulary) - len(source.whole)]
        _json(folder / "vocab.json", {piece: i for i, piece in enumerate(pieces)})
        kinds = {"tokenizer_class": "M2M100Tokenizer", "language_codes": _codes(m)}
        _json(folder / "tokenizer_config.json", {**kinds, **_special(source, m), **said})
        return
    if kind not in _CLASSES:
        raise AnaphoraError(
            f"the tokenizer is a model of sentencepiece, and a folder of {kind} numbers its pieces otherwise; export to onnx instead."
        )
    write_new(folder / "spiece.model", source.data)
    more: dict[str, Any] = {"extra_ids": len(source.whole)} if kind != "pegasus" else {}
    if kind == "pegasus":
        more["offset"] = source.vocabulary.index("<unk>") - 2
    _json(
        folder / "tokenizer_config.json",
        {"tokenizer_class": _CLASSES[kind], **_special(source, m), **more, **said},
    )


def _directions(m: Any) -> dict[str, Any]:
    """The languages that were chosen, by their codes."""
    around = m.tokenizer_.around
    codes = {i: code for code, i in around.languages.items()}
    chosen = (around.before, around.first)
    return {
        name: codes[symbols[0]]
        for name, symbols in zip(("src_lang", "tgt_lang"), chosen, strict=True)
        if symbols
    }


def _codes(m: Any) -> str:
    known = list(m.tokenizer_.around.languages)
    return next(name for name, codes in CODES.items() if codes == known)


def _marian(folder: Path, source: PieceTokenizer, target: PieceTokenizer, said: dict[str, Any]) -> None:
    write_new(folder / "source.spm", source.data)
    write_new(folder / "target.spm", target.data)
    apart = source.vocabulary != target.vocabulary
    for file, side in (("vocab.json", source), ("target_vocab.json", target)):
        if side is source or apart:
            _json(folder / file, {piece: i for i, piece in enumerate(side.vocabulary) if piece})
    _json(
        folder / "tokenizer_config.json",
        {"tokenizer_class": "MarianTokenizer", "separate_vocabs": apart, **said},
    )


def _special(side: Tokenizer, m: Any) -> dict[str, str]:
    """How the special symbols are spelled there."""
    words: Numbering = side.numbering  # type: ignore[attr-defined]
    ids = {
        "pad_token": config_of(m, words)["pad_token_id"],
        "unk_token": words.special[UNK],
        "eos_token": words.special[EOS],
    }
    spelled = {
        name: side.vocabulary[i] if isinstance(side, PieceTokenizer) else side.engine.id_to_token(i)  # type: ignore[attr-defined]
        for name, i in ids.items()
        if i is not None
    }
    return {name: one for name, one in spelled.items() if one}


def _json(path: Path, document: dict[str, Any]) -> None:
    write_new(path, (json.dumps(document, ensure_ascii=False, indent=2) + "\n").encode())
