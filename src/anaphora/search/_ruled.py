"""The rules of `Constraints` on a table of log p."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from anaphora.errors import AnaphoraError
from anaphora.search._constraints import Constraints
from anaphora.search._hypothesis import BeamNode
from anaphora.search._rows import row_index


def constrained(
    log_probs: Tensor, rows: Sequence[tuple[Constraints, BeamNode]]
) -> tuple[Tensor, list[tuple[int, int]]]:
    """log_probs (rows, V) with −∞ where a rule forbids the symbol, and the (row, symbol) to look at anyway."""
    alone: list[int] = []
    kept: list[tuple[int, int]] = []
    forbidden: list[tuple[int, int]] = []
    wanted: list[tuple[int, int]] = []
    for row, (rules, node) in enumerate(rows):
        if rules.greatest >= log_probs.shape[1]:
            raise AnaphoraError(
                f"A constraint names symbol {rules.greatest}, but the model has {log_probs.shape[1]} symbols."
            )
        only = rules.only(node)
        if only is not None:
            alone.append(row)
            kept += [(row, symbol) for symbol in only]
        forbidden += [(row, symbol) for symbol in rules.forbidden(node)]
        wanted += [(row, symbol) for symbol in sorted(rules.wanted(node))]
    masked = log_probs.clone()
    masked[row_index(alone, log_probs.device)] = -math.inf
    at = _places(kept, log_probs)
    masked[at] = log_probs[at]
    masked[_places(forbidden, log_probs)] = -math.inf
    return masked, wanted


def add_wanted(best: list[list[tuple[float, int]]], log_probs: Tensor, wanted: list[tuple[int, int]]) -> None:
    """Adds the wanted symbols to each row's best ones where they are missing and possible."""
    for (row, symbol), p in zip(wanted, log_probs[_places(wanted, log_probs)].tolist(), strict=True):
        if p > -math.inf and all(symbol != known for _, known in best[row]):
            best[row].append((min(p, 0.0), symbol))


def _places(pairs: list[tuple[int, int]], like: Tensor) -> tuple[Tensor, Tensor]:
    rows, symbols = [row for row, _ in pairs], [symbol for _, symbol in pairs]
    return row_index(rows, like.device), row_index(symbols, like.device)
