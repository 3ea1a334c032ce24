"""How a recording becomes the frames a model reads: learned once from settings and data, the same ever after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from anaphora.data.audio.augment import SpecAugment
from anaphora.data.audio.features import MFCC, LogMel
from anaphora.data.audio.inputs import Frames, Item, place_of
from anaphora.data.audio.normalise import Normalisation, normalise
from anaphora.data.audio.preprocessing import MOST, Samples, Usual, WhisperMel, margin_of
from anaphora.data.audio.recordings import Hearing, Recordings, frames_of
from anaphora.data.audio.variation import varied, varies_sound
from anaphora.data.audio.warping import bend, warp
from anaphora.data.batches.pooled import random_of
from anaphora.data.sources.arrays import OwnFeatures
from anaphora.errors import DataError
from anaphora.settings.own import Part
from anaphora.settings.sound import SoundSettings

ENOUGH = 300
"""Recordings that tell what is usual."""
HIGHEST = 16_000
"""Samples per second that are enough for speech; recordings with more are read with so many."""
Array = np.ndarray[Any, np.dtype[np.float32]]


def make_features(s: SoundSettings, own: int) -> Hearing:
    """What sound is turned into, where the first training recording has ``own`` samples a second."""
    rate = s.rate or min(own, HIGHEST)
    if isinstance(s.features, Part):
        return OwnFeatures(s.features, rate, s.hop)
    if s.features == "samples":
        return Samples(rate)
    if s.features == "whisper":
        return WhisperMel(rate, s.bins, getattr(s, "max_tokens", MOST))
    made = (
        MFCC(rate, count=s.bins, bins=bands_of(s), window=s.frame_length, hop=s.hop, power=s.power)
        if s.features == "mfcc"
        else LogMel(rate, bins=s.bins, window=s.frame_length, hop=s.hop)
    )
    made.margin = margin_of(s)
    return made


def bands_of(s: SoundSettings) -> int:
    """Of how many bands mfcc are made; 0 for other features."""
    return max(s.bands or 40, s.bins) if s.features == "mfcc" else 0


@dataclass(frozen=True)
class Ear:
    """``kind`` is ``audio`` or ``features``; ``rate`` samples a second (0 for features), ``width`` numbers in a frame."""

    settings: SoundSettings
    kind: str
    rate: int
    width: int
    usual: Usual | None = None
    """What features are like in the training set, where ``normalise`` needs it."""

    @classmethod
    def learn(cls, s: SoundSettings, data: Recordings) -> Ear:
        """``usual`` is learned of up to `ENOUGH` recordings, evenly spread."""
        _check_masks(s, data.width)
        rate = 0 if data.features is None else data.features.rate
        usual = None
        if s.normalise in ("adapted", "running"):
            chosen = range(0, len(data), -(-len(data) // ENOUGH))
            usual = Usual.of((data.load(i) for i in chosen), s.normalise, bands_of(s))
        return cls(s, data.kind, rate, data.width, usual)

    def normalised(self, frames: Array) -> Array:
        """The frames ``(time, width)`` of a recording without its level or channel, as ``normalise`` says."""
        how = self.settings.normalise
        if how in ("adapted", "running"):
            assert self.usual is not None
            return self.usual.adapted(frames) if how == "adapted" else self.usual.running()(frames)
        return normalised(frames, how)

    @cached_property
    def features(self) -> Hearing | None:
        return make_features(self.settings, self.rate) if self.kind == "audio" else None

    def hear(self, item: Item, tract: float = 1.0) -> Array:
        """The frames ``(time, width)`` of one input, normalised; of log-mel as if the speaker's vocal tract were ``tract`` times as
        long."""
        if isinstance(item, Frames) != (self.features is None):
            wanted = "sound" if self.kind == "audio" else "frames (.npy, .csv)"
            raise DataError(f"{place_of(item)} is not {wanted}, which the model was trained on; give such.")
        if isinstance(item, Frames):
            found = item.frames()
        else:
            assert self.features is not None
            found = frames_of(item.wave(self.rate), self.features)
        if found.shape[1] != self.width:
            raise DataError(
                f"{place_of(item)} has {found.shape[1]} numbers in a frame, but the model was trained on {self.width}; give such."
            )
        return self.normalised(found if tract == 1 else self._warped(found, tract))

    def _warped(self, found: Array, factor: float, draw: np.random.RandomState | None = None) -> Array:
        """Frames as of a vocal tract ``factor`` times as long, with ``draw`` bent as well; of mfcc by way of the smooth spectrum that they
        describe."""
        if not isinstance(self.features, LogMel):
            return found
        cosines = self.features.transform.numpy() if isinstance(self.features, MFCC) else None
        smooth = (
            found if cosines is None else found @ cosines.T
        )  # (bands, coefficients), its columns orthonormal
        if factor != 1:
            smooth = warp(smooth, factor, self.features.centres)
        if draw is not None and self.settings.bend:
            smooth = bend(smooth, self.settings.bend, draw)
        made: Array = smooth if cosines is None else smooth @ cosines
        return made

    def chosen(self, data: Recordings, i: int, *place: int) -> list[int]:
        """Recording ``i`` and those that training joins to it: up to ``joined`` together, no more than ``max_tokens`` frames."""
        most = self.settings.joined
        if most == 1:
            return [i]
        draw = random_of(*place, 1)
        rows = [i, *draw.randint(len(data), size=draw.randint(most)).tolist()]
        room = np.cumsum([data.lengths[j] for j in rows]) <= getattr(self.settings, "max_tokens", np.inf)
        return rows[: max(1, int(room.sum()))]

    def vary(self, data: Recordings, rows: Sequence[int], *place: int, copy: int = 0) -> Array:
        """The frames of recordings ``rows``, one after the other, as training hears them: see `varied`; then on another scale of
        frequencies, normalised, and with stretches hidden. All chances follow from ``place``, such as seed, epoch and number.

        Each ``copy`` has the same pace and pauses, so that its frames are at the same places, and all else differs.
        """
        s, pace = self.settings, random_of(*place)
        draw = random_of(*place, 2, copy) if copy else pace
        if self.features is not None and varies_sound(s):
            found = frames_of(varied([data.wave(i) for i in rows], self.rate, s, pace, draw), self.features)
        else:
            parts = [data.load(i) for i in rows]
            found = parts[0] if len(parts) == 1 else np.concatenate(parts)
        if s.warp or s.bend:
            found = self._warped(found, float(draw.uniform(1 - s.warp, 1 + s.warp)), draw)
        return self._hiding(self.normalised(found), draw)

    @cached_property
    def _hiding(self) -> SpecAugment:
        s = self.settings
        return SpecAugment(
            time_masks=s.masks,
            time_width=s.time_mask,
            frequency_masks=s.masks,
            frequency_width=s.frequency_mask,
        )


def _check_masks(s: SoundSettings, width: int) -> None:
    """Raises a `DataError` for a mask of as many features as there are, or more. Of a few features the default hides all but one."""
    usual: int = SoundSettings.model_fields["frequency_mask"].default
    if s.masks and s.frequency_mask >= width and s.frequency_mask > usual:
        raise DataError(
            f"frequency_mask = {s.frequency_mask} would hide all {width} features of a frame; choose less than {width}."
        )


def normalised(frames: Array, how: Normalisation) -> Array:
    """The frames ``(time, width)`` of a recording without its level or channel, see `normalise`."""
    whole = torch.from_numpy(np.ascontiguousarray(frames, dtype=np.float32))[None]
    plain: Array = normalise(whole, how=how)[0].numpy()
    return plain
