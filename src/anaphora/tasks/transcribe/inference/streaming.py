"""Transcripts of sound that is still arriving: words that are certain, and those that may still change.

A model that hears as sound arrives (`arriving`) reports what it has heard: `HearingAsItArrives`. Every other model hears a window of
the sound again and again: `HearingAgain`. `open_hearing` chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anaphora.errors import DataError
from anaphora.models.ctc import CTCModel
from anaphora.models.transducer import TransducerModel
from anaphora.search import Hypothesis
from anaphora.tasks.transcribe.inference.again import HearingAgain
from anaphora.tasks.transcribe.inference.arriving import (
    FrameStream,
    Samples,
    heard_of,
    hears_as_it_arrives,
    searching,
)
from anaphora.tasks.transcribe.inference.asking import listening_of
from anaphora.tasks.transcribe.inference.decoding import Search
from anaphora.tasks.transcribe.inference.unsaid import without
from anaphora.tasks.transcribe.inference.updates import Endpoint, Update
from anaphora.tasks.transcribe.inference.words import Transcript, Word, spelled_words, transcript

EVERY = 0.5
"""Seconds of new sound after which a model that hears as it arrives is asked again."""
WINDOW = 30.0
SLOWEST, FASTEST = 1000, 384_000
"""Samples a second that sound may arrive at."""


class HearingAsItArrives:
    """Words are certain once every hypothesis that is still alive begins with them: no later sound can change them.

    Without an ``endpoint`` the transcript of the end is the text that ``predict`` gives of the whole recording. With one, the search begins
    again after each utterance, and so does the encoder, shortly before the next sound; neither memory nor work grow with the time that was
    heard, and what the sound is measured by adapts to another voice within a second.
    """

    every = EVERY

    def __init__(self, estimator: Any, rate: int, search: Search, *, endpoint: Endpoint | None = None):
        model: CTCModel | TransducerModel = estimator.model_.eval()
        self._estimator, self._search, self._endpoint = estimator, search, endpoint
        self._stream = FrameStream(model, estimator.ear_, rate)
        self._seconds: float = estimator.settings_.hop * estimator.settings_.subsample
        self._done: list[Transcript] = []
        self._passed = 0  # frames of utterances that are over
        self._anew()

    def _anew(self) -> None:
        self._searching = searching(self._estimator.model_, self._search)
        self._parts: list[Tensor] = []
        self._frames = 0
        self._stable: list[Word] = []
        self._sounded = self._endpoint is None  # whether the utterance has a sample that is not zero

    @property
    def _begin(self) -> float:
        """The second at which the utterance began."""
        return self._passed * self._seconds

    def push(self, samples: Samples) -> None:
        """More sound ``(n,)``, from −1 to 1."""
        self._sounded = self._sounded or bool(samples.any())
        self._hear(self._stream.push(samples))

    def _hear(self, frames: Tensor) -> None:
        self._passed += self._stream.skipped  # only before the first frame of an utterance
        self._stream.skipped = 0
        self._frames += len(frames)
        if isinstance(self._estimator.model_, CTCModel):
            self._parts.append(frames)
            frames = without(frames, self._search.never)
        self._searching.push(frames)

    def update(self) -> Update:
        """What was heard so far."""
        found = self._searching.best()
        if not self._frames or not found:
            return Update([], [])
        words = self._written(found[0]).words if self._sounded else []  # a muted microphone says nothing
        now = self._begin + self._frames * self._seconds
        quiet = self._stream.quiet
        if self._endpoint is not None and self._endpoint.ends(words, self._begin, now, quiet):
            new = words[len(self._stable) :]
            self._end(found[0])
            if words:
                self._stream.end_utterance(silent=self._endpoint.silent(words, now, quiet))
            return Update(new, [], ended=bool(words))
        new = words[len(self._stable) : self._certain()]
        self._stable += new
        return Update(new, words[len(self._stable) :])

    def _certain(self) -> int:
        """How many words no later sound can change."""
        symbols, words = self._searching.certain()
        if words is not None:
            return len(words)
        tokenizer = self._estimator.tokenizer_
        spelled = spelled_words(symbols, tokenizer)
        # The last of them may still grow, unless a space follows it.
        ended = bool(symbols) and tokenizer.spellings[symbols[-1]] == " "
        return len(spelled) if ended else max(0, len(spelled) - 1)

    def _end(self, hypothesis: Hypothesis) -> None:
        """The utterance is over."""
        found = self._written(hypothesis)
        if found.words and self._sounded:
            words = [*self._stable, *found.words[len(self._stable) :]]
            self._done.append(Transcript(found.text, words, found.score, found.log_prob))
        self._passed += self._frames
        self._anew()

    def finish(self) -> Transcript:
        """The transcript of all, certain words as they were given."""
        self._hear(self._stream.finish())
        found = self._searching.best()
        if found:
            self._end(found[0])
        done = self._done
        text = " ".join(each.text for each in done)
        words = [word for each in done for word in each.words]
        return Transcript(text, words, sum(each.score for each in done), sum(each.log_prob for each in done))

    def _written(self, hypothesis: Hypothesis) -> Transcript:
        e = self._estimator
        heard = heard_of(hypothesis, self._parts, e.model_)
        return transcript(
            e.model_,
            heard,
            hypothesis,
            e.tokenizer_,
            seconds=self._seconds,
            begin=self._begin,
            lexicon=self._search.lexicon,
        )


def open_hearing(
    estimator: Any, rate: int, options: Mapping[str, Any], *, endpoint: Endpoint | None = None
) -> HearingAsItArrives | HearingAgain:
    """What hears sound of ``rate`` samples a second as the model can; ``options`` are those of `TranscribeOptions`."""
    if not isinstance(rate, int | np.integer) or not SLOWEST <= rate <= FASTEST:
        raise DataError(
            f"the sound has a rate of {rate!r}; give samples a second, a whole number from {SLOWEST} to {FASTEST}."
        )
    asked = estimator._options(
        {**options, "voices": options.get("voices") or 1}
    )  # each second all is heard again
    listening = listening_of(estimator, asked)
    search = listening.search
    # A transducer finds words by ranking whole texts.
    words_too = search.lexicon is None or isinstance(estimator.model_, CTCModel)
    if hears_as_it_arrives(estimator) and asked.voices == 1 and search.own is None and words_too:
        return HearingAsItArrives(estimator, rate, search, endpoint=endpoint)

    def words(samples: Samples) -> list[Word]:
        heard = estimator._hear((samples, rate), voices=asked.voices)
        ((found, *_),) = estimator._transcribed(listening, [heard])
        return list(found.words)

    with torch.no_grad():
        return HearingAgain(words, rate, window=WINDOW, endpoint=endpoint)
