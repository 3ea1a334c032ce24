"""Forecasts beyond the horizon: outputs fed back step by step, and targets of 0 and 1 drawn together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.cancellation import each_step
from anaphora.data.series import Series, SeriesData
from anaphora.data.series_scale import Columns
from anaphora.data.series_windows import WindowBatch, Windows, prepare
from anaphora.errors import DataError

# 0s and 1s of a step that depend on each other: drawn one after the other, and their rates. Imports no torch.

# Forecasts from the end of series, of any network that is a function of a batch of windows. Imports no torch.

Floats = NDArray[np.float64]
DRAWS = 256
"""Draws of a step from which its rates are estimated."""
_AT_ONCE = 1 << 18  # numbers of the hidden layer


@dataclass(frozen=True)
class Chain:
    """The weights W and V ``(targets, units)`` of `an.nn.NADE`. What a network says of a step is ``(targets + units,)``: its biases
    b and c, one after the other."""

    inward: Floats
    outward: Floats

    def drawn(self, parts: NDArray[Any], uniforms: Floats) -> Floats:
        """Steps ``(…, targets)`` drawn target by target: 1 where the number of ``uniforms`` ``(…, targets)`` lies below its
        probability given the targets before it. ``parts`` ``(…, targets + units)``."""
        return self._walk(parts, uniforms)[0]

    def rates(self, parts: NDArray[Any]) -> Floats:
        """How often each target is 1 ``(…, targets)``: the mean of p(v_i = 1 | v_<i) over draws of v_<i, the same uniform
        numbers for every step, one in each of 256 equal intervals for each target (Latin hypercube), so that a rate does not depend on what else is asked.
        Exact for the first target; others err by about 0.01."""
        targets = len(self.inward)
        flat = parts.reshape(-1, parts.shape[-1])
        random = np.random.default_rng(1)
        strata = np.stack([random.permutation(DRAWS) for _ in range(targets)], axis=1)
        uniforms = (strata + random.random(strata.shape)) / DRAWS
        rows = max(1, _AT_ONCE // (DRAWS * self.inward.shape[1]))
        found = [
            self._walk(flat[begin : begin + rows, None], uniforms[None])[1].mean(axis=1)
            for begin in range(0, len(flat), rows)
        ]
        return np.concatenate(found).reshape(*parts.shape[:-1], targets)

    def _walk(self, parts: NDArray[Any], uniforms: Floats) -> tuple[Floats, Floats]:
        """Values and their probabilities, ``(…, targets)`` each."""
        targets = len(self.inward)
        shape = np.broadcast_shapes(parts.shape[:-1], uniforms.shape[:-1])
        values, chances = np.zeros((*shape, targets)), np.zeros((*shape, targets))
        hidden = np.broadcast_to(parts[..., targets:], (*shape, self.inward.shape[1])).astype(np.float64)
        for i in range(targets):
            logit = parts[..., i] + np.maximum(hidden, 0.0) @ self.outward[i]
            chances[..., i] = 1.0 / (1.0 + np.exp(-np.clip(logit, -60, 60)))
            on = uniforms[..., i] < chances[..., i]
            values[..., i] = on
            hidden[on] += self.inward[i]
        return values, chances


Run = Callable[[WindowBatch], Floats]
"""The outputs (rows, P, H, targets) of a batch."""
Path = tuple[Floats, int]
"""Values with room for what is to come, and how many of them are history."""
ROWS = 64  # windows forecast at once
LARGEST = 20.0  # of the logarithm of a rate: e²⁰ is half a billion


def point(out: NDArray[Any], output: str) -> NDArray[Any]:
    """Outputs as expected values: probabilities, rates, or the (standardised) values themselves."""
    if output == "binary":
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(out, -60, 60))))
    return np.exp(np.minimum(out, LARGEST)) if output == "count" else out


def expected(out: NDArray[Any], columns: Columns, chain: Chain | None) -> NDArray[Any]:
    """The same where targets may depend on each other: outputs are then the parts of their ``chain``."""
    return point(out, columns.output) if chain is None else chain.rates(out)


def observed(series: Series, columns: Columns, horizon: int) -> int:
    """How many steps of a series are history. With known columns the last rows, in which nothing else stands, are the
    steps to forecast, and there must be ``horizon`` of them."""
    if np.isnan(series.values[:, columns.places(columns.targets)]).all():
        raise DataError(
            f"series {series.name}: every value of {', '.join(columns.targets[:6])} is missing, so there is nothing to forecast from."
        )
    if not columns.known:
        return len(series)
    unknown = [place for place, name in enumerate(columns.names) if name not in columns.known]
    seen = np.flatnonzero(~np.isnan(series.values[:, unknown]).all(axis=1))
    end = int(seen[-1]) + 1 if len(seen) else 0
    ahead = series.values[end : end + horizon][:, columns.places(columns.known)]
    if len(ahead) < horizon or np.isnan(ahead).any():
        raise DataError(
            f"series {series.name}: {', '.join(columns.known)} must be known for the {horizon} steps to forecast; "
            f"give {horizon} rows after the last one with data that hold nothing else."
        )
    return end


def paths_of(data: SeriesData, columns: Columns, *, least: int, horizon: int) -> list[Path]:
    """The history of each series, at least ``least`` steps, with room for ``horizon`` steps, in which the known columns stand."""
    paths = []
    for one in data.series:
        end = observed(one, columns, horizon)
        if end < max(least, 1):
            raise DataError(
                f"series {one.name}: has {end} steps of history, but the model reads window = {least}; give more."
            )
        longer = np.full((end + horizon, len(columns.names)), np.nan)
        longer[:end] = one.values[:end]
        known = columns.places(columns.known)
        if known:
            longer[end:, known] = one.values[end : end + horizon, known]
        paths.append((longer, end))
    return paths


def go_ahead(
    run: Run,
    paths: Sequence[Path],
    columns: Columns,
    *,
    window: int,
    trained: int,
    horizon: int,
    draw: np.random.Generator | None = None,
    chain: Chain | None = None,
) -> list[Floats]:
    """For each path the next ``horizon`` steps (horizon, targets): standardised values, rates or probabilities, or what was
    drawn by ``draw``; beyond the ``trained`` steps by going on from what was forecast. With ``chain`` the outputs are its
    parts of each step."""
    parts: list[list[Floats]] = [[] for _ in paths]
    for done in range(0, horizon, trained):
        steps = min(trained, horizon - done)
        found = [
            out
            for begin in each_step(range(0, len(paths), ROWS))
            for out in _once(run, paths[begin : begin + ROWS], done, columns, window, trained)
        ]
        for (values, end), part, out in zip(paths, parts, found, strict=True):
            taken = _taken(out[:steps], columns, draw, chain)
            part.append(taken)
            fed = _fed(taken, columns, columns.floor(values[:end]))
            values[end + done : end + done + steps, columns.places(columns.targets)] = fed
    return [np.concatenate(part) for part in parts]


def _once(
    run: Run, paths: Sequence[tuple[Floats, int]], done: int, columns: Columns, window: int, trained: int
) -> list[Floats]:
    """One pass of a network: outputs (trained, targets) after the first ``end + done`` steps of each path."""
    rows, futures = [], []
    for values, end in paths:
        now = end + done
        one = prepare(values[: now + trained], columns, aligned=False)
        rows.append(one.inputs[now - window if window else 0 : now])
        ahead = one.known[now : now + trained]
        futures.append(
            np.pad(ahead, ((0, trained - len(ahead)), (0, 0)), mode="edge" if len(ahead) else "constant")
        )
    lengths = np.array([len(row) for row in rows])
    longest = int(lengths.max())
    x = np.stack([np.pad(row, ((0, longest - len(row)), (0, 0))) for row in rows])
    future = np.stack(futures)[:, None]
    if not window:  # outputs after every step: those after the last count
        future = np.repeat(future, longest, axis=1)
    y = np.zeros((len(rows), 1, trained, len(columns.targets)), dtype=np.float32)
    out = run(WindowBatch(x, None if window else lengths, future, y, list(range(len(rows)))))
    return [one[length - 1 if not window else 0] for one, length in zip(out, lengths, strict=True)]


def along(
    outputs: Callable[[Windows], Iterable[tuple[Floats, WindowBatch]]],
    data: SeriesData,
    columns: Columns,
    *,
    window: int,
    chain: Chain | None = None,
) -> list[Floats]:
    """Aligned: the targets of every step, (time, targets) for each series."""
    told_: list[Floats] = []
    for one in data.series:
        # targets are not looked at: any value may stand there
        blank = one.values.copy()
        blank[:, columns.places(columns.targets)] = 0.0
        windows = Windows(
            SeriesData(data.columns, (Series(one.name, blank),), data.facts),
            columns,
            window=window,
            horizon=0,
        )
        path = np.zeros((len(one), len(columns.targets)))
        for out, batch in outputs(windows):
            for row, index in enumerate(batch.indices):
                _, end = windows.places[index]
                asked = ~np.isnan(batch.y[row, :, 0, 0])
                steps = end - windows.lengths[index] + np.flatnonzero(asked)
                path[steps] = _taken(out[row, asked, 0], columns, None, chain)
        told_.append(path)
    return told_


def interval_of(
    mean: Floats, errors: Floats, level: float, columns: Columns, floor: Floats
) -> tuple[Floats, Floats, Floats]:
    """Forecasts, and the ends of their interval, in the units of the data; ``errors`` are the quantiles of |error|, ``floor`` (targets,) as
    for `in_units`."""
    reach = quantile(errors, level)[: len(mean)] if len(errors[0]) >= len(mean) else quantile(errors, level)
    if columns.output == "continuous":
        reach = reach * np.array(columns.scale)[columns.places(columns.targets)]
    elif columns.output == "count":
        floor = np.zeros_like(floor)
    middle = in_units(mean, columns, floor)
    return middle, np.maximum(middle - reach, floor), middle + reach


def in_units(mean: Floats, columns: Columns, floor: Floats) -> Floats:
    """What a model forecasts of a series, in the units of the data and nothing below ``floor`` (targets,), which `Columns.floor` gives."""
    return np.maximum(columns.restored(mean), floor) if columns.output == "continuous" else mean


def floors(data: SeriesData, columns: Columns, *, aligned: bool) -> list[Floats]:
    """`Columns.floor` of each series to forecast; where they are ``aligned``, whatever stands in the targets is not looked at."""
    return [columns.floor(one.values[:0] if aligned else one.values) for one in data.series]


def _taken(out: Floats, columns: Columns, draw: np.random.Generator | None, chain: Chain | None) -> Floats:
    """Expected values (steps, targets) of outputs, or what ``draw`` makes of them."""
    if chain is not None and draw is not None:
        return chain.drawn(out, draw.random((*out.shape[:-1], len(columns.targets))))
    mean = expected(out, columns, chain)
    if draw is None or columns.output == "continuous":
        return mean
    if columns.output == "binary":
        return (draw.random(mean.shape) < mean).astype(np.float64)
    return draw.poisson(mean).astype(np.float64)


def _fed(taken: Floats, columns: Columns, floor: Floats) -> Floats:
    """Forecasts as a history holds them."""
    return in_units(taken, columns, floor) if columns.output == "continuous" else np.round(taken)


def quantile(errors: Floats, level: float) -> Floats:
    """The ``level`` quantile of |error| (H, targets), between the hundredths that are kept."""
    place = level * (len(errors) - 1)
    below = int(place)
    above = min(below + 1, len(errors) - 1)
    found: Floats = errors[below] + (place - below) * (errors[above] - errors[below])
    return found
