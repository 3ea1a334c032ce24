"""The hidden Markov model: a chain of K hidden states, and what each state emits.

p(x, z) = p(z_1) Π_t p(z_t | z_{t−1}) Π_t p(x_t | z_t)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError, DataError, SettingsError
from anaphora.models.classical.arrays import load_arrays, reading, save_arrays
from anaphora.models.classical.hmm import inference
from anaphora.models.classical.hmm.emissions import (
    Categorical,
    Emissions,
    Floats,
    Steps,
    read_labels,
    stochastic,
)
from anaphora.models.classical.hmm.gaussian import Mixture, gaussian
from anaphora.models.classical.hmm.inference import Chain, Fitted, Structure, baum_welch, first_groups

# ----------------------------------------------------------------------------
# The choices that make a hidden Markov model, checked all at once.

EMISSIONS = ("gaussian", "mixture", "categorical")
COVARIANCES = ("diagonal", "full", "tied", "spherical")


@dataclass(frozen=True)
class HMMSettings:
    """The arguments of ``HMM``, as they are saved."""

    states: int
    emissions: str
    covariance: str
    components: int
    symbols: int | None
    topology: Any
    start_prior: float
    transition_prior: float
    emission_prior: float
    min_covariance: float
    seed: int

    def checked(self) -> Self:
        """Itself, or every mistake in one error."""
        problems = []
        if not _whole(self.states, 1):
            problems.append(f"states: {self.states!r} is not a whole number from 1 up.")
        if self.emissions not in EMISSIONS:
            problems.append(f"emissions: {self.emissions!r} is not known; use {', '.join(EMISSIONS)}.")
        if self.covariance not in COVARIANCES:
            problems.append(f"covariance: {self.covariance!r} is not known; use {', '.join(COVARIANCES)}.")
        if not _whole(self.components, 1):
            problems.append(f"components: {self.components!r} is not a whole number from 1 up.")
        if self.symbols is not None and (self.emissions != "categorical" or not _whole(self.symbols, 1)):
            problems.append(f"symbols: {self.symbols!r} is no number of symbols of categorical emissions.")
        for name in ("start_prior", "transition_prior", "emission_prior"):
            if not _real(getattr(self, name)) or getattr(self, name) < 0:
                problems.append(f"{name}: {getattr(self, name)!r} is not a count of 0 or more.")
        if not _real(self.min_covariance) or self.min_covariance <= 0:
            problems.append(f"min_covariance: {self.min_covariance!r} is not above 0.")
        if not _whole(self.seed, 0):
            problems.append(f"seed: {self.seed!r} is not a whole number from 0 up.")
        if problems:
            raise SettingsError(problems)
        return self

    def to_json(self) -> dict[str, Any]:
        topology = self.topology if isinstance(self.topology, str) else np.asarray(self.topology).tolist()
        plain = {n: v.item() if isinstance(v, np.generic) else v for n, v in asdict(self).items()}
        return {**plain, "topology": topology}


def follows(topology: Any, states: int) -> tuple[NDArray[np.bool_], bool]:
    """``(allowed (K, K), passed through in order)`` of a topology's name or matrix."""
    if isinstance(topology, str):
        if topology == "ergodic":
            return np.ones((states, states), dtype=bool), False
        if topology == "left-to-right":
            return np.eye(states, dtype=bool) | np.eye(states, k=1, dtype=bool), True
        raise SettingsError([f"topology: {topology!r} is not known; use ergodic, left-to-right or a matrix."])
    allowed = np.asarray(topology)
    if allowed.shape != (states, states) or allowed.dtype != bool or not allowed.any(1).all():
        raise SettingsError(
            [
                f"topology: give a ({states}, {states}) array of True and False in which every state has a next."
            ]
        )
    return allowed, False


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)


