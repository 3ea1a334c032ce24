"""How good forecasts are: from every place of the data, step by step ahead, beside forecasts that learn nothing.

Persistence repeats the last value; seasonal persistence repeats the last season. Errors are in standardised units
(deviations of each column in the training data), which can be averaged over columns, and in the units of the data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from anaphora.data.series_ahead import quantile
from anaphora.data.series_windows import WindowBatch, Windows
from anaphora.errors import DataError
from anaphora.tasks.forecast.inference.running import outputs, point
from anaphora.tasks.forecast.objective import value_losses
from anaphora.kinds.measures.judged import Judged, Measure, digest, mean, timed

Floats = NDArray[np.float64]
SHOWN = (1, 2, 3, 6, 12, 24, 48, 96, 192, 336, 720)
"""Steps ahead in the table; the last one is always shown."""
COVERAGE = 0.95


@dataclass
class Tally:
    """Sums over places, (H, targets) each: how many values, squares, absolutes and losses."""

    count: Any = 0.0
    squares: Any = 0.0
    absolutes: Any = 0.0

    def add(self, forecast: Floats, truth: Floats) -> None:
        """(places, H, targets) each; NaN in ``truth`` counts for nothing."""
        error = forecast - truth
        self.count = self.count + (~np.isnan(error)).sum(axis=0)
        self.squares = self.squares + np.nansum(error**2, axis=0)
        self.absolutes = self.absolutes + np.nansum(np.abs(error), axis=0)

    def mse(self, part: Any = ...) -> float:
        return float(self.squares[part].sum() / max(1, self.count[part].sum()))

    def mae(self, part: Any = ...) -> float:
        return float(self.absolutes[part].sum() / max(1, self.count[part].sum()))


@dataclass
class Score:
    """All that is counted while going over the data once."""

    own: Tally = field(default_factory=Tally)
    last: Tally = field(default_factory=Tally)
    season: Tally = field(default_factory=Tally)
    inside: float = 0.0
    loss: float = 0.0
    usual: float = 0.0
    steps: int = 0


def score_windows(model: Any, windows: Windows, errors: Floats, loss: str) -> dict[str, Any]:
    """Everything `Forecaster.score` says; ``errors`` are the model's quantiles of |error|."""
    columns = windows.columns
    counted = Score()
    reach = quantile(errors, COVERAGE)
    for out, batch in outputs(model, windows, range(len(windows))):
        truth = batch.y.reshape(-1, *batch.y.shape[2:]).astype(np.float64)
        mean = point(out, columns.output).reshape(truth.shape)
        counted.own.add(mean, truth)
        counted.inside += float((np.abs(mean - truth) <= reach).sum())
        if columns.output != "continuous":
            _add_losses(counted, out.reshape(truth.shape), truth, windows)
        elif windows.horizon:
            last, season = _naive(windows, batch)
            counted.last.add(last, truth)
            if columns.period > 1:
                counted.season.add(season, truth)
        else:
            counted.last.add(np.zeros_like(truth), truth)
    return _told(counted, windows)


def naive_mse(model: Any, windows: Windows, chosen: Sequence[int]) -> tuple[float, dict[str, float]]:
    """The mse of ``model`` on the ``chosen`` windows, and that of persistence and, where there is a season, of its repetition."""
    own, last, season = Tally(), Tally(), Tally()
    for out, batch in outputs(model, windows, chosen):
        truth = batch.y.reshape(-1, *batch.y.shape[2:]).astype(np.float64)
        own.add(point(out, windows.columns.output).reshape(truth.shape), truth)
        for tally, forecast in zip((last, season), _naive(windows, batch), strict=True):
            tally.add(forecast, truth)
    naive = {"persistence": last.mse()} | ({"seasonal": season.mse()} if windows.columns.period > 1 else {})
    return own.mse(), naive


def _naive(windows: Windows, batch: WindowBatch) -> tuple[Floats, Floats]:
    """(places, H, targets): the last value, and the last season, standardised."""
    ahead, period = np.arange(windows.horizon), windows.columns.period
    lasts, seasons = [], []
    for row, index in enumerate(batch.indices):
        s, t = windows.places[index]
        filled = windows.prepared[s].filled.astype(np.float64)
        if batch.lengths is None:
            ends = np.array([t])
        else:
            ends = np.arange(t - batch.lengths[row] + 1, t + 1)
            ends = np.concatenate([ends, np.full(batch.y.shape[1] - len(ends), t)])
        lasts.append(np.repeat(filled[ends - 1][:, None], windows.horizon, axis=1))
        back = ends[:, None] - period + ahead % period
        seasons.append(filled[np.maximum(back, 0)])
    return np.concatenate(lasts), np.concatenate(seasons)


def _add_losses(counted: Score, out: Floats, truth: Floats, windows: Windows) -> None:
    """−log p of the model, and of the same rates in every step."""
    columns = windows.columns
    real = ~np.isnan(truth)
    y = torch.from_numpy(np.where(real, truth, 0.0))
    usual = np.clip(np.array(columns.usual), 1e-6, None if columns.output == "count" else 1 - 1e-6)
    constant = np.log(usual) if columns.output == "count" else np.log(usual / (1 - usual))
    for name, raw in (("loss", out), ("usual", np.broadcast_to(constant, out.shape).copy())):
        each = value_losses(torch.from_numpy(raw), y, columns.output, "mse").numpy()
        setattr(counted, name, getattr(counted, name) + float(each[real].sum()))
    counted.steps += int(real.any(-1).sum())


