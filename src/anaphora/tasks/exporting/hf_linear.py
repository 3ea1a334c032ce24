"""Language models with a linear recurrence, Mamba and RWKV-4, in the form of `transformers`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from anaphora.errors import AnaphoraError
from anaphora.foreign.architectures import ARCHITECTURES
from anaphora.foreign.mapping import Architecture, outward
from anaphora.foreign.sizes import sizes_of
from anaphora.tasks.exporting import hf
from anaphora.training.weights import snapshot

_NO_LIMIT = 10**9  # texts of any length are read


def has_form(m: Any) -> bool:
    """Whether an architecture there has blocks of this model's kind."""
    return m.command == "language" and _architecture(m) is not None


def write(m: Any, place: Path) -> None:
    """Write the folder; an `AnaphoraError` says what has no counterpart there."""
    found = _architecture(m)
    assert found is not None
    architecture, head = found
    s = m.settings_.model_dump() | {"heads": 1, "feedforward": 0}
    if s["embedding"] != s["hidden"]:
        raise AnaphoraError(
            f"{architecture.model_type} of `transformers` has no embedding = {s['embedding']} beside hidden = {s['hidden']}: train "
            "with both alike, or export to onnx."
        )
    tensors = {name: value.detach().cpu().float() for name, value in snapshot(m.model_).items()}
    vectors = tensors["body.embedding.weight"]
    if s["embedding_scale"]:  # multiplied in; an output layer that shares the vectors gets them as they were
        tensors["body.embedding.weight"] = (vectors.double() * math.sqrt(s["hidden"])).float()
        if s["tie"]:
            tensors["output.weight"] = vectors.clone()
        s |= {"embedding_scale": False, "tie": False}
    words = hf.numbering_of(m.tokenizer_)
    made = outward(architecture.rules(head, s, body="body."), tensors, sizes_of(s, words))
    config = architecture.config(s | {"symbols": words.size}, head) | hf.more_of(m, words)
    with hf.export_folder(place, {"to": "hf", "task": m.command, "class": head}) as folder:
        save_file(
            {name: one.clone() for name, one in made.items()},
            str(folder / "model.safetensors"),
            metadata={"format": "pt"},
        )
        hf.write_json(folder / "config.json", config)
        hf.write_tokenizer(folder, m.tokenizer_, before=m.begin, longest=_NO_LIMIT, side="left")
        hf.write_json(folder / "generation_config.json", hf.generation_of(m, words))


def _architecture(m: Any) -> tuple[Architecture, str] | None:
    cell = getattr(m.settings_, "cell", None)
    return next(
        (
            (one, name)
            for one in ARCHITECTURES.values()
            for name, head in one.heads.items()
            if cell is not None and head.task == "language" and head.settings.get("cell") == cell
        ),
        None,
    )
