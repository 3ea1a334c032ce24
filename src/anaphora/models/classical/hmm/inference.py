"""Exact inference in a hidden Markov chain: what the states may have been, given what was seen.

The recursions run scaled in float64. A sequence for which that could lose a path (a likelihood below 1e-200 where
transitions are forbidden) is done again in logarithms, so results are exact in both cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import DataError, SettingsError
from anaphora.kernels.hmm import beam as pruned
from anaphora.kernels.hmm import passes as kernels
from anaphora.models.classical.hmm.emissions import Emissions, Floats, scaled
from anaphora.models.classical.hmm.sequences import Steps

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
