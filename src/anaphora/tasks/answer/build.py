"""The settings of an answerer become a model here, and only here."""

from __future__ import annotations

from torch import nn

from anaphora.models.answerer import CrossReader, PictureAnswerer, QuestionOnly, Reader, WordByWord
from anaphora.models.classifier import BagEncoder
from anaphora.nn import Recurrent, transformer
from anaphora.nn.attention import Bilinear, MultiHead
from anaphora.nn.embedding import Embedding
from anaphora.nn.positions import Sinusoidal
from anaphora.tasks.answer.info import AnswererSettings
from anaphora.tasks.parts import encoder_layer, make_cell, picture_encoder, recurrent_encoder


def build_answerer(s: AnswererSettings, *, symbols: int, answers: int) -> PictureAnswerer:
    """The model a preset names, with fresh weights, for a vocabulary of ``symbols`` and so many ``answers``."""
    encoder: nn.Module
    reader: Reader
    if s.model == "transformer":
        words = nn.Sequential(Embedding(symbols, s.hidden, scaled=True), Sinusoidal(s.hidden))
        encoder = BagEncoder(words, width=s.hidden, dropout=s.dropout)
        crossing = transformer.DecoderLayer(
            MultiHead(s.hidden, s.heads),
            MultiHead(s.hidden, s.heads),
            transformer.FeedForward(s.hidden, s.feedforward),
            dropout=s.dropout,
            norm_first=s.norm_first,
        )
        reader = CrossReader(crossing, s.layers)
    else:
        asking = recurrent_encoder(
            s, Embedding(symbols, s.embedding, scaled=True), bidirectional=s.bidirectional
        )
        encoder, width = asking, asking.width
        if s.model == "question-only":
            reader = QuestionOnly(width)
        else:
            reader = WordByWord(
                Bilinear(width, s.hidden),
                Recurrent(make_cell(s, width + s.hidden)),
                question=width,
                picture=s.hidden,
            )
    stack = transformer.TransformerEncoder(encoder_layer(s), s.layers) if s.model == "transformer" else None
    pictures = None if s.model == "question-only" else picture_encoder(s, s.hidden, stack=stack)
    return PictureAnswerer(encoder, pictures, reader, hidden=2 * s.hidden, answers=answers, dropout=s.dropout)
