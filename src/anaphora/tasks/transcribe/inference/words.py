"""The words of a hypothesis, when each was said, and how sure the model is of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anaphora.data.symbols import BOS
from anaphora.data.tokenizers import Tokenizer
from anaphora.kinds.result import Result
from anaphora.models.seq2seq import Seq2Seq
from anaphora.nn import inside
from anaphora.search import Hypothesis, Lexicon, TransducerHypothesis, WordHypothesis, ctc_align
from anaphora.tasks.transcribe.inference.decoding import Heard, spellable


@dataclass(frozen=True)
class Word:
    """A word, its first and last moment in seconds, and how sure the model is, from 0 to 1."""

    word: str
    start: float
    end: float
    confidence: float


@dataclass(frozen=True)
class Transcript(Result):
    """A text with its words. ``score`` decides the order, ``log_prob`` is the model's own log p(y | x)."""

    text: str
    words: list[Word]
    score: float
    log_prob: float

    def __str__(self) -> str:
        return self.text


def transcript(
    model: object,
    heard: Heard,
    h: Hypothesis,
    tokenizer: Tokenizer,
    *,
    seconds: float,
    begin: float = 0.0,
    lexicon: Lexicon | None = None,
) -> Transcript:
    """A hypothesis as text; a frame lasts ``seconds``, the first began at ``begin``. ``lexicon`` is the one that its words
    were found in."""
    if isinstance(h, TransducerHypothesis):
        marks = _by_emission(h)
    elif heard.log_probs is not None and spellable(h.tokens, len(heard.log_probs)):
        marks = _by_frames(heard, h)
    else:
        assert isinstance(model, Seq2Seq)
        marks = _by_attention(model, heard, h)
    words = []
    for word, _, start, end, sure in _placed(h, tokenizer, marks, lexicon):
        words.append(Word(word, round(begin + start * seconds, 3), round(begin + end * seconds, 3), sure))
    return Transcript(text_of(h, tokenizer), words, h.score, h.log_prob)


def placed_words(
    heard: Heard, h: Hypothesis, tokenizer: Tokenizer, lexicon: Lexicon | None = None
) -> list[tuple[str, list[int], int, int, float]]:
    """The words of a hypothesis of CTC: each with the places of its symbols in the text, its first frame and the one after its last, and how sure
    the model is."""
    return _placed(h, tokenizer, _by_frames(heard, h), lexicon)


def _placed(
    h: Hypothesis, tokenizer: Tokenizer, marks: Sequence[_Mark], lexicon: Lexicon | None
) -> list[tuple[str, list[int], int, int, float]]:
    found = []
    for word, places in _grouped(h, tokenizer, marks, lexicon):
        sure = math.exp(sum(math.log(max(marks[i].confidence, 1e-30)) for i in places) / len(places))
        found.append((word, places, marks[places[0]].start, marks[places[-1]].end, sure))
    return found


def text_of(h: Hypothesis, tokenizer: Tokenizer) -> str:
    """What a hypothesis says: its words with single spaces between them."""
    text = " ".join(h.words) if isinstance(h, WordHypothesis) else tokenizer.decode(h.tokens)
    return tokenizer.normalized(text)


@dataclass(frozen=True)
class _Mark:
    """The frames of one symbol, and how probable it was there."""

    start: int
    end: int
    confidence: float


def _by_frames(heard: Heard, h: Hypothesis) -> list[_Mark]:
    """On the best path that spells the symbols; the confidence is the geometric mean of p over a symbol's frames."""
    assert heard.log_probs is not None
    if not h.tokens:
        return []
    (found,) = ctc_align(heard.log_probs[None], [h.tokens])
    return [_Mark(span.start, span.end, span.confidence) for span in found.spans]


def _by_emission(h: TransducerHypothesis) -> list[_Mark]:
    """At the frames at which the best alignment writes them; the confidence is p of a symbol there."""
    return [_Mark(t, t + 1, math.exp(step)) for t, step in zip(h.frames, h.steps, strict=True)]


