"""How probable lines are, as they are asked for from Python or from a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from anaphora.data.streams import line_batches
from anaphora.tasks.response import Response


@dataclass(frozen=True)
class LineScore:
    """How probable a line is: log p of all its symbols and of its end, and exp(−log p / symbols)."""

    text: str
    log_prob: float
    symbols: int

    @property
    def perplexity(self) -> float:
        """exp(−log p / symbols), at most e⁷⁰⁰."""
        return math.exp(min(700.0, -self.log_prob / max(1, self.symbols)))


def judge_lines(source: str, read: Callable[[list[str]], list[LineScore]]) -> Iterator[Response]:
    """A response for each line of ``source``, a file or ``-``; ``read`` judges those that hold something."""
    number = 0
    for lines in line_batches(source):
        asked = [line for line in lines if line.strip()]
        found = iter(read(asked) if asked else [])
        for line in lines:
            number += 1
            if not line.strip():
                yield Response("", {"line": number, "input": line, "log_prob": None, "perplexity": None})
                continue
            one = next(found)
            yield Response(
                f"{one.log_prob:.4f}\t{one.perplexity:.4f}\t{line}",
                {
                    "line": number,
                    "input": line,
                    "log_prob": one.log_prob,
                    "symbols": one.symbols,
                    "perplexity": one.perplexity,
                },
            )
