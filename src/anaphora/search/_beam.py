"""Beam search with an exact stopping rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from anaphora.cancellation import each_step
from anaphora.errors import AnaphoraError
from anaphora.search._hypothesis import BeamNode, Hypothesis, NBest, NotANumberError, Step, lengths_of
from anaphora.search._plan import (
    PRUNED_SHOWN,
    Candidates,
    Constraints,
    Item,
    Phrases,
    Plan,
    Steering,
    extend_all,
    no_way_on,
)
from anaphora.search._rows import all_log_probs, best_symbols, check_shape, row_index, select_rows
from anaphora.settings.search import USUAL, Normalisation, SearchSettings, Stopping


@torch.no_grad()
def beam(
    step: Step,
    state: Any,
    *,
    start: Tensor,
    eos: int,
    width: int = USUAL.beam,
    max_length: int | Tensor,
    min_length: int = USUAL.min_length,
    length_penalty: float = USUAL.length_penalty,
    normalisation: Normalisation = USUAL.normalisation,
    n_best: int | None = 1,
    stopping: Stopping = USUAL.stopping,
    refill: bool = USUAL.refill,
    prefixes: Sequence[Sequence[int]] | None = None,
    forbid: Sequence[Phrases] | None = None,
    require: Sequence[Phrases] | None = None,
    steering: Sequence[Steering] | None = None,
    no_repeat: int = USUAL.no_repeat,
    groups: int = USUAL.groups,
    diversity: float = USUAL.diversity,
    coverage: float = USUAL.coverage,
    logits: bool = False,
    keep_tree: bool = False,
) -> list[NBest]:
    """The best outputs for each item of `start` (items,), keeping `width` hypotheses at every step.

        log p(y) = Σₜ log p(yₜ | y₁ … yₜ₋₁)          score(y) = log p(y) / |y|ᵅ,  α = length_penalty

    |y| counts EOS and not the start symbol; so do `min_length` and `max_length`. At each step the `width` best continuations
    are taken, by log p, then by the parent's place, then by the smaller symbol; those that end in EOS are set aside. An item is
    done when no live hypothesis can still beat the worst of its `n_best` finished ones: log p can only fall, so
    log p / max_lengthᵅ bounds all that may follow. Items that are done leave the batch, and nothing about one item depends
    on another. Hypotheses cut at `max_length` fill the list only where finished ones are missing.

    Args:
        step: the model: step(symbols (rows,), state) gives log p of the next symbol (rows, V) and the state after it.
        state: the state that it starts with.
        start: the first symbol of each item (items,).
        eos: the symbol that ends an output.
        width: hypotheses kept at every step.
        max_length: most symbols of an output, a number or one per item.
        min_length: fewest symbols.
        length_penalty, normalisation: α, and other scores, see `normalised`.
        n_best: hypotheses of each item that are returned; None: as many as `width`.
        stopping: "exact" as above; "first": as soon as `width` hypotheses are finished; "likely": as soon as the best one alive
            scores no better at its present length than the worst of `width` finished ones.
        refill: `width` hypotheses go on beside those that end, and one that is cut at `max_length` counts as finished
            (as in `transformers`).
        prefixes: for each item the symbols that its output begins with.
        forbid, require: for each item the phrases (lists of symbols) that its output must not, must contain.
        steering: for each item the symbols that are forced and the beginnings that are banned.
        no_repeat: n: no n symbols in a row come twice; 0 allows it.
        groups, diversity: diverse beams of width / groups each, one after the other; each chooses by
            log p − diversity · (how often the groups before it took the symbol at this step).
        coverage: β: β Σⱼ log min(Σₜ αₜⱼ, 1) is added to the score, see `Coverage`; 0: nothing.
        logits: step returns scores that are not normalised yet, which saves a pass over all symbols.
        keep_tree: keep each step of the search in ``tree``.

    Returns an `NBest` for each item. Raises an `AnaphoraError` for lengths and rules that do not fit the items, and where steering
    leaves nothing that could follow.

    >>> chain = torch.tensor([[0.0, 0.9, 0.1], [0.0, 0.2, 0.8], [0.0, 0.0, 1.0]]).log()         # p(next | last); 2 is EOS
    >>> step = lambda symbols, state: (chain[symbols], state)
    >>> found = an.search.beam(step, None, start=torch.tensor([0, 1]), eos=2, max_length=5, width=3)
    >>> [best[0].tokens for best in found]
    [[1], []]
    """
    options = SearchSettings.model_construct(
        beam=width,
        length_penalty=length_penalty,
        normalisation=normalisation,
        stopping=stopping,
        refill=refill,
        no_repeat=no_repeat,
        groups=groups,
        diversity=diversity,
        coverage=coverage,
    )
    return beam_search(
        step,
        state,
        Plan(options, eos, width, width if n_best is None else n_best, keep_tree),
        start=start,
        max_length=max_length,
        min_length=min_length,
        prefixes=prefixes,
        forbid=forbid,
        require=require,
        steering=steering,
        logits=logits,
    )


@torch.no_grad()
def beam_search(
    step: Step,
    state: Any,
    plan: Plan,
    *,
    start: Tensor,
    max_length: int | Tensor,
    min_length: int,
    prefixes: Sequence[Sequence[int]] | None = None,
    forbid: Sequence[Phrases] | None = None,
    require: Sequence[Phrases] | None = None,
    steering: Sequence[Steering] | None = None,
    logits: bool = False,
) -> list[NBest]:
    """Return the best outputs for each item as `beam` does; ``plan`` holds the decoding options."""
    limits = lengths_of(max_length, len(start), min_length)
    rules = _rules(plan, limits, prefixes, forbid, require, steering)
    if plan.single and all(rule is None for rule in rules):
        return best_path(
            step, state, start=start, plan=plan, limits=limits, min_length=min_length, logits=logits
        )
    items = [Item(plan, limit, of_item) for limit, of_item in zip(limits, rules, strict=True)]
    _extend(step, state, start, items, plan, min_length, logits)
    if steering is not None:
        _check_ways(items)
    return [item.result() for item in items]


def _extend(
    step: Step, state: Any, start: Tensor, items: list[Item], plan: Plan, min_length: int, logits: bool
) -> None:
    """One symbol more for every item, until all are done; rows of the batch are the live hypotheses of all items, in order."""
    active, symbols = items, start
    seen = Coverage() if plan.options.coverage else None
    for length in each_step(range(1, max((item.limit for item in items), default=0) + 1)):
        scores, state = step(symbols, state)
        forbidden = plan.eos if length < min_length else None
        best = _candidates(scores, active, plan, len(symbols), forbidden, logits)
        covered = seen.after(state, len(symbols)) if seen else None
        rows = extend_all(active, best, covered)
        active = [item for item in active if not item.done]
        if not active:
            break
        if rows != list(range(len(symbols))):
            chosen = row_index(rows, start.device)
            state = select_rows(state, chosen)
            if seen:
                seen.select(chosen)
        symbols = row_index([node.symbol for item in active for node in item.live], start.device)


def _check_ways(items: list[Item]) -> None:
    """An `AnaphoraError` where steering left an item nothing that could follow before any output was finished."""
    for item in items:
        if item.stuck and not any(group.finished for group in item.groups):
            raise no_way_on(
                " ".join(str(n.symbol) for n in node.path()) for group in item.groups for node in group.live
            )


def _candidates(
    scores: Tensor, active: list[Item], plan: Plan, rows: int, forbidden: int | None, logits: bool
) -> Candidates:
    """The best next symbols of each row that its item's rules allow.

    `width` of them are enough for every group: the others' choices can push back at most as many as
    those groups are wide.
    """
    count = plan.per_row(active) + (PRUNED_SHOWN if plan.keep_tree else 0)
    ruled = [(item.rules, node) for item in active for node in item.live if item.rules]
    if not ruled:
        return best_symbols(scores, count, rows=rows, forbidden=forbidden, logits=logits)
    check_shape(scores, rows)
    log_probs, wanted = constrained(all_log_probs(scores) if logits else scores, ruled)
    best = best_symbols(log_probs, count, rows=rows, forbidden=forbidden)
    add_wanted(best, log_probs, wanted)
    return best


def _rules(
    plan: Plan,
    limits: list[int],
    prefixes: Sequence[Sequence[int]] | None,
    forbid: Sequence[Phrases] | None,
    require: Sequence[Phrases] | None,
    steering: Sequence[Steering] | None,
) -> Sequence[Constraints | None]:
    """The constraints of each item; none where nothing is asked."""
    given: dict[str, Any] = {
        "prefixes": prefixes,
        "forbid": forbid,
        "require": require,
        "steering": steering,
    }
    for name, per_item in given.items():
        if per_item is not None and len(per_item) != len(limits):
            raise AnaphoraError(
                f"{name} has {len(per_item)} entries for {len(limits)} items; give one for each."
            )
    eos, no_repeat = plan.eos, plan.options.no_repeat
    if no_repeat < 0:
        raise AnaphoraError(f"no_repeat must be at least 0 (0 allows repeats), but is {no_repeat}.")
    if not no_repeat and all(per_item is None for per_item in given.values()):
        return [None] * len(limits)
    none: list[list[Any]] = [[] for _ in limits]
    steered: Sequence[Steering | None] = steering or [None] * len(limits)
    per_items = zip(limits, prefixes or none, forbid or none, require or none, steered, strict=True)
    rules = []
    for limit, prefix, forbidden, required, by_hand in per_items:
        if len(prefix) > limit:
            raise AnaphoraError(f"A prefix has {len(prefix)} symbols, more than max_length = {limit} allows.")
        if by_hand is not None:
            by_hand.check(eos, limit)
        rules.append(Constraints(eos, prefix, forbidden, required, no_repeat, by_hand))
    return rules


def greedy(
    step: Step,
    state: Any,
    *,
    start: Tensor,
    eos: int,
    max_length: int | Tensor,
    min_length: int = USUAL.min_length,
    length_penalty: float = USUAL.length_penalty,
    logits: bool = False,
    keep_tree: bool = False,
) -> list[NBest]:
    """yₜ = argmax p(y | y₁ … yₜ₋₁), until EOS or max_length: a beam of width 1.

    Quick, but a wrong symbol is never taken back. `step`, `state`, `start` (items,), `eos`, `max_length`, `min_length`,
    `length_penalty`, `logits`, `keep_tree` and the result are those of `beam`; each list holds one hypothesis.

    >>> chain = torch.tensor([[0.0, 0.9, 0.1], [0.0, 0.2, 0.8], [0.0, 0.0, 1.0]]).log()         # p(next | last); 2 is EOS
    >>> step = lambda symbols, state: (chain[symbols], state)
    >>> an.search.greedy(step, None, start=torch.tensor([0]), eos=2, max_length=5)[0][0].tokens
    [1]
    """
    return beam(
        step,
        state,
        start=start,
        eos=eos,
        width=1,
        max_length=max_length,
        min_length=min_length,
        length_penalty=length_penalty,
        logits=logits,
        keep_tree=keep_tree,
    )


# ----------------------------------------------------------------------------
# A beam of width 1 without the bookkeeping of one: the best symbol of each row, until EOS.


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


# ----------------------------------------------------------------------------
# The most probable symbol at every step, for many items at once and without a look at each of them.

STRIDE = 8
"""Steps between two looks at which items have ended; those then leave the batch."""


@torch.no_grad()
def greedy_symbols(
    step: Step, state: Any, *, start: Tensor, eos: int, limits: Sequence[int]
) -> list[list[int]]:
    """The symbols that `beam` of width 1 finds for each item, without EOS; log p is not computed.

    start ``(items,)``; limits: most symbols of each item, its EOS counted. ``step`` may give logits or log p. On a GPU nothing
    waits for the host but one number in every `STRIDE` steps.
    """
    left = torch.tensor(list(limits), device=start.device)
    rows = torch.arange(len(left), device=start.device)
    found = torch.full((len(left), max(limits, default=0)), eos, dtype=torch.int64, device=start.device)
    ended, symbols = left <= 0, start
    for place in each_step(range(found.shape[1])):
        scores, state = step(symbols, state)
        symbols = scores.argmax(-1)
        found[rows, place] = torch.where(ended, eos, symbols)
        ended = ended | (symbols == eos) | (left <= place + 1)
        if place % STRIDE == STRIDE - 1 or place == found.shape[1] - 1:
            if bool(scores.isnan().any()):
                raise NotANumberError(
                    "a step of the search gave numbers that are none; the weights may be damaged."
                )
            alive = torch.nonzero(~ended)[:, 0]
            if not len(alive):
                break
            if 2 * len(alive) <= len(rows):
                state, rows, symbols = select_rows(state, alive), rows[alive], symbols[alive]
                ended, left = ended[alive], left[alive]
    return [row[: row.index(eos)] if eos in row else row for row in found.tolist()]


# ----------------------------------------------------------------------------
# The rules of `Constraints` on a table of log p.


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


# ----------------------------------------------------------------------------
# Coverage: outputs that leave parts of the source unread lose some of their score.

LEAST = 1e-6
"""A place that was never looked at counts as this much: its logarithm must be a number."""


@runtime_checkable
class Attending(Protocol):
    """A state that tells how the newest step looked at the source."""

    @property
    def attention(self) -> Tensor:
        """``(rows, S)``, each row's weights of the source's places; they sum to 1."""

    @property
    def places(self) -> Tensor:
        """``(rows, S)``, True where the source of a row has a place."""


class Coverage:
    """How far each hypothesis is from having looked at all of its source (Wu et al. 2016).

        covered(y) = Σⱼ log min(Σₜ αₜⱼ, 1)  ≤ 0        score(y) = log p(y) / |y|ᵅ + β covered(y)

    over the places j of the source, αₜⱼ the weight of place j when the symbol at t was chosen, EOS counted. It is 0
    when every place got a whole look, and sums below 10⁻⁶ count as 10⁻⁶. Continuations of one length are still
    chosen by log p; and as it is never above 0, the bound of the exact stopping rule holds with 0 in its place.
    """

    def __init__(self) -> None:
        self._sums: Tensor | None = None

    def after(self, state: Any, rows: int) -> list[float]:
        """What each row has covered after the step that gave `state`."""
        if not isinstance(state, Attending):
            raise AnaphoraError(
                "coverage needs a model with attention, whose state has attention (rows, S) and places (rows, S); "
                f"this state, a {type(state).__name__}, has none."
            )
        weights = state.attention
        if weights.ndim != 2 or len(weights) != rows or weights.shape != state.places.shape:
            raise AnaphoraError(
                f"attention and places must both be ({rows}, S) for {rows} rows, but are "
                f"{tuple(weights.shape)} and {tuple(state.places.shape)}."
            )
        self._sums = weights.double() if self._sums is None else self._sums + weights
        covered = self._sums.clamp(LEAST, 1.0).log().masked_fill(~state.places, 0.0).sum(1).tolist()
        return list(covered)

    def select(self, rows: Tensor) -> None:
        if self._sums is not None:
            self._sums = self._sums.index_select(0, rows)
