"""Beam search with an exact stopping rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from anaphora.cancellation import each_step
from anaphora.errors import AnaphoraError
from anaphora.search._candidates import all_log_probs, best_symbols, check_shape
from anaphora.search._constraints import Constraints, Phrases
from anaphora.search._coverage import Coverage
from anaphora.search._greedy import best_path
from anaphora.search._hypothesis import NBest, Step, lengths_of
from anaphora.search._item import PRUNED_SHOWN, Candidates, Item, Plan, extend_all
from anaphora.search._rows import row_index, select_rows
from anaphora.search._ruled import add_wanted, constrained
from anaphora.search._steering import Steering, no_way_on
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
    count = plan.per_row + (PRUNED_SHOWN if plan.keep_tree else 0)
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
