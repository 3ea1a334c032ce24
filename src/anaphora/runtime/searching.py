"""Beam search, sampling and minimum Bayes risk over a graph's steps: the same rules as `anaphora.search`, on arrays."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import DataError
from anaphora.runtime.states import State
from anaphora.search._draws import Draws, Filters, Wanted, from_row
from anaphora.search._hypothesis import NBest, NotANumberError, check_greatest, mbr
from anaphora.search._plan import Candidates, Constraints, Item, Plan, extend_all

Floats = NDArray[np.float64]
LEAST = 1e-6
"""What a place that was never looked at counts as, see `anaphora.search._beam`."""


class Stepping(Protocol):
    """What is searched: `Steps`, or language models that go on when their window is full."""

    def __call__(self, symbols: Any, state: State, /) -> tuple[Any, State]: ...

    def select(self, state: State, rows: Sequence[int], /, *, moved: bool = True) -> State: ...


def beam(
    steps: Stepping,
    state: State,
    plan: Plan,
    *,
    start: int | Sequence[int],
    limits: Sequence[int],
    min_length: int = 0,
    looking: tuple[str, str] | None = None,
) -> list[NBest]:
    """The best outputs of each item, as `anaphora.search.beam` finds them. ``start``: what is given before the first symbol, to
    all or to each. ``looking``: the states that hold where the newest
    step looked and what places there are, for coverage."""
    no_repeat = plan.options.no_repeat
    rules = [Constraints(plan.eos, [], [], [], no_repeat) if no_repeat else None for _ in limits]
    items = [Item(plan, limit, rule) for limit, rule in zip(limits, rules, strict=True)]
    active, symbols = items, [start] * len(items) if isinstance(start, int) else list(start)
    owners = list(range(len(items)))
    looked: Floats | None = None
    for length in range(1, max(limits, default=0) + 1):
        log_probs, state = steps(np.array(symbols), state)
        table = log_probs.astype(np.float64)
        forbid_repeats(table, active)
        best = best_symbols(table, plan.per_row(active), plan.eos if length < min_length else None)
        covered = None
        if looking is not None:
            weights = state[looking[0]].astype(np.float64)
            looked = weights if looked is None else looked + weights
            logs = np.log(np.clip(looked, LEAST, 1.0))
            covered = np.where(state[looking[1]], logs, 0.0).sum(1).tolist()
        rows = extend_all(active, best, covered)
        active = [item for item in active if not item.done]
        if not active:
            break
        if rows != list(range(len(symbols))):
            belong = [owners[row] for row in rows]
            state = steps.select(state, rows, moved=belong != owners)
            looked = None if looked is None else looked[rows]
            owners = belong
        symbols = [node.symbol for item in active for node in item.live]
    return [item.result() for item in items]


def forbid_repeats(table: Floats, active: list[Item]) -> None:
    """−∞ for the symbols that the rules of each item forbid."""
    row = 0
    for item in active:
        for node in item.live:
            if item.rules is not None:
                table[row, sorted(item.rules.forbidden(node))] = -math.inf
            row += 1


def best_symbols(table: Floats, count: int, forbidden: int | None = None) -> Candidates:
    """For each row of log p its ``count`` best ``(log p, symbol)``, equal ones by lower symbol, without −∞."""
    if forbidden is not None:
        table[:, forbidden] = -math.inf
    found = []
    for row in table:
        check_greatest(float(row.max()))
        places = np.arange(len(row))
        if count < len(row):
            places = np.flatnonzero(row >= np.partition(row, -count)[-count])
        order = places[np.argsort(-row[places], kind="stable")][:count]
        found.append([(min(float(row[i]), 0.0), int(i)) for i in order if row[i] > -math.inf])
    return found


def sample(
    steps: Stepping,
    state: State,
    *,
    start: Sequence[int],
    eos: int,
    limits: Sequence[int],
    seeds: Sequence[int],
    filters: Filters,
    n: int = 1,
    min_length: int = 0,
    length_penalty: float = 1.0,
    heard: Callable[[Draws], None] | None = None,
) -> list[NBest]:
    """``n`` outputs drawn for each item, as `anaphora.search.sample` draws them; ``heard`` is called after every step."""
    items = [
        Draws(first, eos=eos, limit=limit, seed=seed, n=n, filters=filters, min_length=min_length)
        for first, limit, seed in zip(start, limits, seeds, strict=True)
    ]
    live = list(items)
    owners = list(range(len(items)))
    while live:
        log_probs, state = steps(np.array([s for item in live for s in item.symbols]), state)
        table = log_probs.astype(np.float64)
        rows: list[int] = []
        at = 0
        for item in live:
            end = at + len(item.symbols)
            if item.short:
                table[at:end, eos] = -math.inf
            wanted = [Wanted(at + draw.row, draw.chance, item.filters, 0) for draw in item.live]
            rows += [at + parent for parent in item.take([from_row(table[one.row], one) for one in wanted])]
            at = end
        if heard is not None:
            heard(items[0])
        live = [item for item in live if item.symbols]
        if rows and rows != list(range(at)):
            belong = [owners[row] for row in rows]
            state = steps.select(state, rows, moved=belong != owners)
            owners = belong
    return [NBest(draw.hypothesis(length_penalty) for draw in item.draws) for item in items]


def least_risk(drawn: Sequence[NBest], n_best: int) -> list[NBest]:
    """Of each item's draws those that agree best with all of them."""
    return [NBest(mbr(each)[:n_best]) for each in drawn]


def named_when_not_finite(
    search: Callable[[Sequence[Any]], list[Any]], inputs: Sequence[Any], numbers: Iterable[int] | None = None
) -> list[Any]:
    """``search(inputs)``; where its numbers overflow, a `DataError` with the number of the first such input (from 1; ``numbers`` where these
    are some of them)."""
    try:
        return search(inputs)
    except NotANumberError as error:
        for number, one in zip(numbers or itertools.count(1), inputs, strict=False):
            try:
                search([one])
            except NotANumberError:
                raise DataError(
                    f"input {number}: the prediction is not a finite number; are values of the input far beyond those of "
                    "training?"
                ) from error
        raise
