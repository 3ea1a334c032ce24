"""Transcripts of sound that is still arriving by models that need what comes later: a window of it is heard again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from anaphora.search.ctc import common_beginning
from anaphora.tasks.transcribe.inference.arriving import Samples
from anaphora.tasks.transcribe.inference.updates import Endpoint, Update
from anaphora.tasks.transcribe.inference.words import Transcript, Word


class HearingAgain:
    """The last ``window`` seconds are heard again at every update. Words are certain once two updates in a row agree on them
    and a second of sound has followed; sound before the last certain word is forgotten when the window is full.

    ``transcribe`` gives the words of samples ``(n,)``. What is certain was not heard with all that follows, so the whole may differ
    from what ``predict`` gives of the whole recording. With an ``endpoint`` utterances end, see `Endpoint`.
    """

    SETTLED = 1.0
    every = 1.0

    def __init__(
        self,
        transcribe: Callable[[Samples], Sequence[Word]],
        rate: int,
        *,
        window: float = 30.0,
        endpoint: Endpoint | None = None,
    ):
        self._transcribe, self._rate, self._window, self._endpoint = transcribe, rate, window, endpoint
        self._sound: Samples = np.zeros(0, np.float32)
        self._begin = 0  # samples that were forgotten
        self._stable: list[Word] = []
        self._before: list[str] = []  # what the last update heard after the certain words

    def push(self, samples: Samples) -> None:
        """More sound ``(n,)``, from −1 to 1."""
        self._sound = np.concatenate((self._sound, samples))

    def update(self) -> Update:
        """What is heard now."""
        words = self._heard()
        end = (self._begin + len(self._sound)) / self._rate
        agreed = len(common_beginning([self._before, [word.word for word in words]]))
        certain = sum(word.end <= end - self.SETTLED for word in words[:agreed])
        if self._endpoint is not None and self._endpoint.ends(words, self._begin / self._rate, end):
            self._stable += words
            self._before = []
            self._forget(end)
            return Update(words, [], ended=bool(words))
        full = len(self._sound) > self._window * self._rate
        half = end - self._window / 2
        if full:  # what is forgotten below cannot be heard again and stays as it is
            certain = max(certain, sum(word.end <= half for word in words))
        new, rest = words[:certain], words[certain:]
        self._stable += new
        self._before = [word.word for word in rest]
        if full:
            self._forget(max(half, self._stable[-1].end if self._stable else 0.0))
        return Update(new, rest)

    def finish(self) -> Transcript:
        """All words: those that were certain, and after them what is heard last."""
        self._stable += self._heard()
        return Transcript(" ".join(word.word for word in self._stable), list(self._stable), 0.0, 0.0)

    def _heard(self) -> list[Word]:
        if not len(self._sound):
            return []
        begin = self._begin / self._rate
        after = self._stable[-1].end if self._stable else 0.0
        found = [
            Word(w.word, round(begin + w.start, 3), round(begin + w.end, 3), w.confidence)
            for w in self._transcribe(self._sound)
        ]
        return [word for word in found if (word.start + word.end) / 2 > after]

    def _forget(self, until: float) -> None:
        """Sound before the moment ``until``."""
        gone = min(len(self._sound), round(until * self._rate) - self._begin)
        self._sound, self._begin = self._sound[gone:].copy(), self._begin + gone
