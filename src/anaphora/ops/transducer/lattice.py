"""The sums over all ways through the lattice of a transducer (Graves 2012), in the log domain, on a CPU.

Node (t, u) means: t frames are done and u symbols are written. From it the blank leads to (t + 1, u) and the next symbol to (t, u + 1):

    α(0, 0) = 0            α(t, u) = log(e^{α(t−1, u) + ∅(t−1, u)} + e^{α(t, u−1) + y(t, u−1)})
    β(T−1, U) = ∅(T−1, U)  β(t, u) = log(e^{β(t+1, u) + ∅(t, u)}   + e^{β(t, u+1) + y(t, u)})

with ∅(t, u) and y(t, u) the log-probabilities of the blank and of symbol u + 1 of the target; log p(y | x) = β(0, 0).
"""

from __future__ import annotations

import numpy as np

from anaphora.native.jit import njit
from anaphora.ops.ctc.log_domain import log_add


@njit(cache=True, nogil=True)
def transducer_rows(blank, label, frames, sizes, alpha, beta):  # type: ignore[no-untyped-def]
    """α and β (B, T, U + 1) of ∅ and y of the same shape; row b has ``frames[b]`` frames and ``sizes[b]`` symbols.

    Nodes outside of a row become −∞.
    """
    alpha[:] = -np.inf
    beta[:] = -np.inf
    for b in range(len(blank)):
        T, U = frames[b], sizes[b]
        if T == 0:
            continue
        for t in range(T):
            for u in range(U + 1):
                if t == 0 and u == 0:
                    alpha[b, 0, 0] = 0.0
                    continue
                reached = -np.inf
                if t > 0:
                    reached = alpha[b, t - 1, u] + blank[b, t - 1, u]
                if u > 0:
                    reached = log_add(reached, alpha[b, t, u - 1] + label[b, t, u - 1])
                alpha[b, t, u] = reached
        for t in range(T - 1, -1, -1):
            for u in range(U, -1, -1):
                if t == T - 1 and u == U:
                    beta[b, t, u] = blank[b, t, u]
                    continue
                left = -np.inf
                if t + 1 < T:
                    left = beta[b, t + 1, u] + blank[b, t, u]
                if u < U:
                    left = log_add(left, beta[b, t, u + 1] + label[b, t, u])
                beta[b, t, u] = left
