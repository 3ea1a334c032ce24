"""The forecaster as the registry knows it: its settings and presets. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from anaphora.settings import (
    HoldoutSettings,
    RecurrentSettings,
    Settings,
    StackSettings,
    TrainingSettings,
    TransformerSettings,
)
from anaphora.settings.network import RecurrentStack, TransformerStack
from anaphora.settings.own import Own, OwnMetric
from anaphora.tasks.info import Preset, TaskInfo, Uses, budget, linear_presets

DIRECT = ("median", "var", "kalman")
ROLLS: Mapping[str, Any] = {
    "hidden": 256,
    "dropout": 0.3,
    "lr": 0.01,
    "clip": 10.0,
    "ema": 0.99,
    "batch_tokens": 1024,
    "epochs": 150.0,
    "max_steps": 6000,
}
"""What recurrent presets have for output = binary, many columns of 0s and 1s such as piano rolls."""


class ForecasterSettings(TransformerStack, RecurrentStack, HoldoutSettings, TrainingSettings):
    model: Annotated[str, Own()] = Field("lstm", description="The preset: `anaphora models` lists them.")
    horizon: int = Field(
        24,
        ge=0,
        description="Steps ahead, all forecast at once. 0 = aligned: the targets of each step are predicted from the other "
        "columns up to that step.",
    )
    window: int = Field(
        96,
        ge=0,
        description="Steps of history that are read. 0 = whole series from their beginning, with outputs after every "
        "step: for many short series, such as pieces of music.",
    )
    targets: str = Field(
        "", description="Columns to forecast, separated by commas; empty = all that are not known in advance."
    )
    known: str = Field(
        "",
        description="Columns whose future is known in advance (a calendar, a plan, a control), separated by commas.",
    )
    output: Literal["continuous", "count", "binary"] = Field(
        "continuous",
        description="What targets are: numbers (squared or absolute error), counts (Poisson), or 0 and 1 (Bernoulli), "
        "such as the notes of a piano roll.",
    )
    nade: int = Field(
        -1,
        ge=-1,
        le=4096,
        description="Units through which the 0s and 1s of a step depend on each other, each on those in the columns before it (NADE, "
        "Larochelle 2011): notes come as chords, and −log p is that of the whole step. Needs output = binary; 0 = targets are independent given "
        "the steps before, -1 = 128 for piano rolls, else 0.",
    )
    neighbours: int = Field(
        -1,
        ge=-1,
        le=87,
        description="Also predict each target from the targets at most so many columns away in the last step, by weights that the network "
        "gives for each distance, the same for all columns: voices move by intervals, whatever the key. For columns in an order, such as "
        "keys; 0 = off, -1 = 12, an octave, for piano rolls, else 0.",
    )
    transpose: int = Field(
        -1,
        ge=-1,
        le=43,
        description="Move each piece of a piano roll up or down by at most so many keys at random while training: the same music in "
        "other keys. Needs output = binary and the 88 keys as columns; 0 = never, -1 = 2 for piano rolls, else 0.",
    )
    loss: Annotated[Literal["mse", "mae"], Own()] = Field(  # type: ignore[assignment]
        "mse",
        description="What is minimised for continuous targets: the mean squared or the mean absolute error; or your own, a "
        "function of (outputs, targets) that gives one number per value.",
    )
    normalize: Literal["none", "last", "window"] = Field(
        "none",
        description="What is taken out of each window of the targets and put back into its forecasts: nothing, its last "
        "value, or its mean and deviation. Networks take out the last value where the level of the training series wanders, "
        "unless you say otherwise.",
    )
    apart: bool = Field(
        False,
        description="Forecast each target from its own history with one shared network, instead of all from all.",
    )
    patch: int = Field(1, ge=1, description="Steps that make one place of the network; must divide `window`.")
    kernel: int = Field(3, ge=2, description="Steps that a convolution sees, of every 2^layer steps back.")
    lags: int = Field(
        0,
        ge=0,
        description="Steps a VAR or an mlp looks back; 0 = chosen by Schwarz's criterion (mlp: the whole window).",
    )
    max_lags: int = Field(
        50, ge=1, description="Most lags that a VAR chooses among, where the series are long enough."
    )
    structure: Literal["auto", "level", "trend", "dynamic"] = Field(
        "auto",
        description="The state-space model: a level with a season, the same with a slope, or a dynamical system with all "
        "matrices learned; auto = the one with the smallest error on the dev data.",
    )
    states: int = Field(
        4,
        ge=1,
        description="Hidden states of a dynamical system (rounded up to whole lags of all its outputs).",
    )
    iterations: int = Field(50, ge=1, description="Most steps of expectation and maximisation.")
    period: int = Field(
        0, ge=0, description="Steps of a season; 0 = found in the training data, 1 = there is none."
    )
    nonnegative: bool = Field(
        True,
        description="Forecast nothing below 0, and end no interval there, where neither a training value of the target nor one of the series "
        "at hand is below 0. false = values below 0 may come, as in temperatures of which training saw the summer. For continuous targets.",
    )
    metric: Annotated[Literal["loss", "mse", "mae"], OwnMetric()] = Field(
        "loss",
        description="The dev measure that decides which weights are best; loss is what training minimises.",
    )
    valid_examples: int = Field(
        1000, ge=1, description="Most dev windows forecast at each evaluation while training, evenly spread."
    )

    @field_validator("targets", "known", mode="before")
    @classmethod
    def _joined(cls, value: Any) -> Any:
        if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
            return ",".join(value)
        return value

    @model_validator(mode="after")
    def _fits(self) -> ForecasterSettings:
        problem = self._problem()
        if problem:
            raise ValueError(problem)
        return self

    @classmethod
    def implied(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        found = super().implied(given)
        if given.get("output") == "binary" and given.get("model", "lstm") in ("rnn", "lstm", "gru"):
            found = {**ROLLS, **found}
        return found

    def _problem(self) -> str | None:
        network = self.model not in (*DIRECT, "linear")
        if self.model in DIRECT and self.output != "continuous":
            return f"output = '{self.output}' needs a network; {self.model} forecasts continuous values"
        if not self.horizon and not network:
            return f"horizon = 0 (aligned) needs mlp, rnn, lstm, gru, conv or transformer, not {self.model}"
        if self.model == "mlp" and not (self.window or self.lags):
            return "window = 0 leaves open how far mlp looks back: set lags, or a window"
        if self.model == "mlp" and self.lags % self.patch:
            return f"lags = {self.lags} is not a multiple of patch = {self.patch}"
        if not self.window and self.model == "linear":
            return "window = 0 has no meaning for linear, which maps a window of fixed length"
        if self.model == "transformer" and self.positions == "learned" and not (self.window and self.horizon):
            return "positions = 'learned' needs a window of fixed length before a horizon, not window = 0 or horizon = 0"
        if not self.horizon and self.window == 1:
            return "window = 1 is too short for horizon = 0: give at least 2, or 0 for whole series"
        if self.output != "continuous" and self.metric in ("mse", "mae"):
            return f"metric = '{self.metric}' is for continuous targets; output = '{self.output}' is judged by its loss"
        return self._window_problem() if network or self.model == "linear" else None

    def _window_problem(self) -> str | None:
        dense = not self.window or not self.horizon
        for key, usual in (("normalize", "none"), ("apart", False), ("patch", 1)):
            value = getattr(self, key)
            if dense and value != usual:
                return f"{key} needs a window of fixed length before a horizon, not window = 0 or horizon = 0"
        if self.nade > 0 and self.output != "binary":
            return (
                f"nade = {self.nade} is for 0s and 1s (output = 'binary'), not for output = '{self.output}'"
            )
        if self.neighbours > 0 and (self.apart or self.normalize != "none" or not self.horizon):
            key = (
                "apart = true"
                if self.apart
                else "horizon = 0"
                if not self.horizon
                else f"normalize = '{self.normalize}'"
            )
            return f"neighbours = {self.neighbours} predicts targets from the last values around them, which {key} excludes: leave one out"
        if self.nade > 0 and self.apart:
            return f"nade = {self.nade} lets targets depend on each other, but apart = true forecasts each by itself: leave one out"
        if self.output != "continuous" and self.normalize != "none":
            return f"normalize = '{self.normalize}' is for continuous targets, not output = '{self.output}'"
        if self.window % self.patch:
            return f"window = {self.window} is not a multiple of patch = {self.patch}"
        return None

    def names(self, key: Literal["targets", "known"]) -> tuple[str, ...]:
        """The columns that ``targets`` or ``known`` lists."""
        value: str = getattr(self, key)
        return tuple(name.strip() for name in value.split(",") if name.strip())


class ForecastOptions(Settings):
    """What ``predict`` takes."""

    horizon: int = Field(
        0,
        ge=0,
        description="Steps to forecast; 0 = as trained. Beyond those a network is fed its own forecasts.",
    )
    interval: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Probability of intervals around the forecasts, such as 0.95; 0 = none. Their width is that of the "
        "errors on dev data (split conformal), and of few dev data on the training series as well.",
    )
    sample: bool = Field(
        False,
        description="Draw counts and 0s and 1s at random instead of giving their mean, and go on from what was drawn.",
    )
    seed: int = Field(1, ge=0, lt=2**32, description="Of `sample`: the same seed draws the same.")


_ALWAYS: Uses = (
    *("horizon", "window", "targets", "known", "output", "nonnegative"),
    *("period", "metric", "valid_examples"),
)
_NETWORK: Uses = (
    *(*_ALWAYS, TrainingSettings, StackSettings),
    *("loss", "normalize", "apart", "patch", "transpose", "nade", "neighbours"),
)
_RECURRENT: Uses = (*_NETWORK, RecurrentSettings)
_STEPS = {
    "lr": 3e-3,
    "steps": 600,
    "batch_tokens": 6144,
    "valid_every": 100,
    "save_every": 500,
    "clip": 1.0,
    "precision": "fp32",  # values have more digits than bf16
}
_BUDGET = budget(60.0, 300, 2000, patience=5)
_QUICK = {**_STEPS, "hidden": 64, "layers": 1, "dropout": 0.0}

_PRESETS = (
    Preset(
        "median",
        "The median of eleven simple forecasts of each target from its own past: exponential smoothing, autoregression, a linear map; for short series.",
        {},
        (*_ALWAYS, "device", "seed"),
        direct=True,
        assumed="series of up to 5 000 steps",
    ),
    Preset(
        "var",
        "Vector autoregression: each step a linear function of the few before it, by least squares.",
        {},
        (*_ALWAYS, "lags", "max_lags", "device", "seed"),
        direct=True,
    ),
    Preset(
        "kalman",
        "State-space models: level, trend and season, or a linear dynamical system, by EM; gaps are no trouble.",
        {},
        (*_ALWAYS, "structure", "states", "iterations", "device", "seed"),
        direct=True,
    ),
    Preset(
        "linear",
        "One linear map from the window to the horizon, shared by all targets (Zeng 2023): hard to beat on calm data.",
        {**_STEPS, "normalize": "last", "lr": 1e-3, "batch_tokens": 12288, "ema": 0.99},
        (*_ALWAYS, TrainingSettings, "loss", "normalize"),
        budget=_BUDGET,
    ),
    Preset(
        "mlp",
        "Feed-forward network on a window: the last `lags` steps (0 = all that are read) through tanh layers; no recurrence.",
        {**_QUICK, "hidden": 128},
        (*_NETWORK, "lags"),
        budget=_BUDGET,
    ),
    Preset(
        "rnn", "Plain recurrent network (Elman).", {**_QUICK, "cell": "elman"}, _RECURRENT, budget=_BUDGET
    ),
    Preset(
        "lstm",
        "LSTM; all steps of the horizon from its last state.",
        {**_QUICK, "cell": "lstm"},
        _RECURRENT,
        budget=_BUDGET,
    ),
    Preset(
        "gru",
        "GRU; all steps of the horizon from its last state.",
        {**_QUICK, "cell": "gru"},
        _RECURRENT,
        budget=_BUDGET,
    ),
    Preset(
        "conv",
        "Causal convolutions with dilations 1, 2, 4, … (Bai 2018).",
        {**_QUICK, "hidden": 48, "layers": 6, "kernel": 2, "batch_tokens": 3072},
        (*_NETWORK, "kernel"),
        budget=_BUDGET,
    ),
    *linear_presets({**_QUICK, "layers": 2, "lr": 2e-3, "batch_tokens": 3072}, _NETWORK, _BUDGET),
    Preset(
        "transformer",
        "Causal self-attention over the steps, or over patches of them (Nie 2023).",
        {
            **_QUICK,
            "hidden": 48,
            "layers": 2,
            "feedforward": 96,
            "warmup": 100,
            "batch_tokens": 3072,
        },
        (*_NETWORK, TransformerSettings),
        budget=_BUDGET,
    ),
)

FORECAST = TaskInfo(
    command="forecast",
    name="Forecaster",
    summary="the next values of time series: sensors, sales, counts, music",
    data_help="CSV with a header (a folder of them, or a column `series`, for several), .npy/.npz, JSON piano rolls, "
    "an embedded corpus, or arrays",
    settings=ForecasterSettings,
    presets={preset.name: preset for preset in _PRESETS},
    default_preset="lstm",
    home="anaphora.tasks.forecast.estimator",
    predicting=ForecastOptions,
    fields=("time_field", "id_field", "decimal"),
    example="train.csv",
    counts_corpora=True,
    next_steps=(("Use it:", "predict {run} FILE"), ("Measure it:", "score {run} FILE")),
)
