"""Presets of `Forecaster` on short everyday series, beside the last season and, where statsmodels is installed, its ETS and Theta.

    python benchmarks/short_series.py FOLDER --models kalman lstm --peers ets theta

FOLDER holds NAME.FREQUENCY.csv (monthly, quarterly, yearly, weekly, daily, hourly, halfhourly, minutely): a column of times and one or more of
values, which may have gaps. The last steps are held out (`AHEAD` says how many), each model is trained with its defaults and that horizon on
what is before them, and forecasts them once; with `--origins 3` the same is done from one and from two horizons before, and averaged.
Prints for each series and on average MASE (mean absolute error, in those that the last season has within the training part; Hyndman & Koehler 2006)
and sMAPE in percent, the mean rank by MASE, seconds, and how many values lie in the intervals of 95 %. One thread.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import anaphora as an
from anaphora.errors import AnaphoraError

SEASON = {
    "yearly": 1,
    "quarterly": 4,
    "monthly": 12,
    "weekly": 52,
    "daily": 7,
    "hourly": 24,
    "halfhourly": 48,
    "minutely": 1,
}
AHEAD = {
    "yearly": (5, 5),
    "quarterly": (8, 8),
    "monthly": (12, 24),
    "weekly": (13, 26),
    "daily": (14, 28),
    "hourly": (24, 48),
    "halfhourly": (48, 48),
    "minutely": (10, 10),
}
"""Steps to forecast in tables of fewer and of at least `MANY` rows."""
MANY = 120
LONGEST_OF_ETS = 60
"""Season above which the peers of statsmodels get none: they would take minutes."""

Table = tuple[list[str], list[list[str]], np.ndarray]
Way = Callable[["Held"], np.ndarray]


class Held:
    """A table without its last steps: the rows that a model may learn from, their values (time, columns), and what came."""

    def __init__(self, table: Table, frequency: str, origin: int) -> None:
        names, rows, values = table
        self.season = SEASON[frequency]
        self.ahead = AHEAD[frequency][len(rows) >= MANY]
        end = len(rows) - self.ahead * (origin + 1)
        self.names, self.rows, self.values = names, rows[:end], values[:end]
        self.truth = values[end : end + self.ahead]
        self.inside: list[bool] = []

    def write(self, folder: str) -> Path:
        path = Path(folder) / "train.csv"
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([self.names, *self.rows])
        return path

    def usual(self) -> np.ndarray:
        """The mean absolute error of the last season within the training part, of each column."""
        m = self.season if len(self.values) > 2 * self.season else 1
        return np.asarray(np.nanmean(np.abs(self.values[m:] - self.values[:-m]), axis=0))

    def measured(self, forecast: np.ndarray) -> tuple[float, float]:
        """MASE and sMAPE, means over the columns."""
        away = np.abs(forecast - self.truth)
        size = np.abs(forecast) + np.abs(self.truth)
        relative = np.divide(2 * away, size, out=np.zeros_like(away), where=size != 0)
        mase = np.nanmean(away, axis=0) / self.usual()
        return float(np.nanmean(mase)), float(100 * np.nanmean(relative))


def read(path: Path) -> Table:
    with path.open(newline="") as file:
        names, *rows = csv.reader(file)
    values = np.array([[float(cell) if cell else np.nan for cell in row[1:]] for row in rows])
    return names, rows, values


def last_season(held: Held) -> np.ndarray:
    filled = filled_in(held.values)
    m = held.season if len(filled) >= held.season else 1
    return np.stack([filled[len(filled) - m + step % m] for step in range(held.ahead)])


def filled_in(values: np.ndarray) -> np.ndarray:
    """Gaps filled by straight lines, since peers take none."""
    steps = np.arange(len(values))
    return np.stack(
        [np.interp(steps, steps[~np.isnan(c)], c[~np.isnan(c)]) for c in values.T],
        axis=1,
    )


def preset(model: str, settings: dict[str, Any]) -> Way:
    def forecast(held: Held) -> np.ndarray:
        with tempfile.TemporaryDirectory() as folder:
            named = {} if model == "default" else {"model": model}
            m = an.Forecaster(**named, horizon=held.ahead, **settings)
            path = held.write(folder)
            m.fit(str(path), verbose=False)
            found = m.predict(str(path), interval=0.95)
            real = ~np.isnan(held.truth)
            held.inside = ((found.low <= held.truth) & (held.truth <= found.high))[real].tolist()
            return np.asarray(found.mean)

    return forecast


def by_column(way: Callable[[np.ndarray, int, int], np.ndarray]) -> Way:
    def forecast(held: Held) -> np.ndarray:
        season = held.season if 1 < held.season <= LONGEST_OF_ETS else 1
        columns = filled_in(held.values).T
        season = season if len(columns[0]) >= 2 * season + 5 else 1
        return np.stack([way(column, season, held.ahead) for column in columns], axis=1)

    return forecast


@by_column
def ets(y: np.ndarray, season: int, ahead: int) -> np.ndarray:
    """The exponential smoothing of smallest AICc, as R's `ets` chooses it."""
    from statsmodels.tsa.exponential_smoothing.ets import ETSModel

    best: Any = None
    positive = y.min() > 0
    seasons = [None, *(["add", "mul"] if positive else ["add"])] if 1 < season <= 24 else [None]
    trends = [(None, False), ("add", False), ("add", True)]
    for error, (trend, damped), seasonal in itertools.product(
        ["add", "mul"] if positive else ["add"], trends, seasons
    ):
        if error == "add" and seasonal == "mul":
            continue  # unstable, and not tried by R either
        try:
            found = ETSModel(
                y,
                error=error,
                trend=trend,
                damped_trend=damped,
                seasonal=seasonal,
                seasonal_periods=season if seasonal else None,
            ).fit(disp=False, maxiter=200)
        except (ValueError, FloatingPointError, np.linalg.LinAlgError):
            continue
        if np.isfinite(found.aicc) and (best is None or found.aicc < best.aicc):
            best = found
    return np.asarray(best.forecast(ahead))


