"""Defaults of a forecaster that depend on its series: whether they are piano rolls, how long they are, and whether their level wanders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from anaphora.data.series_readers import ROLLS
from anaphora.data.series_times import calendar
from anaphora.data.sources.report import say
from anaphora.errors import SettingsError
from anaphora.tasks.registry import resolve
from anaphora.tasks.suiting.sizing import assume, embedded, forget_preset, take_preset

if TYPE_CHECKING:
    from anaphora.data.series import SeriesData
    from anaphora.data.series_scale import Columns
    from anaphora.tasks.forecast.estimator import Forecaster

WANDERS = 0.15
"""Share of the variance between parts from which a level wanders: 0.38 and more in series of which a network forecasts the differences
from the last value better, 0.08 and less in those where it does not."""
SEVERAL = 50
"""Windows of which a model can learn something."""
PARTS = 10
SHOWN = 3
"""Names of targets that a line lists."""
FEWEST = 4


SHORT = "median"
"""The preset of few data."""
FEW_STEPS = 5000
"""Steps of all training series up to which they are few."""
NEUTRAL = frozenset(
    {
        *("horizon", "targets", "known", "period", "output", "nonnegative"),
        *("holdout", "metric", "valid_examples", "device"),
    }
)
"""Settings that every preset has: a user who gives others has a network in mind."""
HORIZONS = {"monthly": 12, "quarterly": 8, "yearly": 6}

OF_ROLLS = {"output": "binary", "horizon": 1, "window": 0}
"""Piano rolls are pieces of 0s and 1s, read as wholes and forecast chord by chord."""


def suit_rolls(m: Forecaster, data: Any) -> None:
    """Give a forecaster of piano rolls (a JSON file) the settings that suit them, where the user has set nothing else and the preset
    can have them."""
    if not isinstance(data, str | Path) or Path(data).suffix != ROLLS:
        return
    chosen = {key: value for key, value in OF_ROLLS.items() if key not in m._given}
    try:
        settings = resolve(m.task(), {**m._given, **chosen})
    except SettingsError:  # a preset with a window of fixed length
        return
    m.settings_ = settings  # type: ignore[assignment]
    if chosen:
        say(f"assumed, for piano rolls: {', '.join(f'{key}={value}' for key, value in chosen.items())}")


def suit_preset(m: Forecaster, data: SeriesData) -> None:
    """Take the preset `median` for few data, where the user has named no model and set nothing that is about networks.

    Networks learn too little of so few steps: chosen on 28 short series, most of which they forecast worse than the last season does. Columns
    that are read but neither forecast nor known in advance speak for a network, since `median` does not look at them.
    """
    forget_preset(m, SHORT)
    s = m.settings_
    if m._given.keys() - NEUTRAL or s.output != "continuous" or not s.horizon or embedded(data.facts):
        return
    steps = sum(len(one) for one in data.series)
    targets, known = s.names("targets"), s.names("known")
    if steps > FEW_STEPS or (targets and len({*targets, *known}) < len(data.columns)):
        return
    values = np.concatenate([one.values for one in data.series])
    if np.isin(values[~np.isnan(values)], (0.0, 1.0)).all():  # for which there is an output of their own
        return
    take_preset(m, SHORT, f"{steps:,} steps, which are few for a network")


def suit_horizon(m: Forecaster, data: SeriesData) -> None:
    """Look no further ahead than is usual for months, quarters and years, where the user has not said how far."""
    found = calendar(data.series[0].times) if data.series else None
    if found in HORIZONS and m.settings_.horizon and not embedded(data.facts):
        longest = max(len(one) for one in data.series)
        assume(m, {"horizon": min(HORIZONS[found], most_ahead(longest))}, f"{found} rows")


def most_ahead(longest: int) -> int:
    """How far to look ahead at most, where the longest series has so many steps."""
    return max(1, longest // 6)


def suit_length(m: Forecaster, data: SeriesData, held: bool) -> None:
    """Give a forecaster of short series a shorter window, and of very short ones a shorter horizon, where the user has set none: with the usual
    ones they would make but a few examples, or none. ``held``: their ends are dev data.

    A horizon is at most a sixth of the longest series, and a window half of what is left before it.
    """
    s = m.settings_
    if not s.window or not s.horizon or embedded(data.facts):
        return
    longest = max((len(one) for one in data.series), default=0)

    def left(horizon: int) -> int:
        """Steps of the longest series that training has, of which at least ``horizon`` ones are held out."""
        return longest - max(horizon, longest // 10) * held

    examples = sum(
        max(0, len(one) - longest + left(s.horizon) - s.window - s.horizon + 1) for one in data.series
    )
    if examples >= SEVERAL:
        return
    horizon = s.horizon if "horizon" in m._given else min(s.horizon, most_ahead(longest))
    window = min(s.window, max(1, (left(horizon) - horizon) // 2))
    if m._direct and "window" not in m._given:  # it reads all; its windows only say from where to forecast
        m.settings_ = s.model_copy(update={"window": window})
    assume(m, {"window": window, "horizon": horizon}, f"series of at most {longest:,} steps")


def report_floor(m: Forecaster, data: SeriesData) -> None:
    """Report the targets whose forecasts are kept from falling below 0, where one might: 0 lies less than the range of the values below them."""
    columns = m.columns_
    if "nonnegative" in m._given or not any(columns.nonnegative) or embedded(data.facts):
        return
    values = np.concatenate([one.values for one in data.series])[:, columns.places(columns.targets)]
    low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    near = (low < high - low) & np.array(columns.nonnegative)
    names = [name for name, chosen in zip(columns.targets, near, strict=True) if chosen]
    if names:
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        say(f"assumed, for {', '.join(names[:SHOWN])}{more}, never below 0 in training: nonnegative=true")


def suit_level(m: Forecaster, data: SeriesData) -> None:
    """Let a network forecast differences from the last value where the level of the targets wanders.

    The dev and test parts of such a series lie at levels that training has seldom or never seen, and a network does not extrapolate. Where the
    level stays, its mean is the better reference, and nothing is changed. Only numbers that are forecast from a window of fixed length
    have such a reference; embedded corpora are left alone.
    """
    s = m.settings_
    if s.output != "continuous" or not s.window or not s.horizon or s.neighbours > 0:
        return
    if embedded(data.facts):
        return
    share = wandering(data, m.columns_, s.window)
    if share >= WANDERS:
        assume(
            m,
            {"normalize": "last"},
            f"series whose level wanders ({share:.0%} of the variance lies between parts)",
        )


def wandering(data: SeriesData, columns: Columns, window: int) -> float:
    """The share of the targets' variance that lies between consecutive parts of the series: mean over targets of mean(part mean²), standardised.

    Each series has ten parts, fewer if they would be shorter than a window, but at least four.
    """
    places = columns.places(columns.targets)
    means, sizes = [], []
    for one in data.series:
        values = columns.standardised(one.values)[:, places]
        count = max(FEWEST, min(PARTS, len(values) // window))
        for part in np.array_split(values, min(count, max(1, len(values)))):
            real = ~np.isnan(part)
            sizes.append(real.sum(axis=0))
            means.append(np.where(real, part, 0.0).sum(axis=0) / np.maximum(1, real.sum(axis=0)))
    weights, squares = np.array(sizes, dtype=np.float64), np.array(means) ** 2  # (parts, targets)
    return float(((squares * weights).sum(axis=0) / np.maximum(1.0, weights.sum(axis=0))).mean())
