"""Settings of networks that look at a picture: in several looks, or over its whole grid."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from anaphora.settings.base import Settings


class LookingSettings(Settings):
    patch: int = Field(
        4,
        ge=1,
        le=256,
        description="Side of a small square of a picture: of what a glimpse sees sharply (pixels), of DRAW's grid of filters "
        "(filters), of what is one place to a two-dimensional LSTM or a vit (pixels).",
    )
    class_tokens: int = Field(
        1,
        ge=1,
        le=8,
        description="Learned vectors that stand before the squares of a vit with pooling = first, which is read from the first "
        "of them; DeiT has two.",
    )
    glimpses: int = Field(6, ge=1, le=100, description="Looks at a picture before the answer.")
    scales: int = Field(
        2,
        ge=1,
        le=8,
        description="Windows of a glimpse around one centre, each twice as wide as the one before and as coarse.",
    )
    wander: float = Field(
        0.15,
        gt=0,
        le=1,
        description="While training a glimpse falls beside the place that was chosen, by a normal deviation of this; a "
        "picture reaches from -1 to 1. More explores more and learns with more noise.",
    )
    directions: Literal[1, 2, 4] = Field(
        4,
        description="Corners from which a two-dimensional LSTM reads a picture: the upper left one, that and the lower "
        "right one, or all four.",
    )
