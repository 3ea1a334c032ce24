"""One search over what an encoder has read, for every task that writes symbol by symbol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from anaphora.data.symbols import BOS, EOS
from anaphora.models.decoders.packed import PackedTransformer
from anaphora.models.memory import Memory
from anaphora.models.seq2seq import Seq2Seq
from anaphora.search import NBest, beam, mbr, sample
from anaphora.settings.search import SAMPLE_ONLY, CompleteSearch

ROWS = 64  # items searched together; results do not depend on it


def search_memory(
    model: Seq2Seq,
    memory: Memory,
    limits: Sequence[int],
    seeds: Sequence[int],
    s: CompleteSearch,
    *,
    n_best: int,
    keep_tree: bool,
) -> list[NBest]:
    """One search for all items of a memory: ``limits`` are the most symbols of each output, ``seeds`` what draws of it
    follow from."""
    if model.decoder.places is not None:
        limits = [min(limit, model.decoder.places) for limit in limits]
        s = s.model_copy(update={"min_length": min(s.min_length, model.decoder.places)})
    common = ends(limits, s, memory.annotations.device) | {"length_penalty": s.length_penalty}
    if s.decode != "beam":
        draw = {key: getattr(s, key) for key in SAMPLE_ONLY}
        draw["seeds"] = list(seeds)
        draw["n"] = n_best if s.decode == "sample" else s.samples
        drawn = sample(model.decoder.step, model.start(memory), logits=True, **draw, **common)
        return drawn if s.decode == "sample" else [NBest(mbr(each)[:n_best]) for each in drawn]
    names = ("normalisation", "stopping", "no_repeat", "groups", "diversity", "coverage")
    asked = {key: getattr(s, key) for key in names}
    options = {"width": beam_width(s, n_best), "n_best": n_best, "keep_tree": keep_tree, **asked, **common}
    if s.coverage and not isinstance(model.decoder, PackedTransformer):  # whose state tells where it looked
        return beam(model.step_watched, model.start_watched(memory), **options)
    return beam(model.decoder.step, model.start(memory), logits=True, **options)


def ends(limits: Sequence[int], s: CompleteSearch, device: torch.device) -> dict[str, Any]:
    """Where each output begins and ends, as every search takes it."""
    start = torch.full((len(limits),), BOS, device=device)
    return {"start": start, "eos": EOS, "max_length": torch.tensor(limits), "min_length": s.min_length}


def beam_width(s: CompleteSearch, n_best: int) -> int:
    """The beam asked for, or one wide enough for as many outputs."""
    return max(s.beam, -(-n_best // s.groups) * s.groups)
