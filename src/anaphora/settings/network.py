"""Settings of the networks that read a sequence, in groups: a preset names the groups that it uses."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from anaphora.settings.base import Settings


class EmbeddingSettings(Settings):
    """Symbols as vectors."""

    embedding: int = Field(256, ge=1, description="Width of the symbol vectors.")


class StackSettings(Settings):
    """Layers of one width."""

    hidden: int = Field(256, ge=1, description="Width of the states (Transformer: of the model, d_model).")
    layers: int = Field(1, ge=1, le=64, description="Layers of the network (of encoder and decoder each).")
    dropout: float = Field(
        0.1, ge=0, lt=1, description="Share of values set to zero while training, against overfitting."
    )


class RecurrentSettings(Settings):
    """Recurrent layers."""

    cell: Literal["elman", "lstm", "gru"] = Field("lstm", description="The recurrent cell.")


class DirectionSettings(Settings):
    """Recurrent layers that may read both ways."""

    bidirectional: bool = Field(
        True, description="Read in both directions, so that every place knows the context on both sides."
    )


class TransformerSettings(Settings):
    """Layers of self-attention."""

    heads: int = Field(4, ge=1, description="Attention heads of a Transformer; must divide `hidden`.")
    feedforward: int = Field(1024, ge=1, description="Width inside the Transformer's feed-forward layers.")
    norm_first: bool = Field(
        True, description="LayerNorm before each sublayer (steadier) instead of after it (as published)."
    )

    @classmethod
    def problem(cls, s: Any) -> str | None:
        if s.hidden % s.heads:
            return f"hidden = {s.hidden} cannot be divided among heads = {s.heads}"
        if s.hidden % 2:
            return f"hidden = {s.hidden} must be even, for sine and cosine positions"
        return None


class RecurrentStack(RecurrentSettings, StackSettings):
    """What recurrent layers are made of."""


class TransformerStack(TransformerSettings, StackSettings):
    """What a Transformer is made of."""


class NetworkSettings(TransformerStack, DirectionSettings, RecurrentStack, EmbeddingSettings):
    """All of them."""
