"""One search over what an encoder has read, for every task that writes symbol by symbol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from anaphora.cancellation import each_step
from anaphora.data.symbols import EOS
from anaphora.data.tokenizers.vocabularies import Around
from anaphora.errors import SettingsError
from anaphora.models.decoders.packed import PackedTransformer
from anaphora.models.memory import Memory
from anaphora.models.ruled import Counted, ruled
from anaphora.models.seq2seq import Seq2Seq
from anaphora.search import Hypothesis, NBest, Step, fuse, mbr, sample
from anaphora.search._beam import beam_search
from anaphora.search._plan import Plan, Steering
from anaphora.settings.own import Part
from anaphora.settings.search import SAMPLE_ONLY, CompleteSearch

ROWS, HYPOTHESES = 64, 512
"""Items that are searched together, and their hypotheses at most: results do not depend on it. A search that is to stop, or to let
others in, can do so between two steps, so that no step may be long."""


def search_memory(
    model: Seq2Seq,
    memory: Memory,
    limits: Sequence[int],
    seeds: Sequence[int],
    s: CompleteSearch,
    *,
    n_best: int,
    keep_tree: bool,
    around: Around | None = None,
    steering: Steering | None = None,
    heat: float = 1.0,
) -> list[NBest]:
    """One search for all items of a memory: ``limits`` are the most symbols of each output, ``seeds`` what draws of it
    follow from, ``around`` how outputs begin and what they may not have. ``steering`` forces and bans symbols of every
    output of a beam, ``heat`` divides all log p before they are normalised again."""
    around = around or Around()
    if model.decoder.places is not None:
        limits = [min(limit, model.decoder.places) for limit in limits]
        s = s.model_copy(update={"min_length": min(s.min_length, model.decoder.places)})
    watched = bool(s.coverage) and not isinstance(
        model.decoder, PackedTransformer
    )  # whose state tells where it looked
    normalised: Step = model.step_watched if watched else model.step
    step: Step = normalised if watched else model.decoder.step
    state, logits = model.start_watched(memory) if watched else model.start(memory), not watched
    plain: Step = model.step
    if heat != 1.0:
        plain = step = normalised = heated(normalised, heat)
        logits = False
    if around.rules:
        plain = step = ruled(normalised, around, limits)
        state, logits = Counted(state, 0), False
    if s.lm:
        assert isinstance(s.lm, Part)
        lm = s.lm.object
        step, state = fuse((plain, state), (lm.step, lm.start(len(limits))), s.lm_weight)
    if s.lm or around.rules:  # sums of scores that are not normalised stay as they are, draws are scaled
        logits = s.decode != "beam"
    common = ends(limits, s, memory.annotations.device, around)
    if isinstance(s.search, Part):
        return own_search(s.search, step if s.lm else plain, state, **common, n_best=n_best)
    if s.decode != "beam":
        draw = {key: getattr(s, key) for key in (*SAMPLE_ONLY, "length_penalty")}
        draw["seeds"] = list(seeds)
        draw["n"] = n_best if s.decode == "sample" else s.samples
        drawn = sample(step, state, logits=logits, **draw, **common)
        return drawn if s.decode == "sample" else [NBest(mbr(each)[:n_best]) for each in each_step(drawn)]
    plan = Plan(s, common.pop("eos"), beam_width(s, n_best), n_best, keep_tree)
    steered = None if steering is None else [steering] * len(limits)
    return beam_search(step, state, plan, logits=logits, steering=steered, **common)


def heated(step: Step, heat: float) -> Step:
    """``step`` with log p divided by ``heat`` and normalised again: above 1 flatter, below 1 sharper."""

    def next_step(symbols: Tensor, state: Any) -> tuple[Tensor, Any]:
        log_probs, state = step(symbols, state)
        return (log_probs.float() / heat).log_softmax(1), state

    return next_step


def own_search(part: Part, step: Step, state: Any, *, n_best: int, **ends: Any) -> list[NBest]:
    """What the user's search finds: ``part(step, state, start=…, eos=…, max_length=…)`` as `anaphora.search.beam`."""
    items = len(ends["start"])
    ends.pop("min_length")
    return checked_hypotheses(part, part.made()(step, state, **ends), items, n_best)


def checked_hypotheses(part: Part, found: Any, items: int, n_best: int) -> list[NBest]:
    """The hypotheses that a search of the user's gave for each of so many items, at most ``n_best`` of each."""
    if not isinstance(found, list | tuple) or len(found) != items:
        got = f"{len(found)}" if isinstance(found, list | tuple) else f"a {type(found).__name__}"
        raise SettingsError(
            [f"search = {part} must give a list of hypotheses for each of {items} items, but gave {got}."]
        )
    for each in found:
        if not each or not all(isinstance(one, Hypothesis) for one in each):
            raise SettingsError(
                [f"search = {part} must give each item hypotheses (an.search.Hypothesis), at least one."]
            )
    return [NBest(each[:n_best]) for each in found]


def ends(limits: Sequence[int], s: CompleteSearch, device: torch.device, around: Around) -> dict[str, Any]:
    """Where each output begins and ends, as every search takes it."""
    start = torch.full((len(limits),), around.start, device=device)
    return {"start": start, "eos": EOS, "max_length": torch.tensor(limits), "min_length": s.min_length}


def items_together(s: CompleteSearch, n_best: int) -> int:
    """How many items go through this search together."""
    drawn = {"sample": n_best, "mbr": s.samples}
    return max(1, min(ROWS, HYPOTHESES // drawn.get(s.decode, beam_width(s, n_best))))


def beam_width(s: CompleteSearch, n_best: int) -> int:
    """The beam that is set, or one wide enough for as many outputs."""
    return max(s.beam, -(-n_best // s.groups) * s.groups)
