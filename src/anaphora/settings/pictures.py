"""Settings of seeing pictures, shared by the tasks that do."""

from __future__ import annotations

from pydantic import Field

from anaphora.settings.base import Settings


class PictureSettings(Settings):
    picture_size: int = Field(
        64,
        ge=8,
        le=1024,
        description="Pictures are scaled to fit a square of this many pixels, the rest of which is grey.",
    )
    channels: int = Field(
        32,
        ge=1,
        le=1024,
        description="Channels of the first layer that sees a picture; they double level by level.",
    )
    halvings: int = Field(
        3,
        ge=2,
        le=8,
        description="How often the picture is halved: with picture_size = 64 three make a grid of 8 × 8 places.",
    )
    augment: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="While training, pictures are shifted by up to this share of their size, and their brightness and "
        "contrast changed by up to as much; 0 = off.",
    )
    mirror: bool = Field(
        False,
        description="While training, every second picture is mirrored; not where left and right matter.",
    )
    picture_weights: str = Field(
        "",
        description="A safetensors file whose weights the network that sees pictures begins with: the "
        "model.safetensors of a run with the same channels, halvings and hidden will do.",
    )
