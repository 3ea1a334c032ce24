"""Look inside the classical models: the trellis of an HMM, the course of a Kalman filter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from anaphora.errors import AnaphoraError
from anaphora.models.classical.hmm import HMM
from anaphora.models.classical.kalman import Kalman
from anaphora.probe.trace import Array, Trace

__all__ = ["probe_hmm", "probe_kalman"]

MAX_STEPS = 4096


def probe_hmm(model: HMM, sequence: ArrayLike, *, states: Sequence[str] | None = None) -> Trace:
    """The inside of one sequence:

    filtered (time, state)     p(state_t | observations up to t)
    smoothed (time, state)     p(state_t | all observations)
    viterbi (time,)            the states of the most probable path
    transitions (state, to), start (state,)

    ``model``: with parameters; ``sequence``: as ``predict`` takes one; ``states``: their names, by default their numbers.

    >>> from anaphora.probe.classical import probe_hmm
    >>> hmm = an.HMM(2, emissions="categorical", symbols=2)
    >>> hmm = hmm.set(start=[0.5, 0.5], transitions=[[0.9, 0.1], [0.1, 0.9]], probabilities=[[0.8, 0.2], [0.2, 0.8]])
    >>> probe_hmm(hmm, [0, 0, 1, 1]).array("smoothed", "time", "state").shape
    (4, 2)
    """
    data = np.asarray(sequence)
    check_length(len(data))
    filtered, smoothed = np.asarray(model.filter(data)), np.asarray(model.smooth(data))
    path = np.asarray(model.predict(data, method="viterbi"))
    parameters = model.parameters
    names = list(states) if states is not None else [f"state {i}" for i in range(filtered.shape[1])]
    arrays = {
        "filtered": Array(("time", "state"), filtered),
        "smoothed": Array(("time", "state"), smoothed),
        "viterbi": Array(("time",), path),
        "transitions": Array(("state", "to"), np.asarray(parameters["transitions"])),
        "start": Array(("state",), np.asarray(parameters["start"])),
    }
    if data.ndim == 1 or data.shape[1] == 1:
        observed = data.reshape(len(data))
        shown = [str(x) if x is not None else "·" for x in observed.tolist()]
    else:
        shown = [str(t) for t in range(len(data))]
    tokens = {"time": shown, "state": names, "to": names}
    facts: dict[str, Any] = {"task": "hmm", "log_likelihood": float(model.log_likelihood(data))}
    return Trace(tokens, arrays, facts)


def probe_kalman(model: Kalman, y: ArrayLike, x: ArrayLike | None = None) -> Trace:
    """The course of one series ``y`` (time, outputs):

    observed, predicted, deviation (time, output)   y_t, C m_t|t−1 and the standard deviation of y_t given the past
    smoothed, smoothed_deviation (time, output)     C m_t|T and the deviation of the output without its noise
    mean (time, state), covariance (time, state, to)   m_t|t and P_t|t
        gain (time, state, output)                      K_t = P_t|t−1 Cᵀ S⁻¹, as if all outputs were observed
        innovation (time, output), nis (time,)          y_t − ŷ_t, and e'S⁻¹e, which is χ² with as many degrees of
                                                    freedom as outputs where the model is right

    ``model``: with its matrices; ``x``: the inputs (time, k), where it has some.

    >>> from anaphora.probe.classical import probe_kalman
    >>> probe_kalman(an.Kalman.local_level(), [[1.0], [2.0], [1.5]]).array("predicted", "time", "output").shape
    (3, 1)
    """
    values = np.asarray(y, np.float64)
    values = values[:, None] if values.ndim == 1 else values
    check_length(len(values))
    filtered, smoothed = model.filter(values, x), model.smooth(values, x)
    C, D, R = model.output_matrices(len(values))
    driven = np.zeros_like(values)
    if x is not None:
        driven = np.einsum("toi,ti->to", D, np.asarray(x, np.float64).reshape(len(values), -1))

    def outputs(means: Any) -> Any:
        return np.einsum("tos,ts->to", C, means) + driven

    def spreads(covariances: Any) -> Any:
        return C @ np.asarray(covariances) @ np.swapaxes(C, -1, -2)

    predicted = outputs(filtered.predicted_mean)
    S = spreads(filtered.predicted_covariance) + R
    own = spreads(smoothed.covariance)
    innovation = values - predicted
    arrays = {
        "observed": Array(("time", "output"), values),
        "predicted": Array(("time", "output"), predicted),
        "deviation": Array(("time", "output"), np.sqrt(np.einsum("tii->ti", S))),
        "smoothed": Array(("time", "output"), outputs(smoothed.mean)),
        "smoothed_deviation": Array(("time", "output"), np.sqrt(np.maximum(np.einsum("tii->ti", own), 0.0))),
        "innovation": Array(("time", "output"), innovation),
        "nis": Array(("time",), _nis(innovation, S)),
        "gain": Array(("time", "state", "output"), _gains(np.asarray(filtered.predicted_covariance), C, S)),
        "mean": Array(("time", "state"), np.asarray(filtered.mean)),
        "covariance": Array(("time", "state", "to"), np.asarray(filtered.covariance)),
    }
    facts = {"task": "kalman", "log_likelihood": float(np.asarray(model.log_likelihood(values, x)))}
    return Trace({}, arrays, facts)


def _gains(predicted: Any, C: Any, S: Any) -> Any:
    return np.swapaxes(np.linalg.solve(S, C @ predicted), -1, -2)


def _nis(innovation: Any, S: Any) -> Any:
    """e'S⁻¹e of the outputs that were observed; NaN where none was."""
    found = np.full(len(innovation), np.nan)
    for t, (e, cov) in enumerate(zip(innovation, S, strict=True)):
        there = np.isfinite(e)
        if there.any():
            found[t] = e[there] @ np.linalg.solve(cov[np.ix_(there, there)], e[there])
    return found


def check_length(steps: int) -> None:
    if not 1 <= steps <= MAX_STEPS:
        raise AnaphoraError(f"a sequence of {steps} steps cannot be probed; give from 1 to {MAX_STEPS}.")
