"""Models that see or hear in the form of `transformers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anaphora.data.tokenizers.own import LetterTokenizer
from anaphora.data.tokenizers.vocabularies import Numbering
from anaphora.errors import AnaphoraError
from anaphora.foreign.architectures import ARCHITECTURES, SENSES
from anaphora.foreign.hows import sizes_of
from anaphora.foreign.mapping import Architecture, UnmappedError, outward
from anaphora.foreign.pictures import FILE, preparation_json
from anaphora.foreign.recognisers import hearing_json, letter_files, speaking_files
from anaphora.tasks.exporting.export import export_folder
from anaphora.tasks.exporting.hf import (
    numbering_of,
    write_json,
    write_tensors,
    write_tokenizer,
)
from anaphora.training.weights import snapshot

PRESETS = ("vit", "wav2vec2", "whisper")
Files = dict[str, dict[str, Any]]


def write(m: Any, place: Path) -> None:
    """Write the folder; an `AnaphoraError` names the settings that the architecture does not have."""
    s = m.settings_.model_dump()
    words = Numbering.ours(4)
    if m.command == "classify":
        s |= m.inputs_.sizes
    else:
        words = numbering_of(m.tokenizer_) if s["model"] == "whisper" else _letters(m).numbering
        s |= {"symbols": words.size, "tie": True}
    architecture, head = _chosen(m, s)
    body = "" if s["model"] == "whisper" else "encoder."
    tensors = {name: value.detach().cpu().float() for name, value in snapshot(m.model_).items()}
    found = outward(architecture.rules(head, s, body=body), tensors, sizes_of(s, words))
    files = {"classify": _seeing, "transcribe": _hearing}[m.command](m, s, architecture, words)
    files["config.json"] |= architecture.config(s, head)
    files["config.json"] |= {"dtype": "float32", "transformers_version": "5.0.0"}
    with export_folder(place, {"to": "hf", "task": m.command, "class": head}) as (folder, _):
        write_tensors(folder, found)
        for file, document in files.items():
            write_json(folder / file, document)
        if s["model"] == "whisper":
            write_tokenizer(folder, m.tokenizer_, longest=s["written_positions"])


def _seeing(m: Any, s: dict[str, Any], architecture: Architecture, words: Numbering) -> Files:
    return {"config.json": _classes(m), FILE: preparation_json(m.inputs_, architecture.model_type)}


def _hearing(m: Any, s: dict[str, Any], architecture: Architecture, words: Numbering) -> Files:
    if s["model"] == "whisper":
        files = speaking_files(m, words)
        kept = ("decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id")
        given = {key: files["generation_config.json"][key] for key in kept}
        return {"config.json": given | {"begin_suppress_tokens": None}, **files}
    special = zip(("pad", "unk", "bos", "eos"), words.special, strict=True)
    ids = {f"{name}_token_id": i for name, i in special}
    return {"config.json": ids, FILE: hearing_json(s), **letter_files(_letters(m))}


def _letters(m: Any) -> LetterTokenizer:
    """The letters of a recogniser, those of one that was trained here in our order."""
    own = m.tokenizer_
    if isinstance(own, LetterTokenizer):
        return own
    if own.kind != "char":
        raise AnaphoraError(
            f"wav2vec2 of `transformers` writes letters, not tokens = {own.kind!r}: train with tokens = char, or export to onnx."
        )
    spelled = {"|" if one == " " else one: i for i, one in enumerate(own.spellings)}
    return LetterTokenizer(spelled, Numbering.ours(own.size), "|")


def _chosen(m: Any, s: dict[str, Any]) -> tuple[Architecture, str]:
    """The architecture with these settings, or an `AnaphoraError` with what is in the way of the nearest."""
    nearest: list[str] | None = None
    hint = getattr(m, "_foreign", "")
    for kind in sorted(SENSES, key=lambda one: one != hint):
        architecture = ARCHITECTURES[kind]
        for name, head in architecture.heads.items():
            if head.task != m.command or head.settings["model"] != m.settings_.model:
                continue
            problems = [
                f"{key} = {s[key]!r} (it must be {value!r})"
                for key, value in head.settings.items()
                if s[key] != value
            ]
            try:
                architecture.config(s, name)
            except UnmappedError as error:
                problems += str(error).split("; ")
            if getattr(m.model_, "binary", False):
                problems.append("one score for two classes (train with two_scores = true)")
            if not problems:
                return architecture, name
            if nearest is None or len(problems) < len(nearest):
                nearest = problems
    raise AnaphoraError(
        f"no architecture of `transformers` has {'; '.join(nearest or [])}: train with these settings, or export to onnx."
    )


def _classes(m: Any) -> dict[str, Any]:
    kinds = {"class": "single_label_classification", "classes": "multi_label_classification"}
    names = list(m.targets_.names) or ["LABEL_0"]
    return {
        "problem_type": kinds.get(m.targets_.kind, "regression"),
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }
