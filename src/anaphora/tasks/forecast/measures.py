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
from anaphora.data.series_scale import Columns
from anaphora.data.series_windows import WindowBatch, Windows
from anaphora.errors import DataError
from anaphora.kinds.measures.judged import Judged, Measure, counted, digest, mean, timed, values
from anaphora.tasks.forecast.inference.running import outputs, point
from anaphora.tasks.forecast.objective import value_losses

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
    """All that is counted while going over the data once. ``table`` (windows, 6) has for each window: squares, absolutes, the same
    in units of the data, how many values, and −log p; ``spans`` (windows,) the steps."""

    table: Floats
    spans: Floats
    own: Tally = field(default_factory=Tally)
    last: Tally = field(default_factory=Tally)
    season: Tally = field(default_factory=Tally)
    inside: float = 0.0
    loss: float = 0.0
    usual: float = 0.0
    steps: int = 0

    def add_losses(self, out: Floats, truth: Floats, windows: Windows) -> Floats:
        """Add −log p of the model, which is returned (places, H, targets), and of the same rates in every step."""
        columns = windows.columns
        real = ~np.isnan(truth)
        y = torch.from_numpy(np.where(real, truth, 0.0))
        usual = np.clip(np.array(columns.usual), 1e-6, None if columns.output == "count" else 1 - 1e-6)
        constant = np.log(usual) if columns.output == "count" else np.log(usual / (1 - usual))
        lost: Floats = value_losses(torch.from_numpy(out), y, columns.output, "mse").numpy()
        rates = torch.from_numpy(np.broadcast_to(constant, out.shape).copy())
        self.loss += float(lost[real].sum())
        self.usual += float(value_losses(rates, y, columns.output, "mse").numpy()[real].sum())
        self.steps += int(real.any(-1).sum())
        return lost

    def add_windows(self, batch: WindowBatch, error: Floats, lost: Floats, columns: Columns) -> None:
        """Add errors and losses (places, H, targets) to those of their windows."""
        scale = np.array(columns.scale)[columns.places(columns.targets)]
        there = ~np.isnan(error)
        parts = (error**2, abs(error), (error * scale) ** 2, abs(error) * scale, np.ones_like(error), lost)
        for place, part in enumerate(parts):
            self.table[batch.indices, place] = np.where(there, part, 0.0).reshape(len(batch), -1).sum(axis=1)
        self.spans[batch.indices] = there.any(axis=-1).reshape(len(batch), -1).sum(axis=1)

    def add_naive(
        self, windows: Windows, batch: WindowBatch, truth: Floats, inside: NDArray[np.bool_]
    ) -> None:
        """Add the errors of forecasts that learn nothing, and how many of the model's are small."""
        self.inside += float(inside.sum())
        columns = windows.columns
        if columns.output != "continuous":
            return
        if not windows.horizon:
            self.last.add(np.zeros_like(truth), truth)
            return
        last, season = _naive(windows, batch)
        self.last.add(last, truth)
        if columns.period > 1:
            self.season.add(season, truth)


def window_score(
    model: Any, windows: Windows, chosen: Sequence[int], *, reach: Floats | None = None
) -> Score:
    """Go over the ``chosen`` windows. With ``reach`` (H, targets), which holds most errors, forecasts that learn nothing are counted
    too."""
    columns = windows.columns
    score = Score(np.zeros((len(windows), 6)), np.zeros(len(windows)))
    for out, batch in outputs(model, windows, chosen):
        truth = batch.y.reshape(-1, *batch.y.shape[2:]).astype(np.float64)
        forecast = point(out, columns.output).reshape(truth.shape)
        score.own.add(forecast, truth)
        lost = np.zeros_like(truth)
        if columns.output != "continuous":
            lost = score.add_losses(out.reshape(truth.shape), truth, windows)
        score.add_windows(batch, forecast - truth, lost, columns)
        if reach is not None:
            score.add_naive(windows, batch, truth, np.abs(forecast - truth) <= reach)
    return score


def score_windows(model: Any, windows: Windows, errors: Floats) -> dict[str, Any]:
    """Everything `Forecaster.score` says; ``errors`` are the model's quantiles of |error|."""
    score = window_score(model, windows, range(len(windows)), reach=quantile(errors, COVERAGE))
    return _report(score, windows)


def window_measures(score: Score, windows: Windows) -> list[Measure]:
    """mse and mae in standardised units and in those of the data; −log p of counts and of 0s and 1s."""
    columns, own, table = windows.columns, score.own, score.table
    scale = np.array(columns.scale)[columns.places(columns.targets)]
    asked = digest(windows.horizon, columns.targets, columns.output)
    standardised, count = digest(asked, columns.scale), own.count.sum()

    def measure(name: str, place: int, sums: Any, basis: str) -> Measure:
        whole = np.array([sums.sum(), count], dtype=np.float64)
        return counted(name, table[:, [place, 4]], mean, False, basis, whole)

    measures = [
        measure("mse", 0, own.squares, standardised),
        measure("mae", 1, own.absolutes, standardised),
    ]
    if columns.output == "continuous":
        return [
            *measures,
            measure("mse_original", 2, own.squares * scale**2, asked),
            measure("mae_original", 3, own.absolutes * scale, asked),
        ]
    spans = np.stack([table[:, 5], score.spans], axis=1)
    whole = np.array([score.loss, score.steps], dtype=np.float64)
    nll = counted("nll", spans, mean, False, asked, whole)
    return [nll, *(measures if columns.output == "count" else [])]


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


def _report(score: Score, windows: Windows) -> dict[str, Any]:
    columns, own = windows.columns, score.own
    measured = values(window_measures(score, windows))
    facts: dict[str, Any] = {"windows": len(windows), "values": int(own.count.sum())}
    if columns.output != "continuous":
        result: dict[str, Any] = {
            "nll": measured.pop("nll"),
            "frequency_nll": score.usual / max(1, score.steps),
        }
        return result | measured | {"steps": score.steps} | facts
    scale = np.array(columns.scale)[columns.places(columns.targets)]
    naive = {"persistence" if windows.horizon else "mean": score.last}
    if windows.horizon and columns.period > 1:
        naive["seasonal"] = score.season
    result = {"mse": measured["mse"], "mae": measured["mae"]}
    result |= {f"{name}_mse": tally.mse() for name, tally in naive.items()}
    result |= {f"{name}_mae": tally.mae() for name, tally in naive.items()}
    result |= {
        "mse_original": measured["mse_original"],
        "mae_original": measured["mae_original"],
        "coverage_95": 100.0 * score.inside / max(1, int(own.count.sum())),
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
    score, seconds = timed(lambda some: window_score(model, windows, some), range(len(windows)))
    measures = window_measures(score, windows)
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
