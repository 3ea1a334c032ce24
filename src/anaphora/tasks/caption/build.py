"""The settings of a captioner become an encoder-decoder here, and only here."""

from __future__ import annotations

from typing import Any

from torch import nn

from anaphora.models.bridge import LearntStart
from anaphora.models.decoders import BahdanauDecoder, ConditionedDecoder, TransformerDecoder
from anaphora.models.seeing import PictureEncoder
from anaphora.models.seq2seq import Seq2Seq
from anaphora.nn import transformer
from anaphora.nn.attention import Additive, Attention, Bilinear, Dot, Hard
from anaphora.nn.embedding import Embedding, Output
from anaphora.tasks.caption.info import CaptionerSettings
from anaphora.tasks.parts import (
    ENDS,
    decoder_stack,
    encoder_layer,
    make_positions,
    make_recurrent,
    picture_encoder,
)

GAIN = 0.25
"""Where there is attention: with 1 the places see one another from the start, and objects are found much later."""


def build_captioner(s: CaptionerSettings, symbols: int, eye: Any = None) -> Seq2Seq:
    """The model a preset names, with fresh weights, for a vocabulary of this size; ``eye``: a published model that sees."""
    if s.model == "transformer":
        return _transformer(s, symbols, eye)
    embedding = Embedding(symbols, s.embedding, scaled=True)
    output = Output(s.embedding if s.tie else s.hidden, symbols, tied=embedding if s.tie else None)
    encoder = picture_encoder(s, s.embedding, gain=1.0 if s.model == "lstm" else GAIN, eye=eye)
    layer = make_recurrent(s, s.embedding + encoder.width, bidirectional=False)
    start = LearntStart(layer)
    if s.model == "lstm":
        return Seq2Seq(encoder, ConditionedDecoder(embedding, layer, output, bridge=start, dropout=s.dropout))
    attention = _attention(s, encoder.width)
    if s.model == "lstm-hard":
        attention = Hard(attention, straight_through=False)
    decoder = BahdanauDecoder(
        embedding,
        layer,
        attention,
        output,
        bridge=start,
        annotations=encoder.width,
        dropout=s.dropout,
    )
    return Seq2Seq(encoder, decoder)


def _attention(s: CaptionerSettings, annotations: int) -> Attention:
    if s.attention == "dot":
        return Dot()
    if s.attention == "bilinear":
        return Bilinear(s.hidden, annotations)
    # The tanh of every place and word is most of what a step costs, and a quarter of the units do as well.
    return Additive(s.hidden, annotations, max(1, s.hidden // 4))


def _transformer(s: CaptionerSettings, symbols: int, eye: Any = None) -> Seq2Seq:
    embedding = Embedding(symbols, s.hidden, scaled=True)
    output = Output(s.hidden, symbols, tied=embedding if s.tie else None)
    reader = transformer.TransformerEncoder(encoder_layer(s, grid=True), s.layers)
    encoder: nn.Module = picture_encoder(s, s.hidden, patches=True, stack=reader, eye=eye)
    decoder = TransformerDecoder(
        embedding,
        decoder_stack(s),
        output,
        positions=make_positions(s, max(s.max_tokens, s.max_length) + ENDS),
        dropout=s.dropout,
    )
    return Seq2Seq(encoder, decoder)


def picture_encoder_of(model: Seq2Seq) -> PictureEncoder:
    """The part that sees."""
    encoder = model.encoder
    assert isinstance(encoder, PictureEncoder)
    return encoder
