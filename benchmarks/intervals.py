"""Intervals of forecasters on short everyday series: how many values they hold, and how wide they are.

    python benchmarks/intervals.py FOLDER --models default var kalman linear lstm --origins 2

FOLDER holds the series of `short_series.py`, which says what is held out. Each preset is trained with its defaults, and forecasts what was held
out with intervals of 50, 80 and 95 %. Prints for each preset, means over series: the share of values inside each; the width of those of 95 %,
and the mean interval score (MSIS) of the M4 competition,

    high − low + 2/α (low − y if y < low) + 2/α (y − high if y > high),   α = 0.05,

both in mean absolute errors of the last season within the training part; the geometric mean of that score, which no single series rules; the
share inside 95 % in the first and in the last quarter of the horizon; and of how many forecasts fewer than 80 % of the values were inside.
One thread.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from typing import Any

import numpy as np
import torch

import anaphora as an
from anaphora.errors import AnaphoraError
from short_series import Held, arguments, series_in

LEVELS = (0.5, 0.8, 0.95)
FEW = 0.8


def measured(model: str, held: Held, settings: dict[str, Any]) -> list[float]:
    """Shares inside the intervals of `LEVELS`, then of the last of them: width, score, and shares in the first and last quarter."""
    named = {} if model == "default" else {"model": model}
    with tempfile.TemporaryDirectory() as folder:
        path = str(held.write(folder))
        m = an.Forecaster(**named, horizon=held.ahead, **settings).fit(path, verbose=False)
        found = [m.predict(path, interval=level) for level in LEVELS]
    real = ~np.isnan(held.truth)
    inside = [(one.low <= held.truth) & (held.truth <= one.high) for one in found]
    low, high = found[-1].low, found[-1].high
    missed = np.maximum(low - held.truth, 0) + np.maximum(held.truth - high, 0)
    usual = held.usual()
    score = (high - low + 2 / (1 - LEVELS[-1]) * missed) / usual
    part = max(1, held.ahead // 4)
    first, last = (inside[-1][at][real[at]] for at in (slice(part), slice(-part, None)))
    return [
        *(float(one[real].mean()) for one in inside),
        float(np.nanmean((high - low) / usual)),
        float(np.nanmean(score)),
        *(float(one.mean()) if len(one) else float("nan") for one in (first, last)),
    ]


def main() -> None:
    asked = arguments(__doc__).parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    settings: dict[str, Any] = dict(pair.split("=", 1) for pair in asked.set)
    rows: dict[str, list[list[float]]] = {model: [] for model in asked.models}
    seconds = dict.fromkeys(asked.models, 0.0)
    for name, frequency, table in series_in(asked.folders, asked.only):
        for model in asked.models:
            begun = time.monotonic()
            try:
                found = [
                    measured(model, Held(table, frequency, origin), settings)
                    for origin in range(asked.origins)
                ]
                rows[model] += found
                print(
                    f"{name:16} {model:10} {100 * np.mean([one[2] for one in found]):3.0f} % inside",
                    flush=True,
                )
            except AnaphoraError as error:
                print(f"{name}  {model}: {error}", flush=True)
            seconds[model] += time.monotonic() - begun
    print(
        "\n% inside 50, 80, 95; width; MSIS, geometric; % in the first and last quarter; forecasts below 80 %; s"
    )
    for model, all_ in rows.items():
        a = np.array(all_)
        shares = "  ".join(f"{100 * share:4.1f}" for share in a[:, :3].mean(axis=0))
        ends = "  ".join(f"{100 * share:3.0f}" for share in np.nanmean(a[:, 5:], axis=0))
        print(
            f"{model:10} {shares}   {a[:, 3].mean():6.2f}  {a[:, 4].mean():6.2f}  {np.exp(np.log(a[:, 4]).mean()):6.2f}   {ends}   "
            f"{(a[:, 2] < FEW).sum():3} of {len(a)}   {seconds[model] / len(a):.1f}"
        )


if __name__ == "__main__":
    main()
