"""A look into a forecaster at the end of one series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from anaphora.data.series_windows import prepare
from anaphora.errors import AnaphoraError, DataError
from anaphora.models.forecaster_classical import KalmanForecaster
from anaphora.probe.classical import probe_kalman
from anaphora.probe.reading import probe_reading
from anaphora.probe.trace import Trace
from anaphora.tasks.looking import facts_of, numbers

if TYPE_CHECKING:
    from anaphora.tasks.forecast.estimator import Forecaster

LONGEST = 2000


def probe_forecaster(m: Forecaster, data: Any, what: Sequence[str]) -> Trace:
    """Of a Kalman filter its course over the series; of a network its states, gates and attention over the last window.
    A text is lines of numbers, a line for each step."""
    given = numbers(data) if isinstance(data, str) else data
    series = m._opened(given, role="test").series[0]
    columns, s = m.columns_, m.settings_
    facts = facts_of(m, f"series {series.name}, {len(series)} steps")
    model = m.model_
    if isinstance(model, KalmanForecaster):
        system, y, x = model.seen_by(0, columns.standardised(series.values[-LONGEST:]))
        trace = probe_kalman(system, y, x if x.shape[1] else None)
        return replace(trace, facts={**trace.facts, **facts})
    if not isinstance(model, nn.Module):
        raise AnaphoraError(
            "a VAR is a table of coefficients and has nothing inside to look at; an.VAR shows its responses."
        )
    if len(series) < s.window:
        raise DataError(
            f"the series has {len(series)} steps, but the model reads window = {s.window}; give more."
        )
    one = prepare(series.values, columns, aligned=not s.horizon)
    window = one.inputs[-s.window :] if s.window else one.inputs[-LONGEST:]
    steps = len(window)
    known = one.known.shape[1]
    future = np.zeros((1, 1 if s.window and s.horizon else steps, max(s.horizon, 1), known), np.float32)
    device = next(model.parameters()).device
    read = torch.from_numpy(np.asarray(window, np.float32))[None].to(device)
    ahead = torch.from_numpy(future).to(device)
    lengths = None if s.window else torch.tensor([steps], device=device)

    def call() -> Tensor:
        return model(read, ahead, lengths)  # type: ignore[no-any-return]

    first = len(series) - steps
    trace, _ = probe_reading(
        model,
        call,
        places=[str(first + t + 1) for t in range(steps)],
        facts=facts,
        losses=lambda out: out.square().mean().reshape(1),
        what=what,
    )
    return trace
