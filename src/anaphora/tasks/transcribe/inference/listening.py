"""From inputs to transcripts: long recordings in windows, one search, words with times and confidences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from anaphora.data.tokenizers import Tokenizer
from anaphora.inference.session import NotFiniteError
from anaphora.models.ctc import CTCModel
from anaphora.models.transducer import TransducerModel
from anaphora.search import Hypothesis
from anaphora.search._hypothesis import different
from anaphora.tasks.given import named_when_not_finite
from anaphora.tasks.transcribe.build import Model
from anaphora.tasks.transcribe.inference.decoding import (
    Frames,
    Heard,
    Search,
    frame_log_probs,
    search_alignments,
    search_frames,
    search_symbols,
)
from anaphora.tasks.transcribe.inference.windows import Window, cut, join_log_probs
from anaphora.tasks.transcribe.inference.words import Transcript, Word, text_of, transcript

Voices = Frames | list[Frames]


def mean_of(log_probs: Sequence[Tensor]) -> Tensor:
    """The logarithm of the mean probability of several ``(frames, symbols)``."""
    if len(log_probs) == 1:
        return log_probs[0]
    return torch.stack(list(log_probs)).logsumexp(0) - math.log(len(log_probs))


def _in_frames(log_probs: Tensor, rows: Sequence[int], s: Search) -> list[Heard]:
    """What is heard in log p ``(frames, symbols)`` of one recording."""
    return [Heard(search_frames(log_probs, s), log_probs) for _ in rows]


@dataclass(frozen=True)
class Listening:
    """How frames are read; ``hop`` is their distance in seconds, ``factor`` how many become one."""

    model: Model
    tokenizer: Tokenizer
    search: Search
    hop: float
    factor: int
    window: float = 30.0
    overlap: float = 8.0

    def texts(self, inputs: Sequence[Voices]) -> list[str]:
        """The best text of each input, in order. An input's never depends on the others. Each is its frames, or of models with CTC
        its frames as several voices say it."""
        return [self._best(windows, heard) for windows, heard in self._heard(inputs)]

    def transcripts(self, inputs: Sequence[Voices]) -> list[list[Transcript]]:
        """The best transcripts of each input, best first, with the time and the confidence of each word."""
        return [self._joined(windows, heard) for windows, heard in self._heard(inputs)]

    def _heard(self, given: Sequence[Voices]) -> Iterator[tuple[list[Window], list[Heard]]]:
        """What was heard in each input: once in all of it from CTC, else once in each of its windows."""
        voices = [len(x) if isinstance(x, list) else 1 for x in given]
        inputs = [one for x in given for one in (x if isinstance(x, list) else [x])]
        windows = [self._windows(len(x)) for x in inputs]
        parts = [x[w.start : w.end] for x, of in zip(inputs, windows, strict=True) for w in of]
        self.model.eval()
        if isinstance(self.model, CTCModel):
            log_probs = iter(frame_log_probs(self.model, parts))
            wholes = (join_log_probs(of, [next(log_probs) for _ in of], self.factor) for of in windows)
            for number, count in enumerate(voices, start=1):
                whole = mean_of([next(wholes) for _ in range(count)])
                if bool(whole.isnan().any()):
                    raise NotFiniteError(f"input {number}")
                x = inputs[sum(voices[: number - 1])]
                heard = self._different(1, partial(_in_frames, whole))
                yield cut(len(x), len(x), 0, 1), heard
        else:
            model = self.model
            owners = [number for number, of in enumerate(windows, start=1) for _ in of]

            def searched(rows: Sequence[int], s: Search) -> list[Heard]:
                def found(some: Sequence[Frames]) -> list[Heard]:
                    if isinstance(model, TransducerModel):
                        return search_alignments(model, some, s)
                    return search_symbols(model, some, s)

                return named_when_not_finite(found, [parts[i] for i in rows], [owners[i] for i in rows])

            each = iter(self._different(len(parts), searched))
            for of in windows:
                yield of, [next(each) for _ in of]

    def _different(self, items: int, searched: Callable[[Sequence[int], Search], list[Heard]]) -> list[Heard]:
        """What ``searched`` hears in each of so many items, as different texts."""
        heard: dict[int, Heard] = {}

        def found(rows: list[int], wide: int) -> list[list[Hypothesis]]:
            heard.update(zip(rows, searched(rows, self.search.wider(wide)), strict=True))
            return [heard[i].hypotheses for i in rows]

        text = partial(text_of, tokenizer=self.tokenizer)
        nbests = different(found, items, self.search.n_best, self.search.widths(), text)
        return [replace(heard[i], hypotheses=list(nbest)) for i, nbest in enumerate(nbests)]

    def _best(self, windows: Sequence[Window], heard: Sequence[Heard]) -> str:
        if len(windows) > 1:
            return self._joined(windows, heard)[0].text
        return text_of(heard[0].hypotheses[0], self.tokenizer)

    def _windows(self, frames: int) -> list[Window]:
        margin = self.factor * getattr(getattr(self.model, "encoder", None), "margin", 0)
        return cut(frames, round(self.window / self.hop), round(self.overlap / self.hop), self.factor, margin)

    def _written(self, heard: Heard, begin: float = 0.0) -> list[Transcript]:
        seconds = self.hop * self.factor
        return [
            transcript(
                self.model,
                heard,
                h,
                self.tokenizer,
                seconds=seconds,
                begin=begin,
                lexicon=self.search.lexicon,
            )
            for h in heard.hypotheses
        ]

    def _joined(self, windows: Sequence[Window], heard: Sequence[Heard]) -> list[Transcript]:
        """Of several windows of a decoder the words whose middle lies in each one's own part."""
        if len(windows) == 1:
            return self._written(heard[0])
        words: list[Word] = []
        score = log_prob = 0.0
        for w, each in zip(windows, heard, strict=True):
            best = self._written(each, w.start * self.hop)[0]
            first, last = w.first * self.hop, w.last * self.hop
            words += [word for word in best.words if first <= (word.start + word.end) / 2 < last]
            score, log_prob = score + best.score, log_prob + best.log_prob
        return [Transcript(" ".join(word.word for word in words), words, score, log_prob)]
