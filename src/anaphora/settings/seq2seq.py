"""Settings of encoder-decoder models. Defaults are those of the presets where they name a value."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from anaphora.settings.base import Settings
from anaphora.settings.network import NetworkSettings


class DecoderSettings(Settings):
    """What every decoder of symbols has."""

    tie: bool = Field(
        True,
        description="Share the target embedding with the output layer, and with the source embedding when "
        "the vocabulary is joint.",
    )
    label_smoothing: float = Field(
        0.1, ge=0, lt=1, description="Share of the target probability spread over the whole vocabulary."
    )
    teacher_forcing: float = Field(
        1.0,
        ge=0,
        le=1,
        description="How often the decoder is fed the true previous symbol while training; below 1 it "
        "sometimes gets its own (scheduled sampling).",
    )


class AttentionSettings(Settings):
    """How a recurrent decoder looks at what was read."""

    attention: Literal["additive", "dot", "bilinear"] = Field(
        "bilinear",
        description="How a decoder state is compared with an annotation: vᵀtanh(Ws+Uh), s·h, or sᵀWh.",
    )


class Seq2SeqSettings(AttentionSettings, DecoderSettings, NetworkSettings):
    """Symbols in, symbols out."""

    joint: bool = Field(
        False,
        description="One vocabulary for source and target (needed to tie their embeddings) instead of one each.",
    )
    reverse_source: bool = Field(
        False,
        description="Feed the source last symbol first (Sutskever 2014): helps models without attention.",
    )
    input_feeding: bool = Field(
        False,
        description="Feed the attended vector into the next step (Luong 2015). Often a little better, but steps can "
        "no longer be trained all at once, so slower.",
    )