def _real(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and bool(np.isfinite(value))


# ----------------------------------------------------------------------------

Ints = NDArray[np.int64]


class HMM:
    """A hidden Markov model with K ``states``, float64 throughout.

    Data is one sequence or a list of sequences of any lengths. ``emissions="gaussian"`` and ``"mixture"`` take
    vectors (time, features), NaN where an entry is missing; ``"categorical"`` takes whole numbers (time,), −1 where one is
    missing. One sequence in gives one result out, a list gives a list.

    Args:
        states: K, how many states.
        emissions: ``"gaussian"``, ``"mixture"`` (of Gaussians) or ``"categorical"``.
        components: M, how many Gaussians each state of a mixture has.
        covariance: of Gaussians: ``"diagonal"`` (K, D), ``"spherical"`` (K,), ``"tied"`` (D, D) or ``"full"``
            (K, D, D); in a mixture with (K, M) in place of (K,).
        symbols: how many symbols there are; by default as many as the data fitted to shows.
        topology: ``"ergodic"`` (any state may follow any), ``"left-to-right"`` (begin in state 0, then stay or
            go on to the next), or a (K, K) array that is True where state j may follow state i.
        start_prior, transition_prior, emission_prior: counts added to every allowed event when fitting.
        min_covariance: no variance (or eigenvalue of a covariance) is fitted below it.
        seed: of the first guesses of ``fit``.

    >>> hmm = an.HMM(2, emissions="categorical", symbols=2)
    >>> hmm = hmm.set(start=[0.5, 0.5], transitions=[[0.9, 0.1], [0.1, 0.9]], probabilities=[[0.8, 0.2], [0.2, 0.8]])
    >>> hmm.predict([0, 0, 1, 1, 1]).tolist()
    [0, 0, 1, 1, 1]
    """

    def __init__(
        self,
        states: int,
        *,
        emissions: str = "gaussian",
        covariance: str = "diagonal",
        components: int = 2,
        symbols: int | None = None,
        topology: Any = "ergodic",
        start_prior: float = 0.0,
        transition_prior: float = 0.0,
        emission_prior: float = 0.0,
        min_covariance: float = 1e-6,
        seed: int = 0,
    ):
        self.settings = HMMSettings(
            states, emissions, covariance, components, symbols, topology, start_prior, transition_prior, emission_prior,
            min_covariance, seed,
        ).checked()  # fmt: skip
        allowed, forward = follows(topology, states)
        begins = np.arange(states) == 0 if forward else np.ones(states, dtype=bool)
        self._structure = Structure(begins, allowed, forward, start_prior, transition_prior)
        self._given: dict[str, Floats] = {}
        self._chain: Chain | None = None
        self.history: list[float] = []
        self.converged = False

    def set(self, **parameters: Any) -> Self:
        """Set any parameters: ``start`` (K,), ``transitions`` (K, K), and those of the emissions: ``probabilities``
        (K, symbols), or ``means`` (K, D) and ``covariances``, in a mixture also ``weights`` (K, M).

        ``fit`` starts from what was ever set and guesses the rest. All of them make a model without fitting; some
        of them change a fitted one.
        """
        emissions = self._fresh()
        unknown = sorted(set(parameters) - {"start", "transitions", *emissions.names})
        if unknown:
            known = ", ".join(("start", "transitions", *emissions.names))
            raise SettingsError([f"{unknown[0]}: this model has no such parameter; it has {known}."])
        K, now = self.settings.states, {}
        for name, allowed in (("start", self._structure.begins), ("transitions", self._structure.follows)):
            if name in parameters:
                now[name] = stochastic(name, parameters[name], (K,) if name == "start" else (K, K))
                if (now[name][~allowed] > 0).any():
                    raise SettingsError([f"{name}: gives a chance to what the topology forbids."])
        emissions.set({n: np.asarray(parameters[n]) for n in emissions.names if n in parameters})
        now |= {n: value for n, value in emissions.arrays().items() if n in parameters}
        self._given |= now
        current = {**self._given, **(self.parameters if self._chain else {}), **now}
        if {"start", "transitions", *emissions.names} <= set(current):
            self._chain = Chain(current["start"], current["transitions"], self._fresh(current))
        return self

    def fit(
        self,
        data: Any,
        labels: Any = None,
        *,
        iterations: int = 100,
        tolerance: float | None = 1e-6,
        restarts: int = 1,
        fixed: Sequence[str] = (),
    ) -> Self:
        """Fit by Baum-Welch and keep the best of ``restarts`` first guesses.

        Args:
            labels: known states, like ``data`` but a whole number per step, −1 where unknown. With every state
                known, fitting is counting (and the prior counts are its smoothing).
            iterations: at most so many.
            tolerance: stop when an iteration gains less than this many nats per step; None runs them all.
            fixed: parameters kept as ``set`` left them, e.g. ``("transitions",)``; ``"emissions"`` for all of these.

        ``history`` holds log p(x) (plus the log prior, where there is one) before every iteration and at the end.
        """
        _at_least_one(iterations=iterations, restarts=restarts)
        if tolerance is not None and not isinstance(tolerance, int | float):
            raise SettingsError([f"tolerance: {tolerance!r} is not a number of nats per step, nor None."])
        names = self._fixed(fixed)
        emissions = self._fresh()
        steps = emissions.read(data)
        if not emissions.seen(steps.x).any():
            raise DataError("every observation is missing; there is nothing to fit to.")
        states = None if labels is None else read_labels(labels, steps, self.settings.states)
        best: Fitted | None = None
        for restart in range(restarts):
            chain = self._first(steps, states, restart)
            fitted = baum_welch(
                chain, self._structure, steps, states, iterations=iterations, tolerance=tolerance, fixed=names
            )
            if best is None or fitted.history[-1] > best.history[-1]:
                best = fitted
        assert best is not None
        self._chain, self.history, self.converged = best.chain, best.history, best.converged
        return self

    def log_likelihood(self, data: Any) -> Any:
        """log p(x): a float for one sequence, (S,) for a list; −inf where a sequence is impossible."""
        chain, steps = self._read(data)
        found, _ = inference.filtered(chain, steps)
        return float(found[0]) if steps.single else found

    def score(self, data: Any) -> float:
        """Mean log p(x) per step, over all sequences."""
        chain, steps = self._read(data)
        return float(inference.filtered(chain, steps)[0].sum() / len(steps.x))

    def filter(self, data: Any) -> Any:
        """p(z_t | x_1 … x_t), (time, K) per sequence."""
        chain, steps = self._read(data)
        likelihood, alpha = inference.filtered(chain, steps)
        inference.refuse_impossible(likelihood, steps)
        return steps.split(alpha)

    def smooth(self, data: Any) -> Any:
        """p(z_t | x_1 … x_T), the posteriors, (time, K) per sequence."""
        chain, steps = self._read(data)
        found = inference.expectations(chain, steps)
        inference.refuse_impossible(found.log_likelihood, steps)
        return steps.split(found.gamma)

    def predict(
        self,
        data: Any,
        *,
        method: str = "viterbi",
        beam: int | None = None,
        beam_distance: float | None = None,
    ) -> Any:
        """States (time,) per sequence: the most probable path (``"viterbi"``), or the most probable state of each
        step (``"posterior"``), which errs least per step but may be a path that cannot be.

        With ``beam`` only so many states stay at each step, with ``beam_distance`` those within so many nats of the
        best: quicker with many states, exact if they are wide enough.
        """
        if method not in ("viterbi", "posterior"):
            raise SettingsError([f"method: {method!r} is not known; use 'viterbi' or 'posterior'."])
        chain, steps = self._read(data)
        if beam is None and beam_distance is None:
            if method == "viterbi":
                return steps.split(inference.viterbi(chain, steps)[1])
            found = self.smooth(data)
            return [g.argmax(1) for g in found] if isinstance(found, list) else found.argmax(1)
        kept = inference.read_beam(self.settings.states if beam is None else beam, beam_distance)
        if method == "viterbi":
            return steps.split(inference.viterbi_beam(chain, steps, kept)[1])
        return steps.split(inference.posteriors_beam(chain, steps, kept)[1].argmax(1))

    def viterbi(self, data: Any, *, k: int = 1) -> Any:
        """The ``k`` most probable paths per sequence, best first: a list of ``(log p(x, path), path (time,))``,
        shorter than ``k`` where fewer paths are possible."""
        _at_least_one(k=k)
        chain, steps = self._read(data)
        found = inference.k_best(chain, steps, k)
        return found[0] if steps.single else found

    def sample(self, length: int, *, seed: int = 0) -> tuple[NDArray[Any], Ints]:
        """``(x, states)`` of one sequence drawn from the model; (length, D) or (length,), and (length,)."""
        _at_least_one(length=length)
        chain, rng = self._known(), np.random.default_rng(seed)
        draws = rng.random(length)
        start, edges = np.cumsum(chain.start), np.cumsum(chain.transitions, axis=1)
        states = np.empty(length, dtype=np.int64)
        row = start
        for t, draw in enumerate(draws):
            # the total, not 1, is the end of the row: rounding must not reach a state of probability 0
            states[t] = np.searchsorted(row, draw * row[-1], side="right")
            row = edges[states[t]]
        return chain.emissions.sample(states, rng), states

    def bic(self, data: Any) -> float:
        """−2 log p(x) + p log n for p free parameters and n observed steps; less is better."""
        chain, steps = self._read(data)
        n = int(chain.emissions.seen(steps.x).sum())
        if n == 0:
            raise DataError("every observation is missing; there is nothing to judge the model by.")
        return -2 * float(inference.filtered(chain, steps)[0].sum()) + self.free_parameters * float(np.log(n))

    @property
    def free_parameters(self) -> int:
        """How many numbers fitting may choose."""
        structure = self._structure
        events = int(structure.begins.sum()) - 1 + int(structure.follows.sum()) - self.settings.states
        return events + self._known().emissions.free()

    @property
    def parameters(self) -> dict[str, Floats]:
        """Copies of all parameters by name, as ``set`` takes them."""
        chain = self._known()
        arrays = {"start": chain.start, "transitions": chain.transitions, **chain.emissions.arrays()}
        return {name: value.copy() for name, value in arrays.items()}

    def save(self, path: Path | str) -> None:
        """Write the model to one safetensors file."""
        save_arrays(path, "hmm", self.parameters, self.settings.to_json())

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read a model that ``save`` wrote; runs no code from the file."""
        arrays, settings = load_arrays(path, "hmm")
        with reading(path):
            if arrays["start"].shape != (settings["states"],):  # before room is made for so many
                raise ValueError(
                    f"states is {settings['states']}, and start has the shape {arrays['start'].shape}"
                )
            return cls(**settings).set(**arrays)

    def _fresh(self, known: Mapping[str, Floats] | None = None) -> Emissions:
        """Emissions that know what was set (or ``known``), and nothing of earlier fits."""
        s, known = self.settings, self._given if known is None else known
        emissions: Emissions
        if s.emissions == "categorical":
            emissions = Categorical(s.states, s.symbols, prior=s.emission_prior)
        elif s.emissions == "mixture":
            limits = {"floor": s.min_covariance, "prior": s.emission_prior}
            emissions = Mixture(s.states, s.components, kind=s.covariance, **limits)
        else:
            emissions = gaussian(s.states, kind=s.covariance, floor=s.min_covariance)
        emissions.set({n: known[n] for n in emissions.names if n in known})
        return emissions

    def _first(self, steps: Steps, labels: Ints | None, restart: int) -> Chain:
        rng = np.random.default_rng([self.settings.seed, restart])
        emissions = self._fresh()
        emissions.prepare(steps)
        given = emissions.arrays()
        if len(given) < len(emissions.names):
            groups = first_groups(emissions, self._structure, steps, labels, rng)
            emissions.initialise(steps.x, groups, rng)
            emissions.set(given)
        start, transitions = self._structure.random(rng)
        return Chain(self._given.get("start", start), self._given.get("transitions", transitions), emissions)

    def _fixed(self, fixed: Sequence[str]) -> frozenset[str]:
        own = self._fresh().names
        asked = {fixed} if isinstance(fixed, str) else set(fixed)
        names = (asked - {"emissions"}) | (set(own) if "emissions" in asked else set())
        known = {"start", "transitions", *own}
        if not names <= known:
            wrong = sorted(names - known)[0]
            raise SettingsError([f"fixed: {wrong} is no parameter; there are {', '.join(sorted(known))}."])
        unset = sorted(names - set(self._given))
        if unset:
            raise SettingsError([f"fixed: {unset[0]} was never set; call set({unset[0]}=…) first."])
        return frozenset(names)

    def _known(self) -> Chain:
        if self._chain is None:
            raise AnaphoraError("the HMM has no parameters yet; call fit, or set with all of them.")
        return self._chain

    def _read(self, data: Any) -> tuple[Chain, Steps]:
        chain = self._known()
        return chain, chain.emissions.read(data)


def _at_least_one(**numbers: int) -> None:
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise SettingsError([f"{name}: {value!r} is not a whole number from 1 up."])
