"""What a search for words returns."""

from __future__ import annotations

from dataclasses import dataclass, field

from anaphora.search._hypothesis import Hypothesis


@dataclass
class WordHypothesis(Hypothesis):
    """Words, and the symbols that spell them.

    `log_prob` is the model's own log p of the symbols; `score` also has the language model's and the bonuses, and
    decides the order. `finished` is False where the symbols end inside a word because no complete output was found.
    """

    words: list[str] = field(default_factory=list)
    times: list[tuple[int, int]] | None = None
    """From CTC on request: the first frame of each word, and the one after its last."""
