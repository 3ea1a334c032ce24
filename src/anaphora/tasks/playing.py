"""Play what a model does step by step: cells, attention, layers, HMMs, Kalman filters, the collapse of CTC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn

from anaphora.errors import DataError
from anaphora.models.classical.hmm import HMM
from anaphora.models.classical.hmm.tagger import HMMTagger
from anaphora.models.classical.kalman import Kalman
from anaphora.models.forecaster_classical import KalmanForecaster
from anaphora.probe.playing.classical import play_hmm, play_kalman, play_tagger
from anaphora.probe.playing.notes import play_collapse, reels_of, seeing
from anaphora.probe.playing.reel import Reel
from anaphora.probe.trace import Trace

LONGEST = 2000
"""Steps of a series that are played."""


def play(model: Any, x: Any, part: str | int | None = None, *, target: str | None = None) -> Reel:
    """What ``model`` does with ``x``, step by step: a `Reel` with its equations and the numbers of each step.

    model: a trained estimator, an `HMM` or a `Kalman`. x: an input of it, as ``probe`` takes it; of an HMM or a Kalman filter a
    sequence. part: what to play, by its name or its number from 1: `parts` lists them; without it the first. target: an
    output that is given, where ``probe`` takes one.

    Of a recurrent cell the equations are found by watching one step of it, so that a cell of your own has them, too;
    the names in them are those of its local variables. `Reel.values` has every name at every step and
    `Reel.max_difference` says how far they are from the model's own numbers.

    Raises a `DataError` where nothing of the model can be played, or the part is not there.

    >>> hmm = an.HMM(2, emissions="categorical", symbols=2)
    >>> hmm = hmm.set(start=[0.5, 0.5], transitions=[[0.9, 0.1], [0.1, 0.9]], probabilities=[[0.8, 0.2], [0.2, 0.8]])
    >>> reel = an.play(hmm, [0, 0, 1])
    >>> print(reel)
    Forward and Viterbi recursion: 3 steps, 2 units
    p = Σ_i α′(i) A(i, j)
    u = p ∘ b
    Z = Σ u
    α = u / Z
    δ = max_i δ′(i) A(i, j) ∘ b / its greatest
    >>> reel.max_difference < 1e-12
    True
    """
    found = _parts(model, x, target)
    return found[chosen_part(list(found), part)]()


def parts(model: Any, x: Any, *, target: str | None = None) -> list[str]:
    """The names of what `play` can show of ``model`` and ``x``."""
    return list(_parts(model, x, target))


def playable(model: Any, x: Any) -> dict[str, Callable[[], Reel]]:
    """All parts by name, each made when it is called: the model runs once."""
    return _parts(model, x, None)


def chosen_part(names: list[str], part: str | int | None) -> str:
    """The name of the part with this name or number."""
    if part is None:
        return names[0]
    if isinstance(part, int) and 1 <= part <= len(names):
        return names[part - 1]
    if part in names:
        return str(part)
    raise DataError(
        f"there is no part {part!r} to play; there are {', '.join(names[:8])}{' …' if len(names) > 8 else ''}."
    )


def _parts(model: Any, x: Any, target: str | None) -> dict[str, Callable[[], Reel]]:
    if isinstance(model, HMM):
        return {"forward": lambda: play_hmm(model, x)}
    if isinstance(model, Kalman):
        return {"filter": lambda: play_kalman(model, x)}
    model._check_trained()
    inner = model.model_
    if isinstance(inner, HMMTagger):
        (words,) = model._words([x])
        return {"forward": lambda: play_tagger(inner, words)}
    if isinstance(inner, KalmanForecaster):
        return {"filter": lambda: _course(model, x)}
    if not isinstance(inner, nn.Module):
        raise DataError(_why(model))
    with seeing(inner) as seen:
        trace: Trace = model.probe(x, target) if target is not None else model.probe(x)
    found = _collapse(trace) | reels_of(inner, seen, _named(trace))
    if not found:
        raise DataError(_why(model))
    return found


def why_not(model: Any) -> str | None:
    """Why nothing of a model can be played; None where something can, as far as can be seen without running it."""
    inner = getattr(model, "model_", None)
    if isinstance(inner, HMMTagger | KalmanForecaster | nn.Module):
        return None
    return _why(model)


def _why(model: Any) -> str:
    return (
        f"nothing of a {type(model).__name__} of this preset goes step by step: recurrent cells, attention, Transformers, HMMs, "
        "Kalman filters and CTC do."
    )


def _named(trace: Trace) -> Callable[[str, int], list[str]]:
    """Names for so many places of an axis: those of the trace where it has as many, else numbers."""

    def names(axis: str, count: int) -> list[str]:
        own = trace.tokens.get(axis) or trace.tokens.get("time", [])
        return list(own) if len(own) == count else [str(i + 1) for i in range(count)]

    return names


def _collapse(trace: Trace) -> dict[str, Callable[[], Reel]]:
    if "posteriors" not in trace.arrays:
        return {}
    shares = np.asarray(trace.array("posteriors", "time", "symbol"))
    seconds = trace.facts.get("posterior_seconds")
    return {
        "CTC collapse": lambda: play_collapse(
            shares, trace.tokens["symbol"], int(trace.facts["blank"]), seconds
        )
    }


def _course(model: Any, x: Any) -> Reel:
    from anaphora.kinds.vectors import typed_numbers

    given = typed_numbers(x) if isinstance(x, str) else x
    series = model._opened(given, role="test").series[0]
    values = model.columns_.standardised(series.values[-LONGEST:])
    system, y, driven = model.model_.seen_by(0, values)
    return play_kalman(system, y, driven if driven.shape[1] else None)
