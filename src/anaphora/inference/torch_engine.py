"""Answers by a model of torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from anaphora.data.batches.padded import send
from anaphora.data.batches.pooled import padded_inputs
from anaphora.inference.session import outputs_of
from anaphora.kinds.kind import Arrays, Encoded, Raw
from anaphora.native.cuda import check_kernels
from anaphora.ops.invariant import batch_invariant

SMALL = {"cpu": 1_000_000, "cuda": 50_000_000}
"""Parameters of a model whose step is the unit, by the device."""


class TorchEngine:
    """A model that takes the arrays of a batch in their order; on a GPU its outputs do not depend on the batch where ``invariant``."""

    def __init__(self, model: Any, *, invariant: bool = True):
        self.model, self.invariant = model, invariant
        self.outputs: int = model.outputs

    @property
    def weight(self) -> int:
        """What one step costs."""
        return weight_of(self.model)

    @torch.no_grad()
    def run(self, arrays: Arrays) -> NDArray[Any]:
        """Return the outputs of a batch."""
        device = next(self.model.parameters()).device
        found = self.model(*(send(array, device) for array in arrays.values()))
        outputs: NDArray[Any] = found.double().cpu().numpy()
        return outputs

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Within, the model is used, not trained, whatever the batch."""
        self.model.eval()
        weight = next(self.model.parameters(), None) if isinstance(self.model, nn.Module) else None
        if weight is None:
            yield
            return
        with batch_invariant(weight.device, self.invariant):
            yield

    def check(self) -> None:
        """Raise an error where a kernel gave up."""
        check_kernels()


def score_inputs(model: Any, inputs: Sequence[Encoded]) -> Raw:
    """Return scores ``(n, outputs)`` of inputs in their order, as they are computed while a model is trained."""
    return outputs_of(TorchEngine(model), _collate, inputs)


def _collate(rows: Sequence[Encoded]) -> Arrays:
    table, lengths = padded_inputs(rows)
    return {"inputs": table, "lengths": lengths}


def weight_of(model: Any) -> int:
    """Return what one step of a model costs: as often as its parameters are those of a small one, at least 1."""
    parameters = getattr(model, "parameters", None)
    found = list(parameters()) if callable(parameters) else []
    small = SMALL.get(found[0].device.type, SMALL["cpu"]) if found else 1
    count: int = sum(one.numel() for one in found)
    return max(1, round(count / small))
