"""Outputs on the CPU without compiled code that do not depend on the batch.

torch chooses the kernel of a product by the number of rows, and computes what does not fill a vector register by other
code. So products add up in one order here, and rows are taken 32 at a time: then every pointwise operation fills whole
registers, whatever the width.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

ROWS = 32
FLOATS = (torch.float32, torch.float64)


def wanted(x: Tensor) -> bool:
    """Whether x leads to outputs, not to gradients, and on the CPU."""
    return x.device.type == "cpu" and x.dtype in FLOATS and not torch.is_grad_enabled()


def product(a: Tensor, b: Tensor, real: int) -> Tensor:
    """a ``(M, K)`` · b ``(K, N)``, every number summed up from the first k to the last, whatever M is.

    Rows come in groups of 32; of each group the first ``real`` are computed, the others are zero.
    """
    found = a.new_zeros(a.shape[0], b.shape[1])
    _compiled()(a.detach().contiguous().numpy(), b.detach().contiguous().numpy(), found.numpy(), real)
    return found


@cache
def _compiled() -> Any:
    from anaphora.native.jit import njit

    def add_up(a: Any, b: Any, found: Any, real: int) -> None:
        whole = a.shape[1] // 4 * 4
        for m in range(a.shape[0]):
            if m % ROWS >= real:
                continue
            for k in range(0, whole, 4):  # four at a time, still in order: the sums stay in registers
                f0, f1, f2, f3 = a[m, k], a[m, k + 1], a[m, k + 2], a[m, k + 3]
                for n in range(b.shape[1]):
                    total = found[m, n] + f0 * b[k, n]
                    total += f1 * b[k + 1, n]
                    total += f2 * b[k + 2, n]
                    found[m, n] = total + f3 * b[k + 3, n]
            for k in range(whole, a.shape[1]):
                factor = a[m, k]
                for n in range(b.shape[1]):
                    found[m, n] += factor * b[k, n]

    return njit(cache=True, nogil=True)(add_up)