def _told(counted: Score, windows: Windows) -> dict[str, Any]:
    columns, own = windows.columns, counted.own
    facts: dict[str, Any] = {"windows": len(windows), "values": int(own.count.sum())}
    if columns.output != "continuous":
        result: dict[str, Any] = {
            "nll": counted.loss / max(1, counted.steps),
            "frequency_nll": counted.usual / max(1, counted.steps),
        }
        if columns.output == "count":
            result |= {"mse": own.mse(), "mae": own.mae()}
        return result | {"steps": counted.steps} | facts
    scale = np.array(columns.scale)[columns.places(columns.targets)]
    naive = {"persistence" if windows.horizon else "mean": counted.last}
    if windows.horizon and columns.period > 1:
        naive["seasonal"] = counted.season
    result = {"mse": own.mse(), "mae": own.mae()}
    result |= {f"{name}_mse": tally.mse() for name, tally in naive.items()}
    result |= {f"{name}_mae": tally.mae() for name, tally in naive.items()}
    result |= {
        "mse_original": float((own.squares * scale**2).sum() / max(1, own.count.sum())),
        "mae_original": float((own.absolutes * scale).sum() / max(1, own.count.sum())),
        "coverage_95": 100.0 * counted.inside / max(1, int(own.count.sum())),
        **facts,
    }
    if windows.horizon > 1:
        steps = [step for step in SHOWN if step < windows.horizon] + [windows.horizon]
        result["per_horizon"] = {
            f"{step} ahead": {
                "mse": own.mse(step - 1),
                "mae": own.mae(step - 1),
                **{f"{name}_mse": tally.mse(step - 1) for name, tally in naive.items()},
            }
            for step in steps
        }
    result["per_column"] = {
        name: {
            "mse": own.mse((slice(None), place)),
            "mae": own.mae((slice(None), place)),
            "mae_original": own.mae((slice(None), place)) * float(scale[place]),
        }
        for place, name in enumerate(columns.targets)
    }
    return result


def r_squared(found: Any, wanted: Any) -> float:
    """1 − Σ(y − ŷ)² / Σ(y − ȳ)², over all values; 0 where y is constant and not met."""
    y, estimate = np.asarray(wanted, dtype=float), np.asarray(found, dtype=float)
    if y.shape != estimate.shape:
        raise DataError(
            f"y has the shape {y.shape} and the predictions {estimate.shape}; give one y per row of X."
        )
    left, spread = float(((y - estimate) ** 2).sum()), float(((y - y.mean(0)) ** 2).sum())
    return 1 - left / spread if spread else float(left == 0)


def windows_judged(model: Any, windows: Windows) -> Judged:
    """The measures of `score_windows` by sums of each window; neighbouring windows are drawn together."""
    columns = windows.columns
    scale = np.array(columns.scale)[columns.places(columns.targets)]
    table = np.zeros((len(windows), 6))  # squares, absolutes, the same in units of the data, count, −log p
    steps = np.zeros(len(windows))

    def work(chosen: Sequence[int]) -> None:
        for out, batch in outputs(model, windows, chosen):
            truth = batch.y.astype(np.float64)
            error = point(out, columns.output).reshape(truth.shape) - truth
            lost = np.zeros_like(error)
            if columns.output != "continuous":
                y = torch.from_numpy(np.nan_to_num(truth))
                lost = value_losses(
                    torch.from_numpy(out.reshape(truth.shape)), y, columns.output, "mse"
                ).numpy()
            parts = (
                error**2,
                abs(error),
                (error * scale) ** 2,
                abs(error) * scale,
                np.ones_like(error),
                lost,
            )
            there = ~np.isnan(error)
            for place, part in enumerate(parts):
                table[batch.indices, place] = np.where(there, part, 0.0).sum(axis=(1, 2, 3))
            steps[batch.indices] = there.any(axis=-1).sum(axis=(1, 2))

    _, seconds = timed(work, range(len(windows)))
    counts, asked = table[:, 4], digest(windows.horizon, columns.targets, columns.output)
    standardised = digest(asked, columns.scale)

    def measure(name: str, place: int, basis: str) -> Measure:
        return Measure(name, np.stack([table[:, place], counts], axis=1), mean, False, basis)

    measures = [measure("mse", 0, standardised), measure("mae", 1, standardised)]
    if columns.output == "continuous":
        measures += [measure("mse_original", 2, asked), measure("mae_original", 3, asked)]
    else:
        nll = Measure("nll", np.stack([table[:, 5], steps], axis=1), mean, False, asked)
        measures = [nll, *(measures if columns.output == "count" else [])]
    losses = measures[0].value(measures[0].statistics)
    return Judged(
        [f"series {number + 1}, step {end + 1}" for number, end in windows.places.tolist()],
        [""] * len(windows),
        [f"{measures[0].name} {loss:.4g}" for loss in losses],
        losses,
        measures,
        seconds,
        groups=_blocks(windows),
    )


def _blocks(windows: Windows) -> NDArray[np.int64]:
    """Which windows of a series are drawn together: stretches of at least the horizon, since windows that overlap are
    not independent (the moving blocks of Künsch 1989, without overlap)."""
    long = max(windows.ahead, round(len(windows) ** (1 / 3)))
    number, end = windows.places[:, 0], windows.places[:, 1]
    found: NDArray[np.int64] = number * (int(end.max()) // long + 1) + end // long
    return found
