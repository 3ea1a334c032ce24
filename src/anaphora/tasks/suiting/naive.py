"""Forecasts that learn nothing, or little, beside a trained network: on the same dev data, so that a network which is no better is not mistaken for one that is."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anaphora.errors import AnaphoraError
from anaphora.tasks.forecast.measures import naive_mse
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.suiting.sizing import embedded
from anaphora.training.run import RunFolder

if TYPE_CHECKING:
    from anaphora.data.series import SeriesData
    from anaphora.tasks.forecast.estimator import Forecaster

MOST_VALUES = 1_000_000
"""Values of the training series up to which a vector autoregression is fitted in seconds."""
MOST_COLUMNS = 30
CLEARLY = 0.95
"""A simple forecast is better if its mse is less than this share of the network's: dev windows overlap, and are often few."""
MOST_STEPS = 20_000
"""Steps of the training series up to which `median` is fitted in seconds."""
MOST_TARGETS = 10
FEWEST = 10
"""Dev windows from which on one fitted preset is compared with forecasts that learn nothing: of fewer, chance decides."""
WAYS = {
    "persistence": "repeating the last value",
    "seasonal": "repeating the last season",
    "var": "the preset var, fitted in seconds,",
    "median": "the preset median, fitted in seconds,",
}


@dataclass(frozen=True)
class Rival:
    """The best simple forecast, one of `WAYS`, and its mse on the dev windows on which the run has ``value``."""

    name: str
    mse: float
    value: float
    model: str = "lstm"
    """The preset of the run."""

    def __str__(self) -> str:
        others = [name for name in ("median", "linear", "var", "kalman") if name != self.model]
        tried = f"better; try --model {', '.join(others[:-1])} or {others[-1]}"
        choice = "the better choice" if self.name in ("var", "median") else tried
        return f"{WAYS[self.name]} has mse {self.mse:.4g} on the same dev data, where this run has {self.value:.4g}: for these data it is {choice}"


def rival_of(m: Forecaster, run: str | Path) -> Rival | None:
    """The best simple forecast of the dev data of ``run``, which ``m`` has just been trained in, where it is better than ``m``; else None.

    Networks that forecast numbers and `median` are compared with `WAYS`, other presets with those of them that learn nothing; by mse on the dev
    windows of training.
    """
    s = m.settings_
    if s.output != "continuous" or not s.horizon or not m._window:
        return None
    folder = RunFolder(run)
    recipe = Recipe.read(folder.path)
    if embedded(recipe.data.get("train", {})):  # generated to show what networks can do
        return None
    data, dev = m._reopen(folder, recipe)
    windows = m._windows(dev)
    own, found = naive_mse(m.model_, windows, windows.spread(s.valid_examples))
    if m._direct:
        own = m.result_.metrics["mse"]  # of the model before it learned from dev data, too
        if len(windows) < FEWEST:
            return None
    if not m._direct or s.model == "median":
        found |= _fitted(m, data, dev)
    name = min(found, key=lambda key: found[key])
    return Rival(name, found[name], own, str(s.model)) if found[name] < CLEARLY * own else None


def _fitted(m: Forecaster, data: SeriesData, dev: SeriesData) -> dict[str, float]:
    """The mse of presets that are fitted in seconds, where they can be."""
    from anaphora.tasks.forecast.estimator import Forecaster

    s = m.settings_
    steps, values = sum(len(one) for one in data.series), sum(one.values.size for one in data.series)
    presets = []
    if values <= MOST_VALUES and len(data.columns) <= MOST_COLUMNS and s.model != "linear":
        presets.append("var")
    if s.model != "median" and steps <= MOST_STEPS and len(m.columns_.targets) <= MOST_TARGETS:
        presets.append("median")
    found = {}
    for preset in presets:
        shared = ("window", "horizon", "targets", "known", "period", "nonnegative", "valid_examples")
        other = Forecaster(preset, **{key: getattr(s, key) for key in shared})
        # few steps, or columns that follow from others, do not determine it
        with contextlib.suppress(AnaphoraError):
            other._learn(data)
            found[preset] = other._solve(data, dev, None)["mse"]
    return found
