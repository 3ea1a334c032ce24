"""A look into an embedder while it reads one input, and at the vectors of many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.nn import functional as F

from anaphora.data.batches.padded import tensors_of
from anaphora.kinds.text import TextInputs
from anaphora.probe.attribution import with_each_left_out
from anaphora.probe.reading import probe_reading
from anaphora.probe.trace import Trace
from anaphora.probe.vectors import probe_vectors
from anaphora.tasks.looking import facts_of, places_of

if TYPE_CHECKING:
    from anaphora.tasks.embed.estimator import Embedder


def probe_embedder(m: Embedder, x: Any, target: Any, what: Sequence[str]) -> Trace:
    """States, gates, attention and, on request, gradients of one input; the loss looked back from is 1 − cos with the vector
    of ``target``, or the length of its own vector where there is none."""
    (encoded,), read = _read(m, x)
    wanted = None if target is None else m.model_(*_read(m, target)[1]).detach()

    def losses(vectors: Tensor) -> Tensor:
        return vectors.norm(dim=-1) if wanted is None else 1 - F.cosine_similarity(vectors, wanted)

    places = places_of(m.inputs_, encoded)
    begun = ["<s>"] if isinstance(m.inputs_, TextInputs) and m.inputs_.begin is not None else []
    more: Any = {
        "places": [*begun, *places],
        "facts": facts_of(m, x if isinstance(x, str) else f"{len(encoded)} steps"),
    }
    trace, vectors = probe_reading(m.model_, lambda: m.model_(*read), losses=losses, what=what, **more)
    embed = lambda rows: m.model_.eval()(*tensors_of(rows, vectors.device))  # noqa: E731
    return with_each_left_out(trace, embed, encoded, vectors, places) if "attribution" in what else trace


def _read(m: Embedder, x: Any) -> tuple[list[Any], tuple[Tensor, Tensor]]:
    encoded = m.kinds.encode([m.inputs_.from_text(x) if isinstance(x, str) else x])
    return encoded, tensors_of(encoded, next(m.model_.parameters()).device)


def probe_inputs(m: Embedder, inputs: Sequence[Any]) -> Trace:
    """The vectors of inputs, for the view embeddings: each named by its text, or its number."""
    names = [x[:40] if isinstance(x, str) else f"#{i}" for i, x in enumerate(inputs, start=1)]
    return probe_vectors(names, m.predict(inputs), facts=facts_of(m, ""))
