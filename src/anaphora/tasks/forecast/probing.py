"""A look into a forecaster at the end of one series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from anaphora.data.series_ahead import observed
from anaphora.data.series_windows import prepare
from anaphora.errors import DataError
from anaphora.kinds.vectors import typed_numbers
from anaphora.models.forecaster_classical import KalmanForecaster
from anaphora.probe.attribution import attribution_arrays, integrated_gradients, occluded, stretches
from anaphora.probe.classical import probe_kalman
from anaphora.probe.reading import probe_reading
from anaphora.probe.trace import Array, Trace
from anaphora.tasks.forecast.inference.ahead import Prediction
from anaphora.tasks.looking import facts_of

if TYPE_CHECKING:
    from anaphora.tasks.forecast.estimator import Forecaster

LONGEST = 2000
SHOWN = 200
"""Steps before the end that are kept beside a forecast."""


def probe_forecaster(m: Forecaster, data: Any, what: Sequence[str]) -> Trace:
    """Of a Kalman filter its course over the series; of a network its states, gates and attention over the last window.
    A text is lines of numbers, a line for each step."""
    given = typed_numbers(data) if isinstance(data, str) else data
    series = m._opened(given, role="test").series[0]
    columns, s = m.columns_, m.settings_
    facts = facts_of(m, f"series {series.name}, {len(series)} steps") | {"outputs": list(columns.targets)}
    model = m.model_
    end = observed(series, columns, s.horizon) if s.horizon else len(series)
    ahead_of = forecast_arrays(m, given, series.values[:end])
    if isinstance(model, KalmanForecaster):
        system, y, x = model.seen_by(0, columns.standardised(series.values[-LONGEST:]))
        trace = probe_kalman(system, y, x if x.shape[1] else None)
        return replace(trace, arrays={**trace.arrays, **ahead_of}, facts={**trace.facts, **facts})
    if not isinstance(
        model, nn.Module
    ):  # a VAR is a table of coefficients: nothing but its forecast is to be seen
        return Trace({}, ahead_of, facts)
    if end < s.window:
        raise DataError(f"the series has {end} steps, but the model reads window = {s.window}; give more.")
    one = prepare(series.values, columns, aligned=not s.horizon)
    window = one.inputs[end - (s.window or min(end, LONGEST)) : end]
    steps = len(window)
    known = one.known.shape[1]
    future = np.zeros((1, 1 if s.window and s.horizon else steps, max(s.horizon, 1), known), np.float32)
    if s.horizon:
        future[:] = one.known[end : end + s.horizon][None, None] if known else 0.0
    device = next(model.parameters()).device
    read = torch.from_numpy(np.asarray(window, np.float32))[None].to(device)
    ahead = torch.from_numpy(future).to(device)
    lengths = None if s.window else torch.tensor([steps], device=device)

    def call() -> Tensor:
        return model(read, ahead, lengths)  # type: ignore[no-any-return]

    trace, _ = probe_reading(
        model,
        call,
        places=_places(model, end, steps),
        facts=facts,
        losses=lambda out: out.square().mean().reshape(1),
        what=what,
    )
    arrays = {**trace.arrays, **ahead_of}
    if "attribution" in what:
        more, shared = _attributed(model, read, ahead, lengths)
        tokens = {**trace.tokens, "source": [str(end - steps + t + 1) for t in range(steps)]}
        return replace(trace, tokens=tokens, arrays={**arrays, **more}, facts={**trace.facts, **shared})
    return replace(trace, arrays=arrays)


def _places(model: nn.Module, end: int, steps: int) -> list[str]:
    """A name for each place that the network reads: steps by their numbers, those to come with a plus sign; several steps
    that make one place by the first and the last of them."""
    names = [str(end - steps + t + 1) for t in range(steps)]
    if getattr(model, "known", ()):
        names += [f"+{h + 1}" for h in range(int(model.horizon))]  # type: ignore[arg-type]
    patch = int(getattr(model, "patch", 1))
    if patch == 1:
        return names
    return [f"{names[t]}–{names[t + patch - 1]}" for t in range(0, len(names) - patch + 1, patch)]


def forecast_arrays(m: Forecaster, given: Any, values: Any) -> dict[str, Array]:
    """``history`` (time, output), the end of the targets, and ``forecast``, ``forecast_low`` and ``forecast_high`` (step,
    output), the 95 % interval, all in the units of the data. Empty for aligned forecasters. Probabilities of 0s and 1s have
    no interval: its ends are the probability itself."""
    columns = m.columns_
    if not m.settings_.horizon:
        return {}
    found = m.predict(given, interval=0.0 if columns.output == "binary" else 0.95)
    found = found[0] if isinstance(found, list) else found
    mean, low, high = (found.mean, found.low, found.high) if isinstance(found, Prediction) else (found,) * 3
    past = np.asarray(values, np.float64)[-SHOWN:, columns.places(columns.targets)]
    return {
        "history": Array(("frame", "output"), past),
        "forecast": Array(("step", "output"), mean),
        "forecast_low": Array(("step", "output"), low),
        "forecast_high": Array(("step", "output"), high),
    }


def _attributed(
    model: nn.Module, read: Tensor, ahead: Tensor, lengths: Tensor | None
) -> tuple[dict[str, Array], dict[str, Any]]:
    """The mean of the forecast, in standardised units, shared out over the steps that were read."""
    model.eval()

    def score(inputs: Tensor) -> Tensor:
        n = len(inputs)
        counts = None if lengths is None else lengths.expand(n)
        out: Tensor = model(inputs, ahead.expand(n, *ahead.shape[1:]), counts)
        last = out if out.dim() < 3 or lengths is None else out[:, -1]
        return last.flatten(1).mean(1, keepdim=True)

    blank, steps = torch.zeros_like(read), read.shape[1]
    found = integrated_gradients(score, read, blank)
    falls = occluded(score, read, blank, stretches(steps, 48), like=(steps,))
    return attribution_arrays(
        found, falls, ("source",), of="mean forecast (standardised)", without="set to the mean of training"
    )
