"""The settings of a forecaster become a model here, and only here."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from anaphora.data.series import SeriesData
from anaphora.data.series_arrays import ROLL_COLUMNS
from anaphora.data.series_scale import Columns
from anaphora.errors import DataError
from anaphora.models.forecaster import (
    AttentiveReader,
    DilatedReader,
    Forecaster,
    Reader,
    RecurrentReader,
    WindowMap,
    WindowReader,
)
from anaphora.models.forecaster_ancestor import Ancestor
from anaphora.models.forecaster_classical import KalmanForecaster, Structure, VARForecaster
from anaphora.models.forecaster_median import MedianForecaster
from anaphora.models.own import OwnForecast
from anaphora.nn import DilatedStack, transformer
from anaphora.settings.own import Part
from anaphora.tasks.forecast.info import ForecasterSettings
from anaphora.tasks.own import own_model
from anaphora.tasks.parts import encoder_layer, make_positions, make_reader

OCTAVE, CHORDS = 12, 128  # `neighbours` and `nade` of piano rolls
RAREST = 1e-3
"""The least rate that a forecaster begins with."""
FEWEST_STEPS = 6
"""Training steps of the longest series from which `median` forecasts."""
STRUCTURES: tuple[Structure, ...] = ("level", "trend", "dynamic")


def fresh_forecaster(s: ForecasterSettings, columns: Columns) -> nn.Module:
    """The user's own network, or that of the preset, with fresh weights."""
    features, targets = features_of(s, columns), columns.targets
    own = own_model("forecast", s, inputs=features, outputs=len(targets), labels=targets)
    if own is not None:
        return OwnForecast(own, targets=len(targets), horizon=max(s.horizon, 1), aligned=not s.horizon)
    return build_forecaster(s, columns, features)


def features_of(s: ForecasterSettings, columns: Columns) -> int:
    """Values per step that a network reads: see `prepare`."""
    groups = (columns.others,) if not s.horizon else (columns.targets, columns.others)
    gaps = [group for group in groups if any(columns.gaps[place] for place in columns.places(group))]
    return sum(map(len, groups)) + sum(map(len, gaps))


def fitted_ancestors(s: ForecasterSettings, columns: Columns, data: SeriesData) -> Iterator[Ancestor]:
    """The models that a direct preset fits to ``data``, of which the dev data choose one."""
    series = [columns.standardised(one.values) for one in data.series]
    if s.model == "var":
        yield VARForecaster.fit(series, columns, lags=s.lags, max_lags=s.max_lags)
        return
    if s.model == "median":
        _check_steps(data)
        yield MedianForecaster.fit(
            series, columns, horizon=s.horizon, period=s.period, nonnegative=s.nonnegative
        )
        return
    for structure in STRUCTURES if s.structure == "auto" else (s.structure,):
        yield KalmanForecaster.fit(
            series, columns, structure=structure, states=s.states, iterations=s.iterations
        )


def _check_steps(data: SeriesData) -> None:
    """An error where no series has steps enough to tell a slope from chance."""
    longest = max(len(one) for one in data.series)
    if longest < FEWEST_STEPS:
        raise DataError(
            f"{data.place}: the longest series has {longest} training steps, which are too few to forecast from; "
            f"give at least {FEWEST_STEPS}, besides those held out."
        )


def build_forecaster(s: ForecasterSettings, columns: Columns, features: int) -> nn.Module:
    """The network a preset names, with fresh weights, for inputs of ``features`` values per step."""
    targets = len(columns.targets)
    if s.model == "linear":
        return WindowMap(
            targets=targets,
            others=features - targets,
            known=len(columns.known),
            window=s.window,
            horizon=s.horizon,
            normalize=s.normalize,
        )
    known = [targets + columns.others.index(name) for name in columns.known] if s.horizon else []
    each = ((features - targets + 1 if s.apart else features) + bool(known)) * s.patch
    model = Forecaster(
        _reader(s, each),
        targets=targets,
        horizon=max(s.horizon, 1),
        known=known,
        normalize=s.normalize,
        apart=s.apart,
        patch=s.patch,
        dropout=s.dropout,
        nade=units_of(s, columns),
        neighbours=reach_of(s, columns),
    )
    if s.output != "continuous":
        begin_at(model.head, columns, apart=s.apart)
    return model


@torch.no_grad()
def begin_at(head: nn.Linear, columns: Columns, *, apart: bool = False) -> None:
    """Let a head of 0s and 1s or of counts begin at how often or how many there are: a bias of −5 is many steps away from 0."""
    usual = torch.tensor(columns.usual).clamp(min=RAREST)
    start = usual.log() if columns.output == "count" else torch.logit(usual, RAREST)
    if apart:  # one head for all targets
        start = start.mean(0, keepdim=True)
    head.bias.view(-1, len(start)).copy_(start)


def is_roll(s: ForecasterSettings, columns: Columns) -> bool:
    """Whether the columns are the keys of a piano, all forecast from their past."""
    return s.output == "binary" and columns.names == columns.targets == ROLL_COLUMNS and s.horizon > 0


def reach_of(s: ForecasterSettings, columns: Columns) -> int:
    """How many columns away the values may be that a target is also predicted from; 0 = none are."""
    if s.neighbours < 0:
        return OCTAVE if is_roll(s, columns) and not s.apart else 0
    return min(s.neighbours, max(len(columns.targets) - 1, 1))


def units_of(s: ForecasterSettings, columns: Columns) -> int:
    """Units through which the targets of a step depend on each other; 0 = they do not."""
    if isinstance(s.model, Part) or s.model == "linear":  # no state of ours that could shift them
        return 0
    return (CHORDS if is_roll(s, columns) and not s.apart else 0) if s.nade < 0 else s.nade


def _reader(s: ForecasterSettings, inputs: int) -> Reader:
    if s.model == "mlp":
        return WindowReader(inputs, s.hidden, (s.lags or s.window) // s.patch, s.layers)
    if s.model == "conv":
        return DilatedReader(inputs, s.hidden, DilatedStack(s.hidden, s.kernel, s.layers, dropout=s.dropout))
    if s.model == "transformer":
        stack = transformer.TransformerEncoder(encoder_layer(s), s.layers)
        return AttentiveReader(
            inputs, stack, positions=make_positions(s, s.window // s.patch), dropout=s.dropout
        )
    return RecurrentReader(
        make_reader(s, inputs, bidirectional=False), dropout=s.dropout if s.patch == 1 else 0.0
    )
