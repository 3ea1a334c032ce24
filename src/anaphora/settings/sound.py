"""Settings of how sound becomes frames, and of how it is varied while training."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from anaphora.settings.base import Settings
from anaphora.settings.own import Own


class SoundSettings(Settings):
    rate: int = Field(
        0,
        ge=0,
        le=192_000,
        description="Samples per second at which sound is read; 0 = as in the first training recording, at most 16000.",
    )
    features: Annotated[Literal["log-mel", "mfcc", "samples", "whisper"], Own()] = Field(
        "log-mel",
        description="What a frame holds: log energies in bands that lie as the ear hears, their cosine transform, or a single "
        "sample (wav2vec2, which makes its features itself); whisper: the log energies of that model. Or "
        "your own: a function of (samples, rate) that makes an array (time, width), a frame every `hop` seconds.",
    )
    bins: int = Field(
        40, ge=4, le=256, description="Bands of a frame (mfcc: coefficients kept of as many bands or more)."
    )
    bands: int = Field(
        0,
        ge=0,
        le=256,
        description="Bands that mfcc are made of, or as many as `bins` where these are more; 0 = 40. Fewer are wider, and so hear less of "
        "the pitch of a voice.",
    )
    power: float = Field(
        0.0,
        ge=0,
        le=1,
        description="What becomes of the energies of bands before mfcc are made of them: 0 takes their logarithm, and p > 0 their p-th power, "
        "measured by the mean energy of the loud frames: what is much quieter than speech, such as the noise of a microphone, then counts for "
        "less. Whole recordings only.",
    )
    frame_length: float = Field(
        0.025, gt=0, le=1, description="Seconds of sound in one frame; frames overlap."
    )
    hop: float = Field(0.010, gt=0, le=1, description="Seconds from one frame to the next.")
    normalise: Literal["features", "means", "level", "speech", "adapted", "running", "unit", "none"] = Field(
        "features",
        description="What is taken away from a recording: each feature's own mean and variance; each feature's mean; one "
        "mean and one variance of all, its level, which keeps what single short words sound like (unit: the same as "
        "models of others do it); speech: the mean of the loud frames alone, with quiet sound cut off, which neither "
        "pauses nor short recordings change (log-mel only); adapted: the same, then each feature's mean and variance, together "
        "with those of the training set, which count for some frames; running: the latter over what was heard so far, so "
        "that sound can be read while it arrives; or nothing.",
    )
    speed: float = Field(
        0.1,
        ge=0,
        le=0.5,
        description="While training, sound is played up to this share slower or quicker (and so lower or higher), as if "
        "others spoke.",
    )
    pitch: float = Field(
        0.0,
        ge=0,
        le=0.5,
        description="While training, sound becomes up to this share lower or higher at the same pace.",
    )
    warp: float = Field(
        0.0,
        ge=0,
        le=0.3,
        description="While training, the axis of frequencies is stretched or squeezed by up to this share, as if the "
        "speaker were smaller or larger; log-mel and mfcc.",
    )
    bend: float = Field(
        0.0,
        ge=0,
        le=0.5,
        description="While training, parts of the axis of frequencies are stretched and others squeezed by up to this share, each by itself, as "
        "if others formed their vowels otherwise; log-mel and mfcc.",
    )
    noise: float = Field(
        0.0,
        ge=0,
        le=1,
        description="While training, noise of up to this share of the sound's own loudness is added, from white to dull.",
    )
    reverberation: float = Field(
        0.0,
        ge=0,
        le=3,
        description="While training, sound is heard in rooms in which it fades by 60 dB in up to so many seconds.",
    )
    channel: float = Field(
        0.0,
        ge=0,
        le=40,
        description="While training, frequencies are made louder or quieter by up to so many decibels, along a smooth random "
        "curve, as by other microphones.",
    )
    volume: float = Field(
        0.0,
        ge=0,
        le=40,
        description="While training, recordings are made louder or quieter by up to so many decibels.",
    )
    pauses: float = Field(
        0.0,
        ge=0,
        le=5,
        description="While training, up to so many seconds of quiet stand before and after a recording, and between those that "
        "are joined.",
    )
    edges: float = Field(
        0.0,
        ge=0,
        le=2,
        description="Seconds of quiet that are put before and after each recording, while training and ever after, as quiet as it is itself: "
        "a word is heard better where something was heard before it. Times are those of the recording. log-mel and mfcc, whole recordings only.",
    )
    joined: int = Field(
        1,
        ge=1,
        le=50,
        description="While training, up to so many recordings are heard one after the other as one, their transcripts with a "
        "space between them.",
    )
    masks: int = Field(
        2,
        ge=0,
        le=100,
        description="Stretches of time, and of bands, hidden in each recording while training.",
    )
    time_mask: int = Field(10, ge=0, description="Longest stretch of time hidden, in frames.")
    frequency_mask: int = Field(6, ge=0, description="Widest stretch of bands hidden.")

    @model_validator(mode="after")
    def _sound_as_a_whole(self) -> SoundSettings:
        if self.hop > self.frame_length:
            raise ValueError(
                f"hop = {self.hop:g} is longer than frame_length = {self.frame_length:g}, so sound between frames would be lost"
            )
        if self.edges and self.features not in ("log-mel", "mfcc"):
            raise ValueError(
                f"edges puts quiet around log-mel and mfcc, not around {self.features}; leave one of the two out"
            )
        if (self.warp or self.bend) and self.features not in ("log-mel", "mfcc"):
            raise ValueError(
                f"{'warp' if self.warp else 'bend'} stretches the bands of log-mel and mfcc, which {self.features} does not have; leave one of the two out"
            )
        for name in ("bands", "power"):
            if getattr(self, name) and self.features != "mfcc":
                raise ValueError(
                    f"{name} says how mfcc are made, not {self.features}; set features = mfcc, or leave it out"
                )
        if self.power and self.normalise == "running":
            raise ValueError(
                "power measures energies by those of the whole recording, for which normalise = running does not wait; choose "
                "normalise = adapted"
            )
        known = ("log-mel",) if self.normalise == "speech" else ("log-mel", "mfcc")
        if self.normalise in ("speech", "adapted") and self.features not in known:
            raise ValueError(
                f"normalise = {self.normalise} finds loud frames by the bands of log-mel, which {self.features} does not have; choose "
                "normalise = level"
            )
        return self
