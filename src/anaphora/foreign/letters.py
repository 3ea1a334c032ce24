"""The letters that a recogniser with CTC writes, and how it hears: ``vocab.json`` and ``preprocessor_config.json``, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anaphora.data.numbering import Numbering
from anaphora.data.tokenizers_letters import LetterTokenizer
from anaphora.errors import RunError
from anaphora.foreign.reading import read_json
from anaphora.foreign.words import spelling_of

_SPECIAL = ("pad_token", "unk_token", "bos_token", "eos_token")
_USUAL = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}


def read_letters(folder: Path, config: dict[str, Any]) -> LetterTokenizer:
    """The letters with their numbers; a `RunError` lists all that does not fit together."""
    if not (folder / "vocab.json").is_file():
        raise RunError(
            f"{folder} has no vocab.json, which says which letters the model writes; save its tokenizer."
        )
    given = {**read_json(folder / "vocab.json"), **read_json(folder / "added_tokens.json")}
    said = {**read_json(folder / "special_tokens_map.json"), **read_json(folder / "tokenizer_config.json")}
    for number, one in (said.get("added_tokens_decoder") or {}).items():
        given.setdefault(spelling_of(one), int(number))
    size = int(config["vocab_size"])
    problems = []
    odd = [one for one, number in given.items() if not isinstance(number, int) or isinstance(number, bool)]
    if odd:
        raise RunError(
            f"{folder / 'vocab.json'}: {odd[0]!r} has no number; a vocabulary for each of several languages is not read."
        )
    letters = {one: number for one, number in given.items() if 0 <= number < size}
    if len(letters) < len(given):
        problems.append(
            f"{len(given) - len(letters)} symbols that the model does not have (vocab_size = {size})"
        )
    if len(set(letters.values())) < len(letters):
        problems.append("two symbols with the same number")
    found = [letters.get(spelling_of(said.get(name)) or _USUAL[name]) for name in _SPECIAL]
    blank = config.get("pad_token_id", 0)
    if found[0] is None:
        found[0] = blank if isinstance(blank, int) and 0 <= blank < size else None
    if found[0] is None or found[0] != blank:
        problems.append(f"a blank that is not pad_token_id = {blank!r} of config.json")
    space = spelling_of(said.get("word_delimiter_token")) or "|"
    if space not in letters:
        problems.append(f"no symbol {space!r} for the space between words")
    if problems:
        raise RunError(
            f"{folder / 'vocab.json'} has {', '.join(problems)}; save the tokenizer of this model."
        )
    special = [one if one not in found[:place] else None for place, one in enumerate(found)]
    return LetterTokenizer(letters, Numbering(size, tuple(special)), space)  # type: ignore[arg-type]


def letter_files(tokenizer: LetterTokenizer) -> dict[str, dict[str, Any]]:
    """``vocab.json`` and ``tokenizer_config.json`` of the tokenizer."""
    by_number = {number: one for one, number in tokenizer.letters.items()}
    special = {
        name: by_number[i]
        for name, i in zip(_SPECIAL, tokenizer.numbering.special, strict=True)
        if i in by_number
    }
    return {
        "vocab.json": dict(sorted(tokenizer.letters.items(), key=lambda one: one[1])),
        "tokenizer_config.json": {
            "tokenizer_class": "Wav2Vec2CTCTokenizer",
            "word_delimiter_token": tokenizer.space,
            "do_lower_case": False,
            **special,
        },
    }


def read_hearing(folder: Path) -> dict[str, Any]:
    """Our settings of how the model hears; a `RunError` where that is not said, or has no counterpart."""
    said = read_json(folder / "preprocessor_config.json") or read_json(folder / "processor_config.json").get(
        "feature_extractor", {}
    )
    if not said:
        raise RunError(
            f"{folder} has no preprocessor_config.json, which says how sound is read; save it with its feature extractor."
        )
    rate, problems = said.get("sampling_rate", 16_000), []
    if not isinstance(rate, int) or not 1000 <= rate <= 192_000:
        problems.append(f"sampling_rate = {rate!r}")
    if said.get("feature_size", 1) != 1:
        problems.append(f"feature_size = {said['feature_size']!r}")
    if problems:
        raise RunError(
            f"{folder / 'preprocessor_config.json'}: {'; '.join(problems)} has no counterpart here; choose another model."
        )
    normalise = "unit" if said.get("do_normalize", True) else "none"
    return {"rate": rate, "hop": 1 / rate, "frame_length": 1 / rate, "normalise": normalise}


def hearing_json(s: dict[str, Any]) -> dict[str, Any]:
    """``preprocessor_config.json`` of a model with these settings."""
    return {
        "feature_extractor_type": "Wav2Vec2FeatureExtractor",
        "feature_size": 1,
        "sampling_rate": s["rate"],
        "padding_value": 0.0,
        "padding_side": "right",
        "do_normalize": s["normalise"] == "unit",
        "return_attention_mask": s["filter_norm"] == "layer",
    }
