"""Series cut into examples: what is read, and what is to be forecast from it.

With ``window`` W and ``horizon`` H an example is a place t of a series: steps t − W … t − 1 are read, t … t + H − 1 are
forecast. With W = 0 an example is a whole series, with H values to forecast after every step. With H = 0 (aligned) the
targets of a step are predicted from the other columns up to that step; a long series is read in stretches of W steps, of
which the first half only warms up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from anaphora.data.series import SeriesData
from anaphora.data.series_scale import Columns
from anaphora.errors import DataError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Prepared:
    """A series as models take it, float32: ``inputs`` (time, features), ``known`` (time, known columns), the targets
    ``values`` (time, targets) with NaN where missing, and ``filled`` (time, targets), standardised, without gaps."""

    inputs: Array
    known: Array
    values: Array
    filled: Array
    begin: int


def prepare(values: NDArray[np.float64], columns: Columns, *, aligned: bool, begin: int = 0) -> Prepared:
    """Features are the standardised targets (not if ``aligned``), the other columns, then the masks of those that had
    gaps in training (1 where a value is real). A missing value is that of the step before, at the start the mean."""
    with np.errstate(over="ignore"):  # what overflows is refused
        standard = columns.standardised(values)
    large = np.argwhere(np.abs(standard) > np.finfo(np.float32).max)  # a network would take it for infinity
    if len(large):
        row, place = large[0]
        raise DataError(
            f"row {row + 1}, column {columns.names[place]}: {values[row, place]:g} is too large for a network's numbers; "
            "correct it, or leave the cell empty if the value is missing."
        )
    filled = fill_forward(standard)
    own, others = columns.places(columns.targets), columns.places(columns.others)
    real = (~np.isnan(values)).astype(np.float64)
    parts = [] if aligned else [filled[:, own]]
    parts.append(filled[:, others])
    for group in (others,) if aligned else (own, others):
        if any(columns.gaps[place] for place in group):
            parts.append(real[:, group])
    truth = standard if columns.output == "continuous" else values
    known = filled[:, columns.places(columns.known)]

    def plain(array: NDArray[np.float64]) -> Array:
        return np.ascontiguousarray(array, dtype=np.float32)

    inputs = plain(np.concatenate(parts, axis=1))
    return Prepared(inputs, plain(known), plain(truth[:, own]), plain(filled[:, own]), begin)


def fill_forward(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Missing values replaced by the last one before, or 0 where there is none; (time, columns)."""
    real = ~np.isnan(values)
    last = np.maximum.accumulate(np.where(real, np.arange(len(values))[:, None], -1), axis=0)
    taken = np.take_along_axis(values, np.maximum(last, 0), axis=0)
    return np.where(last >= 0, taken, 0.0)


@dataclass(frozen=True)
class WindowTensors:
    """A batch as the models take it: P = 1 place, after the last step, or P = T places, after each."""

    x: Tensor
    """(batch, T, features)"""
    lengths: Tensor | None
    """(batch,) where rows differ in length"""
    future: Tensor
    """(batch, P, H, known): the columns known in advance, in the steps to forecast"""
    y: Tensor
    """(batch, P, H, targets); 0 where missing"""
    real: Tensor
    """(batch, P, H, targets): True where there is a value"""


@dataclass(frozen=True)
class WindowBatch:
    """Some examples; see `WindowTensors`. ``y`` has NaN where a value is missing, and past each row's end."""

    x: Array
    lengths: NDArray[np.int64] | None
    future: Array
    y: Array
    indices: list[int]

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def symbols(self) -> int:
        return int((~np.isnan(self.y)).sum())

    def shard(self, index: int, of: int) -> WindowBatch:
        """Rows ``index``, ``index + of``, …"""
        rows = slice(index, None, of)
        lengths = None if self.lengths is None else self.lengths[rows]
        return WindowBatch(self.x[rows], lengths, self.future[rows], self.y[rows], self.indices[rows])

    def tensors(self, device: torch.device | str = "cpu") -> WindowTensors:
        from anaphora.data.batches.padded import send  # imports torch, which windows do without

        y = send(self.y, device)
        real = ~y.isnan()
        return WindowTensors(
            send(self.x, device),
            None if self.lengths is None else send(self.lengths.copy(), device),
            send(self.future, device),
            y.masked_fill(~real, 0.0),
            real,
        )


