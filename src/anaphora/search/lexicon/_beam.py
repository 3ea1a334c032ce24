"""Beam search that can only produce words: any next-symbol model on the prefix tree of a lexicon."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anaphora.cancellation import each_step
from anaphora.errors import AnaphoraError
from anaphora.search._candidates import check_greatest, check_shape
from anaphora.search._hypothesis import NBest, Step, lengths_of
from anaphora.search._rows import row_index, select_rows
from anaphora.search.lexicon._hot import Hot, HotWords
from anaphora.search.lexicon._item import Item, Plan
from anaphora.search.lexicon._lexicon import Lexicon
from anaphora.search.lexicon._models import TableModel, TrainedModel, WordModel
from anaphora.search.lexicon._prune import Pruning
from anaphora.search.lexicon._scorers import scorer


@torch.no_grad()
def lexicon_beam(
    step: Step,
    state: Any,
    *,
    start: Tensor,
    eos: int,
    lexicon: Lexicon,
    max_length: int | Tensor,
    width: int = 50,
    n_best: int = 1,
    lm: TableModel | TrainedModel | WordModel | None = None,
    lm_weight: float = 1.0,
    word_bonus: float = 0.0,
    hot_words: HotWords | None = None,
    per_node: int | None = None,
    beam_distance: float | None = None,
    merged: bool = False,
) -> list[NBest]:
    """The best word sequences for each item of `start` (items,), keeping `width` beginnings at every step.

        score(w₁ … w_n) = log p(symbols, EOS) + lm_weight · log p_lm(w₁ … w_n, end) + word_bonus · n + hot words

    The symbols spell words of the lexicon, its separator between them if it has one; EOS may follow the end of a word
    and nothing else. A word sequence that has several spellings has the score of its best spelling. Lengths
    count symbols and EOS.

    Args:
        step, state, start, eos, max_length: as of `beam`.
        lexicon: the words and their spellings.
        width, n_best: beginnings kept at every step, and outputs of each item that are returned.
        lm, lm_weight: an `NGram`, a `LanguageModel` or a `WordModel`, and its weight.
        word_bonus, hot_words: what every word adds to the score, and what single words or phrases add.
        per_node: how many beginnings stay at one node of the tree with the language model in one state; None for any number.
            With 1 it is the maximum over all paths into a node, which is exact where the model's future depends on no more.
        beam_distance: beginnings whose rank is further below the best go.
        merged: search on `Lexicon.automaton`, in which words that end alike share their ends, instead of the tree. The results
            are the same and a large lexicon takes less memory; hot words need the tree.

    Every item gives a list of `WordHypothesis`, finished ones only; where none was found, the best beginning with
    `finished=False`. An item is done when no beginning can still beat its `n_best` outputs. Nothing about one item
    depends on another. Raises an `AnaphoraError` where a word is spelled with EOS, and for `hot_words` with `merged`.

    >>> lexicon = an.search.Lexicon(["ab", "b"], "_ab")
    >>> step = lambda symbols, state: (torch.tensor([[0.3, 0.4, 0.2, 0.1]]).log().expand(len(symbols), -1), state)
    >>> found = an.search.lexicon_beam(step, None, start=torch.tensor([0]), eos=3, lexicon=lexicon, max_length=3)
    >>> found[0][0].words
    ['b']
    """
    _check(lexicon, eos, n_best, merged and hot_words is not None, merged)
    limits = lengths_of(max_length, len(start), 0)
    model, hot = scorer(lm, lexicon, lm_weight), Hot(hot_words, lexicon)
    plan = Plan(
        lexicon,
        model,
        hot,
        Pruning(width, per_node, beam_distance),
        eos,
        n_best,
        lm_weight,
        word_bonus,
        merged,
    )
    items = [Item(plan, limit) for limit in limits]
    _extend(step, state, start, items, steps=max(limits, default=0), scored=max(eos + 1, lexicon.symbols))
    return [item.result() for item in items]


def _extend(step: Step, state: Any, start: Tensor, items: list[Item], *, steps: int, scored: int) -> None:
    """One symbol more for every item, until all are done; rows of the batch are the live beginnings of all items, in order.

    ``scored``: how many symbols the step must score at least.
    """
    active, symbols = items, start
    for _ in each_step(range(steps)):
        log_probs, state = step(symbols, state)
        rows = _on_host(log_probs, len(symbols), scored)
        kept, row = [], 0
        for item in active:
            before = len(item.live)
            item.extend(rows[row : row + before])
            if not item.done:
                kept += [row + node.source for node in item.live]
            row += before
        active = [item for item in active if not item.done]
        if not active:
            break
        if kept != list(range(row)):
            state = select_rows(state, row_index(kept, start.device))
        symbols = row_index([node.symbol for item in active for node in item.live], start.device)


def _check(lexicon: Lexicon, eos: int, n_best: int, hot: bool, merged: bool) -> None:
    if n_best < 1:
        raise AnaphoraError(f"n_best must be at least 1, but is {n_best}.")
    if hot:
        raise AnaphoraError("lexicon_beam: hot_words need the prefix tree; leave merged out.")
    if eos in (lexicon.automaton if merged else lexicon.tree).symbol:
        raise AnaphoraError(
            f"lexicon_beam: a word of the lexicon is spelled with EOS, {eos}; give it another symbol."
        )


def _on_host(log_probs: Tensor, rows: int, symbols: int) -> NDArray[np.float64]:
    """The rows in double precision, checked to be log-probabilities."""
    check_shape(log_probs, rows)
    if log_probs.shape[1] < symbols:
        raise AnaphoraError(
            f"lexicon_beam: the lexicon and EOS need {symbols} symbols, but step scores {log_probs.shape[1]}; give it the "
            "symbols of this model."
        )
    table: NDArray[np.float64] = log_probs.cpu().double().numpy()
    for greatest in table.max(axis=1):
        check_greatest(float(greatest))
    return table
