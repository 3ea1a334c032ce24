"""Models that see or hear in the form of `transformers`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from anaphora.data.numbering import Numbering
from anaphora.errors import AnaphoraError
from anaphora.foreign.architectures import ARCHITECTURES, SENSES
from anaphora.foreign.mapping import Architecture, UnmappedError, outward
from anaphora.foreign.pictures import FILE, preparation_json
from anaphora.foreign.sizes import sizes_of
from anaphora.tasks.exporting.hf import export_folder, write_json
from anaphora.training.weights import snapshot

PRESETS = ("vit",)


def write(m: Any, place: Path) -> None:
    """Write the folder; an `AnaphoraError` names the settings that the architecture does not have."""
    s = m.settings_.model_dump() | m.inputs_.sizes
    architecture, head = _chosen(m, s)
    words = Numbering.ours(4)
    tensors = {name: value.detach().cpu().float() for name, value in snapshot(m.model_).items()}
    found = outward(architecture.rules(head, s, body="encoder."), tensors, sizes_of(s, words))
    with export_folder(place, {"to": "hf", "task": m.command, "class": head}) as folder:
        save_file(
            {name: one.clone() for name, one in found.items()},
            str(folder / "model.safetensors"),
            metadata={"format": "pt"},
        )
        write_json(folder / "config.json", architecture.config(s, head) | _classes(m))
        write_json(folder / FILE, preparation_json(m.inputs_, architecture.model_type))


def _chosen(m: Any, s: dict[str, Any]) -> tuple[Architecture, str]:
    """The architecture with these settings, or an `AnaphoraError` with what is in the way of the nearest."""
    nearest: list[str] | None = None
    for kind in SENSES:
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
            if m.model_.binary:
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
        "dtype": "float32",
        "transformers_version": "5.0.0",
        "problem_type": kinds.get(m.targets_.kind, "regression"),
        "id2label": {str(i): name for i, name in enumerate(names)},
        "label2id": {name: i for i, name in enumerate(names)},
    }
