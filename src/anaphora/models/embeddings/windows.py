"""word2vec over a block of text: every word is predicted from those around it.

Around the word w at one place lie m context words (as far as a reach drawn from 1 … window, within the sentence).
Their input vectors are u_1 … u_m, in CBOW their mean alone; the outputs v_1 … v_n have labels y_j. With negative
sampling they are w (label 1) and words drawn by frequency (label 0), which the m pairs share; with hierarchical
softmax they are the inner nodes on the path to w (label 1 where the path goes left).

    f_j = u · v_j        loss = −Σ_j log σ(f_j) if y_j = 1, log σ(−f_j) if y_j = 0
    g_j = y_j − σ(f_j)   u += lr Σ_j g_j v_j        v_j += lr g_j u

The m inputs come one after the other, each with what the one before has changed.
σ and log(1 + eᶠ) are read from a table with straight lines between its points, right to 2·10⁻⁷.

Vectors are rows of float32 matrices whose width is a multiple of 16; the columns beyond the wanted width are zero and
stay so. Ids count from 0; −1 ends a sentence, and what is below it stands for a word that is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch

from anaphora.native.c import LANES as C_LANES
from anaphora.native.c import CLibrary, beside
from anaphora.native.jit import njit

Array = np.ndarray[Any, Any]

LANES = 16
"""Widths are multiples of this many numbers."""
_END = np.float32(15.99)
_STEP, _NEXT, _HALF = np.uint64(6364136223846793005), np.uint64(1442695040888963407), np.uint64(32)


@cache
def curve() -> Array:
    """``(8194, 2)``: σ(f) and log(1 + eᶠ) for f = −16 … 16 in steps of 1/256."""
    f = np.arange(-16 * 256, 16 * 256 + 2) / 256
    return np.stack((1 / (1 + np.exp(-f)), np.logaddexp(0.0, f)), axis=1).astype(np.float32)


def padded(width: int) -> int:
    """``width`` rounded up to 16."""
    return -(-width // LANES) * LANES


def aligned(rows: int, width: int) -> Array:
    """Zeros ``(rows, width rounded up to 16)`` float32 that begin at a cache line."""
    wide = padded(width)
    raw = np.zeros(rows * wide + LANES, np.float32)
    begin = (-raw.ctypes.data // 4) % LANES
    return raw[begin : begin + rows * wide].reshape(rows, wide)


@dataclass(frozen=True)
class Outputs:
    """What a word is predicted against: ``negative`` draws from the alias table, or, where that is 0, its path."""

    negative: int
    share: Array
    other: Array
    path_start: Array
    """``(V + 1,)`` int64: the path of w is ``path_start[w]`` to ``path_start[w + 1]``."""
    path_node: Array
    path_label: Array

    @cached_property
    def rows(self) -> int:
        """Rows of outputs that are referred to, looked up once; ValueError where the parts do not go together."""
        start, nodes, labels = self.path_start, self.path_node, self.path_label
        types = (np.uint32, np.int32, np.int64, np.int32, np.float32)
        parts = (self.share, self.other, start, nodes, labels)
        for array, dtype in zip(parts, types, strict=True):
            if array.dtype != dtype or array.ndim != 1 or not array.flags.c_contiguous:
                raise ValueError(f"word2vec: outputs need a vector of {np.dtype(dtype)}, got {array.dtype} {array.shape}.")  # fmt: skip
        used = self.other if self.negative else nodes
        follow = len(start) == 0 or (start[0] == 0 and (np.diff(start) >= 0).all())
        last = int(start[-1]) if len(start) else 0
        if len(self.share) != len(self.other) or last > min(len(nodes), len(labels)) or not follow:
            raise ValueError("word2vec: the parts of the outputs do not have lengths that go together.")
        if self.negative < 0 or used.min(initial=0) < 0 or (self.negative and not len(self.share)):
            raise ValueError("word2vec: outputs are numbered from 0, and there must be some to draw from.")
        return int(max(used.max(initial=-1) + 1, len(self.share) if self.negative else 0))

    @cached_property
    def longest(self) -> int:
        """Nodes on the longest path."""
        return int(np.diff(self.path_start).max(initial=1))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _advance(state: Any) -> Any:
    return state * _STEP + _NEXT


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})  # type: ignore[untyped-decorator]
def _update(
    x: Array, outputs: Array, rows: Array, labels: Array, n: int, points: Array, lr: Any, gained: Array
) -> float:
    """One input ``x (width,)``: changes ``outputs[rows]``, writes what the input gains; returns the loss."""
    width = x.shape[0]
    loss = 0.0
    g = np.empty(n, np.float32)
    for j in range(n):
        v = outputs[rows[j]]
        f = np.float32(0.0)
        for d in range(width):
            f += x[d] * v[d]
        held = f if f < _END else _END  # so that not even NaN leaves the table
        held = held if held > -_END else -_END
        place = (held + np.float32(16.0)) * np.float32(256.0)
        i = np.int64(place)
        part = place - np.float32(i)
        p = points[i, 0] + (points[i + 1, 0] - points[i, 0]) * part
        bent = points[i, 1] + (points[i + 1, 1] - points[i, 1]) * part
        loss += bent + max(f - held, np.float32(0.0)) - labels[j] * f
        g[j] = (labels[j] - p) * lr
    gained[:] = 0.0
    for j in range(n):
        v, slope = outputs[rows[j]], g[j]
        for d in range(width):
            gained[d] += slope * v[d]
    for j in range(n):
        v, slope = outputs[rows[j]], g[j]
        for d in range(width):
            v[d] += slope * x[d]
    return loss


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _thinned(ids: Array, keep: Array, state: Array) -> Array:
    """The text without words that are unknown or lose the draw."""
    kept = np.empty(ids.shape[0], np.int32)
    size = 0
    for t in range(ids.shape[0]):
        if ids[t] >= 0:
            state[0] = _advance(state[0])
            if (state[0] >> _HALF) >= keep[ids[t]]:
                continue
        elif ids[t] != -1:
            continue
        kept[size] = ids[t]
        size += 1
    return kept[:size]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _neighbours(text: Array, t: int, reach: int, around: Array) -> int:
    """The words at most ``reach`` away from place ``t``, up to the ends of its sentence; returns how many."""
    m = 0
    for step in (-1, 1):
        s = t + step
        while 0 <= s < text.shape[0] and abs(s - t) <= reach and text[s] >= 0:
            around[m] = text[s]
            m, s = m + 1, s + step
    return m


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _draw(state: Array, w: int, negative: int, share: Array, other: Array, rows: Array) -> int:
    """The word itself and up to ``negative`` others, into ``rows``; returns how many."""
    rows[0], n = w, 1
    for _ in range(negative):
        state[0] = _advance(state[0])
        place = (state[0] >> _HALF) * np.uint64(share.shape[0])
        slot = np.int64(place >> _HALF)
        x = slot if np.uint32(place) < share[slot] else np.int64(other[slot])
        if x != w:
            rows[n] = x
            n += 1
    return n


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def train_plain(
    ids: Array, keep: Array, window: int, mean: bool, inputs: Array, outputs: Array, negative: int, share: Array,
    other: Array, path_start: Array, path_node: Array, path_label: Array, longest: int, rates: Array, state: Array,
    points: Array, out: Array,
) -> int:  # fmt: skip
    """What windows.c does, in plain loops: for machines without a compiler, and to check it against.

    ids ``(length,)`` int32; keep ``(V,)`` uint64, of 2³² times a word stays; rates: the learning rate at both ends;
    state ``(1,)`` uint64 of the random numbers; out ``(1,)`` gets the loss. Returns the number of predictions.
    """
    text = _thinned(ids, keep, state)
    size = negative + 1 if negative else longest
    rows, labels = np.empty(size, np.int64), np.zeros(size, np.float32)
    labels[0] = 1.0
    around = np.empty(2 * window, np.int64)
    middle, gained = np.empty(inputs.shape[1], np.float32), np.empty(inputs.shape[1], np.float32)
    loss, predictions = 0.0, 0
    for t in range(text.shape[0]):
        w = text[t]
        if w < 0:
            continue
        state[0] = _advance(state[0])
        reach = 1 + int(((state[0] >> _HALF) * np.uint64(window)) >> _HALF)
        m = _neighbours(text, t, reach, around)
        if m == 0:
            continue
        if negative:
            n = _draw(state, w, negative, share, other, rows)
        else:
            n = path_start[w + 1] - path_start[w]
            rows[:n] = path_node[path_start[w] : path_start[w + 1]]
            labels[:n] = path_label[path_start[w] : path_start[w + 1]]
        lr = np.float32(rates[0] + (rates[1] - rates[0]) * np.float32(t) / np.float32(text.shape[0]))
        if mean:
            middle[:] = 0.0
            for a in range(m):
                middle += inputs[around[a]]
            middle /= np.float32(m)
            loss += _update(middle, outputs, rows, labels, n, points, lr, gained)
            for a in range(m):
                inputs[around[a]] += gained / np.float32(m)
            predictions += 1
        else:
            for a in range(m):
                loss += _update(inputs[around[a]], outputs, rows, labels, n, points, lr, gained)
                inputs[around[a]] += gained
            predictions += m
    out[0] = loss
    return predictions


library = CLibrary(
    "word2vec",
    lambda double: C_LANES.read_text() + beside(__package__, "windows.c"),
    (torch.float32,),
    no_memory="no memory for the work on a window",
)


def train(
    ids: Array,
    keep: Array,
    *,
    window: int,
    mean: bool,
    inputs: Array,
    outputs: Array,
    against: Outputs,
    rates: tuple[float, float],
    seed: int,
    native: bool = True,
) -> tuple[int, float]:
    """Learn from a block of text; ``inputs`` and ``outputs`` change in place. Other threads may run meanwhile.

    Returns how many predictions were made and the sum of their losses. ``native=False`` keeps to plain loops.
    """
    _check(ids, keep, window, inputs, outputs, against)
    loss, state = np.zeros(1), np.array([seed], np.uint64)
    ends, points = np.array(rates, np.float32), curve()
    if not native or library.functions() is None:
        done = train_plain(
            ids, keep, window, mean, inputs, outputs, against.negative, against.share, against.other,
            against.path_start, against.path_node, against.path_label, against.longest, ends, state, points, loss,
        )  # fmt: skip
        return int(done), float(loss[0])
    predictions = np.zeros(1, np.int64)
    sizes = (
        len(ids), window, int(mean), inputs.shape[1], against.negative, len(against.share), against.longest,
    )  # fmt: skip
    arrays = (
        ids, keep, inputs, outputs, against.share, against.other, against.path_start, against.path_node,
        against.path_label, ends, state, points, loss, predictions,
    )  # fmt: skip
    library.call(torch.float32, "w2v_train", sizes, [array.ctypes.data for array in arrays])
    return int(predictions[0]), float(loss[0])


def _check(ids: Array, keep: Array, window: int, inputs: Array, outputs: Array, against: Outputs) -> None:
    """C reads what it is pointed at: everything must have its type, its order in memory and enough rows."""
    words = int(ids.max(initial=-1)) + 1
    wanted = max(against.rows, words if against.negative else 0)
    for name, array, dtype, rows in (
        ("ids", ids, np.int32, 0),
        ("keep", keep, np.uint64, words),
        ("inputs", inputs, np.float32, words),
        ("outputs", outputs, np.float32, wanted),
        ("path_start", against.path_start, np.int64, 0 if against.negative else words + 1),
    ):
        if array.dtype != dtype or not array.flags.c_contiguous or len(array) < rows:
            found = f"{array.dtype} {array.shape}"
            raise ValueError(
                f"word2vec: {name} must be {np.dtype(dtype)} of at least {rows} rows, got {found}."
            )
    if inputs.ndim != 2 or outputs.shape[1:] != inputs.shape[1:] or inputs.shape[1] % LANES or window < 1:
        found = f"{inputs.shape} and {outputs.shape}, window {window}"
        raise ValueError(f"word2vec: widths must be equal and multiples of {LANES}, got {found}.")
