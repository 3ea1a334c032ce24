"""Settings of encoder-decoder models. Defaults are those of the presets where they name a value."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from anaphora.settings.base import Settings


class Seq2SeqSettings(Settings):
    embedding: int = Field(256, ge=1, description="Width of the symbol vectors.")
    hidden: int = Field(256, ge=1, description="Width of the states (Transformer: of the model, d_model).")
    layers: int = Field(1, ge=1, le=64, description="Layers in the encoder and in the decoder.")
    cell: Literal["elman", "lstm", "gru"] = Field("lstm", description="The recurrent cell.")
    bidirectional: bool = Field(
        True, description="The encoder reads in both directions, so that an annotation knows both contexts."
    )
    reverse_source: bool = Field(
        False,
        description="Feed the source last symbol first (Sutskever 2014): helps models without attention.",
    )
    attention: Literal["additive", "dot", "bilinear"] = Field(
        "bilinear",
        description="How a decoder state is compared with an annotation: vᵀtanh(Ws+Uh), s·h, or sᵀWh.",
    )
    input_feeding: bool = Field(
        False,
        description="Feed the attended vector into the next step (Luong 2015). Often a little better, but steps can "
        "no longer be trained all at once, so slower.",
    )
    heads: int = Field(4, ge=1, description="Attention heads of a Transformer; must divide `hidden`.")
    feedforward: int = Field(1024, ge=1, description="Width inside the Transformer's feed-forward layers.")
    norm_first: bool = Field(
        True, description="LayerNorm before each sublayer (steadier) instead of after it (as published)."
    )
    tie: bool = Field(
        True,
        description="Share the target embedding with the output layer, and with the source embedding when "
        "the vocabulary is joint.",
    )
    dropout: float = Field(
        0.1, ge=0, lt=1, description="Share of values set to zero while training, against overfitting."
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
