"""From source texts to hypotheses: batches by length, one search for each, answers in the order asked."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from anaphora.cancellation import each_step
from anaphora.data.seeds import symbols_seed
from anaphora.data.symbols import EOS, PAD, UNK
from anaphora.data.tokenizers import PairTokenizer
from anaphora.data.tokenizers.vocabularies import Around
from anaphora.models.ensemble import Ensemble
from anaphora.models.memory import Memory, join_memories
from anaphora.models.packed import packed
from anaphora.models.seq2seq import Seq2Seq
from anaphora.models.static import StaticTransformer
from anaphora.nn import inside
from anaphora.search import NBest
from anaphora.search._beam import greedy_symbols
from anaphora.search._device import device_beam, device_greedy, has_room, knows
from anaphora.search._plan import Plan
from anaphora.settings.search import CompleteSearch, most_symbols
from anaphora.tasks.decoding import ROWS, beam_width, ends, items_together, search_memory
from anaphora.tasks.outputs import complete_search

GREEDY_ROWS = 512  # items that a GPU writes for together, where nothing is kept of them but their symbols


def encode_sources(tokenizer: PairTokenizer, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
    """Symbols of each text, cut at ``max_tokens`` with a warning that counts."""
    encoded = tokenizer.sources(list(texts))
    long = sum(len(ids) > max_tokens for ids in encoded)
    if long:
        warnings.warn(
            f"{long} of {len(encoded)} inputs were longer than max_tokens = {max_tokens} symbols and were cut",
            stacklevel=3,
        )
    return [ids[:max_tokens] for ids in encoded]


def warn_of_unknown(tokenizer: PairTokenizer, texts: Sequence[str], sources: Sequence[Sequence[int]]) -> None:
    """Warn where a text holds a character or a word that no training source has: the model reads all such as one symbol, and so writes
    something else."""
    strange = [text for text, ids in zip(texts, sources, strict=True) if UNK in ids]
    if not strange:
        return
    words = strange[0].split()
    found = next((word for word, ids in zip(words, tokenizer.sources(words), strict=True) if UNK in ids), "")
    shown = f" ({found[:40]!r} in the first)" if found else ""
    warnings.warn(
        f"{len(strange)} of {len(texts)} inputs hold characters or words that no training source has{shown}; the model reads all of them "
        "as one unknown symbol",
        stacklevel=3,
    )


@torch.no_grad()
def search_outputs(
    model: Seq2Seq,
    sources: Sequence[Sequence[int]],
    *,
    n_best: int = 1,
    keep_tree: bool = False,
    around: Around | None = None,
    **settings: Any,
) -> list[NBest]:
    """The best hypotheses for every source (symbols without EOS), in order; ``settings`` are `SearchSettings`, ``around``
    says how outputs begin and what they may not have."""
    asked = complete_search(model, settings, presets="lstm-attention, gru-attention or transformer")
    answers: list[NBest | None] = [None] * len(sources)
    order = sorted(range(len(sources)), key=lambda i: (len(sources[i]), i))
    together = items_together(asked, n_best)
    for begin in each_step(range(0, len(order), together)):
        rows = order[begin : begin + together]
        found = _search(model, [sources[i] for i in rows], asked, n_best, keep_tree, around or Around())
        for i, nbest in zip(rows, found, strict=True):
            answers[i] = nbest
    return [answer for answer in answers if answer is not None]


@torch.no_grad()
def greedy_outputs(
    model: Seq2Seq, sources: Sequence[Sequence[int]], *, max_length: int, around: Around
) -> list[list[int]]:
    """The symbols of the greedy output for every source, in order: those of `search_outputs` with a beam of 1, found faster."""
    device = next(model.parameters()).device
    limits = [most_symbols(len(ids), max_length) for ids in sources]
    if model.decoder.places is not None:
        limits = [min(limit, model.decoder.places) for limit in limits]
    longest = max(limits, default=1)

    def room(items: int) -> bool:
        return has_room(StaticTransformer, model, device, items=items, width=1, longest=longest)

    if around.rules:
        found = search_outputs(
            model, sources, beam=1, length_penalty=0.0, max_length=max_length, around=around
        )
        return [list(best[0].tokens) for best in found]
    static = room(ROWS)
    together = GREEDY_ROWS if device.type != "cpu" and (room(GREEDY_ROWS) or not static) else ROWS
    engine = model if static else packed(model)
    answers: dict[int, list[int]] = {}
    order = sorted(range(len(sources)), key=lambda i: (len(sources[i]), i))
    for begin in each_step(range(0, len(order), together)):
        rows = order[begin : begin + together]
        source, lengths = _padded([sources[i] for i in rows], device)
        start = torch.full((len(rows),), around.start, device=device)
        given: dict[str, Any] = {"start": start, "eos": EOS, "limits": [limits[i] for i in rows]}
        if static:
            here = device_greedy(StaticTransformer, model, source, lengths, **given)
        else:
            here = greedy_symbols(engine.decoder.step, engine.start(engine.encode(source, lengths)), **given)
        answers.update(zip(rows, here, strict=True))
    return [answers[i] for i in range(len(sources))]


def _search(
    model: Seq2Seq,
    sources: Sequence[Sequence[int]],
    s: CompleteSearch,
    n_best: int,
    keep_tree: bool,
    around: Around,
) -> list[NBest]:
    """One search for all of these sources, by the fastest backend that gives the result."""
    device = next(model.parameters()).device
    limits = [max(most_symbols(len(ids), s.max_length), s.min_length) for ids in sources]
    if model.decoder.places is not None:
        limits = [min(limit, model.decoder.places) for limit in limits]
    wide = beam_width(s, n_best)
    # Looking inside needs what the quicker searches never compute.
    watched = inside.recording()
    own = s.search != "auto" or s.lm
    plain = s.decode == "beam" and knows(s) and not (watched or own or keep_tree or around.rules)
    engine = model if watched or isinstance(model, Ensemble) else packed(model, int8=s.int8)
    source, lengths = _padded(sources, device)
    if plain and has_room(
        StaticTransformer, model, device, items=len(sources), width=wide, longest=max(limits)
    ):
        return device_beam(
            StaticTransformer,
            model,
            source,
            lengths,
            plan=Plan(s, EOS, wide, n_best),
            **ends(limits, s, device, around),
        )
    seeds = [symbols_seed(s.seed, ids) for ids in sources]
    memory = _encoded_alone(engine, source, lengths) if s.int8 else engine.encode(source, lengths)
    return search_memory(engine, memory, limits, seeds, s, n_best=n_best, keep_tree=keep_tree, around=around)


def _encoded_alone(model: Seq2Seq, source: torch.Tensor, lengths: torch.Tensor) -> Memory:
    """The memory of all sources, each read by itself.

    Attention in a batch rounds its last bits otherwise than alone, and rounding to eight bits makes such a bit a whole
    step; read alone, a source gives the same bits in any batch.
    """
    each = [
        model.encode(row[None, :length], lengths[i : i + 1])
        for i, (row, length) in enumerate(zip(source, lengths.tolist(), strict=True))
    ]
    return join_memories(each, source.shape[1])


def _padded(sources: Sequence[Sequence[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """The sources with their EOS ``(items, S)``, and their lengths ``(items,)``."""
    lengths = torch.tensor([len(ids) + 1 for ids in sources])
    source = torch.full((len(sources), int(lengths.max())), PAD, dtype=torch.long)
    for row, ids in enumerate(sources):
        source[row, : len(ids) + 1] = torch.tensor([*ids, EOS])
    return source.to(device), lengths.to(device)
