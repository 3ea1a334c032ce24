"""Exact inference in a hidden Markov chain: what the states may have been, given what was seen.

The recursions run scaled in float64. A sequence for which that could lose a path (a likelihood below 1e-200 where
transitions are forbidden) is done again in logarithms, so results are exact in both cases.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import DataError, SettingsError
from anaphora.models.classical.hmm import beam as pruned
from anaphora.models.classical.hmm import passes as kernels
from anaphora.models.classical.hmm.emissions import (
    Emissions,
    Floats,
    Steps,
    log_dirichlet,
    normalised,
    scaled,
)
from anaphora.models.classical.hmm.gaussian import clusters

Labels = NDArray[np.int64]


@dataclass
class Chain:
    """p(z_1) = start (K,), p(z_t = j | z_{t−1} = i) = transitions (K, K), and what the states emit."""

    start: Floats
    transitions: Floats
    emissions: Emissions

    def logs(self) -> tuple[Floats, Floats]:
        with np.errstate(divide="ignore"):
            return np.log(self.start), np.log(self.transitions)


@dataclass
class Expectations:
    """log p(x) per sequence (S,), γ (N, K) = p(z_t | x), and expected transitions (K, K) of all sequences."""

    log_likelihood: Floats
    gamma: Floats
    transitions: Floats


def filtered(chain: Chain, steps: Steps, labels: Labels | None = None) -> tuple[Floats, Floats]:
    """``(log p(x) (S,), p(z_t | x_1..t) (N, K))``; −inf and zeros for an impossible sequence."""
    result, alpha, _, _ = _forward(chain, steps, labels)
    for s, log_b in _logs_of(chain, steps, labels, np.isnan(result)):
        probabilities = np.full_like(log_b, -np.inf)
        unused, pairs = np.empty_like(log_b), np.zeros_like(chain.transitions)
        result[s] = kernels.exact(log_b, *chain.logs(), probabilities, unused, pairs)
        alpha[steps.bounds[s] : steps.bounds[s + 1]] = np.exp(probabilities)
    return result, alpha


def expectations(chain: Chain, steps: Steps, labels: Labels | None = None) -> Expectations:
    """What Baum-Welch counts: posteriors of the states and of their pairs."""
    result, gamma, b, scale = _forward(chain, steps, labels)
    fine = ~np.isnan(result)
    pairs = np.zeros_like(chain.transitions)
    kernels.backward(b, steps.bounds, np.ascontiguousarray(chain.transitions.T), gamma, scale, fine, pairs)
    pairs *= chain.transitions
    for s, log_b in _logs_of(chain, steps, labels, ~fine):
        own = gamma[steps.bounds[s] : steps.bounds[s + 1]]
        result[s] = kernels.exact(log_b, *chain.logs(), np.empty_like(log_b), own, pairs)
    return Expectations(result, gamma, pairs)


def counted(chain: Chain, steps: Steps, labels: Labels) -> Expectations:
    """The same where every state is known: plain counts, and log p(x, labels)."""
    K = len(chain.start)
    log_start, log_A = chain.logs()
    inside = np.ones(len(labels), dtype=bool)
    inside[steps.bounds[:-1]] = False
    after = np.flatnonzero(inside)
    pairs = np.zeros((K, K))
    np.add.at(pairs, (labels[after - 1], labels[after]), 1.0)
    logs = chain.emissions.log_density(steps.x)[np.arange(len(labels)), labels]
    logs[after] += log_A[labels[after - 1], labels[after]]
    logs[~inside] += log_start[labels[~inside]]
    return Expectations(np.add.reduceat(logs, steps.bounds[:-1]), np.eye(K)[labels], pairs)


def viterbi(chain: Chain, steps: Steps) -> tuple[Floats, Labels]:
    """The most probable paths (N,) and log p(x, path) (S,)."""
    path, scores = np.empty(len(steps.x), dtype=np.int64), np.empty(len(steps))
    log_b = np.ascontiguousarray(chain.emissions.log_density(steps.x))
    kernels.viterbi(log_b, steps.bounds, *chain.logs(), path, scores)
    refuse_impossible(scores, steps)
    return scores, path


@dataclass(frozen=True)
class Beam:
    """The `width` most probable states of each step stay, and of them those within `distance` nats of the best."""

    width: int
    distance: float = np.inf


def read_beam(width: int, distance: float | None) -> Beam:
    """A beam as a user asks for it."""
    if isinstance(width, bool) or not isinstance(width, int | np.integer) or width < 1:
        raise SettingsError([f"beam: {width!r} is not a whole number from 1 up."])
    if distance is not None and not distance > 0:
        raise SettingsError([f"beam_distance: {distance!r} is not a number above 0."])
    return Beam(int(width), np.inf if distance is None else float(distance))


def viterbi_beam(chain: Chain, steps: Steps, beam: Beam) -> tuple[Floats, Labels]:
    """As `viterbi`, over the paths that stay inside the beam; exact if it is as wide as there are states."""
    path, scores = np.empty(len(steps.x), dtype=np.int64), np.empty(len(steps))
    width, logs = min(beam.width, len(chain.start)), chain.logs()
    for s, log_b in _logs_of(chain, steps, None, np.ones(len(steps), dtype=bool)):
        own = path[steps.bounds[s] : steps.bounds[s + 1]]
        scores[s] = pruned.viterbi_beam(log_b, *logs, width, beam.distance, own)
    refuse_impossible(scores, steps, beam=True)
    return scores, path


def posteriors_beam(chain: Chain, steps: Steps, beam: Beam) -> tuple[Floats, Floats]:
    """log p (S,) of the paths inside the beam, and γ (N, K) over them."""
    gamma, result = np.zeros((len(steps.x), len(chain.start))), np.empty(len(steps))
    width, logs = min(beam.width, len(chain.start)), chain.logs()
    for s, log_b in _logs_of(chain, steps, None, np.ones(len(steps), dtype=bool)):
        own = gamma[steps.bounds[s] : steps.bounds[s + 1]]
        result[s] = pruned.posterior_beam(log_b, *logs, width, beam.distance, own)
    refuse_impossible(result, steps, beam=True)
    return result, gamma


def k_best(chain: Chain, steps: Steps, k: int) -> list[list[tuple[float, Labels]]]:
    """Up to k most probable paths of every sequence, best first, with log p(x, path)."""
    found = []
    logs = chain.logs()
    for s, log_b in _logs_of(chain, steps, None, np.ones(len(steps), dtype=bool)):
        paths, scores = np.zeros((k, len(log_b)), dtype=np.int64), np.empty(k)
        kernels.k_best(log_b, *logs, paths, scores)
        refuse_impossible(scores[:1], steps, first=s)
        possible = np.flatnonzero(scores > -np.inf)
        found.append([(float(scores[n]), paths[n]) for n in possible])
    return found


def refuse_impossible(
    log_likelihood: Floats, steps: Steps, first: int = 0, labels: bool = False, beam: bool = False
) -> None:
    """Raise where a sequence has probability 0, so that there are no posteriors to speak of."""
    impossible = np.flatnonzero(log_likelihood == -np.inf)
    if impossible.size:
        where = "the sequence" if steps.single else f"sequence {first + impossible[0]}"
        given = " with its labels" if labels else ""
        if beam:
            raise DataError(f"no path through {where} is left in the beam; make it wider.")
        raise DataError(
            f"{where}{given} has probability 0 under the model; allow what it shows (a prior count, another "
            "topology) or leave it out."
        )


def _forward(chain: Chain, steps: Steps, labels: Labels | None) -> tuple[Floats, Floats, Floats, Floats]:
    """``(log p(x) (S,), α, b, c)``; NaN for sequences that must be done in logarithms."""
    if labels is None:
        b, best = chain.emissions.likelihoods(steps.x)
    else:
        b, best = scaled(_clamped(chain.emissions.log_density(steps.x), labels))
    alpha, scale = np.zeros_like(b), np.ones(len(b))
    fine = np.zeros(len(steps), dtype=bool)
    watch = bool(chain.transitions.min() < 1e-50)  # else every state is within reach at every step
    kernels.forward(b, steps.bounds, chain.start, chain.transitions, watch, alpha, scale, fine)
    result = np.add.reduceat(np.log(scale) + best, steps.bounds[:-1])
    result[~fine] = np.nan
    return result, alpha, b, scale


def _clamped(log_density: Floats, labels: Labels) -> Floats:
    """Leave only the labelled state possible where there is a label (≥ 0)."""
    states = np.arange(log_density.shape[1])
    other = (labels[:, None] >= 0) & (labels[:, None] != states)
    log_density[other] = -np.inf
    return log_density


def _logs_of(
    chain: Chain, steps: Steps, labels: Labels | None, which: NDArray[np.bool_]
) -> Iterator[tuple[int, Floats]]:
    """``(number, log b (T, K))`` of the chosen sequences."""
    for s in np.flatnonzero(which):
        a, z = steps.bounds[s], steps.bounds[s + 1]
        log_b = chain.emissions.log_density(steps.x[a:z])
        yield int(s), log_b if labels is None else _clamped(log_b, labels[a:z])


# ----------------------------------------------------------------------------
# Baum-Welch: expect the states, count, normalise; the likelihood never falls.
#
#     E   γ_t(k) = p(z_t = k | x),   ξ(i, j) = Σ_t p(z_{t−1} = i, z_t = j | x)
#     M   start ∝ γ_1 + prior,   A_ij ∝ ξ(i, j) + prior,   emissions fitted to x weighted by γ
#
# With prior counts the quantity that never falls is log p(x) + log p(parameters).

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
