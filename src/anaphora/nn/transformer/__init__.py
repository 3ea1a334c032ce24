"""Transformer blocks: layers of attention and feed-forward sublayers, and stacks of them."""

from anaphora.nn.transformer.decoder import DecoderCache, TransformerDecoder
from anaphora.nn.transformer.encoder import Past, TransformerEncoder
from anaphora.nn.transformer.feedforward import FeedForward, SwiGLU
from anaphora.nn.transformer.layers import DecoderLayer, EncoderLayer, Norm, norm_of

__all__ = [
    "DecoderCache",
    "DecoderLayer",
    "EncoderLayer",
    "FeedForward",
    "Norm",
    "Past",
    "SwiGLU",
    "TransformerDecoder",
    "TransformerEncoder",
    "norm_of",
]
