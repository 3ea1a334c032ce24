"""Recordings with transcripts: files, samples or frames, read and turned into features when they are needed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from anaphora.data.audio.features import LogMel
from anaphora.data.audio.files import Wave, audio_length, check_stretch, read_audio
from anaphora.data.audio.preprocessing import Samples, WhisperMel, edged
from anaphora.data.audio.resample import resample
from anaphora.data.files import save_arrays
from anaphora.data.sources.arrays import Array, OwnFeatures, as_sequence, read_arrays, read_numbers
from anaphora.errors import DataError
from anaphora.files import streamed

# One input of a transcriber: a sound or frames, in a file or in memory.

_ENDS = 1 << 16


@dataclass(frozen=True)
class SoundFile:
    """A sound file, of which only the length and a fingerprint are held."""

    name: str
    path: Path
    samples: int
    rate: int
    mark: str
    kind: ClassVar[str] = "audio"

    @staticmethod
    def of(name: str, path: Path) -> SoundFile:
        return SoundFile(name, path, *audio_length(path), fingerprint(path))

    def wave(self, rate: int) -> Wave:
        found, _ = read_audio(self.path, rate=rate)
        if self.samples * rate // self.rate > len(found):
            raise DataError(f"{self.path} was changed while it was in use; start again and leave it alone.")
        return found


@dataclass(frozen=True)
class HeldSound:
    """Samples (n,) in memory; a ``rate`` of 0 is that of the features."""

    name: str
    samples_: Wave
    rate: int
    kind: ClassVar[str] = "audio"

    @property
    def samples(self) -> int:
        return len(self.samples_)

    @property
    def mark(self) -> str:
        return hashlib.sha256(np.ascontiguousarray(self.samples_).tobytes()).hexdigest()

    def wave(self, rate: int) -> Wave:
        if self.rate in (0, rate):
            return self.samples_
        check_stretch(self.name, len(self.samples_), self.rate, rate)
        return resample(torch.from_numpy(self.samples_), self.rate, rate).numpy()


@dataclass(frozen=True)
class FeatureFile:
    """A ``.npy`` or ``.csv`` file of frames or pen positions (T, F)."""

    name: str
    path: Path
    shape: tuple[int, ...]
    mark: str
    kind: ClassVar[str] = "features"

    @staticmethod
    def of(name: str, path: Path) -> FeatureFile:
        return FeatureFile(name, path, as_sequence(read_numbers(path), str(path)).shape, fingerprint(path))

    def frames(self) -> Array:
        return as_sequence(read_numbers(self.path), str(self.path))


@dataclass(frozen=True)
class HeldFeatures:
    """Frames (T, F) in memory."""

    name: str
    frames_: Array
    kind: ClassVar[str] = "features"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.frames_.shape)

    @property
    def mark(self) -> str:
        return hashlib.sha256(np.ascontiguousarray(self.frames_).tobytes()).hexdigest()

    def frames(self) -> Array:
        return self.frames_


Sound = SoundFile | HeldSound
Frames = FeatureFile | HeldFeatures
Item = Sound | Frames


def place_of(item: Item) -> str:
    """Return what a message calls a recording: its file as it was given, or its name."""
    return str(item.path) if isinstance(item, SoundFile | FeatureFile) else item.name


def fingerprint(path: Path) -> str:
    """SHA-256 of a file's size and of its first and last 64 KiB: enough to notice another file in its place."""
    try:
        with streamed(path) as file:
            size = file.seek(0, 2)
            digest = hashlib.sha256(str(size).encode())
            for place in sorted({0, max(size - _ENDS, 0)}):
                file.seek(place)
                digest.update(file.read(_ENDS))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}; check the path.") from None
    return digest.hexdigest()


def pack(path: Path, items: Sequence[Item], transcripts: Sequence[str]) -> None:
    """Write inputs that are held in memory to an ``.npz`` file for `unpack`; it appears whole or not at all."""
    values = [one.samples_ if isinstance(one, HeldSound) else one.frames() for one in items]  # type: ignore[union-attr]
    save_arrays(
        path,
        X=np.concatenate(values),
        lengths=np.array([len(x) for x in values]),
        rates=np.array([getattr(one, "rate", 0) for one in items]),
        y=np.array(list(transcripts)),
    )


def unpack(path: Path) -> tuple[list[Item], list[str]]:
    """The inputs and transcripts of a file that `pack` wrote."""
    held = read_arrays(path)
    if not {"X", "lengths", "rates", "y"} <= held.keys():
        raise DataError(f"{path} was not written for recordings; give a list of files and transcripts.")
    values = np.split(held["X"], np.cumsum(held["lengths"])[:-1])
    items: list[Item] = []
    for number, (x, rate) in enumerate(zip(values, held["rates"].tolist(), strict=True), start=1):
        name = f"recording {number}"
        items.append(HeldSound(name, x, rate) if x.ndim == 1 else HeldFeatures(name, x))
    return items, held["y"].tolist()


# What a transcriber learns from: recordings, or ready-made features and pen strokes, with what they say.

Hearing = LogMel | OwnFeatures | Samples | WhisperMel
"""What makes frames of sound."""
BUDGET = 1 << 30
"""Bytes of features that are kept in memory; what does not fit is computed again each time."""


