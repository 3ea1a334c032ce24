"""From frames to texts: batches by length, one search for each, answers in the order asked."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anaphora.data.batches.padded import tensors_of
from anaphora.data.batches.pooled import in_order
from anaphora.data.symbols import BOS, EOS
from anaphora.data.tokenizers import Tokenizer
from anaphora.data.tokenizers.vocabularies import Around
from anaphora.models.ctc import CTCModel, JointModel, log_probabilities
from anaphora.models.memory import Memory
from anaphora.models.packed import packed
from anaphora.models.ruled import Counted, ruled
from anaphora.models.seq2seq import Seq2Seq
from anaphora.models.transducer import TransducerModel
from anaphora.search import (
    Hypothesis,
    Lexicon,
    Step,
    WordHypothesis,
    beam,
    ctc_beam,
    ctc_greedy,
    ctc_loss,
    lexicon_beam,
    transducer_beam,
    transducer_greedy,
    transducer_loss,
)
from anaphora.search._hypothesis import MOST, widths
from anaphora.settings.own import Part
from anaphora.settings.search import HF_BEAM
from anaphora.tasks.decoding import HYPOTHESES, checked_hypotheses
from anaphora.tasks.transcribe.inference.unsaid import Sayable, never_by, without

BATCH = 16_384
"""Frames that are read together; results do not depend on it."""
PLAIN, WORDS = 8, 64
"""Widths of a beam unless set: without words, and with."""
LEAST_WORDS = 8
"""The narrowest beam that CTC has with words: fewer beginnings lose the word that is being spelled, and nothing is written."""
Frames = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class Search:
    """How texts are searched for; see `TranscribeOptions`."""

    width: int = 1
    n_best: int = 1
    lexicon: Lexicon | None = None
    lm: Any = None
    lm_weight: float = 0.5
    word_bonus: float = 0.0
    hot_words: Mapping[str, float] = field(default_factory=dict)
    ctc_weight: float = 0.3
    own: Part | None = None
    """The user's own search."""
    never: tuple[int, ...] = ()
    """Symbols that are not written, see `unsaid`."""

    @property
    def words(self) -> dict[str, Any]:
        """What is asked of searches for words."""
        weight = {} if self.lm is None else {"lm": self.lm, "lm_weight": self.lm_weight}
        hot = {"hot_words": self.hot_words} if self.hot_words else {}
        return {"lexicon": self.lexicon, "word_bonus": self.word_bonus, **weight, **hot}

    def widths(self) -> Iterable[int]:
        """How many hypotheses are searched for, and how many more while too few of their texts differ."""
        if self.own is not None:
            return (MOST,)
        if self.lexicon is not None:  # its words differ, and n_best decides what a search for words keeps
            return widths(self.n_best)
        return (1,) if self.width == 1 else widths(max(self.width, self.n_best))

    def wider(self, wide: int) -> Search:
        """This search for ``wide`` hypotheses."""
        return replace(self, n_best=wide, width=max(self.width, wide))


@dataclass(frozen=True)
class Heard:
    """What was found for one recording: hypotheses, best first; and what tells where in the sound their symbols are."""

    hypotheses: list[Hypothesis]
    log_probs: Tensor | None = None
    """(frames, symbols) of a model with CTC."""
    memory: Memory | None = None
    """Of a model with attention, a batch of one."""


