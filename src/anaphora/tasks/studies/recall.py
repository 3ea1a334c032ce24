"""What fits into a state? Selective copying against distance, associative recall against the number of pairs.

A vector holds a few values; a matrix holds as many pairs of key and value as its keys have room to differ; attention keeps
everything it has read (Arora et al. 2024). Selective copying (Gu & Dao 2023): letters among blanks are said again, in order, at
the end. Associative recall: pairs of key and value, then every key once more in another order, each to be answered with its value.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anaphora.tasks.studies.parts import Parts
from anaphora.tasks.studies.tagged import NOTHING, Row, learned, settings_of
from anaphora.tasks.tag.estimator import Tagger
from anaphora.training.progress import Reporter

MODELS: dict[str, dict[str, Any]] = {
    "lstm": {"cell": "lstm"},
    "mingru": {"cell": "mingru", "blocks": True, "layers": 2},
    "mamba2": {"cell": "mamba2", "layers": 2},
    "gla": {"cell": "gla", "layers": 2},
    "deltanet": {"cell": "gated-deltanet", "layers": 2},
    "transformer": {
        "model": "transformer",
        "layers": 2,
        "feedforward": 128,
        "positions": "rotary",
        "lr": 2e-3,
        "steps": 800,
    },
}
STATES = {
    "lstm": "vector",
    "mingru": "vector",
    "mamba2": "matrix",
    "gla": "matrix",
    "deltanet": "matrix",
    "transformer": "attention",
}
PROBLEMS = ("copying", "pairs")
DISTANCES = (16, 32, 64)
"""Steps between which the letters to copy are scattered."""
PAIRS = (2, 4, 8, 16)
# Few letters and keys: with 16 and 64 of them every model needs several times the steps.
LETTERS = [f"v{n}" for n in range(8)]
KEYS = [f"k{n}" for n in range(24)]
COPIED = 6
EXAMPLES, TESTED = 8000, 60


def recall(
    out: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    reporter: Reporter | None = None,
    models: tuple[str, ...] = tuple(MODELS),
    problems: tuple[str, ...] = PROBLEMS,
    sizes: Mapping[str, tuple[int, ...]] | None = None,
) -> dict[str, Any]:
    """Train each model on each problem with all of its ``sizes`` mixed; ``right``: the share of right answers by problem,
    model and size.

    Every part is a run folder ``PROBLEM-MODEL``; finished ones are not trained again by the same call.
    """
    report, given = reporter or Reporter(), dict(settings or {})
    chosen_sizes = {"copying": DISTANCES, "pairs": PAIRS} | dict(sizes or {})
    jobs = {(p, m): settings_of(MODELS[m], given) for p in problems for m in models}
    fresh = {job: Tagger(**chosen) for job, chosen in jobs.items()}
    asked = {f"{p}-{m}": chosen for (p, m), chosen in jobs.items()}
    names = rf"({'|'.join(PROBLEMS)})-({'|'.join(MODELS)})"
    parts = Parts(
        out, "recall", {"settings": asked, "sizes": chosen_sizes, "examples": EXAMPLES}, names=names
    )
    found: dict[str, dict[str, dict[str, float]]] = {problem: {} for problem in problems}
    for number, (problem, model) in enumerate(jobs, start=1):
        report.say(f"{number} of {len(jobs)}: {model}, {problem}")
        of_problem = chosen_sizes[problem]
        found[problem][model] = learned(
            parts,
            f"{problem}-{model}",
            fresh[problem, model],
            lambda seed, problem=problem, sizes=of_problem: examples(  # type: ignore[misc]
                problem, sizes, EXAMPLES if not seed else TESTED, seed
            ),
            {str(size): examples(problem, (size,), TESTED, 2) for size in of_problem},
            report,
        )
        shares = ", ".join(f"{share:.0%} at {size}" for size, share in found[problem][model].items())
        report.say(f"{number} of {len(jobs)}: {model}, {problem}: {shares}")
    return {
        "study": "recall",
        "right": found,
        "guess": {problem: 1 / len(LETTERS) for problem in problems},
        "sizes": {problem: list(chosen_sizes[problem]) for problem in problems},
        "states": {model: STATES[model] for model in models},
        "examples": TESTED,
        "runs": {f"{p}-{m}": str(parts[f"{p}-{m}"]) for p, m in jobs},
    }


def examples(problem: str, sizes: tuple[int, ...], count: int, seed: int) -> list[Row]:
    """Rows of a problem, of all ``sizes`` alike; the same for the same seed."""
    draw = random.Random(f"{problem} {seed} {sizes}")
    made = _copying if problem == "copying" else _pairs
    return [made(draw, draw.choice(sizes)) for _ in range(count)]


def _copying(draw: random.Random, distance: int) -> Row:
    """`COPIED` letters among blanks, then as many marks, at which they are to be repeated in order."""
    letters = draw.choices(LETTERS, k=COPIED)
    row = ["."] * distance
    for place, letter in zip(sorted(draw.sample(range(distance), COPIED)), letters, strict=True):
        row[place] = letter
    return row + ["?"] * COPIED, [NOTHING] * distance + letters


def _pairs(draw: random.Random, count: int) -> Row:
    """Keys with values, then the keys in another order: the target at each is its value."""
    keys = draw.sample(KEYS, count)
    values = draw.choices(LETTERS, k=count)
    row = [symbol for pair in zip(keys, values, strict=True) for symbol in pair]
    again = draw.sample(keys, count)
    held = dict(zip(keys, values, strict=True))
    return row + again, [NOTHING] * len(row) + [held[key] for key in again]
