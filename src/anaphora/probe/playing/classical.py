"""The forward pass of a hidden Markov model and the course of a Kalman filter, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anaphora.models.classical.hmm import HMM
from anaphora.models.classical.hmm.tagger import HMMTagger
from anaphora.models.classical.kalman import Kalman
from anaphora.probe.classical import check_length
from anaphora.probe.playing.reel import Equation, Part, Reel, all_of, columns

Floats = NDArray[np.float64]


def play_hmm(model: HMM, sequence: ArrayLike, *, states: Sequence[str] | None = None) -> Reel:
    """The forward and the Viterbi recursion over one sequence; units are states."""
    data = np.asarray(sequence)
    check_length(len(data))
    parameters = model.parameters
    start, moves = np.asarray(parameters["start"]), np.asarray(parameters["transitions"])
    chain, read = model._read(data)
    density = np.asarray(chain.emissions.log_density(read.x))
    names = list(states) if states is not None else [f"state {i}" for i in range(len(start))]
    steps = [str(v) for v in data.tolist()] if data.ndim == 1 else [str(t + 1) for t in range(len(data))]
    reel, alpha = _forward(start, moves, density, steps, names)
    gap = float(np.abs(alpha - np.asarray(model.filter(data))).max())
    return _with_gap(reel, gap)


def play_tagger(model: HMMTagger, words: Sequence[str]) -> Reel:
    """The same for a tagger. In a chain of second order a state is the pair of the last two tags, and units are the tags that
    come last in it: their shares are summed over the tag before."""
    moves = np.exp(model._log_moves)
    density = model._emissions(words)
    K = len(model.tags)
    if model.order == 2:
        reel, alpha = _forward(moves[-1, :-1], moves[:-1, :-1], density, list(words), model.tags)
        ended = alpha[-1] * moves[:-1, -1]
    else:
        reel, ended = _forward_pairs(moves, density, list(words), model.tags, K)
    # at the last word, what the model knows of the whole sentence is α there, times the probability that it ends
    known = np.asarray(model.marginals(words))[-1]
    return _with_gap(reel, float(np.abs(ended / ended.sum() - known).max()))


def _forward(
    start: Floats, moves: Floats, density: Floats, steps: list[str], names: list[str]
) -> tuple[Reel, Floats]:
    """α, δ of a chain of first order; ``density`` (T, K) is log p(observation | state), up to a constant of each step."""
    emitted = np.exp(density - density.max(1, keepdims=True))
    count, K = density.shape
    keys = ("α′", "p", "b", "u", "Z", "α", "δ′", "δ")
    found: dict[str, list[Any]] = {key: [] for key in keys}
    came: list[str] = []
    alpha, delta = start, start
    for t in range(count):
        predicted = start if t == 0 else alpha @ moves
        ways = np.diag(start) if t == 0 else delta[:, None] * moves
        before = (alpha, delta) if t else (start, start)
        best = ways.max(0) * emitted[t]
        joint = predicted * emitted[t]
        alpha = joint / joint.sum()
        row = (before[0], predicted, emitted[t], joint, joint.sum(), alpha, before[1], best / best.max())
        for key, value in zip(keys, row, strict=True):
            found[key].append(np.array(value))
        delta = best / best.max()
        came.append(
            "" if t == 0 else " ".join(f"{names[j]}←{names[i]}" for j, i in enumerate(ways.argmax(0)))
        )
    values = columns({key: np.stack(rows) for key, rows in found.items()})
    reel = Reel(
        "Forward and Viterbi recursion", steps, _hmm_equations(terms=("A", "α′")), values, K, axis="observation", names=names,
        texts={"best way into each state": came} if K <= 8 else {}, matrices={"A": moves.T}, note=_HMM_NOTE,
    )  # fmt: skip
    return reel, values["α"]


def _forward_pairs(
    moves: Floats, density: Floats, steps: list[str], names: list[str], K: int
) -> tuple[Reel, Floats]:
    """The reel, and after the last step the probability of each tag times that of an end after it."""
    emitted = np.exp(density - density.max(1, keepdims=True))
    pairs = np.zeros((K + 1, K + 1))  # (tag before, tag), K is the edge
    pairs[K, K] = 1.0
    best = pairs.copy()
    keys = ("α′", "p", "b", "u", "Z", "α", "δ′", "δ")
    found: dict[str, list[Any]] = {key: [] for key in keys}
    for t in range(len(density)):
        before, leading = pairs[:, :K].sum(0), best[:, :K].max(0)
        joint = np.einsum("ab,abc->bc", pairs, moves[:, :, :K]) * emitted[t]
        ways = (best[:, :, None] * moves[:, :, :K]).max(0) * emitted[t]
        predicted = np.einsum("ab,abc->c", pairs, moves[:, :, :K])
        total, most = joint.sum(), ways.max()
        pairs, best = np.zeros_like(pairs), np.zeros_like(best)
        pairs[:, :K], best[:, :K] = joint / total, ways / most
        row = (
            before,
            predicted,
            emitted[t],
            joint.sum(0),
            total,
            pairs[:, :K].sum(0),
            leading,
            best[:, :K].max(0),
        )
        for key, value in zip(keys, row, strict=True):
            found[key].append(np.array(value))
    values = columns({key: np.stack(rows) for key, rows in found.items()})
    ended = (pairs[:, :K] * moves[:, :K, K]).sum(0)
    reel = Reel(
        "Forward and Viterbi recursion over pairs of tags", steps, _hmm_equations(terms=None), values, K, axis="word",
        names=list(names), note=_HMM_NOTE + " A state is a pair of tags; what is shown is summed (for δ the best) over the tag before.",
    )  # fmt: skip
    return reel, ended


_HMM_NOTE = "Emissions b are divided by the greatest of their step, α by its sum Z and δ by its greatest; none of it changes an answer."


def _hmm_equations(terms: tuple[str, str] | None) -> list[Equation]:
    total: list[Part] = ["Σ_i ", all_of("α′"), "(i) A(i, j)"]
    return [
        Equation("p", total, terms),
        Equation("u", [{"ref": "p"}, " ∘ ", {"ref": "b"}]),
        Equation("Z", ["Σ ", all_of("u")]),
        Equation("α", [{"ref": "u"}, " / ", {"ref": "Z"}]),
        Equation("δ", ["max_i ", all_of("δ′"), "(i) A(i, j) ∘ ", {"ref": "b"}, " / its greatest"]),
    ]


def play_kalman(model: Kalman, y: ArrayLike, x: ArrayLike | None = None) -> Reel:
    """Predict and update over one series; units are components of the hidden state. Of several outputs the first is shown."""
    data = np.asarray(y, np.float64)
    data = data[:, None] if data.ndim == 1 else data
    check_length(len(data))
    filtered = model.filter(data, x)
    mean, cov = np.asarray(filtered.mean), np.asarray(filtered.covariance)
    ahead, spread = np.asarray(filtered.predicted_mean), np.asarray(filtered.predicted_covariance)
    C, D, R = model.output_matrices(len(data))
    driven = np.zeros_like(data)
    if x is not None:
        driven = np.einsum("toi,ti->to", D, np.asarray(x, np.float64).reshape(len(data), -1))
    S = C @ spread @ np.swapaxes(C, -1, -2) + R  # (T, outputs, outputs)
    gain = np.swapaxes(np.linalg.solve(S, C @ spread), -1, -2)  # (T, states, outputs)
    expected = np.einsum("tos,ts->to", C, ahead) + driven
    innovation = np.where(np.isfinite(data), data - expected, 0.0)
    first = np.vstack([ahead[:1], mean[:-1]])
    variance, before = np.einsum("tii->ti", cov), np.einsum("tii->ti", spread)
    one = data.shape[1] == 1
    values = columns(
        {
            "m′": first,
            "m⁻": ahead,
            "P⁻": before,
            "y": np.where(np.isfinite(data[:, 0]), data[:, 0], 0.0),
            "ŷ": expected[:, 0],
            "e": innovation[:, 0],
            "S": S[:, 0, 0],
            "K": gain[:, :, 0],
            "m": mean,
            "P": variance,
        }
    )
    equations = [
        Equation("m⁻", ["A ", all_of("m′"), " + what drives it"]),
        Equation("e", [{"ref": "y"}, " − ", {"ref": "ŷ"}]),
        Equation("K", ["P⁻ Cᵀ / ", {"ref": "S"}]),
        Equation("m", [{"ref": "m⁻"}, " + ", {"ref": "K"}, " · ", {"ref": "e"}, *([] if one else [" + …"])]),
        Equation("P", ["(I − K C) ", all_of("P⁻")]),
    ]
    updated = ahead + np.einsum("tso,to->ts", gain, innovation)
    seen = np.isfinite(data).all(1)
    gap = float(np.abs(updated - mean)[seen].max(initial=0.0)) / max(float(np.abs(mean).max()), 1.0)
    missing = " A step without an observation has e = 0: nothing is updated." if not seen.all() else ""
    reel = Reel(
        "Kalman filter: predict, then update", [str(t + 1) for t in range(len(data))], equations, values, mean.shape[1],
        names=[f"component {i + 1}" for i in range(mean.shape[1])],
        note="P, P⁻ are the variances of the components, S is that of the innovation e." + missing,
    )  # fmt: skip
    return _with_gap(reel, gap if one or seen.all() else None)


def _with_gap(reel: Reel, gap: float | None) -> Reel:
    reel.max_difference = gap
    reel.__post_init__()
    return reel
