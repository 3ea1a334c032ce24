"""Whether the rows of a batch are computed apart: then requests may share a batch, and their bytes stay the same."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from torch import nn


def rows_apart(estimator: Any) -> bool:
    """Whether an answer has the same bits alone and in any batch.

    On a GPU that is what the setting ``batch_invariant`` is for. Torch's functions on a CPU choose their kernels by the
    shape of a batch, which changes the last digits; there each request is a call of its own.
    """
    model = estimator.model_
    weight = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    if weight is None or weight.device.type != "cuda":
        return False
    return bool(estimator.settings_.batch_invariant) and find_spec("triton") is not None