@torch.no_grad()
def _by_attention(model: Seq2Seq, heard: Heard, h: Hypothesis) -> list[_Mark]:
    """On the best way through the attention that never goes back; the confidence is p of a symbol given those before."""
    memory = heard.memory
    assert memory is not None
    target_in = torch.tensor([[BOS, *h.tokens]], device=memory.mask.device)
    with inside.record() as notes:
        model.decoder(target_in, memory)
    weights = attention_weights(model, notes, target_in.shape[1])[0, : len(h.tokens)]
    places = in_order(weights.double().cpu().numpy())
    return [_Mark(p, p + 1, math.exp(step)) for p, step in zip(places, h.steps, strict=False)]


def attention_weights(model: Seq2Seq, notes: Sequence[inside.Note], places: int) -> Tensor:
    """What the decoder's attention noted step by step at its last ``places`` places, ``(batch, places, S)``; a prompt stands
    before them."""
    attention = model.decoder.attentions[-1]
    found = torch.cat([n.value for n in notes if n.module is attention and n.name == "weights"], -2)
    found = found.mean(1) if found.dim() == 4 else found  # over heads
    return found[:, -places:]


def in_order(weights: NDArray[np.float64]) -> list[int]:
    """The places p_1 ≤ p_2 ≤ … that make Σ_τ log α_{τ, p_τ} greatest, of weights α ``(T, S)``."""
    scores = np.log(np.maximum(weights, 1e-30))
    best, came = np.zeros(scores.shape[1]), []
    for row in scores:
        before = np.maximum.accumulate(best)
        # the nearest place that has the running maximum
        came.append(np.maximum.accumulate(np.where(best == before, np.arange(len(best)), 0)))
        best = before + row
    places, place = [], int(best.argmax()) if len(scores) else 0
    for back in reversed(came):
        places.append(place)
        place = int(back[place])
    return places[::-1]


def _grouped(
    h: Hypothesis, tokenizer: Tokenizer, marks: Sequence[_Mark], lexicon: Lexicon | None
) -> list[tuple[str, list[int]]]:
    """Each word with the places of its symbols."""
    spelling = tokenizer.spellings
    if isinstance(h, WordHypothesis) and h.times is not None:
        found = []
        for word, (start, end) in zip(h.words, h.times, strict=True):
            places = [
                i for i, m in enumerate(marks) if start <= m.start < end and spelling[h.tokens[i]] != " "
            ]
            found.append((word, places))
        return [(word, places) for word, places in found if places]
    if isinstance(h, WordHypothesis) and lexicon is not None:
        heard = [i for i, symbol in enumerate(h.tokens) if symbol != lexicon.separator]
        return list(zip(h.words, _spelled(h.words, h.tokens, heard, lexicon) or [], strict=False))
    return spelled_words(h.tokens, tokenizer)


def spelled_words(symbols: Sequence[int], tokenizer: Tokenizer) -> list[tuple[str, list[int]]]:
    """The words that symbols spell, each with the places of its own."""
    spelling = tokenizer.spellings
    groups: list[list[int]] = []
    for place, symbol in enumerate(symbols):
        if not groups or spelling[symbol].startswith(" "):
            groups.append([])
        if spelling[symbol] != " ":
            groups[-1].append(place)
    return [(tokenizer.decode([symbols[i] for i in group]).strip(), group) for group in groups if group]


def _spelled(
    words: Sequence[str], tokens: Sequence[int], places: list[int], lexicon: Lexicon
) -> list[list[int]] | None:
    """The places among ``places`` of each word's symbols, so that all are used; None where the words are spelled
    otherwise. A word may have several spellings, so the first that leaves a way for the rest is taken."""
    if not words or not places:
        return None if words or places else []
    for own in lexicon.spellings(words[0]):
        if [tokens[i] for i in places[: len(own)]] == own:
            rest = _spelled(words[1:], tokens, places[len(own) :], lexicon)
            if rest is not None:
                return [places[: len(own)], *rest]
    return None
