"""A Kalman filter at work: what it expected, how sure it was, and whether its errors are as large as it thinks."""

from __future__ import annotations

import math

import numpy as np

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.ahead import target_ahead
from anaphora.views.lines import Band, Line, Lines
from anaphora.views.panels import Panels

TITLE = "Kalman filter"
READING = (
    "Observations, what the filter expected of each before it was seen, and the band that should hold 95 % of them; "
    "smoothed: what all observations together say. Gain: how much an observation moves each state. Last: squared errors in units of the expected ones (NIS), "
    "which should stay under the line 19 times of 20."
)
CAUTION = (
    "The band is right only if the model is: the share of observations inside it is counted and named. Errors that "
    "keep their sign for long mean that the model lacks something."
)
# 95 % points of the χ² distribution with 1, 2, 3 … degrees of freedom
CHI2_95 = (3.841, 5.991, 7.815, 9.488, 11.070, 12.592, 14.067, 15.507, 16.919, 18.307)
MOST_STATES = 6
Z95 = 1.959963984540054


def kalman(trace: Trace, *, output: int = 1) -> Panels:
    """The course of one output (counted from 1), and the NIS of all of them together."""
    observed = trace.array("observed", "time", "output")
    count = observed.shape[1]
    if not 1 <= output <= count:
        raise AnaphoraError(f"This series has outputs 1 to {count}, not {output}.")
    at = output - 1
    times = [float(t) for t in range(len(observed))]
    predicted = trace.array("predicted", "time", "output")[:, at]
    half = Z95 * trace.array("deviation", "time", "output")[:, at]
    lines = [
        Line("expected", times, predicted.tolist(), colour=1),
        Line("smoothed", times, trace.array("smoothed", "time", "output")[:, at].tolist(), colour=2),
        Line("observed", times, observed[:, at].tolist(), dots=True, colour=0),  # on top of the others
    ]
    band = Band(times, (predicted - half).tolist(), (predicted + half).tolist(), line=0)
    course = Lines(
        f"Output {output}",
        "expected one step ahead, ± 1.96 σ"
        + (", in standardised units" if "forecast" in trace.arrays else ""),
        "step",
        "value",
        lines,
        bands=[band],
    )
    gain = trace.array("gain", "time", "state", "output")[:, :, at]
    gains = Lines(
        "Gain",
        "how far each state moves for an innovation of 1: K = P Cᵀ S⁻¹, the larger, the more an observation counts",
        "step",
        "K",
        [
            Line(f"state {s + 1}", times, gain[:, s].tolist())
            for s in np.argsort(-np.abs(gain[-1]), kind="stable")[:MOST_STATES]
        ],
        notes=[]
        if gain.shape[1] <= MOST_STATES
        else [f"the {MOST_STATES} largest of {gain.shape[1]} states"],
    )
    nis = trace.array("nis", "time")
    bound = CHI2_95[min(count, len(CHI2_95)) - 1]
    health = Lines(
        "Normalised innovation squared",
        f"should be below {bound} for 95 % of steps ({count} degree{'s' if count > 1 else ''} of freedom)",
        "step",
        "e′S⁻¹e",
        [Line("NIS", times, nis.tolist()), Line("95 %", times, [bound] * len(times))],
    )
    notes = [
        f"{100 * coverage(trace, at):.1f} % of observations lie inside the 95 % band",
        f"{100 * float(np.mean(nis[np.isfinite(nis)] <= bound)):.1f} % of steps lie below the NIS bound",
    ]
    words = f"log-likelihood {float(trace.facts['log_likelihood']):.4f}"
    charts: list[object] = [course, gains, health]
    if "forecast" in trace.arrays:
        charts.insert(1, target_ahead(trace, at))
    return Panels(TITLE, words, charts, notes, READING, CAUTION)


def coverage(trace: Trace, output: int = 0) -> float:
    """The share of observations of an output (from 0) that lie within ± 1.96 σ of what was expected."""
    observed = trace.array("observed", "time", "output")[:, output]
    gap = np.abs(observed - trace.array("predicted", "time", "output")[:, output])
    inside = gap <= Z95 * trace.array("deviation", "time", "output")[:, output]
    there = np.isfinite(observed)
    return float(np.mean(inside[there])) if there.any() else math.nan
