"""Baum-Welch: expect the states, count, normalise; the likelihood never falls.

    E   γ_t(k) = p(z_t = k | x),   ξ(i, j) = Σ_t p(z_{t−1} = i, z_t = j | x)
    M   start ∝ γ_1 + prior,   A_ij ∝ ξ(i, j) + prior,   emissions fitted to x weighted by γ

With prior counts the quantity that never falls is log p(x) + log p(parameters).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anaphora.models.classical.hmm.emissions import Emissions, Floats, log_dirichlet, normalised
from anaphora.models.classical.hmm.gaussian import clusters
from anaphora.models.classical.hmm.inference import (
    Chain,
    Expectations,
    Labels,
    counted,
    expectations,
    filtered,
    refuse_impossible,
)
from anaphora.models.classical.hmm.sequences import Steps

NOTHING = 1e-100  # an expected share this small is none: it would only slow down the recursions


@dataclass(frozen=True)
class Structure:
    """Which states may begin (K,) and follow one another (K, K), and the counts assumed of each such event."""

    begins: NDArray[np.bool_]
    follows: NDArray[np.bool_]
    forward: bool  # states are passed through in order
    start_prior: float
    transition_prior: float

    def random(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """A first guess of ``(start, transitions)``: nearly even over what is allowed."""
        start = self.begins * rng.uniform(0.8, 1.2, self.begins.shape)
        A = self.follows * rng.uniform(0.8, 1.2, self.follows.shape)
        return start / start.sum(), A / A.sum(1, keepdims=True)

    def log_prior(self, chain: Chain, fixed: Collection[str]) -> float:
        """Of what is fitted; what is fixed would only add a constant."""
        total = 0.0
        if "start" not in fixed:
            total += log_dirichlet(chain.start, self.start_prior, self.begins)
        if "transitions" not in fixed:
            total += log_dirichlet(chain.transitions, self.transition_prior, self.follows)
        return total


@dataclass
class Fitted:
    """A chain, the history of what is maximised (one value per iteration, then the final one), and its end."""

    chain: Chain
    history: list[float]
    converged: bool


def baum_welch(
    chain: Chain,
    structure: Structure,
    steps: Steps,
    labels: Labels | None,
    *,
    iterations: int,
    tolerance: float | None,
    fixed: Collection[str],
) -> Fitted:
    """Improve ``chain`` until a step of data gains less than ``tolerance`` nats in one iteration."""
    expect = _expectation(labels)
    enough = -np.inf if tolerance is None else tolerance * len(steps.x)
    history: list[float] = []
    for _ in range(iterations):
        found = expect(chain, steps, labels)
        refuse_impossible(found.log_likelihood, steps, labels=labels is not None)
        history.append(_objective(found.log_likelihood, chain, structure, fixed))
        if len(history) > 1 and history[-1] - history[-2] <= enough:
            return Fitted(chain, history, True)
        _maximise(chain, structure, steps, found, fixed)
    last = (
        counted(chain, steps, labels).log_likelihood
        if labels is not None and expect is counted
        else filtered(chain, steps, labels)[0]
    )
    history.append(_objective(last, chain, structure, fixed))
    return Fitted(chain, history, len(history) > 1 and history[-1] - history[-2] <= enough)


def _expectation(labels: Labels | None) -> Callable[..., Expectations]:
    return counted if labels is not None and (labels >= 0).all() else expectations


def _objective(found: Floats, chain: Chain, structure: Structure, fixed: Collection[str]) -> float:
    return float(found.sum()) + structure.log_prior(chain, fixed) + chain.emissions.log_prior(fixed)


def _maximise(
    chain: Chain, structure: Structure, steps: Steps, found: Expectations, fixed: Collection[str]
) -> None:
    if "start" not in fixed:
        counts = found.gamma[steps.bounds[:-1]].sum(0) + structure.start_prior * structure.begins
        chain.start = _without_dust(normalised(counts, chain.start))
    if "transitions" not in fixed:
        counts = found.transitions + structure.transition_prior * structure.follows
        chain.transitions = _without_dust(normalised(counts, chain.transitions))
    chain.emissions.update(steps.x, found.gamma, fixed)


def _without_dust(p: Floats) -> Floats:
    return np.where(p < NOTHING, 0.0, p)


def first_groups(
    emissions: Emissions,
    structure: Structure,
    steps: Steps,
    labels: Labels | None,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """A state for each step (N,) to begin with, −1 for none: labels, order in time, or clusters of the vectors."""
    K = len(structure.begins)
    if structure.forward:
        lengths = np.diff(steps.bounds)
        place = np.arange(len(steps.x)) - np.repeat(steps.bounds[:-1], lengths)
        groups = place * K // np.repeat(lengths, lengths)
    elif steps.x.ndim == 2:
        groups = clusters(steps.x, K, rng)
    else:
        groups = np.full(len(steps.x), -1)
    if labels is not None:
        known = np.unique(labels[labels >= 0])
        groups[np.isin(groups, known)] = -1  # a state that has labels begins with these alone
        groups = np.where(labels >= 0, labels, groups)
    return np.where(emissions.seen(steps.x), groups, -1)
