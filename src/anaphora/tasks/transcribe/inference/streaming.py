"""Transcripts of sound that is still arriving: words that are certain, and those that may still change.

A model hears as sound arrives where its encoder reads frames in order (CTC over recurrent layers of one direction) and nothing is
taken away from the recording as a whole (``normalise = "none"``): `HearingAsItArrives`. Every other model hears a window of the
sound again and again: `HearingAgain`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from anaphora.data.audio.features import LogMel
from anaphora.data.audio.resample_stream import ResampleStream
from anaphora.models.ctc import CTCModel, log_probabilities
from anaphora.models.encoders import RecurrentEncoder
from anaphora.models.frontend import Framed
from anaphora.models.listener import Listener, Stacking
from anaphora.search import Hypothesis, ctc_beam, ctc_greedy
from anaphora.tasks.transcribe.inference.decoding import Heard, Search
from anaphora.tasks.transcribe.inference.words import Transcript, Word, spelled_words, transcript

Samples = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class Update:
    """Words that have become certain since the last update, and those after them that may still change."""

    stable: list[Word]
    partial: list[Word]


def hears_as_it_arrives(estimator: Any) -> bool:
    """Whether what a model hears of a moment needs nothing that comes later."""
    model, ear = estimator.model_, estimator.ear_
    encoder = model.encoder if isinstance(model, CTCModel) else None
    if not isinstance(encoder, Listener) or not isinstance(ear.features, LogMel):
        return False
    front = encoder.front.front if isinstance(encoder.front, Framed) else encoder.front
    body = encoder.body
    ordered = isinstance(body, RecurrentEncoder) and not body.reverse and not body.recurrent.bidirectional
    return isinstance(front, Stacking) and ordered and estimator.settings_.normalise == "none"


class FrameStream:
    """log p ``(frames, symbols)`` of one recording, for the pieces of sound as they arrive; see `hears_as_it_arrives`."""

    def __init__(self, model: CTCModel, features: LogMel, rate: int):
        self._model, self._encoder = model, model.encoder
        self._resampled, self._sound = ResampleStream(rate, features.rate), features.stream()
        self._device = next(model.parameters()).device
        self._held = torch.zeros(0, features.width)
        self._state: Any = None

    def push(self, samples: Samples) -> Tensor:
        found = self._sound.push(self._resampled.push(torch.from_numpy(samples)))
        return self._read(found, final=False)

    def finish(self) -> Tensor:
        rest = self._resampled.finish()
        found = [self._sound.push(rest)] if len(rest) else []
        return self._read(torch.cat((*found, self._sound.finish())), final=True)

    @torch.no_grad()
    def _read(self, frames: Tensor, *, final: bool) -> Tensor:
        frames = torch.cat((self._held, frames))
        whole = len(frames) if final else len(frames) // self._encoder.factor * self._encoder.factor
        frames, self._held = frames[:whole], frames[whole:]
        if not whole:
            return torch.zeros(0, self._model.frames.linear.out_features)
        x, _ = self._encoder.front(frames[None].to(self._device), torch.tensor([whole], device=self._device))
        body = cast(RecurrentEncoder, self._encoder.body)
        y, self._state = body.recurrent(body.embedding(x), None, self._state)
        return log_probabilities(self._model.frames.linear(y))[0].cpu()


class HearingAsItArrives:
    """Words are certain once every hypothesis that is still alive begins with them: no later sound can change them."""

    def __init__(self, estimator: Any, rate: int, search: Search):
        self._estimator, self._search = estimator, search
        self._stream = FrameStream(estimator.model_, estimator.ear_.features, rate)
        self._parts: list[Tensor] = []
        self._stable: list[Word] = []

    def push(self, samples: Samples) -> None:
        """More sound ``(n,)``, from −1 to 1."""
        self._parts.append(self._stream.push(samples))

    def update(self) -> Update:
        """What was heard so far."""
        whole = torch.cat(self._parts)
        if not len(whole):
            return Update([], [])
        alive = self._hypotheses(whole)
        words = self._written(alive[0], whole).words
        common = _common([h.tokens for h in alive])
        spelled = spelled_words(common, self._estimator.tokenizer_)
        # The last of them may still grow, unless a space follows it.
        ended = bool(common) and self._estimator.tokenizer_.spellings[common[-1]] == " "
        certain = len(spelled) if ended else max(0, len(spelled) - 1)
        new = words[len(self._stable) : certain]
        self._stable += new
        return Update(new, words[len(self._stable) :])

    def finish(self) -> Transcript:
        """The transcript of all: the text that ``predict`` gives of the whole recording, certain words as they were given."""
        self._parts.append(self._stream.finish())
        whole = torch.cat(self._parts)
        if not len(whole):
            return Transcript("", [], 0.0, 0.0)
        found = self._written(self._hypotheses(whole)[0], whole)
        words = [*self._stable, *found.words[len(self._stable) :]]
        return Transcript(found.text, words, found.score, found.log_prob)

    def _hypotheses(self, log_probs: Tensor) -> list[Hypothesis]:
        if self._search.width == 1:
            return list(ctc_greedy(log_probs[None])[0])
        return list(ctc_beam(log_probs[None], width=self._search.width, n_best=None)[0])

    def _written(self, hypothesis: Hypothesis, log_probs: Tensor) -> Transcript:
        settings = self._estimator.settings_
        heard = Heard([hypothesis], log_probs)
        seconds = settings.hop * settings.subsample
        tokenizer = self._estimator.tokenizer_
        return transcript(self._estimator.model_, heard, hypothesis, tokenizer, seconds=seconds)


class HearingAgain:
    """The last ``window`` seconds are heard again at every update. Words are certain once two updates in a row agree on them
    and a second of sound has followed; sound before the last certain word is forgotten when the window is full.

    ``transcribe`` gives the words of samples ``(n,)``. What is certain was not heard with all that follows, so the whole may differ
    from what ``predict`` gives of the whole recording.
    """

    SETTLED = 1.0

    def __init__(self, transcribe: Callable[[Samples], Sequence[Word]], rate: int, *, window: float = 30.0):
        self._transcribe, self._rate, self._window = transcribe, rate, window
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
        agreed = len(_common([self._before, [word.word for word in words]]))
        certain = sum(word.end <= end - self.SETTLED for word in words[:agreed])
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


def _common(rows: Sequence[Sequence[Any]]) -> list[Any]:
    """What all rows begin with."""
    found = []
    for column in zip(*rows, strict=False):
        if any(value != column[0] for value in column):
            break
        found.append(column[0])
    return found
