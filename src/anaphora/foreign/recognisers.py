"""The symbols that recognisers of speech write, and how they hear."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anaphora.data.audio.preprocessing import HOP
from anaphora.data.tokenizers.own import LetterTokenizer, SpokenTokenizer
from anaphora.data.tokenizers.vocabularies import Numbering
from anaphora.errors import RunError
from anaphora.foreign.folder import read_json
from anaphora.foreign.words import read_engine, spelling_of

# ----------------------------------------------------------------------------
# The letters that a recogniser with CTC writes, and how it hears: ``vocab.json`` and ``preprocessor_config.json``, and back.

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


# ----------------------------------------------------------------------------
# The prompt of Whisper, its languages and the symbols that it never writes, from ``generation_config.json``, and
# back; and how it hears.

_HEARD: dict[str, Any] = {
    "sampling_rate": 16_000,
    "hop_length": HOP,
    "n_fft": 400,
    "dither": 0.0,
}


def read_speaking(
    folder: Path, config: dict[str, Any], *, trust: bool
) -> tuple[SpokenTokenizer, dict[str, Any]]:
    """The tokenizer, and our settings of what the decoder begins with; a `RunError` lists all that does not fit together."""
    said = {**config, **read_json(folder / "generation_config.json")}
    size = int(config.get("vocab_size", 51865))
    problems: list[str] = []
    start, ends = said.get("decoder_start_token_id"), said.get("eos_token_id")
    end = ends[0] if isinstance(ends, list) and len(ends) == 1 else ends
    special = [one for one in (start, end) if isinstance(one, int) and 0 <= one < size]
    if len(special) < 2 or start == end:
        raise RunError(
            f"{folder}: decoder_start_token_id = {start!r} and eos_token_id = {ends!r} are not two symbols of {size}; save its "
            "generation_config.json."
        )
    numbering = Numbering(size, (None, None, start, end))
    languages = _numbers(said.get("lang_to_id"), size, "lang_to_id", problems)
    prompt = _prompt(said, size, bool(languages), problems)
    lists = {
        ours: _numbers(said.get(theirs), size, theirs, problems)
        for ours, theirs in (("never", "suppress_tokens"), ("never_first", "begin_suppress_tokens"))
    }
    if problems:
        raise RunError(
            f"{folder / 'generation_config.json'}: {'; '.join(problems)} has no counterpart here; choose another model."
        )
    numbers = numbering.numbers
    settings = {
        "prompt": " ".join("?" if one is None else str(numbers[one]) for one in prompt),
        "languages": _joined(languages, numbers),
        **{name: _joined(given, numbers) for name, given in lists.items()},
    }
    try:
        engine = read_engine(folder, trust)
        return SpokenTokenizer(engine, lowercase=False, raw=False, numbering=numbering), settings
    except RunError:
        raise
    except Exception as error:
        raise RunError(f"{folder}: its tokenizer does not fit its model ({error}).") from None


def _joined(given: list[int], numbers: list[int]) -> str:
    return " ".join(str(numbers[one]) for one in given)


def _numbers(given: Any, size: int, name: str, problems: list[str]) -> list[int]:
    found = list(given.values()) if isinstance(given, dict) else list(given or [])
    if not all(isinstance(one, int) for one in found) or any(one >= size for one in found):
        problems.append(f"{name} = {str(given)[:60]}")
        return []
    return [one for one in found if one >= 0]


def _prompt(said: dict[str, Any], size: int, detects: bool, problems: list[str]) -> list[int | None]:
    """Symbols after <|startoftranscript|>; None is the language that is found to be spoken."""
    task, language = said.get("task"), said.get("language")
    found: list[int | None] = []
    if task is None and language is None:
        forced = said.get("forced_decoder_ids") or []
        if [one[0] for one in forced] != list(range(1, len(forced) + 1)):
            problems.append(f"forced_decoder_ids = {forced}")
        found = [one[1] for one in forced]
    if language is not None:
        named = said.get("lang_to_id") or {}
        token = language if language in named else f"<|{language}|>"
        if token not in named:
            problems.append(f"language = {language!r}")
        found = [named.get(token)]
    elif detects and not found:
        found = [None]
    if task is not None or language is not None:
        one = (said.get("task_to_id") or {}).get(task or "transcribe")
        if one is None and task is not None:
            problems.append(f"task = {task!r}")
        found += [] if one is None else [one]
    silent = said.get("no_timestamps_token_id")
    if silent is not None and found[-1:] != [silent]:
        found.append(silent)
    if None in found and not detects:
        found = [one for one in found if one is not None]
    if any(one is not None and not 0 <= one < size for one in found):
        problems.append(f"a prompt of {found}")
    return found


def read_listening(folder: Path, bins: int, frames: int) -> dict[str, Any]:
    """Our settings of how a model of so many ``frames`` hears; a `RunError` lists all that has no counterpart."""
    said = read_json(folder / "preprocessor_config.json") or read_json(folder / "processor_config.json").get(
        "feature_extractor", {}
    )
    if not said:
        raise RunError(
            f"{folder} has no preprocessor_config.json, which says how sound is read; save it with its feature extractor."
        )
    wanted = {**_HEARD, "feature_size": bins, "chunk_length": frames * HOP / 16_000}
    odd = [f"{key} = {said[key]!r}" for key, value in wanted.items() if said.get(key, value) != value]
    odd += ["do_normalize = True"] if said.get("do_normalize") else []
    if odd:
        raise RunError(
            f"{folder / 'preprocessor_config.json'}: {'; '.join(odd)} has no counterpart here; choose another model."
        )
    return {"rate": 16_000, "hop": 0.01, "frame_length": 0.025, "normalise": "none"}


def speaking_files(m: Any, numbering: Numbering) -> dict[str, dict[str, Any]]:
    """``generation_config.json`` and ``preprocessor_config.json`` of a transcriber."""
    s, order = m.settings_, numbering.order

    def theirs(marks: str) -> list[int | None]:
        return [None if mark == "?" else order[int(mark)] for mark in marks.split()]

    spellings = m.tokenizer_.spellings
    found: dict[str, Any] = {
        "decoder_start_token_id": order[2],
        "bos_token_id": order[3],
        "eos_token_id": order[3],
        "pad_token_id": order[3],
        "max_length": s.written_positions,
        "forced_decoder_ids": [[i, one] for i, one in enumerate(theirs(s.prompt), start=1)] or None,
        "suppress_tokens": theirs(s.never) or None,
        "begin_suppress_tokens": theirs(s.never_first) or None,
        "return_timestamps": False,
    }
    if s.languages:
        found["lang_to_id"] = {spellings[int(mark)]: order[int(mark)] for mark in s.languages.split()}
    heard = {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": s.bins, **_HEARD}
    heard["chunk_length"] = s.max_tokens * HOP // 16_000
    return {"generation_config.json": found, "preprocessor_config.json": heard}
