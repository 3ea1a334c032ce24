"""The recursions of the linear-Gaussian state-space model, in float64.

n states, m outputs, T steps, S series. The covariances depend on which entries are missing but not on the values,
so they are one pass (``*_covariances``), shared by all series with the same pattern, and the means another
(``*_means``). A matrix is ``(T or longer, rows, columns)`` where it changes with time and ``(1, rows, columns)``
where it does not; ``A[t]`` and ``Q[t]`` take step t−1 to step t.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from anaphora.native.jit import njit

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

# A pivot this small against its diagonal entry is rounding: the direction has no variance of its own.
TINY = 1e-14


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _times(X: Floats, Y: Floats, out: Floats) -> None:
    """out = X Y."""
    for i in range(X.shape[0]):
        for j in range(Y.shape[1]):
            total = 0.0
            for k in range(X.shape[1]):
                total += X[i, k] * Y[k, j]
            out[i, j] = total


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _times_transposed(X: Floats, Y: Floats, out: Floats) -> None:
    """out = X Yᵀ."""
    for i in range(X.shape[0]):
        for j in range(Y.shape[0]):
            total = 0.0
            for k in range(X.shape[1]):
                total += X[i, k] * Y[j, k]
            out[i, j] = total


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_sandwich(X: Floats, M: Floats, out: Floats, half: Floats) -> None:
    """out += X M Xᵀ, exactly symmetric; ``half`` is room for X M."""
    _times(X, M, half)
    for i in range(X.shape[0]):
        for j in range(i + 1):
            total = 0.0
            for k in range(M.shape[0]):
                total += half[i, k] * X[j, k]
            out[i, j] += total
            if i != j:
                out[j, i] = out[i, j]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _cholesky(M: Floats, L: Floats) -> int:
    """M = L Lᵀ; a direction without variance gets a column of zeros. Returns how many those are."""
    empty = 0
    for j in range(M.shape[0]):
        pivot = M[j, j]
        for k in range(j):
            pivot -= L[j, k] * L[j, k]
        if not pivot > TINY * M[j, j]:
            empty += 1
            for i in range(j, M.shape[0]):
                L[i, j] = 0.0
            continue
        root = np.sqrt(pivot)
        L[j, j] = root
        for i in range(j + 1, M.shape[0]):
            total = M[i, j]
            for k in range(j):
                total -= L[i, k] * L[j, k]
            L[i, j] = total / root
    return empty


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _invert_lower(L: Floats, W: Floats) -> None:
    """W = L⁻¹ for a lower triangle with a positive diagonal."""
    m = L.shape[0]
    for j in range(m):
        for i in range(j):
            W[i, j] = 0.0
        W[j, j] = 1.0 / L[j, j]
        for i in range(j + 1, m):
            total = 0.0
            for k in range(j, i):
                total -= L[i, k] * W[k, j]
            W[i, j] = total / L[i, i]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _same(X: Floats, Y: Floats) -> bool:
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            if X[i, j] != Y[i, j]:
                return False
    return True


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _same_flags(x: Flags, y: Flags) -> bool:
    for i in range(x.shape[0]):  # noqa: SIM110  (numba compiles the loop better)
        if x[i] != y[i]:
            return False
    return True


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def forward_covariances(
    A: Floats, C: Floats, Q: Floats, R: Floats, initial: Floats, real: Flags
) -> tuple[Floats, Floats, Floats, Floats, Floats, int]:
    """Filter the covariances for one pattern ``real`` (T, m) of present entries.

    Returns predicted (T, n, n), filtered (T, n, n), gain K (T, n, m), whitening W (T, m, m) with S⁻¹ = Wᵀ W, the
    log-determinants of S (T,), and the first step whose S is singular, or −1. S = C P Cᵀ + R is cut to the present
    entries, and a missing entry has a zero column in K. The update is Joseph's,
    P ← (I − K C) P (I − K C)ᵀ + K R Kᵀ, which stays positive semidefinite under rounding.
    """
    T, m = real.shape
    n = initial.shape[0]
    predicted = np.empty((T, n, n))
    filtered = np.empty((T, n, n))
    gain = np.empty((T, n, m))
    whitening = np.empty((T, m, m))
    log_determinant = np.empty(T)
    seen = np.empty((m, n))
    shared = np.empty((n, m))
    S = np.empty((m, m))
    L = np.zeros((m, m))
    solved = np.empty((n, m))
    rest = np.empty((n, n))
    half = np.empty((n, n))
    half_gain = np.empty((n, m))
    constant = A.shape[0] == 1 and C.shape[0] == 1 and Q.shape[0] == 1 and R.shape[0] == 1
    predicted[0] = initial
    for t in range(T):
        Ct, Rt = C[t if C.shape[0] > 1 else 0], R[t if R.shape[0] > 1 else 0]
        P, K, W = predicted[t], gain[t], whitening[t]
        if constant and t > 0 and _same_flags(real[t], real[t - 1]) and _same(P, predicted[t - 1]):
            # The same numbers in give the same numbers out: the recursion has reached its fixed point.
            filtered[t], gain[t], whitening[t] = filtered[t - 1], gain[t - 1], whitening[t - 1]
            log_determinant[t] = log_determinant[t - 1]
            if t + 1 < T:
                predicted[t + 1] = P
            continue
        for i in range(m):
            for j in range(n):
                seen[i, j] = Ct[i, j] if real[t, i] else 0.0
        _times_transposed(P, seen, shared)
        _times(seen, shared, S)
        for i in range(m):
            for j in range(m):
                if real[t, i] and real[t, j]:
                    S[i, j] += Rt[i, j]
                else:
                    S[i, j] = 1.0 if i == j else 0.0
        if _cholesky(S, L) > 0:
            return predicted, filtered, gain, whitening, log_determinant, t
        _invert_lower(L, W)
        total = 0.0
        for i in range(m):
            total += 2.0 * np.log(L[i, i])
        log_determinant[t] = total
        _times_transposed(shared, W, solved)
        _times(solved, W, K)
        _times(K, seen, rest)
        for i in range(n):
            for j in range(n):
                rest[i, j] = (1.0 if i == j else 0.0) - rest[i, j]
        filtered[t] = 0.0
        _add_sandwich(rest, P, filtered[t], half)
        _add_sandwich(K, Rt, filtered[t], half_gain)
        if t + 1 < T:
            predicted[t + 1] = Q[t + 1 if Q.shape[0] > 1 else 0]
            _add_sandwich(A[t + 1 if A.shape[0] > 1 else 0], filtered[t], predicted[t + 1], half)
    return predicted, filtered, gain, whitening, log_determinant, -1


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def backward_covariances(A: Floats, Q: Floats, predicted: Floats, filtered: Floats) -> tuple[Floats, Floats]:
    """Smooth the covariances (Rauch, Tung, Striebel): smoothed V (T, n, n) and gain J (T, n, n), J[T−1] = 0.

    J = P Aᵀ P'⁻¹ with P filtered at t and P' predicted for t+1, solved by a Cholesky factor that passes over
    directions without variance; V = (I − J A) P (I − J A)ᵀ + J (V' + Q) Jᵀ is a sum of squares, like Joseph's form.
    """
    T, n = filtered.shape[0], filtered.shape[1]
    smoothed = np.empty((T, n, n))
    gain = np.empty((T, n, n))
    L = np.zeros((n, n))
    right = np.empty((n, n))
    rest = np.empty((n, n))
    half = np.empty((n, n))
    spread = np.empty((n, n))
    constant = A.shape[0] == 1 and Q.shape[0] == 1
    smoothed[T - 1] = filtered[T - 1]
    gain[T - 1] = 0.0
    for t in range(T - 2, -1, -1):
        J = gain[t]
        At, Qt = A[t + 1 if A.shape[0] > 1 else 0], Q[t + 1 if Q.shape[0] > 1 else 0]
        settled = constant and t < T - 2 and _same(filtered[t], filtered[t + 1])
        settled = settled and _same(predicted[t + 1], predicted[t + 2])
        if settled:
            gain[t] = gain[t + 1]
            if _same(smoothed[t + 1], smoothed[t + 2]):
                smoothed[t] = smoothed[t + 1]
                continue
        else:
            _cholesky(predicted[t + 1], L)
            _times_transposed(filtered[t], At, right)
            for i in range(n):  # J P' = P Aᵀ, row by row: first L z = row, then Lᵀ j = z
                for j in range(n):
                    total = right[i, j]
                    for k in range(j):
                        total -= L[j, k] * J[i, k]
                    J[i, j] = total / L[j, j] if L[j, j] > 0.0 else 0.0
                for j in range(n - 1, -1, -1):
                    total = J[i, j]
                    for k in range(j + 1, n):
                        total -= L[k, j] * J[i, k]
                    J[i, j] = total / L[j, j] if L[j, j] > 0.0 else 0.0
        _times(J, At, rest)
        for i in range(n):
            for j in range(n):
                rest[i, j] = (1.0 if i == j else 0.0) - rest[i, j]
                spread[i, j] = smoothed[t + 1, i, j] + Qt[i, j]
        smoothed[t] = 0.0
        _add_sandwich(rest, filtered[t], smoothed[t], half)
        _add_sandwich(J, spread, smoothed[t], half)
    return smoothed, gain


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_product(M: Floats, x: Floats, out: Floats) -> None:
    """out += M x for all series at once: x (columns, S), out (rows, S)."""
    for i in range(M.shape[0]):
        for k in range(M.shape[1]):
            weight = M[i, k]
            if weight != 0.0:
                row, term = out[i], x[k]
                for s in range(row.shape[0]):
                    row[s] += weight * term[s]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _spread(x: Floats, out: Floats) -> None:
    """out = x for all series: x (rows, S) or (rows, 1), out (rows, S)."""
    for i in range(out.shape[0]):
        if x.shape[1] == 1:
            for s in range(out.shape[1]):
                out[i, s] = x[i, 0]
        else:
            for s in range(out.shape[1]):
                out[i, s] = x[i, s]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def forward_means(
    A: Floats,
    C: Floats,
    b: Floats,
    d: Floats,
    initial: Floats,
    y: Floats,
    real: Flags,
    gain: Floats,
    whitening: Floats,
    predicted: Floats,
    filtered: Floats,
) -> Floats:
    """Filter the means of all series of one pattern, the series innermost so that they fill vector registers.

    y (T, m, S); b (T or 1, n, S or 1) and d (T or 1, m, S or 1) are what the inputs add to state and output.
    Writes predicted (T, n, S) and filtered (T, n, S); returns Σₜ |W v|² (S,) with v = y − C h − d.
    """
    T, m, series = y.shape
    n = initial.shape[0]
    squares = np.zeros(series)
    v = np.empty((m, series))
    white = np.empty((m, series))
    C = -C
    _spread(initial.reshape((n, 1)), predicted[0])
    for t in range(T):
        _spread(d[t if d.shape[0] > 1 else 0], white)
        for i in range(m):
            for s in range(series):
                v[i, s] = y[t, i, s] - white[i, s]
                white[i, s] = 0.0
        _add_product(C[t if C.shape[0] > 1 else 0], predicted[t], v)
        for i in range(m):
            if not real[t, i]:
                for s in range(series):
                    v[i, s] = 0.0
        _add_product(whitening[t], v, white)
        for i in range(m):
            for s in range(series):
                squares[s] += white[i, s] * white[i, s]
        _spread(predicted[t], filtered[t])
        _add_product(gain[t], v, filtered[t])
        if t + 1 < T:
            _spread(b[t + 1 if b.shape[0] > 1 else 0], predicted[t + 1])
            _add_product(A[t + 1 if A.shape[0] > 1 else 0], filtered[t], predicted[t + 1])
    return squares


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def backward_means(predicted: Floats, filtered: Floats, gain: Floats) -> Floats:
    """Smooth the means, h ← h + J (h'ₛ − h'), all series of one pattern: (T, n, S)."""
    T, n, series = filtered.shape
    smoothed = filtered.copy()
    ahead = np.empty((n, series))
    for t in range(T - 2, -1, -1):
        for i in range(n):
            for s in range(series):
                ahead[i, s] = smoothed[t + 1, i, s] - predicted[t + 1, i, s]
        _add_product(gain[t], ahead, smoothed[t])
    return smoothed
