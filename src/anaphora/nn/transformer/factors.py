"""The factors of a layer's products while it is trained on a GPU: of 16 bits, or of eight."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from anaphora.kernels.gpu.eight import Eight, product
from anaphora.kernels.gpu.products import carried_down, linear
from anaphora.kernels.gpu.undivided import undivided


class Factor(NamedTuple):
    """Rows ``(n, width)`` of 16 bits, and in eight bits where products are computed in those."""

    rows: Tensor
    eight: Eight | None = None


class Matrix(NamedTuple):
    """A weight ``(m, k)`` in 16 bits; or in eight, as it stands and transposed."""

    narrow: Tensor | None = None
    eight: Eight | None = None
    across: Eight | None = None

    def of(self, x: Factor, bias: Tensor | None = None) -> Tensor:
        """W x + b of each row: ``(n, k)`` -> ``(n, m)``."""
        if x.eight is None or self.eight is None:
            assert self.narrow is not None
            return linear(x.rows, self.narrow, bias)
        return product(x.eight, self.eight, x.rows.dtype, bias)

    def back(self, d: Factor) -> Tensor:
        """Wᵀ d of each row: ``(n, m)`` -> ``(n, k)``."""
        if d.eight is None or self.across is None:
            assert self.narrow is not None
            return carried_down(d.rows, self.narrow)
        return product(d.eight, self.across, d.rows.dtype)


def wide_product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """aᵀ b in ``dtype``, which is at least as wide as theirs: a GPU does not round it in between."""
    if a.is_cuda and dtype == torch.float32:
        with undivided(len(a), a.shape[1], b.shape[1], a.device):
            return torch.mm(a.t(), b, out_dtype=dtype)
    return (a.t() @ b).to(dtype)
