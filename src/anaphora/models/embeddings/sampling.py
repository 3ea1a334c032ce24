"""Drawing words by their frequency in two steps: the alias method (Walker 1977)."""

from __future__ import annotations

from typing import Any

import numpy as np

from anaphora.native.jit import njit

Array = np.ndarray[Any, Any]

WHOLE = 2**32


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _pair_up(share: Array, other: Array) -> None:
    """Slots below 1 are filled up from those above; each slot ends with at most two words."""
    size = share.shape[0]
    small, large = np.empty(size, np.int64), np.empty(size, np.int64)
    s = l = 0
    for i in range(size):
        other[i] = i
        if share[i] < 1.0:
            small[s] = i
            s += 1
        else:
            large[l] = i
            l += 1
    while s and l:
        s -= 1
        poor, rich = small[s], large[l - 1]
        other[poor] = rich
        share[rich] -= 1.0 - share[poor]
        if share[rich] < 1.0:
            l -= 1
            small[s] = rich
            s += 1


def alias_table(weights: Array) -> tuple[Array, Array]:
    """``share (V,)`` and ``other (V,)`` for ``weights (V,)``, none negative: take a slot at random, and its own word
    if a random number below 2³² is below its share, else the other one. Each word then comes with its weight."""
    share = np.asarray(weights, np.float64) * (len(weights) / float(np.sum(weights)))
    other = np.empty(len(share), np.int32)
    _pair_up(share, other)
    share[other == np.arange(len(share))] = 1.0  # only rounding left those without a partner
    return np.minimum(np.rint(share * WHOLE), WHOLE - 1).astype(np.uint32), other
