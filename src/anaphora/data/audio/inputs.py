"""One input of a transcriber: a sound or frames, in a file or in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from anaphora.data.audio.files import Wave, audio_length, check_stretch, read_audio
from anaphora.data.audio.resample import resample
from anaphora.data.files import save_arrays
from anaphora.data.sources.arrays import Array, as_sequence, read_arrays, read_numbers
from anaphora.errors import DataError
from anaphora.files import streamed

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