@by_column
def theta(y: np.ndarray, season: int, ahead: int) -> np.ndarray:
    from statsmodels.tsa.forecasting.theta import ThetaModel

    model = ThetaModel(
        y,
        period=max(season, 2),
        deseasonalize=season > 1,
        method="auto" if y.min() > 0 else "additive",
    )
    return np.asarray(model.fit().forecast(ahead))


PEERS: dict[str, Way] = {"ets": ets, "theta": theta}


def series_in(folders: list[Path], only: list[str]) -> Iterator[tuple[str, str, Table]]:
    for folder in folders:
        for path in sorted(folder.glob("*.csv")):
            name, frequency, _ = path.name.rsplit(".", 2)
            if not only or name in only:
                yield name, frequency, read(path)


def arguments(about: str | None) -> argparse.ArgumentParser:
    """What names the series, the presets and their settings."""
    given = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("folders", type=Path, nargs="+")
    given.add_argument("--models", nargs="*", default=["default"], help="presets; `default` names none")
    given.add_argument("--only", nargs="*", default=[], help="names of series; all by default")
    given.add_argument("--origins", type=int, default=1)
    given.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings of all presets")
    return given


def main() -> None:
    given = arguments(__doc__)
    given.add_argument("--peers", nargs="*", default=[], choices=list(PEERS))
    asked = given.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    settings: dict[str, Any] = dict(pair.split("=", 1) for pair in asked.set)
    ways = {"last season": last_season}
    ways |= {model: preset(model, settings) for model in asked.models}
    ways |= {name: PEERS[name] for name in asked.peers}
    table: dict[str, dict[str, tuple[float, float]]] = {}
    seconds = dict.fromkeys(ways, 0.0)
    inside: dict[str, list[float]] = {way: [] for way in ways}
    for name, frequency, read_ in series_in(asked.folders, asked.only):
        found: dict[str, tuple[float, float]] = {}
        for way, forecast in ways.items():
            begun, measures = time.monotonic(), []
            try:
                for origin in range(asked.origins):
                    held = Held(read_, frequency, origin)
                    measures.append(held.measured(forecast(held)))
                    inside[way] += [statistics.fmean(held.inside)] if held.inside else []
                found[way] = (
                    statistics.fmean(m for m, _ in measures),
                    statistics.fmean(s for _, s in measures),
                )
            except AnaphoraError as error:
                print(f"{name}  {way}: {error}", flush=True)
            seconds[way] += time.monotonic() - begun
        table[name] = found
        written = "  ".join(f"{way} {mase:.3f}" for way, (mase, _) in found.items())
        print(f"{name:16} {frequency:10} {len(read_[1]):5}  {written}", flush=True)
    both = [found for found in table.values() if len(found) == len(ways)]
    print(
        f"\n{len(both)} of {len(table)} series that all forecast: mean MASE, median, sMAPE, mean rank, seconds a series, % in 95 % intervals"
    )
    for way in ways:
        values = [found[way] for found in both]
        ranks = [sum(other[0] < found[way][0] for other in found.values()) + 1 for found in both]
        covered = f"{100 * statistics.fmean(inside[way]):.0f}" if inside[way] else "-"
        print(
            f"{way:16} {statistics.fmean(m for m, _ in values):.3f}  {statistics.median(m for m, _ in values):.3f}  "
            f"{statistics.fmean(s for _, s in values):5.1f}  {statistics.fmean(ranks):.2f}  {seconds[way] / len(table):.1f}  {covered}"
        )


if __name__ == "__main__":
    main()
