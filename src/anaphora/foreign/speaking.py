"""The prompt of Whisper, its languages and the symbols that it never writes, from ``generation_config.json``, and
back; and how it hears."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anaphora.data.audio.mel import HOP
from anaphora.data.numbering import Numbering
from anaphora.data.tokenizers_spoken import SpokenTokenizer
from anaphora.errors import RunError
from anaphora.foreign.reading import read_json
from anaphora.foreign.words import read_engine

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
