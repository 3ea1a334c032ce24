"""Settings of the networks that read a sequence, shared by all tasks."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from anaphora.settings.base import Settings


class NetworkSettings(Settings):
    embedding: int = Field(256, ge=1, description="Width of the symbol vectors.")
    hidden: int = Field(256, ge=1, description="Width of the states (Transformer: of the model, d_model).")
    layers: int = Field(1, ge=1, le=64, description="Layers of the network (of encoder and decoder each).")
    cell: Literal["elman", "lstm", "gru"] = Field("lstm", description="The recurrent cell.")
    bidirectional: bool = Field(
        True, description="Read in both directions, so that every place knows the context on both sides."
    )
    heads: int = Field(4, ge=1, description="Attention heads of a Transformer; must divide `hidden`.")
    feedforward: int = Field(1024, ge=1, description="Width inside the Transformer's feed-forward layers.")
    norm_first: bool = Field(
        True, description="LayerNorm before each sublayer (steadier) instead of after it (as published)."
    )
    dropout: float = Field(
        0.1, ge=0, lt=1, description="Share of values set to zero while training, against overfitting."
    )


def transformer_problem(hidden: int, heads: int) -> str | None:
    """Why a Transformer cannot have these sizes, or None."""
    if hidden % heads:
        return f"hidden = {hidden} cannot be divided among heads = {heads}"
    if hidden % 2:
        return f"hidden = {hidden} must be even, for sine and cosine positions"
    return None
