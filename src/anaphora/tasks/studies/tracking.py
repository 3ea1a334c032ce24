"""Which recurrences can keep track of a state? Parity, counting modulo five, and the word problem of S₅, against length.

The target at every step is the state so far. A state that is multiplied by numbers between 0 and 1 only forgets: it cannot
change its sign, and parity, the simplest group, is out of its reach in rows longer than those it has seen (Merrill et al.
2024). Factors that depend on the input and may be negative are enough for parity (Grazzi et al. 2025); the reflections
of the delta rule with β up to 2 swap two things, which is what the word problem of S₅ is made of. An LSTM is nonlinear and
can do all.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anaphora.nn import Affine, Cell
from anaphora.tasks.studies.parts import Parts
from anaphora.tasks.studies.tagged import Row, learned, settings_of
from anaphora.tasks.tag.estimator import Tagger
from anaphora.training.progress import Reporter


class SignedGate(Cell):
    """h_t = tanh(W x_t + b) ∘ h_{t−1} + (W x_t + b): a diagonal recurrence whose factors reach from −1 to 1."""

    state = ("h",)

    def setup(self, inputs: int, hidden: int) -> None:
        self.both = Affine(inputs, 2 * hidden, blocks=2)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        both: Tensor = self.both(x)
        factor, new = both.chunk(2, -1)
        return torch.tanh(factor) * h + new


MODELS: dict[str, dict[str, Any]] = {
    "lstm": {"cell": "lstm"},
    "mingru": {"cell": "mingru", "blocks": True},
    "signed": {"cell": SignedGate, "blocks": True},
    "mamba": {"cell": "mamba"},
    "deltanet": {"cell": "deltanet"},
    "deltanet-signed": {"cell": "deltanet", "signed": True},
    "transformer": {"model": "transformer", "layers": 2, "feedforward": 128, "lr": 1e-3},
}
PROBLEMS = ("parity", "mod5", "s5")
GUESS = {"parity": 1 / 2, "mod5": 1 / 5, "s5": 1 / 120}
LENGTHS = (8, 16, 32, 64, 128, 256)
"""At which the models are tested."""
LONGEST = 32
"""Of the rows that are trained on; the shortest has one step."""
EXAMPLES, TESTED = 8000, 60
OF_PROBLEM: dict[str, dict[str, Any]] = {
    "parity": {"steps": 400},
    "mod5": {"steps": 500},
    "s5": {"steps": 1000},
}
# An LSTM has to learn the table of 120 orders by heart: its steps are cheap, so it has more of them, and more units.
OF_BOTH: dict[tuple[str, str], dict[str, Any]] = {("s5", "lstm"): {"hidden": 128, "steps": 3000}}


def tracking(
    out: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    reporter: Reporter | None = None,
    models: tuple[str, ...] = tuple(MODELS),
    problems: tuple[str, ...] = PROBLEMS,
    lengths: tuple[int, ...] = LENGTHS,
) -> dict[str, Any]:
    """Train each model on rows of up to `LONGEST` steps of each problem; ``right``: the share of right states at the last
    quarter of the steps, by problem, model and length.

    Every part is a run folder ``PROBLEM-MODEL``; finished ones are not trained again by the same call.
    """
    report, given = reporter or Reporter(), dict(settings or {})
    jobs = {
        (p, m): settings_of(MODELS[m] | OF_PROBLEM[p] | OF_BOTH.get((p, m), {}), given)
        for p in problems
        for m in models
    }
    fresh = {job: Tagger(**chosen) for job, chosen in jobs.items()}
    asked = {f"{p}-{m}": {**chosen, "cell": str(chosen.get("cell"))} for (p, m), chosen in jobs.items()}
    names = rf"({'|'.join(PROBLEMS)})-({'|'.join(MODELS)})"
    parts = Parts(out, "tracking", {"settings": asked, "examples": EXAMPLES}, names=names)
    found: dict[str, dict[str, dict[str, float]]] = {problem: {} for problem in problems}
    for number, (problem, model) in enumerate(jobs, start=1):
        part = f"{problem}-{model}"
        report.say(f"{number} of {len(jobs)}: {model}, {problem}")
        found[problem][model] = learned(
            parts,
            part,
            fresh[problem, model],
            lambda seed, problem=problem: examples(problem, EXAMPLES if not seed else TESTED, seed),  # type: ignore[misc]
            {str(length): _late(problem, length) for length in lengths},
            report,
        )
        shares = ", ".join(f"{share:.0%} at {length}" for length, share in found[problem][model].items())
        report.say(f"{number} of {len(jobs)}: {model}, {problem}: {shares}")
    return {
        "study": "tracking",
        "right": found,
        "guess": {problem: GUESS[problem] for problem in problems},
        "lengths": list(lengths),
        "trained": LONGEST,
        "examples": TESTED,
        "runs": {f"{p}-{m}": str(parts[f"{p}-{m}"]) for p, m in jobs},
    }


def examples(problem: str, count: int, seed: int, length: int = 0) -> list[Row]:
    """Rows of a problem with the state after every step; of 1 to `LONGEST` steps, or all of one ``length``."""
    draw = random.Random(f"{problem} {seed} {length}")
    made = {"parity": _parity, "mod5": _modulo, "s5": _swaps}[problem]
    return [made(draw, length or draw.randint(1, LONGEST)) for _ in range(count)]


def _late(problem: str, length: int) -> list[Row]:
    """Rows of one length; the last quarter of their steps have targets."""
    cut = length - max(1, length // 4)
    rows = examples(problem, TESTED, 2, length)
    return [(symbols, ["-"] * cut + states[cut:]) for symbols, states in rows]


def _parity(draw: random.Random, length: int) -> Row:
    return _counted(draw, length, 2)


def _modulo(draw: random.Random, length: int) -> Row:
    return _counted(draw, length, 5)


def _counted(draw: random.Random, length: int, modulus: int) -> Row:
    """The sum of all digits so far, modulo ``modulus``."""
    digits = draw.choices(range(modulus), k=length)
    total, states = 0, []
    for digit in digits:
        total = (total + digit) % modulus
        states.append(f"={total}")
    return [str(digit) for digit in digits], states


def _swaps(draw: random.Random, length: int) -> Row:
    """Five things in a row; each step swaps two places, or none; the state is their order."""
    order, symbols, states = list("abcde"), [], []
    for _ in range(length):
        i, j = sorted(draw.choices(range(5), k=2))
        order[i], order[j] = order[j], order[i]
        symbols.append(f"{i}{j}" if i != j else "00")
        states.append("".join(order))
    return symbols, states
