"""Embedded corpora of recordings: sentences drawn by a rule and said by voices, written as WAV files and a list."""

from __future__ import annotations

import wave
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from anaphora.data.batches.pooled import random_of
from anaphora.data.corpora.corpus import CORPUS_SEED, SPLITS, Embedded, split_of
from anaphora.data.corpora.tones_voice import RATE, say, speaker
from anaphora.files.writing import make_folder, replace_file, replacing

Wave = np.ndarray[Any, np.dtype[np.float32]]
SPEAKERS = {"train": 40, "dev": 10, "test": 10}
"""How many people each split is spoken by; no one is in two."""
LISTING = "list.tsv"
LOUDER = 6.0
"""How much stronger the noise of the variant ``noisy`` is."""


@dataclass(frozen=True)
class SoundCorpus(Embedded):
    """Recordings (n,) with their transcripts, and the lexicon of their words. Utterance i of a split is the same however
    many you draw."""

    name: str
    summary: str
    variants: Mapping[str, str]
    sizes: Mapping[str, int]
    lexicon: Mapping[str, tuple[str, ...]]
    """Each word and its phones."""
    sentence: Callable[[Random], list[str]]
    """One random sentence, as words."""
    tasks: tuple[str, ...] = ("transcribe",)
    unit: str = "recordings"
    form: str = ""
    rate: int = RATE

    def generate(
        self, variant: str, split: str, size: int, seed: int = CORPUS_SEED
    ) -> list[tuple[Wave, str]]:
        """The first ``size`` recordings of a split, samples (n,) of 16 bits at `rate`, with their transcripts."""
        first = sum(SPEAKERS[name] for name in SPLITS[: SPLITS.index(split)])
        people = [speaker(first + i, seed) for i in range(SPEAKERS[split])]
        noise = LOUDER if variant == "noisy" else 1.0
        found = []
        for i, text in enumerate(self.transcripts("words", split, size, seed)):
            random = random_of(seed, SPLITS.index(split), i)
            words = [list(self.lexicon[word]) for word in text.split()]
            wave = say(words, people[random.randint(len(people))], random, noise=noise)
            found.append((wave, self._written(variant, text)))
        return found

    def transcripts(self, variant: str, split: str, size: int, seed: int = CORPUS_SEED) -> list[str]:
        """What is said in the first ``size`` recordings of a split; no sentence comes twice, in any split."""
        random = Random(f"{self.name} {split} {seed}")
        found: dict[str, None] = {}
        while len(found) < size:
            text = " ".join(self.sentence(random))
            if split_of(text, seed) == split:
                found[text] = None
        return [self._written(variant, text) for text in found]

    def _written(self, variant: str, text: str) -> str:
        """What is said, as the variant writes it."""
        return (
            " ".join(phone for word in text.split() for phone in self.lexicon[word])
            if variant == "phones"
            else text
        )

    def show(self, variant: str, split: str, size: int) -> list[str]:
        return [f"{len(x) / self.rate:5.2f} s  {text}" for x, text in self.generate(variant, split, size)]

    def records(self, variant: str, split: str, size: int) -> list[Any]:
        found = self.generate(variant, split, size)
        return [{"seconds": len(x) / self.rate, "rate": self.rate, "transcript": text} for x, text in found]

    def text(self, variant: str, split: str, size: int) -> str:
        """The list of the files that `write` writes: path and transcript."""
        texts = self.transcripts(variant, split, size)
        return "".join(f"{_file_name(i)}\t{text}\n" for i, text in enumerate(texts))

    def write(self, place: Path, variant: str, split: str, size: int) -> None:
        """WAV files into the folder ``place``, the list of them, ``list.tsv``, and the words with their phones,
        ``lexicon.tsv``."""
        make_folder(place)
        for i, (x, _) in enumerate(self.generate(variant, split, size)):
            write_wav(place / _file_name(i), x, self.rate)
        replace_file(place / LISTING, self.text(variant, split, size).encode())
        words = "".join(f"{word}\t{' '.join(phones)}\n" for word, phones in self.lexicon.items())
        replace_file(place / "lexicon.tsv", words.encode())


def write_wav(path: Path, x: Wave, rate: int) -> None:
    """The samples ``x`` (n,) in −1 … 1 as a WAV file of 16 bits and one channel."""
    whole = np.clip(np.round(x * 32_768.0), -32_768, 32_767).astype("<i2")
    with replacing(path, synced=False) as raw, wave.open(raw, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(whole.tobytes())


def _file_name(i: int) -> str:
    return f"{i + 1:05}.wav"