class Windows:
    """All examples of some series. ``places`` (examples, 2): the number of the series, and the step t after the last
    one that is read."""

    def __init__(self, data: SeriesData, columns: Columns, *, window: int, horizon: int):
        self.columns, self.window, self.horizon = columns, window, horizon
        self.ahead = max(horizon, 1)
        self.standard = [columns.standardised(one.values) for one in data.series]
        self.prepared = [
            prepare(one.values, columns, aligned=not horizon, begin=one.begin) for one in data.series
        ]
        require_examples(data, window, horizon)
        found = []
        for number, one in enumerate(self.prepared):
            ends = example_ends(len(one.inputs), one.begin, window, horizon)
            found.append(np.stack([np.full(len(ends), number), ends], axis=1))
        self.places: NDArray[np.int64] = np.concatenate(found).astype(np.int64)
        self._negative: list[NDArray[np.bool_]] | None = (
            None  # whether a target has been below 0, for `floors`
        )
        # past the end there is nothing to know and nothing to forecast
        pad = self.ahead
        self._y = [np.pad(one.values, ((0, pad), (0, 0)), constant_values=np.nan) for one in self.prepared]
        self._known = [np.pad(one.known, ((0, pad), (0, 0)), mode="edge") for one in self.prepared]

    def __len__(self) -> int:
        return len(self.places)

    @property
    def dense(self) -> bool:
        """Whether there are outputs after every step."""
        return not self.window or not self.horizon

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Steps that each example reads."""
        if self.window and self.horizon:
            return np.full(len(self.places), self.window, dtype=np.int64)
        ends = self.places[:, 1]
        return np.minimum(ends, self.window) if self.window else ends

    def spread(self, most: int) -> list[int]:
        """At most ``most`` examples, evenly spread over all."""
        if len(self) <= most:
            return list(range(len(self)))
        return [int(i) for i in np.unique(np.linspace(0, len(self) - 1, most).astype(np.int64))]

    def floors(self, batch: WindowBatch) -> NDArray[np.float64] | None:
        """The least forecasts of a batch, standardised, as `Columns.floor` has them for the history of each place: (rows, 1 or P, 1, targets);
        None where all may be below 0."""
        columns, rows = self.columns, self.places[batch.indices]
        if not any(columns.nonnegative):
            return None
        own = columns.places(columns.targets)
        zero = columns.standardised(np.zeros((1, len(columns.names))))[0, own]
        least = np.where(columns.nonnegative, zero, -np.inf)
        if not self.horizon:  # whatever stands in the targets is not looked at
            return np.broadcast_to(least, (len(rows), 1, 1, len(own)))
        if self._negative is None:
            self._negative = [np.logical_or.accumulate(one[:, own] < zero) for one in self.standard]
        if self.window:
            below = np.stack([self._negative[s][t - 1] for s, t in rows])[:, None, None]
        else:
            below = np.zeros((*batch.y.shape[:2], 1, len(own)), dtype=bool)
            for row, (s, t) in enumerate(rows.tolist()):
                below[row, :t, 0] = self._negative[s][:t]
        return np.where(below, -np.inf, least)

    def batch(self, indices: Sequence[int]) -> WindowBatch:
        """The examples ``indices``."""
        if self.dense:
            return self._dense_batch(indices)
        steps, ahead = np.arange(-self.window, 0), np.arange(self.horizon)
        rows = self.places[list(indices)]
        x = np.stack([self.prepared[s].inputs[t + steps] for s, t in rows])
        y = np.stack([self._y[s][t + ahead] for s, t in rows])
        future = np.stack([self._known[s][t + ahead] for s, t in rows])
        return WindowBatch(x, None, future[:, None], y[:, None], list(indices))

    def _dense_batch(self, indices: Sequence[int]) -> WindowBatch:
        lengths = self.lengths[list(indices)]
        rows, longest = self.places[list(indices)], int(lengths.max(initial=0))
        first = self.prepared[0]
        x = np.zeros((len(rows), longest, first.inputs.shape[1]), dtype=np.float32)
        future = np.zeros((len(rows), longest, self.ahead, first.known.shape[1]), dtype=np.float32)
        y = np.full((len(rows), longest, self.ahead, first.values.shape[1]), np.nan, dtype=np.float32)
        for row, ((s, t), length) in enumerate(zip(rows.tolist(), lengths.tolist(), strict=True)):
            x[row, :length] = self.prepared[s].inputs[t - length : t]
            seen = np.arange(t - length, t)
            steps = seen[:, None] + np.arange(self.ahead) + (1 if self.horizon else 0)
            future[row, :length] = self._known[s][steps]
            y[row, :length] = self._y[s][steps]
            y[row, : self._warming(s, t, length)] = np.nan
        return WindowBatch(x, lengths, future, y, list(indices))

    def _warming(self, s: int, t: int, length: int) -> int:
        """Steps of a dense example that are read but are no targets."""
        start = t - length
        history = max(0, self.prepared[s].begin - start)
        if not start or not self.window:
            return history
        half = self.window // 2
        ended = self.window + (t - self.window - 1) // half * half  # where the stretch before this one ended
        return max(history, ended - start)


def example_ends(steps: int, begin: int, window: int, horizon: int) -> NDArray[np.int64]:
    """The places t of a series of so many steps, of which those before ``begin`` are history."""
    if window and horizon:
        return np.arange(max(window, begin), steps - horizon + 1)
    if not window:  # a whole series; the last step has nothing after it
        return np.arange(steps, steps + 1) if steps > (1 if horizon else 0) else np.arange(0)
    if steps <= window:
        return np.arange(steps, steps + 1) if steps else np.arange(0)
    ends = [*range(window, steps, window // 2), steps]
    return np.array([end for end in ends if end > begin], dtype=np.int64)


def require_examples(data: SeriesData, window: int, horizon: int) -> None:
    """A `DataError` where no series is long enough for a single example."""
    if any(len(example_ends(len(one), one.begin, window, horizon)) for one in data.series):
        return
    longest = max((len(one) for one in data.series), default=0)
    needed = f"window + horizon = {window} + {horizon}" if window else "2"
    held = data.facts.get("kind") == "held-out"
    raise DataError(
        f"{data.place}: the longest series has {longest} steps"
        f"{' left, its end being held out as dev data' if held else ''}, but at least {needed} are needed; give "
        f"longer series, {'dev data of your own, ' if held else ''}or a smaller window or horizon."
    )
