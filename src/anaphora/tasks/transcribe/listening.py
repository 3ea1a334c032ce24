"""From inputs to transcripts: long recordings in windows, one search, words with times and confidences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anaphora.data.tokenizers import Tokenizer
from anaphora.models.ctc import CTCModel
from anaphora.tasks.transcribe.build import Model
from anaphora.tasks.transcribe.decoding import (
    Frames,
    Heard,
    Search,
    frame_log_probs,
    search_frames,
    search_symbols,
)
from anaphora.tasks.transcribe.windows import Window, cut, join_log_probs
from anaphora.tasks.transcribe.words import Transcript, Word, transcript


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

    def transcripts(self, inputs: Sequence[Frames]) -> list[list[Transcript]]:
        """The best transcripts of each input, best first. An input's never depend on the others."""
        windows = [self._windows(len(x)) for x in inputs]
        parts = [x[w.start : w.end] for x, of in zip(inputs, windows, strict=True) for w in of]
        self.model.eval()
        if isinstance(self.model, CTCModel):
            log_probs = iter(frame_log_probs(self.model, parts))
            found = []
            for of in windows:
                whole = join_log_probs(of, [next(log_probs) for _ in of], self.factor)
                found.append(self._written(Heard(search_frames(whole, self.search), whole)))
            return found
        heard = iter(search_symbols(self.model, parts, self.search))
        return [self._joined(of, [next(heard) for _ in of]) for of in windows]

    def _windows(self, frames: int) -> list[Window]:
        return cut(frames, round(self.window / self.hop), round(self.overlap / self.hop), self.factor)

    def _written(self, heard: Heard, begin: float = 0.0) -> list[Transcript]:
        seconds = self.hop * self.factor
        return [
            transcript(self.model, heard, h, self.tokenizer, seconds=seconds, begin=begin)
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
