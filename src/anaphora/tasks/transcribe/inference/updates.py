"""What is known of sound that is still arriving, and where an utterance ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from anaphora.errors import SettingsError
from anaphora.tasks.transcribe.inference.words import Word


@dataclass(frozen=True)
class Update:
    """Words that have become certain since the last update, and those after them that may still change."""

    stable: list[Word]
    partial: list[Word]
    ended: bool = False
    """Whether the utterance is over: nothing is partial then, and the next word begins another one."""


@dataclass(frozen=True)
class Endpoint:
    """An utterance is over once ``silence`` seconds have passed since its last word or since the last sound, or once it has lasted
    ``longest`` seconds."""

    silence: float = 0.8
    longest: float = 20.0

    def __post_init__(self) -> None:
        if not 0 < self.silence < math.inf:
            raise SettingsError([f"endpoint = {self.silence:g} must be a number of seconds, 0 or more."])

    def ends(self, words: Sequence[Word], begin: float, now: float, quiet: float = 0.0) -> bool:
        """Whether an utterance that began at second ``begin`` with these words is over at ``now``, after so many ``quiet`` seconds. One
        without words is over after ``longest`` seconds, so that silence does not pile up."""
        return now - begin >= self.longest or self.silent(words, now, quiet)

    def silent(self, words: Sequence[Word], now: float, quiet: float = 0.0) -> bool:
        """Whether enough silence has followed these words."""
        return bool(words) and max(now - words[-1].end, quiet) >= self.silence
