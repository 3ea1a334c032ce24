"""Beam search with an exact stopping rule."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anaphora.errors import AnaphoraError
from anaphora.search._candidates import best_symbols
from anaphora.search._hypothesis import BeamNode, BeamStep, NBest, Step, lengths_of, normalised
from anaphora.search._rows import row_index, select_rows

PRUNED_SHOWN = 3
"""How many of the pruned candidates of a step the tree keeps."""


@torch.no_grad()
def beam(
    step: Step,
    state: Any,
    *,
    start: Tensor,
    eos: int,
    width: int = 5,
    max_length: int | Tensor,
    min_length: int = 0,
    length_penalty: float = 1.0,
    n_best: int | None = 1,
    keep_tree: bool = False,
) -> list[NBest]:
    """The best outputs for each item of `start` (items,), keeping `width` hypotheses at every step.

        log p(y) = Σₜ log p(yₜ | y₁ … yₜ₋₁)          score(y) = log p(y) / |y|ᵅ,  α = length_penalty

    |y| counts EOS and not the start symbol; so do `min_length` and `max_length` (a number, or one per
    item). At each step the `width` best continuations are taken, by log p, then by the parent's place,
    then by the smaller symbol; those that end in EOS are set aside. An item is done when no live
    hypothesis can still beat the worst of its `n_best` finished ones (None: as many as `width`): log p
    can only fall, so log p / max_lengthᵅ bounds all that may follow. Items that are done leave the
    batch, and nothing about one item depends on another. Hypotheses cut at `max_length` fill the list
    only where finished ones are missing.
    """
    limits = lengths_of(max_length, len(start), min_length)
    _check(width, n_best, length_penalty)
    best_of = width if n_best is None else n_best
    items = [_Item(width, limit, best_of, eos, length_penalty, keep_tree) for limit in limits]
    active, symbols = items, start
    for length in range(1, max(limits, default=0) + 1):
        log_probs, state = step(symbols, state)
        forbidden = eos if length < min_length else None
        count = width + PRUNED_SHOWN if keep_tree else width
        best = best_symbols(log_probs, count, rows=len(symbols), forbidden=forbidden)
        rows: list[int] = []
        row = 0
        for item in active:
            before = len(item.live)
            item.extend(best[row : row + before])
            if not item.done:
                rows += [row + node.parent.rank for node in item.live if node.parent]
            row += before
        active = [item for item in active if not item.done]
        if not active:
            break
        if rows != list(range(row)):
            state = select_rows(state, row_index(rows, start.device))
        symbols = row_index([node.symbol for item in active for node in item.live], start.device)
    return [item.result() for item in items]


class _Item:
    """The hypotheses of one input: those alive, those finished, and the rule when to stop."""

    def __init__(
        self, width: int, max_length: int, n_best: int, eos: int, length_penalty: float, keep_tree: bool
    ):
        self.width, self.max_length, self.n_best, self.eos = width, max_length, n_best, eos
        self.length_penalty = length_penalty
        self.live = [BeamNode(None, -1, 0.0, 0.0, 0.0, 0)]
        self.finished: list[BeamNode] = []
        self.tree: list[BeamStep] | None = [] if keep_tree else None
        self.done = False

    def extend(self, best: list[list[tuple[float, int]]]) -> None:
        """One step: `best` holds the best next (log p, symbol) of each live hypothesis."""
        nodes = [
            self._node(parent, symbol, p)
            for parent, row in zip(self.live, best, strict=True)
            for p, symbol in row
        ]
        if not nodes:  # every continuation is forbidden: what is alive is the best there is
            self.done = True
            return
        nodes.sort(key=lambda node: (-node.log_prob, node.parent.rank if node.parent else 0, node.symbol))
        chosen = nodes[: self.width]
        ended = [node for node in chosen if node.symbol == self.eos]
        self.live = [node for node in chosen if node.symbol != self.eos]
        for rank, node in enumerate(self.live):
            node.rank = rank
        self.finished = sorted(self.finished + ended, key=lambda node: -node.score)[: self.n_best]
        if self.tree is not None:
            self.tree.append(BeamStep(self.live, ended, nodes[self.width : self.width + PRUNED_SHOWN]))
        self.done = chosen[0].length == self.max_length or not any(map(self._can_win, self.live))

    def _node(self, parent: BeamNode, symbol: int, p: float) -> BeamNode:
        log_prob, length = parent.log_prob + p, parent.length + 1
        score = normalised(log_prob, length, self.length_penalty)
        return BeamNode(parent, symbol, p, log_prob, score, length)

    def _can_win(self, node: BeamNode) -> bool:
        bound = normalised(node.log_prob, self.max_length, self.length_penalty)
        return len(self.finished) < self.n_best or bound > self.finished[-1].score

    def result(self) -> NBest:
        found = NBest(node.hypothesis(finished=True) for node in self.finished)
        cut = sorted(self.live, key=lambda node: -node.score)[: self.n_best - len(found)]
        found.extend(node.hypothesis(finished=False) for node in cut)
        found.tree = self.tree
        return found


def _check(width: int, n_best: int | None, length_penalty: float) -> None:
    if width < 1 or (n_best is not None and n_best < 1):
        raise AnaphoraError(f"width and n_best must be at least 1, but are {width} and {n_best}.")
    if not 0 <= length_penalty <= 10:
        raise AnaphoraError(f"length_penalty must lie between 0 and 10, but is {length_penalty}.")
