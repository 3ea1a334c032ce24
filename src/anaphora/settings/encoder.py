"""The setting of an encoder of the user's own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from anaphora.settings.base import Settings
from anaphora.settings.own import Own


class EncoderSettings(Settings):
    encoder: Annotated[Literal["auto"], Own()] = Field(
        "auto",
        description="What reads the sequence: the preset's network, or your own: a function of a spec that makes a module "
        "with forward(x, lengths) from (batch, time, spec.inputs) to (batch, time, width).",
    )
