"""A beam of width 1 without the bookkeeping of one: the best symbol of each row, until EOS."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from anaphora.cancellation import each_step
from anaphora.search._candidates import best_symbols
from anaphora.search._hypothesis import Hypothesis, NBest, Step
from anaphora.search._item import Plan
from anaphora.search._rows import row_index, select_rows


class _Path:
    """The output of one item so far. Its log p is summed in the order of a beam, so that both give the same bits."""

    __slots__ = ("finished", "log_prob", "steps", "symbols")

    def __init__(self) -> None:
        self.symbols: list[int] = []
        self.steps: list[float] = []
        self.log_prob, self.finished = 0.0, False

    def add(self, symbol: int, log_p: float, eos: int) -> None:
        self.symbols.append(symbol)
        self.steps.append(log_p)
        self.log_prob += log_p
        self.finished = symbol == eos

    def result(self, plan: Plan) -> NBest:
        tokens = self.symbols[:-1] if self.finished else self.symbols
        score = plan.score(self.log_prob, len(self.steps))
        return NBest([Hypothesis(tokens, score, self.log_prob, self.steps, self.finished)])


def best_path(
    step: Step, state: Any, *, start: Tensor, plan: Plan, limits: list[int], min_length: int, logits: bool
) -> list[NBest]:
    """What `beam` of width 1 finds without rules, for each item of ``start`` ``(items,)`` of at most ``limits`` symbols."""
    paths = [_Path() for _ in limits]
    active = list(enumerate(limits))
    symbols = start
    for length in each_step(range(1, max(limits, default=0) + 1)):
        scores, state = step(symbols, state)
        forbidden = plan.eos if length < min_length else None
        best = best_symbols(scores, 1, rows=len(active), forbidden=forbidden, logits=logits)
        rows, chosen = [], []
        for row, ((item, limit), found) in enumerate(zip(active, best, strict=True)):
            if not found:  # no symbol is possible: the output ends as it is
                continue
            path, (log_p, symbol) = paths[item], found[0]
            path.add(symbol, log_p, plan.eos)
            if length < limit and not path.finished:
                rows.append(row)
                chosen.append(symbol)
        if not rows:
            break
        if len(rows) < len(active):
            active = [active[row] for row in rows]
            state = select_rows(state, row_index(rows, start.device))
        symbols = row_index(chosen, start.device)
    return [path.result(plan) for path in paths]
