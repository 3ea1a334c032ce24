"""From source texts to hypotheses: batches by length, one search for each, answers in the order asked."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch

from anaphora.data.symbols import BOS, EOS, PAD
from anaphora.data.tokenizers import PairTokenizer
from anaphora.models.seq2seq import Seq2Seq
from anaphora.search import NBest, beam, greedy

ROWS = 64  # items searched together; results do not depend on it


def encode_sources(tokenizer: PairTokenizer, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
    """Symbols of each text, cut at ``max_tokens`` with a warning that counts."""
    encoded = tokenizer.source.encode_batch(list(texts))
    long = sum(len(ids) > max_tokens for ids in encoded)
    if long:
        warnings.warn(
            f"{long} of {len(encoded)} inputs were longer than max_tokens = {max_tokens} symbols and were cut",
            stacklevel=3,
        )
    return [ids[:max_tokens] for ids in encoded]


def most_symbols(source_length: int, max_length: int) -> int:
    """Most symbols in the output for a source of this length; see the setting ``max_length``."""
    return max_length or 3 * source_length + 20


@torch.no_grad()
def search_outputs(
    model: Seq2Seq,
    sources: Sequence[Sequence[int]],
    *,
    beam: int,
    length_penalty: float,
    max_length: int = 0,
    n_best: int = 1,
    keep_tree: bool = False,
) -> list[NBest]:
    """The best hypotheses for every source (symbols without EOS), in order."""
    answers: list[NBest | None] = [None] * len(sources)
    order = sorted(range(len(sources)), key=lambda i: (len(sources[i]), i))
    for begin in range(0, len(order), ROWS):
        rows = order[begin : begin + ROWS]
        found = _search(
            model,
            [sources[i] for i in rows],
            width=beam,
            length_penalty=length_penalty,
            max_length=max_length,
            n_best=n_best,
            keep_tree=keep_tree,
        )
        for i, nbest in zip(rows, found, strict=True):
            answers[i] = nbest
    return [answer for answer in answers if answer is not None]


def _search(
    model: Seq2Seq,
    sources: Sequence[Sequence[int]],
    *,
    width: int,
    length_penalty: float,
    max_length: int,
    n_best: int,
    keep_tree: bool,
) -> list[NBest]:
    device = next(model.parameters()).device
    lengths = torch.tensor([len(ids) + 1 for ids in sources], device=device)
    source = torch.full((len(sources), int(max(len(ids) for ids in sources)) + 1), PAD, dtype=torch.long)
    for row, ids in enumerate(sources):
        source[row, : len(ids) + 1] = torch.tensor([*ids, EOS])
    state = model.start(model.encode(source.to(device), lengths))
    limits = torch.tensor([most_symbols(len(ids), max_length) for ids in sources], device=device)
    start = torch.full((len(sources),), BOS, device=device)
    if width == 1 and n_best == 1:
        return greedy(
            model.step,
            state,
            start=start,
            eos=EOS,
            max_length=limits,
            length_penalty=length_penalty,
            keep_tree=keep_tree,
        )
    return beam(
        model.step,
        state,
        start=start,
        eos=EOS,
        width=max(width, n_best),
        max_length=limits,
        length_penalty=length_penalty,
        n_best=n_best,
        keep_tree=keep_tree,
    )
