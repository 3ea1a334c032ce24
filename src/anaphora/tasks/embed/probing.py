"""A look into an embedder while it reads one input, and at the vectors of many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.data.labelled_batches import tensors_of
from anaphora.data.labelled_inputs import TextInputs
from anaphora.probe.attribution import stretches
from anaphora.probe.reading import probe_reading
from anaphora.probe.trace import Array, Trace
from anaphora.probe.vectors import probe_vectors
from anaphora.tasks.looking import facts_of, numbers

if TYPE_CHECKING:
    from anaphora.tasks.embed.estimator import Embedder

MOST_LEFT_OUT = 64
"""Places, or stretches of places, that are left out one by one."""


def probe_embedder(m: Embedder, x: Any, target: Any, what: Sequence[str]) -> Trace:
    """States, gates, attention and, on request, gradients of one input; the loss looked back from is 1 − cos with the vector
    of ``target``, or the length of its own vector where there is none."""
    (encoded,), read = _read(m, x)
    wanted = None if target is None else m.model_(*_read(m, target)[1]).detach()

    def losses(vectors: Tensor) -> Tensor:
        return vectors.norm(dim=-1) if wanted is None else 1 - F.cosine_similarity(vectors, wanted)

    places = [str(t + 1) for t in range(len(encoded))]
    if isinstance(m.inputs_, TextInputs):
        places = [*m.inputs_.tokenizer.pieces(encoded.tolist()), "</s>"]
    more: Any = {"places": places, "facts": facts_of(m, x if isinstance(x, str) else f"{len(encoded)} steps")}
    trace, vectors = probe_reading(m.model_, lambda: m.model_(*read), losses=losses, what=what, **more)
    if "attribution" in what and len(encoded) > 1:
        arrays, known = _left_out(m, encoded, vectors)
        tokens = {**trace.tokens, "source": places[: len(encoded)]}
        trace = replace(
            trace, tokens=tokens, arrays={**trace.arrays, **arrays}, facts={**trace.facts, **known}
        )
    return trace


@torch.no_grad()
def _left_out(m: Embedder, encoded: Any, own: Tensor) -> tuple[dict[str, Array], dict[str, Any]]:
    """How far the vector turns when a place is left out: 1 − cos; of long inputs stretches of places."""
    model, device = m.model_.eval(), next(m.model_.parameters()).device
    groups = stretches(len(encoded), MOST_LEFT_OUT)
    falls = np.zeros(len(encoded))
    for some in range(0, len(groups), 32):
        part = groups[some : some + 32]
        rows = [np.delete(encoded, group, 0) for group in part]
        moved = 1 - F.cosine_similarity(model(*tensors_of(rows, device)), own)
        for group, value in zip(part, moved.double().cpu().tolist(), strict=True):
            falls[group] = value / (group.stop - group.start)
    known = {"of": "the direction of the vector", "without": "left out", "value": 1.0}
    return {"occlusion": Array(("source",), falls)}, {"attribution": known}


def _read(m: Embedder, x: Any) -> tuple[list[Any], tuple[Tensor, Tensor]]:
    typed = isinstance(x, str) and not isinstance(m.inputs_, TextInputs)
    encoded = m._read([numbers(x) if typed else x])
    return encoded, tensors_of(encoded, next(m.model_.parameters()).device)


def probe_inputs(m: Embedder, inputs: Sequence[Any]) -> Trace:
    """The vectors of inputs, for the view embeddings: each named by its text, or its number."""
    names = [x[:40] if isinstance(x, str) else f"#{i}" for i, x in enumerate(inputs, start=1)]
    return probe_vectors(names, m.predict(inputs), facts=facts_of(m, ""))