class Recordings:
    """Recordings with transcripts. Sound is read and turned into features when it is needed; lengths are known from
    the heads of the files.

    kind: "audio", or "features" where the items are frames already (then ``features`` is None).
    lengths: (N,) frames of each. width: F, numbers in a frame. transcripts, names: what is said, and what the items
    are called. rate: Hz of the first recording itself (0: unknown, or no sound). seconds: of all together.
    """

    def __init__(
        self,
        items: Sequence[Item],
        transcripts: Sequence[str],
        facts: dict[str, Any],
        *,
        features: Hearing | None,
        budget: int = BUDGET,
    ):
        self.items = items
        self.transcripts = list(transcripts)
        self.facts = facts
        self.names = [one.name for one in items]
        self.kind = items[0].kind
        self.features = features if self.kind == "audio" else None
        self._kept: dict[int, Array] = {}
        self._budget = budget
        if self.kind == "audio":
            if features is None:
                raise DataError(f"{self.place} are sounds; say which features to make of them.")
            self.width = features.width
        else:
            self.width = _common_width(items, self.place)
        self.lengths = np.array([self._length(i) for i in range(len(items))], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.items)

    @property
    def place(self) -> str:
        """What to call them in a sentence."""
        return str(self.facts.get("path") or self.facts.get("name") or "the recordings")

    @property
    def rate(self) -> int:
        return getattr(self.items[0], "rate", 0)

    @property
    def seconds(self) -> float:
        if self.features is None:
            return 0.0
        hertz = self.features.rate
        return sum(one.samples / (one.rate or hertz) for one in self.items if isinstance(one, Sound))

    @property
    def skipped(self) -> int:
        """How many were left out because they could not be used."""
        return sum(self.facts.get("skipped", {}).values())

    def wave(self, i: int) -> Wave:
        """The samples (n,) of recording i, at the features' rate."""
        one = self.items[i]
        if isinstance(one, Frames) or self.features is None:
            raise DataError(f"{one.name} holds features, not sound; give the recording itself.")
        return one.wave(self.features.rate)

    def load(self, i: int) -> Array:
        """The frames (T, F) of recording i, as they are before any augmentation and normalisation."""
        if (kept := self._kept.get(i)) is not None:
            return kept
        one = self.items[i]
        found = one.frames() if isinstance(one, Frames) else self._heard(i)
        if len(found) != self.lengths[i] or found.shape[1] != self.width:
            raise DataError(f"{one.name} was changed while it was in use; start again and leave it alone.")
        return self._keep(i, found)

    def take(self, indices: Sequence[int], facts: dict[str, Any]) -> Recordings:
        """Some of them; ``facts`` say which. What they are part of is described under "of"."""
        chosen, facts = [int(i) for i in indices], {**facts, "form": "held-out"}
        return Recordings(
            [self.items[i] for i in chosen],
            [self.transcripts[i] for i in chosen],
            {**facts, "of": self.describe()},
            features=self.features,
            budget=self._budget * len(chosen) // max(len(self), 1),
        )

    def describe(self) -> dict[str, Any]:
        """What was read, as JSON; `anaphora.data.opening` takes it to open the same again.

        The fingerprint covers every transcript and, of each file, its size and its first and last 64 KiB.
        """
        shape = {"rows": len(self), "frames": int(self.lengths.sum())}
        if "of" in self.facts:
            return {**self.facts, **shape}
        digest = hashlib.sha256()
        for one, text in zip(self.items, self.transcripts, strict=True):
            digest.update(f"{one.kind} {one.mark} {len(text)} {text}\n".encode())
        return {**self.facts, **shape, "sha256": digest.hexdigest()}

    def _heard(self, i: int) -> Array:
        assert self.features is not None
        return frames_of(self.wave(i), self.features)

    def _keep(self, i: int, found: Array) -> Array:
        if found.nbytes <= self._budget:
            self._budget -= found.nbytes
            self._kept[i] = found
        return found

    def _length(self, i: int) -> int:
        one = self.items[i]
        if isinstance(one, Frames):
            return one.shape[0]
        assert self.features is not None
        if isinstance(self.features, OwnFeatures):  # how many frames it makes, only it knows
            return len(self._keep(i, self._heard(i)))
        rate = self.features.rate
        frames = self.features.frames(-(-one.samples * rate // (one.rate or rate)))
        return frames + 2 * margin if (margin := getattr(self.features, "margin", 0)) and frames else frames


def frames_of(wave: Wave, features: Hearing) -> Array:
    """The features (T, F) of one sound (n,), with those of the quiet around it where ``features`` have a margin."""
    if isinstance(features, OwnFeatures | Samples | WhisperMel):
        return features.of(wave)
    wave = edged(wave, features.margin * features.hop, features.rate)
    with torch.no_grad():
        found, _ = features(torch.from_numpy(wave).to(features.window.device)[None])
    frames: Array = found[0].cpu().numpy()
    return frames


def _common_width(items: Sequence[Any], place: str) -> int:
    width = int(items[0].shape[1])
    for number, one in enumerate(items, start=1):
        if one.shape[1] != width:
            raise DataError(
                f"{place}: {one.name} (number {number}) has {one.shape[1]} numbers in a frame where the first has {width}; "
                "all must have the same."
            )
    return width
