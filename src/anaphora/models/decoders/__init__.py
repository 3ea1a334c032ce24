"""Decoders: target symbols from a `Memory`, whole sequences at once or symbol by symbol."""

from anaphora.models.decoders.attention import AttentionDecoder
from anaphora.models.decoders.bahdanau import BahdanauDecoder
from anaphora.models.decoders.base import Decoder
from anaphora.models.decoders.conditioned import ConditionedDecoder
from anaphora.models.decoders.recurrent import RecurrentDecoder
from anaphora.models.decoders.transformer import TransformerDecoder

__all__ = [
    "AttentionDecoder",
    "BahdanauDecoder",
    "ConditionedDecoder",
    "Decoder",
    "RecurrentDecoder",
    "TransformerDecoder",
]
