"""Baum-Welch and Viterbi of the hidden Markov model against hmmlearn. Run: python benchmarks/hmm.py [--json] [--times N]

One process, one thread, both sides in turn from the same start, the least of N times. 8 states, 100 sequences of
1000 steps, 10 iterations; Gaussians in 4 dimensions and 20 symbols. Both sides must reach the same log-likelihood
(1e-6 per step) before they are timed. The peer is not installed with us: ``pip install hmmlearn`` first.
"""

# ruff: noqa: E402  (numpy reads the number of threads when it is imported)
from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import anaphora as an
from rows import row, show

STATES, SEQUENCES, STEPS, ITERATIONS, WIDTH, SYMBOLS = 8, 100, 1000, 10, 4, 20
GOALS = {
    ("gaussian", "scaling"): 2.0,
    ("gaussian", "log"): 8.0,
    ("categorical", "scaling"): 1.5,
    ("categorical", "log"): 8.0,
}


def problem(kind: str) -> tuple[dict[str, Any], list[np.ndarray]]:
    """A start for both sides and data drawn from another model."""
    rng = np.random.default_rng(0)

    def parameters(spread: float) -> dict[str, Any]:
        drawn = {
            "start": rng.dirichlet(np.ones(STATES)),
            "transitions": rng.dirichlet(np.ones(STATES), STATES) * 0.5 + 0.5 * np.eye(STATES),
        }
        if kind == "categorical":
            return {**drawn, "probabilities": rng.dirichlet(np.ones(SYMBOLS), STATES)}
        means = spread * rng.standard_normal((STATES, WIDTH))
        return {**drawn, "means": means, "covariances": np.ones((STATES, WIDTH))}

    truth = an.HMM(STATES, emissions=kind).set(**parameters(2.0))
    return parameters(1.0), [truth.sample(STEPS, seed=i)[0] for i in range(SEQUENCES)]


def peer_model(kind: str, implementation: str, start: dict[str, Any]) -> Any:
    from hmmlearn.hmm import CategoricalHMM, GaussianHMM

    common = {
        "n_components": STATES,
        "n_iter": ITERATIONS,
        "tol": -np.inf,
        "init_params": "",
        "implementation": implementation,
    }
    if kind == "categorical":
        model = CategoricalHMM(n_features=SYMBOLS, **common)
        model.emissionprob_ = start["probabilities"].copy()
    else:
        model = GaussianHMM(covariance_type="diag", covars_prior=0.0, covars_weight=1.0, **common)
        model.means_, model.covars_ = start["means"].copy(), start["covariances"].copy()
    model.startprob_, model.transmat_ = start["start"].copy(), start["transitions"].copy()
    return model


def least(runs: list[Callable[[], object]], times: int) -> list[float]:
    """Seconds of the fastest run of each, run in turn."""
    best = [float("inf")] * len(runs)
    for _ in range(times):
        for side, run in enumerate(runs):
            begin = time.perf_counter()
            run()
            best[side] = min(best[side], time.perf_counter() - begin)
    return best


def measure(kind: str, times: int) -> list[dict[str, Any]]:
    start, data = problem(kind)
    joined = np.concatenate(data).reshape(-1, 1 if kind == "categorical" else WIDTH)
    lengths = [STEPS] * SEQUENCES
    model = an.HMM(STATES, emissions=kind).set(**start)

    def ours() -> object:
        return model.fit(data, iterations=ITERATIONS, tolerance=None)

    def theirs(implementation: str) -> Callable[[], Any]:
        return lambda: peer_model(kind, implementation, start).fit(joined, lengths)

    ours()  # compiles
    reached = float(np.sum(model.log_likelihood(data))) / len(joined)
    peers = {name: theirs(name)() for name in ("scaling", "log")}
    for name, peer in peers.items():
        other = peer.score(joined, lengths) / len(joined)
        if abs(other - reached) > 1e-6:
            raise SystemExit(f"{kind}: we reach {reached:.9f} per step, hmmlearn ({name}) {other:.9f}")

    rows = []
    label = f"EM, {kind}, {STATES} states, {SEQUENCES}×{STEPS}, {ITERATIONS} iterations"
    mine, scaling, log = least([ours, theirs("scaling"), theirs("log")], times)
    for name, seconds in (("scaling", scaling), ("log", log)):
        peer_name = 'hmmlearn, implementation="scaling"' if name == "scaling" else "hmmlearn, default"
        rows.append(row(label, peer_name, mine, seconds, "s", goal=GOALS[kind, name]))
    model.set(**model.parameters)
    mine, other = least([lambda: model.predict(data), lambda: peers["log"].predict(joined, lengths)], times)
    label = f"Viterbi, {kind}, {STATES} states, {SEQUENCES}×{STEPS}"
    return [*rows, row(label, "hmmlearn", mine, other, "s", goal=None)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--times", type=int, default=3)
    options = parser.parse_args()
    logging.getLogger("hmmlearn").setLevel(logging.ERROR)
    try:
        import hmmlearn  # noqa: F401
    except ModuleNotFoundError:
        print(
            "hmmlearn is not installed, so there is nothing to compare with: pip install hmmlearn",
            file=sys.stderr,
        )
        show([], as_json=options.json)
        return
    rows = [r for kind in ("gaussian", "categorical") for r in measure(kind, options.times)]
    show(rows, as_json=options.json)


if __name__ == "__main__":
    main()
