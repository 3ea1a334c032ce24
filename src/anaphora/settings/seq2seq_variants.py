"""Variants of a Transformer that reads and writes, with which models of others are built."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from anaphora.settings.base import Settings

_NEAREST = 4
"""Buckets of distances that an encoder needs at least: two for each side."""


class PairVariantSettings(Settings):
    """Variants of encoder-decoders."""

    decoder_layers: int = Field(
        0,
        ge=0,
        le=64,
        description="Layers of the decoder where they are not as many as the encoder's; 0 = as many.",
    )
    head_width: int = Field(
        0, ge=0, description="Width of each attention head where it is not hidden / heads; 0 = that (T5)."
    )
    scaled_scores: bool = Field(
        True, description="Divide the scores of attention by the root of a head's width; T5 does not."
    )
    distance_buckets: int = Field(
        0,
        ge=0,
        le=4096,
        description="So many learned numbers for each head, by the distance of two places, are added to the scores of "
        "self-attention (T5: 32), with positions = none; 0 = none.",
    )
    distance_limit: int = Field(
        128, ge=2, description="From this distance on all have the same of the distance_buckets."
    )
    shrunk_output: bool = Field(
        False,
        description="Divide what the decoder gives by √hidden before the output layer, which shares its vectors (T5).",
    )
    shared_vectors: bool = Field(
        False,
        description="Source and target share the vectors of their symbols also where the output layer has its own, with tie = "
        "false and joint = true (T5 1.1).",
    )
    sine_halves: bool = Field(
        False,
        description="positions = sinusoidal with all sines before all cosines (Marian) instead of in turn.",
    )

    sine_spread: bool = Field(
        False,
        description="positions = sinusoidal whose longest wavelength is 10000 · 2π itself (tensor2tensor, M2M-100), not the one "
        "before it.",
    )

    @classmethod
    def problem(cls, s: Any) -> str | None:
        if s.sine_spread and s.positions != "sinusoidal":
            return f"sine_spread = true is for positions = 'sinusoidal', not for '{s.positions}'"
        if s.shared_vectors and (s.tie or not s.joint):
            key, value = ("tie", "false") if s.tie else ("joint", "true")
            return f"shared_vectors = true needs {key} = {value}"
        if s.sine_halves and s.positions != "sinusoidal":
            return f"sine_halves = true is for positions = 'sinusoidal', not for '{s.positions}'"
        if s.head_width and s.positions == "rotary" and s.head_width * s.heads != s.hidden:
            return f"head_width = {s.head_width} cannot be used with positions = 'rotary'"
        if not s.distance_buckets:
            return None
        if s.positions in ("rotary", "alibi"):
            return f"distance_buckets = {s.distance_buckets} needs positions = 'none', not '{s.positions}'"
        if s.distance_buckets < _NEAREST or s.distance_limit <= s.distance_buckets // 2:
            return (
                f"distance_buckets = {s.distance_buckets} must be at least {_NEAREST} and less than twice distance_limit = "
                f"{s.distance_limit}"
            )
        return None
