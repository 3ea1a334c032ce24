"""How the learning rate moves: pure functions of the step n = 1, 2, …, N, with peak η and warm-up of w steps.

================  =====================================================================================
constant          η·min(1, n/w)
noam              η·min(n/w, √(w/n)), so that η is reached at n = w (Vaswani et al. 2017)
cosine            η·n/w up to w, then η·(0.01 + 0.99·(1 + cos πp)/2) with p = (n − w)/(N − w)
plateau           η·min(1, n/w)·½ʰ, h = how often the dev metric did not improve for 2 evaluations
one-cycle         with u = ⌈0.3·N⌉: η/25 → η up to u, then η → η/1000, both along half a cosine
wsd               η·min(1, n/w) up to d = ⌊0.8·N⌋, then η·(1 − √p) with p = (n − d)/(N + 1 − d)
================  =====================================================================================

An own schedule gives the factor f(n, N) of η; warm-up is then its own business. Without warm-up (w = 0) the factor min(1, n/w) is 1, and noam takes w = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from anaphora.errors import SettingsError
from anaphora.settings import TrainingSettings
from anaphora.settings.own import Part

FLOOR = 0.01  # where cosine ends, as a share of the peak
STABLE = 0.8  # share of the steps after which wsd falls
PATIENCE = 2  # evaluations without improvement after which plateau halves


def teacher_forcing(settings: Any, step: int) -> float:
    """How often a decoder is fed the true symbol at ``step`` (counted from 1), by ``forcing_schedule``.

    With u = (step − 1)/(steps − 1) and the last value p = ``teacher_forcing``: p + (1 − p)·f, where f is 0 for constant,
    1 − u for linear, 0.01^u for exponential and 1/(1 + exp(12·(u − ½))) for sigmoid (Bengio et al. 2015).
    """
    last, kind = float(settings.teacher_forcing), settings.forcing_schedule
    u: float = min(1.0, (step - 1) / max(1, settings.steps - 1))
    shares: dict[str, float] = {
        "constant": 0.0,
        "linear": 1 - u,
        "exponential": 0.01**u,
        "sigmoid": 1 / (1 + math.exp(12 * (u - 0.5))),
    }
    return last + (1 - last) * shares[kind]


def learning_rate(settings: TrainingSettings, step: int, halvings: int = 0) -> float:
    """The learning rate of ``step`` (counted from 1); ``halvings`` matters to plateau only."""
    peak, warmup, last = settings.lr, settings.warmup, settings.steps
    if isinstance(settings.schedule, Part):
        factor = float(settings.schedule.made()(step, last))
        if not 0 <= factor < math.inf:
            raise SettingsError(
                [f"schedule = {settings.schedule} gave {factor} at step {step}; give 0 or more."]
            )
        return peak * factor
    rise = min(1.0, step / warmup) if warmup else 1.0
    if settings.schedule == "constant":
        return peak * rise
    if settings.schedule == "plateau":
        return peak * rise * 0.5**halvings
    if settings.schedule == "wsd":
        before = math.floor(STABLE * last)
        fallen = min(1.0, max(0, step - before) / (last + 1 - before))
        return peak * rise * (1 - math.sqrt(fallen))
    if settings.schedule == "noam":
        top = max(1, warmup)
        return peak * min(step / top, math.sqrt(top / step))
    if settings.schedule == "cosine":
        if step <= warmup:
            return peak * rise
        share = min(1.0, (step - warmup) / max(1, last - warmup))
        return peak * (FLOOR + (1 - FLOOR) * _fall(share))
    top = max(1, math.ceil(0.3 * last))
    if step <= top:
        return peak * (1 / 25 + (1 - 1 / 25) * (1 - _fall(step / top)))
    return peak * (1 / 1000 + (1 - 1 / 1000) * _fall(min(1.0, (step - top) / max(1, last - top))))


def _fall(share: float) -> float:
    """Half a cosine: 1 at 0, 0 at 1."""
    return (1 + math.cos(math.pi * share)) / 2


@dataclass
class Progress:
    """What is counted over evaluations: for plateau's halvings and for stopping early."""

    halvings: int = 0
    waited: int = 0  # evaluations since the last improvement or halving
    since_best: int = 0  # evaluations since the last improvement at which the loss did not fall either
    lowest: float | None = None  # the lowest dev loss
    values: list[float | None] = field(default_factory=list)
    """The dev metrics so far, with the sign with which less is better; None: it was not finite."""

    def evaluated(self, improved: bool, value: float = math.nan, loss: float = math.nan) -> None:
        """Take note of one evaluation, with its dev metric and its dev loss.

        While the loss still falls, patience does not run out: early in a training a metric may stand still, such as a word error of
        100 % before the first words come out, or be worse than that of the commonest output.
        """
        self.values.append(value if math.isfinite(value) else None)
        learning = math.isfinite(loss) and (self.lowest is None or loss < self.lowest)
        if learning:
            self.lowest = loss
        if improved:
            self.waited = self.since_best = 0
            return
        self.waited += 1
        self.since_best += not learning
        if self.waited >= PATIENCE:
            self.halvings += 1
            self.waited = 0

    def state(self) -> dict[str, Any]:
        return {**vars(self), "values": list(self.values)}
