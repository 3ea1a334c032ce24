"""The settings of an embedder become a model here, and only here."""

from __future__ import annotations

from typing import Any

from torch import nn

from anaphora.kinds.text import TextInputs
from anaphora.kinds.vectors import VectorInputs
from anaphora.models.embedder import SequenceEmbedder
from anaphora.models.own import OwnScores
from anaphora.tasks.embed.info import EmbedderSettings
from anaphora.tasks.own import own_model
from anaphora.tasks.reading import ends_of, sequence_encoder, sequence_pooling


def build_embedder(s: EmbedderSettings, inputs: TextInputs | VectorInputs) -> nn.Module:
    """The model that a preset names, or the user's own, with fresh weights."""
    (size,) = inputs.sizes.values()
    vocabulary: Any = inputs.tokenizer if isinstance(inputs, TextInputs) else None
    own = own_model("embed", s, inputs=size, outputs=s.vector_size, vocabulary=vocabulary)
    if own is not None:
        return OwnScores(own, s.vector_size)
    symbols, features = (inputs.sizes.get(name, 0) for name in ("symbols", "features"))
    encoder, width = sequence_encoder("embed", s, symbols, features)
    options: dict[str, Any] = {"outputs": s.vector_size, "dropout": s.dropout, **ends_of(s.pooling, inputs)}
    wide = 3 * width if s.pooling == "concat" and s.model != "bow" else width
    return SequenceEmbedder(encoder, sequence_pooling(s, width), width=wide, **options)
