"""How far a test looks: a little in ``make test``, far in ``make test-all``."""

from __future__ import annotations

import os
from typing import Any

FEW = {"train": 600, "dev": 20, "test": 60}
FEWEST = {
    "python": {"train": 20_000, "dev": 2_000, "test": 2_000},  # characters
    "waves": {"train": 600, "dev": 300, "test": 300},  # steps of one series
}
SHORT = "ANAPHORA_TEST_SHORT"
"""In the environment of a command that `warm_command` forks: the embedded corpora are short."""


def sweep(quick: int, full: int) -> int:
    """How many examples to draw."""
    return full if os.environ.get("ANAPHORA_TEST_ALL") else quick


def shorten_corpora() -> dict[str, dict[str, int]]:
    """Leave few examples in the embedded corpora, for what happens around a training on them; their sizes before."""
    from anaphora.data.corpora import CORPORA

    before = {name: dict(corpus.sizes) for name, corpus in CORPORA.items()}
    for corpus in CORPORA.values():
        sizes: Any = corpus.sizes
        few = FEWEST.get(corpus.name, FEW)
        sizes.update({split: min(size, few[split]) for split, size in sizes.items()})
    return before


def restore_corpora(before: dict[str, dict[str, int]]) -> None:
    from anaphora.data.corpora import CORPORA

    for name, sizes in before.items():
        whole: Any = CORPORA[name].sizes
        whole.update(sizes)
