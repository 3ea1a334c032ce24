"""Settings of networks that hear samples instead of features: wav2vec 2.0."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field

from anaphora.settings.base import Settings


class WaveSettings(Settings):
    kernels: str = Field(
        "10 3 3 3 3 2 2",
        description="Places that each of the convolutions over samples sees, the lowest first.",
    )
    strides: str = Field(
        "5 2 2 2 2 2 2",
        description="By how many places each of these convolutions goes on; their product is subsample.",
    )
    filters: int = Field(64, ge=1, le=8192, description="Filters of each of these convolutions.")
    filter_norm: Literal["group", "layer"] = Field(
        "group",
        description="What is normalised there: each filter of the lowest convolution over the recording (group), or all filters "
        "of every convolution at each place (layer).",
    )
    filter_bias: bool = Field(False, description="Whether these convolutions have a bias.")
    position_kernel: int = Field(
        32, ge=1, le=1024, description="Places that the convolution sees which says where a place is."
    )
    position_groups: int = Field(
        4,
        ge=1,
        le=1024,
        description="Groups of features in that convolution, each of which sees itself only.",
    )
    hidden_share: float = Field(
        0.05,
        ge=0,
        lt=1,
        description="While training, so many places are where a stretch of `hidden_length` places begins that is hidden.",
    )
    hidden_length: int = Field(10, ge=1, le=1000, description="Places of a stretch that is hidden.")

    @classmethod
    def problem(cls, s: Any) -> str | None:
        for name in ("kernels", "strides"):
            parts = getattr(s, name).split()
            if not parts or not all(part.isdigit() and 0 < int(part) < 1000 for part in parts):
                return f"{name} = {getattr(s, name)!r} must be whole numbers with spaces between them"
        if len(s.kernels.split()) != len(s.strides.split()):
            return f"kernels = {s.kernels!r} and strides = {s.strides!r} must have as many numbers"
        across = math.prod(map(int, s.strides.split()))
        if across != s.subsample:
            return f"subsample = {s.subsample} must be {across}, the product of strides"
        if s.features != "samples":
            return f"features = {s.features!r} must be 'samples', which the convolutions read"
        if not s.rate or abs(s.hop * s.rate - 1) > 1e-9:
            return f"hop = {s.hop:g} must be 1/rate = 1/{s.rate}, since a frame is one sample"
        if s.hidden % s.position_groups:
            return f"hidden = {s.hidden} cannot be divided among position_groups = {s.position_groups}"
        return None
