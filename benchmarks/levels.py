"""Forecast series whose level wanders and such whose level stays, with and without `normalize=last`: python benchmarks/levels.py [ETTh1.csv]

The first four fifths are learned from, the last fifth is judged: mse in deviations of the training part, 24 steps ahead from 96. Generated: months
with a trend and a season that grows, hours with a daily and a weekly season whose level stays, rises or walks at random, and a stationary VAR; of
ETTh1 (the first 20 months) all hours, its column OT, the means of days, and the first 1 500 hours. Options after the file: presets, by default lstm.
"""

from __future__ import annotations

import csv
import sys
import time
from pathlib import Path

import numpy as np

import anaphora as an

MONTHS, LAST = 14_400, 96


def hours(seed: int, trend: float = 0.0, walk: float = 0.0) -> np.ndarray:
    random, t = np.random.default_rng(seed), np.arange(4000)
    season = (
        5 * np.sin(2 * np.pi * t / 24) + 2 * np.sin(2 * np.pi * t / 168) + np.where(t % 168 >= 120, 3.0, 0.0)
    )
    return season + trend * t + np.cumsum(random.normal(0, walk, len(t))) + random.normal(size=len(t))


def months(seed: int) -> np.ndarray:
    random, t = np.random.default_rng(seed), np.arange(240)
    return (100 + 2 * t) * (1 + 0.2 * np.sin(2 * np.pi * t / 12)) + random.normal(0, 5, len(t))


def autoregression(seed: int) -> np.ndarray:
    random, now, found = np.random.default_rng(seed), np.zeros(2), []
    for _ in range(4000):
        now = np.array([[0.7, 0.25], [-0.3, 0.5]]) @ now + random.normal(size=2)
        found.append(now)
    return np.array(found)


def series(path: Path | None) -> dict[str, np.ndarray]:
    found = {"months": months(6)}
    if path:
        with path.open(newline="") as file:
            rows = list(csv.reader(file))[1:]
        values = np.array([[float(cell) for cell in row[1:]] for row in rows])
        days = values[: len(values) // 24 * 24].reshape(-1, 24, values.shape[1]).mean(axis=1)
        found |= {
            "days": days,
            "short": values[:1500, [-1, 0]],
            "OT": values[:MONTHS, -1:],
            "ETTh1": values[:MONTHS],
        }
    found |= {
        "var": autoregression(4),
        "season": hours(1),
        "trend": hours(2, trend=0.01),
        "walk": hours(3, walk=0.3),
    }
    return {name: values.reshape(len(values), -1) for name, values in found.items()}


def main(path: Path | None, presets: list[str]) -> None:
    for name, values in series(path).items():
        cut = 4 * len(values) // 5
        train, test = values[:cut], values[cut - LAST :]
        for preset in [*presets, "linear", "var", "median"]:
            kinds = ("none", "last") if preset in presets else ("",)
            for kind in kinds:
                begun = time.monotonic()
                m = an.Forecaster(preset, **({"normalize": kind} if kind else {}), device="cpu")
                found = m.fit(train, verbose=False).score(test)
                seasonal = found.get("seasonal_mse")
                print(
                    f"{name:8}{preset:12}{kind:8}{found['mse']:.4f}  persistence {found['persistence_mse']:.4f}"
                    + (f"  season {seasonal:.4f}" if seasonal is not None else "")
                    + f"  {time.monotonic() - begun:.0f} s",
                    flush=True,
                )


if __name__ == "__main__":
    given = sys.argv[1:]
    main(Path(given[0]) if given else None, given[1:] or ["lstm"])