@torch.no_grad()
def frame_log_probs(model: CTCModel, inputs: Sequence[Frames]) -> list[Tensor]:
    """log p ``(frames, symbols)`` on the CPU for each input, in order."""
    device = next(model.parameters()).device
    found: list[Tensor] = [torch.empty(0)] * len(inputs)
    for rows in in_order(inputs, BATCH * max(1, factor_of(model) // 4)):
        scores, lengths = model(*tensors_of([inputs[i] for i in rows], device))
        for i, row, real in zip(rows, log_probabilities(scores).cpu(), lengths.tolist(), strict=True):
            found[i] = row[:real]
    return found


def factor_of(model: Any) -> int:
    """How many frames become one place."""
    return int(getattr(getattr(model, "encoder", None), "factor", 1))


def search_frames(log_probs: Tensor, s: Search) -> list[Hypothesis]:
    """The best texts of log p ``(frames, symbols)``."""
    log_probs = without(log_probs, s.never)
    if s.own is not None:
        return list(checked_hypotheses(s.own, s.own.made()(log_probs[None]), 1, s.n_best)[0])
    if s.lexicon is not None:
        return list(
            ctc_beam(log_probs[None], width=max(s.width, s.n_best), n_best=s.n_best, times=True, **s.words)[0]
        )
    if s.width == 1:
        return list(ctc_greedy(log_probs[None])[0])
    return list(ctc_beam(log_probs[None], width=s.width, n_best=s.n_best)[0])


@torch.no_grad()
def search_symbols(model: Seq2Seq, inputs: Sequence[Frames], s: Search) -> list[Heard]:
    """The best texts of a model with a decoder, for every input, in order."""
    device = next(model.parameters()).device
    engine = packed(model)
    found: list[Heard | None] = [None] * len(inputs)
    for rows in in_order(inputs, BATCH, max(1, HYPOTHESES // max(s.width, s.n_best))):
        memory = engine.encode(*tensors_of([inputs[i] for i in rows], device))
        frames = model.frames(memory) if isinstance(model, JointModel) else None
        for place, nbest in enumerate(_written(engine, memory, s)):
            real = int(memory.mask[place].sum())
            alone = _row(memory, place, real)
            if frames is None:
                found[rows[place]] = Heard(nbest[: s.n_best], memory=alone)
            else:
                log_probs = log_probabilities(frames[0][place, :real]).cpu()
                best = rescored(nbest, log_probs, s.ctc_weight)[: s.n_best]
                found[rows[place]] = Heard(best, log_probs, alone)
    return [heard for heard in found if heard is not None]


@torch.no_grad()
def search_alignments(model: TransducerModel, inputs: Sequence[Frames], s: Search) -> list[Heard]:
    """The best texts of a transducer, for every input, in order.

    Words of a lexicon are searched for by the CTC of the encoder, and ranked by w · log p_ctc + (1 − w) · log p_transducer with what
    language model and bonuses gave added.
    """
    device = next(model.parameters()).device
    found: list[Heard | None] = [None] * len(inputs)
    sayable = Sayable(model, s.never)
    for rows in in_order(inputs, BATCH):
        memory = model.encode(*tensors_of([inputs[i] for i in rows], device))
        counts = memory.mask.sum(1).cpu()
        if s.width == 1 and s.lexicon is None:
            written = transducer_greedy(sayable, memory.annotations, counts)
        elif s.lexicon is None:
            written = transducer_beam(
                sayable, memory.annotations, counts, width=max(s.width, s.n_best), n_best=s.n_best
            )
        else:
            written = []
        frames = log_probabilities(model.frames(memory)[0]).cpu() if s.lexicon is not None else None
        for place, i in enumerate(rows):
            real = int(counts[place])
            if frames is None:
                found[i] = Heard(list(written[place]))
                continue
            log_probs = frames[place, :real]
            nbest = search_frames(log_probs, replace(s, n_best=s.width))
            alone = _row(memory, place, real)
            found[i] = Heard(_ranked(model, alone, nbest, s)[: s.n_best], log_probs)
    return [heard for heard in found if heard is not None]


def _ranked(
    model: TransducerModel, memory: Memory, nbest: Sequence[Hypothesis], s: Search
) -> list[Hypothesis]:
    """Hypotheses of CTC, ranked by both."""
    w, scores = s.ctc_weight, []
    for h in nbest:
        targets = torch.tensor([h.tokens], dtype=torch.int64, device=memory.mask.device)
        logits, _ = model(memory, targets)
        written = -float(transducer_loss(logits, [h.tokens], reduction="sum"))
        scores.append(w * h.log_prob + (1 - w) * written + h.score - h.log_prob)
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    return [replace(nbest[i], score=scores[i]) for i in order]


def _row(memory: Memory, place: int, real: int) -> Memory:
    """One row of a memory, a batch of one without padding."""
    one = slice(place, place + 1)
    last = tuple(state[:, one] for state in memory.last)
    return Memory(memory.annotations[one, :real], memory.mask[one, :real], last)


def _written(model: Seq2Seq, memory: Memory, s: Search) -> list[list[Hypothesis]]:
    items = len(memory.mask)
    common: dict[str, Any] = {
        "start": torch.full((items,), BOS, device=memory.mask.device),
        "eos": EOS,
        "max_length": (memory.mask.sum(1) + 10).clamp(max=model.decoder.places or 10**9).cpu(),
    }
    state, wide = model.start(memory), max(s.width, s.n_best)
    if s.own is not None:
        found = s.own.made()(*_saying(model, state, s.never), **common)
        return [list(n) for n in checked_hypotheses(s.own, found, items, s.n_best)]
    if s.lexicon is not None:
        return [
            list(n) for n in lexicon_beam(model.step, state, width=wide, n_best=s.n_best, **s.words, **common)
        ]
    how = HF_BEAM if model.decoder.normalised else {}
    step, begun = _saying(model, state, s.never)
    return [list(n) for n in beam(step, begun, width=wide, n_best=wide, **how, **common)]


def _saying(model: Seq2Seq, state: Any, never: Sequence[int]) -> tuple[Step, Any]:
    """A step of ``model`` that gives the symbols ``never`` no probability, and the state that it begins with."""
    if not never:
        return model.step, state
    return ruled(model.step, Around(never=tuple(never)), ()), Counted(state, 0)


def rescored(nbest: Sequence[Hypothesis], log_probs: Tensor, weight: float) -> list[Hypothesis]:
    """Hypotheses of the decoder, ranked by w · log p_ctc(y | x) + (1 − w) · log p_attention(y | x), with what language
    model and bonuses gave added. One that has more symbols than frames can spell comes last."""
    scores = []
    for h in nbest:
        by_frames = -math.inf
        if spellable(h.tokens, len(log_probs)):
            by_frames = -float(ctc_loss(log_probs[None], [h.tokens], reduction="sum", normalized=True))
        extra = h.score - h.log_prob if isinstance(h, WordHypothesis) else 0.0
        scores.append(weight * by_frames + (1 - weight) * h.log_prob + extra)
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    return [replace(nbest[i], score=scores[i]) for i in order]


def spellable(symbols: Sequence[int], frames: int) -> bool:
    """Whether so many frames can spell these symbols: one for each, and a blank between two that are equal."""
    return len(symbols) + sum(a == b for a, b in itertools.pairwise(symbols)) <= frames


@torch.no_grad()
def greedy_texts(
    model: CTCModel | Seq2Seq | TransducerModel,
    inputs: Sequence[Frames],
    tokenizer: Tokenizer,
    unsaid: Sequence[int] = (),
) -> list[str]:
    """The text of each input, symbol by symbol the best, without symbols that are ``unsaid``."""
    s = Search(never=never_by(model, unsaid))
    if isinstance(model, CTCModel):
        best = [search_frames(log_probs, s)[0] for log_probs in frame_log_probs(model, inputs)]
    elif isinstance(model, TransducerModel):
        best = [heard.hypotheses[0] for heard in search_alignments(model, inputs, s)]
    else:
        best = [heard.hypotheses[0] for heard in search_symbols(model, inputs, s)]
    return [tokenizer.decode(h.tokens) for h in best]
