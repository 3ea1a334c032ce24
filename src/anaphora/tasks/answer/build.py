"""The settings of an answerer become a model here, and only here."""

from __future__ import annotations

from typing import Any

from torch import nn

from anaphora.models.answerer import CrossReader, Looks, PictureAnswerer, QuestionOnly, Reader
from anaphora.models.classifier import BagEncoder
from anaphora.nn import transformer
from anaphora.nn.embedding import Embedding
from anaphora.nn.positions import NoPositions
from anaphora.tasks.answer.info import AnswererSettings
from anaphora.tasks.parts import (
    ENDS,
    decoder_layer,
    encoder_layer,
    make_positions,
    picture_encoder,
    recurrent_encoder,
)


def build_answerer(s: AnswererSettings, *, symbols: int, answers: int, eye: Any = None) -> PictureAnswerer:
    """The model a preset names, with fresh weights, for a vocabulary of ``symbols`` and so many ``answers``."""
    encoder: nn.Module
    reader: Reader
    if s.model == "transformer":
        places = make_positions(s, s.max_tokens + ENDS) or NoPositions()
        words = nn.Sequential(Embedding(symbols, s.hidden, scaled=True), places)
        encoder = BagEncoder(words, width=s.hidden, dropout=s.dropout)
        reader = CrossReader(decoder_layer(s), s.layers)
    else:
        asking = recurrent_encoder(
            s, Embedding(symbols, s.embedding, scaled=True), bidirectional=s.bidirectional
        )
        encoder, width = asking, asking.width
        if s.model == "question-only":
            reader = QuestionOnly(width)
        else:
            reader = Looks(looks=s.looks, question=width, picture=s.hidden)
    stack = (
        transformer.TransformerEncoder(encoder_layer(s, grid=True), s.layers)
        if s.model == "transformer"
        else None
    )
    # gain 0: the eye begins with the blurred colours of each place, the first that a question can be answered by
    blind = s.model == "question-only"
    pictures = None if blind else picture_encoder(s, s.hidden, stack=stack, gain=0.0, eye=eye)
    return PictureAnswerer(encoder, pictures, reader, hidden=2 * s.hidden, answers=answers, dropout=s.dropout)
