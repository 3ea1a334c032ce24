"""The settings of a translator become an encoder-decoder here, and only here."""

from __future__ import annotations

from torch import nn

from anaphora.models.bridge import Bridge, HandOver, LearntStart, fits
from anaphora.models.decoders import AttentionDecoder, BahdanauDecoder, RecurrentDecoder, TransformerDecoder
from anaphora.models.seq2seq import Seq2Seq
from anaphora.nn import Recurrent
from anaphora.nn.attention import Additive, Attention, Bilinear, Dot
from anaphora.nn.embedding import Embedding, Output
from anaphora.tasks.parts import (
    ENDS,
    decoder_stack,
    make_norm,
    make_positions,
    make_recurrent,
    own_encoder,
    recurrent_encoder,
    transformer_encoder,
)
from anaphora.tasks.translate.info import TranslatorSettings


def build_seq2seq(s: TranslatorSettings, source_symbols: int, target_symbols: int) -> Seq2Seq:
    """The model a preset names, with fresh weights, for vocabularies of these sizes."""
    builder = _transformer if s.model == "transformer" else _recurrent
    return builder(s, source_symbols, target_symbols)


def _recurrent(s: TranslatorSettings, source_symbols: int, target_symbols: int) -> Seq2Seq:
    source, target = _embeddings(s, source_symbols, target_symbols, s.embedding)
    output = _output(s, target, width=s.embedding if s.tie else s.hidden)
    own = own_encoder("translate", s, source, dropout=s.dropout)
    encoder = own or recurrent_encoder(
        s, source, bidirectional=s.bidirectional, reverse=s.reverse_source, symbols=s.lexical
    )

    def writer(inputs: int) -> tuple[Recurrent, nn.Module]:
        layer = make_recurrent(s, inputs, bidirectional=False)
        reader = getattr(encoder, "recurrent", None)
        if not isinstance(reader, Recurrent):
            return layer, LearntStart(layer)
        return layer, HandOver(reader, layer) if fits(reader, layer) else Bridge(reader, layer)

    if not s.model.endswith("-attention"):
        layer, bridge = writer(s.embedding)
        return Seq2Seq(encoder, RecurrentDecoder(target, layer, output, bridge=bridge, dropout=s.dropout))
    lexical = source.width if s.lexical else 0
    annotations = encoder.width - lexical
    attention = _attention(s, annotations)
    if s.model == "gru-attention":
        layer, bridge = writer(s.embedding + encoder.width)
        return Seq2Seq(
            encoder,
            BahdanauDecoder(
                target,
                layer,
                attention,
                output,
                bridge=bridge,
                annotations=encoder.width,
                dropout=s.dropout,
            ),
        )
    layer, bridge = writer(s.embedding + (output.width if s.input_feeding else 0))
    return Seq2Seq(
        encoder,
        AttentionDecoder(
            target,
            layer,
            attention,
            output,
            bridge=bridge,
            annotations=annotations,
            dropout=s.dropout,
            input_feeding=s.input_feeding,
            lexical=lexical,
            shared=source is target and s.tie,
        ),
    )


def _transformer(s: TranslatorSettings, source_symbols: int, target_symbols: int) -> Seq2Seq:
    source, target = _embeddings(s, source_symbols, target_symbols, s.hidden)
    most = s.max_tokens + ENDS
    own = own_encoder("translate", s, source, dropout=s.input_dropout)
    encoder = own or transformer_encoder(s, source, places=most, dropout=s.input_dropout)
    decoder = TransformerDecoder(
        target,
        decoder_stack(s),
        _output(s, target, width=s.hidden),
        positions=make_positions(s, most),
        dropout=s.input_dropout,
        norm=make_norm(s)(s.hidden) if s.embedding_norm else None,
        shrunk=s.shrunk_output,
    )
    decoder.places = decoder.places or s.max_positions or None
    return Seq2Seq(encoder, decoder)


def _embeddings(
    s: TranslatorSettings, source_symbols: int, target_symbols: int, width: int
) -> tuple[Embedding, Embedding]:
    scaled = s.model != "transformer" or s.embedding_scale
    source = Embedding(source_symbols, width, scaled=scaled)
    if s.joint and (s.tie or s.shared_vectors):
        return source, source
    return source, Embedding(target_symbols, width, scaled=scaled)


def _output(s: TranslatorSettings, target: Embedding, *, width: int) -> Output:
    return Output(width, target.symbols, tied=target if s.tie else None)


def _attention(s: TranslatorSettings, annotations: int) -> Attention:
    if s.attention == "dot":
        return Dot()
    if s.attention == "additive":
        return Additive(s.hidden, annotations, s.hidden)
    return Bilinear(s.hidden, annotations)
