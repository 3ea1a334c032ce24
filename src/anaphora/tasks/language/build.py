"""The settings of a language model become a network here, and only here."""

from __future__ import annotations

from anaphora.models.language import Language, RecurrentBody, TransformerBody
from anaphora.models.language_masked import MaskedLanguage
from anaphora.models.language_window import WindowBody
from anaphora.nn import Recurrent, transformer
from anaphora.nn.embedding import Embedding, Output
from anaphora.nn.positions import Sinusoidal
from anaphora.tasks.language.settings import LanguageSettings
from anaphora.tasks.parts import encoder_layer, make_cell, transformer_encoder


def build_language(s: LanguageSettings, symbols: int) -> Language | MaskedLanguage:
    """The network a preset names, with fresh weights, for a vocabulary of this size."""
    if s.model == "masked":
        return _masked(s, symbols)
    if s.model == "transformer":
        return _transformer(s, symbols)
    if s.model == "nplm":
        return _window(s, symbols)
    return _recurrent(s, symbols)


def _recurrent(s: LanguageSettings, symbols: int) -> Language:
    embedding = Embedding(symbols, s.embedding, scaled=True)
    layers = Recurrent(
        make_cell(s, s.embedding),
        layers=s.layers,
        dropout=s.dropout,
        variational=s.variational,
        weight_dropout=s.weight_dropout,
        causal=True,
    )
    body = RecurrentBody(
        embedding,
        layers,
        word_dropout=s.embedding_dropout,
        dropout=s.input_dropout,
        locked=s.variational,
    )
    return _with_output(s, body, embedding)


def _window(s: LanguageSettings, symbols: int) -> Language:
    embedding = Embedding(symbols, s.embedding, scaled=True)
    body = WindowBody(
        embedding,
        s.order - 1,
        s.hidden,
        direct=s.direct,
        word_dropout=s.embedding_dropout,
        dropout=s.input_dropout,
    )
    return _with_output(s, body, embedding)


def _transformer(s: LanguageSettings, symbols: int) -> Language:
    embedding = Embedding(symbols, s.hidden, scaled=True)
    stack = transformer.TransformerEncoder(encoder_layer(s), s.layers)
    body = TransformerBody(
        embedding, stack, positions=Sinusoidal(s.hidden), dropout=s.dropout, context=s.context
    )
    return _with_output(s, body, embedding)


def _masked(s: LanguageSettings, symbols: int) -> MaskedLanguage:
    embedding = Embedding(symbols, s.hidden, scaled=True)
    output = Output(s.hidden, symbols, tied=embedding if s.tie else None)
    return MaskedLanguage(transformer_encoder(s, embedding), output, context=s.context)


def _with_output(
    s: LanguageSettings, body: RecurrentBody | TransformerBody | WindowBody, embedding: Embedding
) -> Language:
    width = embedding.width if s.tie else body.width
    output = Output(width, embedding.symbols, tied=embedding if s.tie else None)
    return Language(body, output, dropout=s.output_dropout, locked=s.variational)
