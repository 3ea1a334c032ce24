"""The sampling lab: the next symbol's distribution before and after temperature, top-k, top-p and min-p."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.bars import Bars
from anaphora.views.lines import Line, Lines
from anaphora.views.panels import Panels
from anaphora.views.states import facts_line, proof

TITLE = "Sampling lab"
READING = (
    "Bars: the most probable next symbols as the model has them, and as they are drawn from after the settings. A "
    "temperature below 1 sharpens, above 1 flattens; top-k keeps the k best, top-p the fewest that hold a share p, "
    "min-p those at least p times as probable as the best. Line: entropy of the model's distribution at each place."
)
CAUTION = "One place of one text; what a setting does elsewhere depends on how sure the model is there."
SHOWN = 16


def sampling(
    trace: Trace,
    *,
    place: int | None = None,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> Panels:
    """Bars for one place (counted from 1, by default the last) and the entropy over all places."""
    every = np.asarray(trace.array("sorted_log_probs", "time", "rank"), np.float64)
    count = every.shape[0]
    if place is not None and not 1 <= place <= count:
        raise AnaphoraError(f"This text has places 1 to {count}, not {place}.")
    at = count - 1 if place is None else place - 1
    before = np.exp(every[at])
    after = reshaped(every[at], temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    pieces = [str(piece) for piece in trace.tables["top"][at]["pieces"]]
    names = pieces[: min(SHOWN, len(pieces))]
    rest = len(names)
    series = {
        "model": [*before[:rest].tolist(), float(before[rest:].sum())],
        "drawn from": [*after[:rest].tolist(), float(after[rest:].sum())],
    }
    kept = int((after > 0).sum())
    bars = Bars(
        f"After “{trace.tokens['time'][at]}” (place {at + 1} of {count})",
        f"temperature {temperature:g}, top_k {top_k or 'off'}, top_p {top_p:g}, min_p {min_p:g} · "
        f"{kept} of {len(after)} symbols can be drawn",
        [*names, f"all {len(before) - rest} others"] if len(before) > rest else names,
        {key: values if len(before) > rest else values[:-1] for key, values in series.items()},
        percent=True,
    )
    lines = Lines(
        "Entropy",
        f"{entropy(before):.2f} bits at this place; {entropy(after):.2f} after the settings",
        "place",
        "bits",
        [Line("model", [float(t + 1) for t in range(count)], [entropy(np.exp(row)) for row in every])],
    )
    return Panels(TITLE, facts_line(trace), [bars, lines], proof(trace), READING, CAUTION)


def reshaped(
    sorted_log_probs: NDArray[np.float64],
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> NDArray[np.float64]:
    """The distribution that is drawn from, for log probabilities sorted from best to worst.

    p ∝ p^(1/temperature), then cut by top_k, top_p and min_p, then made to sum to 1; temperature 0 is greedy.
    """
    if temperature < 0 or top_k < 0 or not 0 < top_p <= 1 or not 0 <= min_p < 1:
        raise AnaphoraError("temperature and top_k must not be negative, top_p in (0, 1], min_p in [0, 1).")
    if temperature == 0:
        found = np.zeros(len(sorted_log_probs))
        found[0] = 1.0
        return found
    scaled = sorted_log_probs / temperature
    shares = np.exp(scaled - scaled.max())
    shares /= shares.sum()
    keep = np.ones(len(shares), bool)
    if top_k:
        keep[top_k:] = False
    if top_p < 1:
        keep[1:] &= np.cumsum(shares)[:-1] < top_p  # the best always stays
    if min_p:
        keep &= shares >= min_p * shares[0]
    shares = np.where(keep, shares, 0.0)
    return np.asarray(shares / shares.sum())


def entropy(shares: NDArray[np.float64]) -> float:
    """In bits."""
    return max(0.0, float(-sum(p * math.log2(p) for p in shares.tolist() if p > 0)))
