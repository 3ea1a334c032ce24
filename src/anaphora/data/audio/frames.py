"""What a transcriber hears: features with their normalisation, and recordings varied while it learns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from anaphora.data.audio.augment import SpecAugment, noise, speed
from anaphora.data.audio.features import MFCC, LogMel
from anaphora.data.audio.files import Wave
from anaphora.data.audio.preprocessing import LEAST, LOUD, MOST, Samples, Usual, WhisperMel, margin_of, quiet
from anaphora.data.audio.recordings import Frames, Hearing, Item, Recordings, frames_of, place_of
from anaphora.data.audio.rooms import colour, pause, pitch, reverberate
from anaphora.data.audio.warping import bend, warp
from anaphora.data.batches.pooled import random_of
from anaphora.data.sources.arrays import OwnFeatures
from anaphora.errors import DataError
from anaphora.settings.own import Part
from anaphora.settings.sound import SoundSettings

DEPTH, SCALE = 5.0, 3.0
"""Nats (22 dB) below the mean of speech at which sound is cut off, and what is divided by."""

Normalisation = Literal["features", "means", "level", "speech", "adapted", "running", "unit", "none"]


def normalise(features: Tensor, lengths: Tensor | None = None, how: Normalisation = "features") -> Tensor:
    """``features`` (B, T, F), of which the first ``lengths`` (B,) frames are real (None: all), as

        "features"   (x_tf − μ_f) / max(σ_f, 0.001),    μ_f, σ_f over the T real frames of the same utterance
        "means"      x_tf − μ_f
        "level"      (x_tf − μ) / max(σ, 0.001),        μ, σ over all T·F numbers of the same utterance
        "speech"     max(x_tf − μ, −5) / 3,             μ over the frames at most 20 dB quieter than the loudest: log energies
        "unit"       (x_tf − μ) / √(σ² + 1e-7),         as `transformers` normalises samples; in float64
        "none"       x_tf

    The first takes away loudness and channel. But in a short utterance μ_f and σ_f are as much of the words in it as of
    the channel: of a single word "level" takes away its loudness alone, and "speech" does so whatever stands around the word:
    pauses, and noise that is weaker by 22 dB, change nothing. Frames after the end are zero. A row does not
    depend on the others.
    """
    if how in ("adapted", "running"):
        raise ValueError(f"normalise: {how} needs to know what is usual; see Usual.")
    real = _real(features, lengths).expand_as(features)
    if how == "none":
        return torch.where(real, features, features.new_zeros(()))
    if how == "unit":
        return _unit(features.double(), real).to(features.dtype)
    if how == "speech":
        return _speech(features, real)
    over = (1, 2) if how == "level" else (1,)
    count = real.sum(over, keepdim=True).clamp_min(1)
    zero = features.new_zeros(())
    x = torch.where(real, features, zero)
    x = torch.where(real, x - x.sum(over, keepdim=True) / count, zero)
    if how == "means":
        return x
    deviation = (x.square().sum(over, keepdim=True) / count).sqrt()
    return x / deviation.clamp_min(LEAST)


def _speech(x: Tensor, real: Tensor) -> Tensor:
    zero = x.new_zeros(())
    loudness = torch.where(real, x, x.new_full((), -torch.inf)).logsumexp(2, keepdim=True)  # (B, T, 1)
    loud = (loudness >= loudness.amax(1, keepdim=True) - LOUD) & real
    mean = torch.where(loud, x, zero).sum((1, 2), keepdim=True) / loud.sum((1, 2), keepdim=True).clamp_min(1)
    return torch.where(real, (x - mean).clamp_min(-DEPTH) / SCALE, zero)


def _unit(x: Tensor, real: Tensor) -> Tensor:
    count, zero = real.sum((1, 2), keepdim=True).clamp_min(1), x.new_zeros(())
    x = torch.where(real, x - torch.where(real, x, zero).sum((1, 2), keepdim=True) / count, zero)
    return x / (x.square().sum((1, 2), keepdim=True) / count + 1e-7).sqrt()


def _real(features: Tensor, lengths: Tensor | None) -> Tensor:
    """(B, T, 1), True at frames before the end."""
    if lengths is None:
        return features.new_ones(features.shape[:2], dtype=torch.bool)[..., None]
    return (torch.arange(features.shape[1], device=features.device) < lengths[:, None])[..., None]


# The chain by which training varies a sound: what `SoundSettings` ask for, in the order in which it happens to real
# speech.

_DULLEST = 2.0  # the steepest slope of the spectrum of added noise, `augment.noise`
_OF_SOUND = ("speed", "pitch", "noise", "reverberation", "channel", "volume", "pauses")


def varies_sound(s: SoundSettings) -> bool:
    """Whether the samples themselves are varied, so that features must be computed again each time."""
    return s.joined > 1 or any(getattr(s, name) for name in _OF_SOUND)


def varied(
    waves: Sequence[Wave],
    rate: int,
    s: SoundSettings,
    draw: np.random.RandomState,
    after: np.random.RandomState | None = None,
) -> Wave:
    """The recordings ``waves``, one after the other, as training hears them. Speaker and pauses follow from ``draw``; so does all the
    rest, or from ``after``: with the same ``draw`` and another ``after`` words stand at the same places in another room."""
    factor = float(draw.uniform(1 - s.speed, 1 + s.speed))
    spoken = [speed(wave, factor) for wave in waves]
    if s.pitch:
        factor = float(draw.uniform(1 - s.pitch, 1 + s.pitch))
        spoken = [pitch(wave, factor, rate) for wave in spoken]
    wave = _with_pauses(spoken, rate, s.pauses, draw)
    draw = draw if after is None else after
    if s.reverberation:
        seconds, share = draw.uniform(0, s.reverberation), draw.uniform(0, 1)
        wave = reverberate(wave, float(seconds), float(share), rate, draw)
    if s.noise:
        level = float(draw.uniform(0, s.noise))
        wave = noise(wave, level, draw, slope=float(draw.uniform(0, _DULLEST)))
    if s.channel:
        wave = colour(wave, s.channel, draw)
    if s.volume:
        wave = wave * np.float32(10 ** (draw.uniform(-s.volume, s.volume) / 20))
    return wave


def _with_pauses(waves: Sequence[Wave], rate: int, longest: float, draw: np.random.RandomState) -> Wave:
    """The sounds with up to ``longest`` seconds of quiet before, between and after them, as quiet as they are themselves."""
    if not longest:
        return waves[0] if len(waves) == 1 else np.concatenate(waves)
    level = min(quiet(wave, rate) for wave in waves)
    parts = [pause(level, float(draw.uniform(0, longest)), rate, draw)]
    for wave in waves:
        parts += [wave, pause(level, float(draw.uniform(0, longest)), rate, draw)]
    return np.concatenate(parts)


# How a recording becomes the frames a model reads: learned once from settings and data, the same ever after.

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
