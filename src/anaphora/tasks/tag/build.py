"""The settings of a tagger become a model here, and only here."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from anaphora.models.encoders import RecurrentEncoder, TransformerEncoder
from anaphora.models.pretrained.contextual import ContextReader, ContextualWords
from anaphora.models.tagger import ConvolvedSpelling, RecurrentSpelling, SpelledWords, Tagger
from anaphora.nn import CRF, LSTM, Recurrent
from anaphora.nn.convolution import Convolution
from anaphora.nn.embedding import Embedding, Output
from anaphora.settings import NetworkSettings
from anaphora.tasks.parts import make_recurrent, recurrent_encoder, transformer_encoder
from anaphora.tasks.tag.info import TaggerSettings
from anaphora.tasks.tag.learnt import Context
from anaphora.tasks.tag.schemes import allowed

_WINDOW = 3  # characters that a filter sees together


def build_tagger(
    s: TaggerSettings,
    words: int,
    letters: int,
    tags: Sequence[str],
    scheme: str,
    context: Sequence[Context] = (),
) -> Tagger:
    """The model a preset names, with fresh weights, for ``words`` symbols, ``letters`` characters and these tags, with
    room for the weights of the language models of ``context``."""
    spelling = _spelling(s, letters)
    room = s.embedding
    if s.model == "transformer":
        room = s.hidden - (spelling.width if spelling else 0) - sum(one.hidden for one in context)
    own = SpelledWords(words, room, spelling) if spelling else Embedding(words, room, scaled=True)
    embedding = ContextualWords(own, [_reader(one, words) for one in context]) if context else own
    encoder: RecurrentEncoder | TransformerEncoder
    if s.model == "transformer":
        encoder = transformer_encoder(s, embedding, causal=s.causal)
    else:
        encoder = recurrent_encoder(s, embedding, bidirectional=s.bidirectional)
    return Tagger(
        encoder,
        Output(encoder.width, len(tags)),
        rules=tuple(torch.from_numpy(rule) for rule in allowed(scheme, tags)),  # type: ignore[arg-type]
        crf=CRF(len(tags)) if s.model == "bilstm-crf" else None,
        dropout=s.dropout,
    )


def _reader(one: Context, words: int) -> ContextReader:
    sizes = NetworkSettings(cell=one.cell, hidden=one.hidden, layers=one.layers, dropout=0.0)  # type: ignore[arg-type]
    layers = make_recurrent(sizes, one.embedding, bidirectional=False)
    return ContextReader(
        Embedding(words, one.embedding, scaled=True), layers, begin=one.begin, backward=one.backward
    )


def _spelling(s: TaggerSettings, letters: int) -> RecurrentSpelling | ConvolvedSpelling | None:
    if s.characters == "none":
        return None
    embedding = Embedding(letters, s.character_embedding, scaled=True)
    if s.characters == "conv":
        return ConvolvedSpelling(embedding, Convolution(s.character_embedding, s.character_hidden, _WINDOW))
    cell = LSTM(s.character_embedding, s.character_hidden)
    return RecurrentSpelling(embedding, Recurrent(cell, bidirectional=True))
