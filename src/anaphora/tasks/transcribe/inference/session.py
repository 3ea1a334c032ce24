"""Listening to sound as it arrives: when to ask for words, and how long they take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anaphora.data.audio.files import as_wave
from anaphora.errors import SettingsError
from anaphora.tasks.transcribe.inference.again import HearingAgain
from anaphora.tasks.transcribe.inference.arriving import Samples
from anaphora.tasks.transcribe.inference.streaming import HearingAsItArrives
from anaphora.tasks.transcribe.inference.updates import Update
from anaphora.tasks.transcribe.inference.words import Transcript, Word


@dataclass
class Session:
    """One recording that is arriving at ``rate`` samples a second; the model writes words every ``every`` seconds of it."""

    hearing: HearingAsItArrives | HearingAgain
    rate: int
    every: float = 0.0
    """0: as the model can, see `hearing.every`."""
    clock: Callable[[], float] = time.perf_counter
    seconds: float = 0.0
    """Of sound that was heard."""
    spent: float = 0.0
    """Seconds of work."""
    _since: float = 0.0
    _updates: list[float] = field(default_factory=list)
    _certain: list[float] = field(default_factory=list)
    _shown: list[float] = field(default_factory=list)
    _seen: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.every < math.inf:
            raise SettingsError([f"every = {self.every:g} must be a number of seconds, 0 or more."])

    def push(self, samples: Samples) -> Update | None:
        """More sound ``(n,)``, from −1 to 1, or whole numbers as `as_wave` takes them; what is heard, where enough is new."""
        began = self.clock()
        samples = as_wave(samples, "the sound")
        self.hearing.push(samples)
        new = len(samples) / self.rate
        self.seconds += new
        self._since += new
        if self._since < (self.every or self.hearing.every) - 1e-9:
            self.spent += self.clock() - began
            return None
        self._since = 0.0
        update = self.hearing.update()
        taken = self.clock() - began
        self.spent += taken
        self._updates.append(taken)
        self._note(update, taken)
        return update

    def _note(self, update: Update, taken: float) -> None:
        """How long after its end each word was shown for the first time, and became certain."""
        now = self.seconds + taken
        self._certain += [now - word.end for word in update.stable]
        words: list[Word] = [*update.stable, *update.partial]
        before = len(self._certain) - len(update.stable)
        new = words[max(0, self._seen - before) :]
        self._shown += [now - word.end for word in new]
        # What an utterance showed and took back is not seen of the next one.
        self._seen = before + len(words) if update.ended else max(self._seen, before + len(words))

    def finish(self) -> Transcript:
        """The transcript of all."""
        began = self.clock()
        found = self.hearing.finish()
        self.spent += self.clock() - began
        return found

    def report(self) -> dict[str, Any]:
        """Seconds of sound and of work, the real-time factor (work / sound), and in seconds the mean and the 95th percentile of: the
        work of an update (``update``), and the time from the end of a word until it was shown and until it was certain (``shown``,
        ``certain``), for words before the end of the sound."""
        found: dict[str, Any] = {
            "seconds": round(self.seconds, 3),
            "work": round(self.spent, 3),
            "real_time_factor": round(self.spent / self.seconds, 4) if self.seconds else None,
            "streaming": isinstance(self.hearing, HearingAsItArrives),
        }
        for name, values in (("update", self._updates), ("shown", self._shown), ("certain", self._certain)):
            if values:
                high = float(np.quantile(values, 0.95))
                found[name] = {"mean": round(float(np.mean(values)), 4), "p95": round(high, 4)}
        return found
