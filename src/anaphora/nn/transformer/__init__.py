"""Transformer blocks: layers of attention and feed-forward sublayers, and stacks of them."""

from anaphora.nn.transformer.layers import DecoderLayer, EncoderLayer, FeedForward, Norm, SwiGLU, norm_of
from anaphora.nn.transformer.stack import DecoderCache, Past, TransformerDecoder, TransformerEncoder

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
