"""Look inside CTC: posteriors of every frame, and how much of the target's probability runs through each state."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Array, Trace

__all__ = ["probe_ctc"]

FLOOR = -1e30


def probe_ctc(
    log_probs: ArrayLike, target: Sequence[int], *, symbols: Sequence[str] | None = None, blank: int = 0
) -> Trace:
    """A trace of ``log_probs`` (frames, symbols), normalised or not, and a target without blanks:

        posteriors (time, symbol)     p(symbol | frame)
        lattice (time, state)         α_t(s)·β_t(s) / p(target): the share of all paths' probability that is in
                                      state s (blank, y₁, blank, y₂, …, blank) at frame t; each row sums to 1
        best_path (time,)             the state of the most probable single path at each frame

    ``facts["log_likelihood"]`` is log p(target), the sum over all paths.

    ``symbols``: their names; ``blank``: its number. Raises a `DataError` where no path spells the target.

    >>> from anaphora.probe.ctc import probe_ctc
    >>> log_probs = np.log([[0.1, 0.8, 0.1], [0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    >>> probe_ctc(log_probs, [1, 2]).array("lattice", "time", "state").sum(-1).round(6).tolist()
    [1.0, 1.0, 1.0]
    """
    log_p = np.asarray(log_probs, np.float64)
    if log_p.ndim != 2 or not len(log_p) or not np.isfinite(log_p).any():
        raise AnaphoraError("log_probs must be numbers of shape (frames, symbols), with at least one frame.")
    log_p = log_p - np.logaddexp.reduce(log_p, axis=1, keepdims=True)
    names = list(symbols) if symbols is not None else [str(i) for i in range(log_p.shape[1])]
    if len(names) != log_p.shape[1]:
        raise AnaphoraError(f"there are {log_p.shape[1]} symbols but {len(names)} names for them.")
    wrong = [y for y in target if not 0 <= y < log_p.shape[1] or y == blank]
    if wrong:
        raise AnaphoraError(f"the target holds {wrong[0]}, which is the blank or no symbol at all.")
    states = [blank, *(s for y in target for s in (y, blank))]
    emitted = log_p[:, states]
    forward = _forward(emitted, states, blank)
    backward = _forward(emitted[::-1, ::-1], states[::-1], blank)[::-1, ::-1]
    last = forward[-1, max(len(states) - 2, 0) :]
    total = float(np.logaddexp.reduce(last))
    if total < FLOOR / 2:
        needed = len(target) + sum(a == b for a, b in itertools.pairwise(target))
        raise AnaphoraError(
            f"{len(log_p)} frames are too few for this target, which needs at least {needed}; give more frames."
        )
    lattice = np.exp(forward + backward - emitted - total)  # the frame's own probability is in both
    arrays = {
        "posteriors": Array(("time", "symbol"), np.exp(log_p)),
        "lattice": Array(("time", "state"), lattice),
        "best_path": Array(("time",), _best(emitted, states, blank)),
    }
    tokens = {"symbol": names, "state": [names[s] for s in states]}
    facts: dict[str, Any] = {"log_likelihood": total, "blank": blank, "target": [names[y] for y in target]}
    return Trace(tokens, arrays, facts)


def _forward(emitted: NDArray[Any], states: Sequence[int], blank: int) -> NDArray[Any]:
    """log α (time, state): probability of all ways to be in a state after each frame."""
    frames, count = emitted.shape
    alpha = np.full((frames, count), FLOOR)
    alpha[0, : min(2, count)] = emitted[0, : min(2, count)]
    skip = _skips(states, blank)
    for t in range(1, frames):
        before = alpha[t - 1]
        ways = np.logaddexp(before, np.concatenate([[FLOOR], before[:-1]]))
        jumped = np.concatenate([[FLOOR, FLOOR], before[:-2]])[:count]
        ways = np.where(skip, np.logaddexp(ways, jumped), ways)
        alpha[t] = np.maximum(ways + emitted[t], FLOOR)
    return alpha


def _skips(states: Sequence[int], blank: int) -> NDArray[np.bool_]:
    """Whether a state may be entered past the blank before it: a symbol that differs from the one before."""
    return np.array([s >= 2 and y != blank and y != states[s - 2] for s, y in enumerate(states)])


def _best(emitted: NDArray[Any], states: Sequence[int], blank: int) -> NDArray[np.int64]:
    frames, count = emitted.shape
    score = np.full((frames, count), FLOOR)
    came = np.zeros((frames, count), np.int64)
    score[0, : min(2, count)] = emitted[0, : min(2, count)]
    skip = _skips(states, blank)
    for t in range(1, frames):
        before = score[t - 1]
        one = np.concatenate([[FLOOR], before[:-1]])
        two = np.where(skip, np.concatenate([[FLOOR, FLOOR], before[:-2]])[:count], FLOOR)
        ways = np.stack([before, one, two])
        came[t] = ways.argmax(0)
        score[t] = ways.max(0) + emitted[t]
    path = np.zeros(frames, np.int64)
    path[-1] = max(range(max(count - 2, 0), count), key=lambda s: score[-1, s])
    for t in range(frames - 1, 0, -1):
        path[t - 1] = path[t] - came[t, path[t]]
    return path
