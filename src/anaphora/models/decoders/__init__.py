"""Decoders: target symbols from a `Memory`, whole sequences at once or symbol by symbol."""

from anaphora.models.decoders.attention import AttentionDecoder, BahdanauDecoder
from anaphora.models.decoders.base import Decoder
from anaphora.models.decoders.recurrent import ConditionedDecoder, RecurrentDecoder
from anaphora.models.decoders.transformer import TransformerDecoder

__all__ = [
    "AttentionDecoder",
    "BahdanauDecoder",
    "ConditionedDecoder",
    "Decoder",
    "RecurrentDecoder",
    "TransformerDecoder",
]
