"""The settings of a tagger become a model here, and only here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from anaphora.data.contexts import Context
from anaphora.data.tag_schemes import allowed
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import RunError
from anaphora.models.classifier import VectorInput
from anaphora.models.encoders import RecurrentEncoder, TransformerEncoder, WindowEncoder
from anaphora.models.listener import ConvolutionListener
from anaphora.models.own import OwnEncoder
from anaphora.models.pretrained.contextual import ContextualWords
from anaphora.models.tagger import (
    ConvolvedSpelling,
    CorrectedWords,
    RecurrentSpelling,
    SpelledWords,
    Tagger,
)
from anaphora.nn import CRF, LSTM, Recurrent
from anaphora.nn.convolution import Convolution
from anaphora.nn.embedding import Embedding, Output
from anaphora.tasks.parts import (
    ENDS,
    frame_network,
    own_encoder,
    recurrent_encoder,
    transformer_encoder,
    width_of,
)
from anaphora.tasks.pretrained import (
    RECURRENT,
    Donors,
    adopt,
    body_weights,
    check_room,
    context_reader,
    vector_weights,
)
from anaphora.tasks.tag.info import TaggerSettings

if TYPE_CHECKING:
    from anaphora.tasks.tag.estimator import Tagger as Estimator

_WINDOW = 3  # characters that a filter sees together
_CELL = re.compile(r"(encoder\.recurrent\.cells\.)(\d+)(\..*)")


def build_tagger(
    s: TaggerSettings,
    tags: Sequence[str],
    scheme: str,
    *,
    words: int = 0,
    letters: int = 0,
    context: Sequence[Context] = (),
    features: int = 0,
) -> Tagger:
    """The model a preset names, with fresh weights: for ``words`` symbols and ``letters`` characters, with room for the
    weights of the language models of ``context``; or for frames of ``features`` numbers. Without ``tags`` its output is a
    number."""
    dropout = s.dropout
    if features:  # a frame is measured; a word's vector is learnt and can be spared
        dropout = s.dropout if s.model == "transformer" else 0.0
        wide = VectorInput(features, s.hidden if s.model == "transformer" else None)
        embedding: nn.Module = frame_network(s, features, s.hidden) or wide
    else:
        embedding = _words(s, words, letters, context)
    encoder = _encoder(s, embedding, dropout=dropout)
    return Tagger(
        encoder,
        Output(encoder.width, max(1, len(tags))),
        rules=tag_rules(scheme, tags),
        crf=CRF(len(tags)) if s.model == "bilstm-crf" else None,
        dropout=s.dropout,
    )


def tag_rules(scheme: str, tags: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
    """Which tags may begin, follow each other and end (see `Tagger`); of a number there is nothing to say."""
    start, moves, end = (torch.from_numpy(rule) for rule in allowed(scheme, tags or ("",)))
    return start, moves, end


def _words(s: TaggerSettings, words: int, letters: int, context: Sequence[Context]) -> nn.Module:
    """What makes vectors of words, their spelling and their context."""
    spelling = _spelling(s, letters)
    begun = s.donates == "weights"  # the vectors of a language model are as wide as they are
    room = s.embedding
    if s.model == "transformer":
        beside = spelling.width if spelling and not begun else 0
        room = s.hidden - beside - sum(one.width for one in context)
    spelled = CorrectedWords if begun else SpelledWords
    scaled = s.model != "transformer" or s.embedding_scale
    own = spelled(words, room, spelling, scaled=scaled) if spelling else Embedding(words, room, scaled=scaled)
    return ContextualWords(own, [context_reader(one, words) for one in context]) if context else own


def _encoder(
    s: TaggerSettings, embedding: nn.Module, *, dropout: float
) -> RecurrentEncoder | TransformerEncoder | WindowEncoder | OwnEncoder:
    """What reads the vectors of ``embedding``; ``dropout`` is that of these vectors."""
    if reader := own_encoder("tag", s, embedding, dropout=dropout):
        return reader
    if s.model == "transformer":
        return transformer_encoder(s, embedding, places=s.max_tokens + ENDS, causal=s.causal)
    if s.model not in ("mlp", "conv"):
        return recurrent_encoder(s, embedding, bidirectional=s.bidirectional, dropout=dropout)
    window = Convolution(width_of(embedding), s.hidden, s.kernel)
    deeper = s.layers - 1
    if s.model == "conv":
        above: nn.Module = ConvolutionListener(s.hidden, s.kernel, deeper, dropout=s.dropout)
    else:
        dense = ((nn.Dropout(s.dropout), nn.Linear(s.hidden, s.hidden), nn.ReLU()) for _ in range(deeper))
        above = nn.Sequential(*(part for layer in dense for part in layer))
    return WindowEncoder(embedding, window, above if deeper else None, dropout=dropout)


def _spelling(s: TaggerSettings, letters: int) -> RecurrentSpelling | ConvolvedSpelling | None:
    if s.characters == "none":
        return None
    embedding = Embedding(letters, s.character_embedding, scaled=True)
    if s.characters == "conv":
        return ConvolvedSpelling(embedding, Convolution(s.character_embedding, s.character_hidden, _WINDOW))
    cell = LSTM(s.character_embedding, s.character_hidden)
    return RecurrentSpelling(embedding, Recurrent(cell, bidirectional=True))


@dataclass(frozen=True)
class Given:
    """The words of a donor, if there is one, and the sizes of those that give vectors in context."""

    tokenizer: Tokenizer | None = None
    context: tuple[Context, ...] = ()


def adopt_words(m: Estimator) -> Given:
    """Take over symbols and sizes from what ``init`` and ``embeddings`` name; the tagger's settings change with it."""
    donors = Donors.open(m.settings_)
    if donors is None:
        return Given()
    _check_words(donors)
    if donors.vectors:
        check_room(m.settings_, sum(one.width for one in donors.contexts))
    else:
        _adopt_body(m, donors)
    return Given(donors.tokenizer, donors.contexts)


def first_weights(m: Estimator) -> dict[str, Tensor]:
    """The weights that are taken over, by their names in the tagger."""
    s, donors = m.settings_, Donors.open(m.settings_)
    embedding = m.model_.encoder.embedding  # type: ignore[union-attr]
    if donors is not None and not donors.vectors:
        body = body_weights(donors.models[0], "encoder.")
        return _one_direction(body, m.model_.state_dict()) if s.bidirectional else body  # type: ignore[union-attr]
    found = donors.frozen() if donors is not None else {}
    if s.embeddings:
        own, name = embedding, "encoder.embedding.weight"
        if isinstance(embedding, ContextualWords):
            own, name = embedding.own, "encoder.embedding.own.weight"
        assert isinstance(own, Embedding)
        width = own.weight.shape[1]
        found[name] = vector_weights(s.embeddings, m.tokenizer_, width=width, seed=s.seed)
    return found


def _one_direction(body: dict[str, Tensor], fresh: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights of layers that read one way as those of one direction of layers that read both ways.

    The other direction begins fresh; what it hands to the layers above begins with weights of zero, so that the
    direction taken over computes at first what it has learned.
    """
    found = {}
    for name, value in body.items():
        cell = _CELL.fullmatch(name)
        if cell:
            name = f"{cell[1]}{2 * int(cell[2])}{cell[3]}"  # layer l has the cells 2l, forward, and 2l + 1, backward
        if value.shape != fresh[name].shape:  # (out, hidden) in (out, 2·hidden)
            value = torch.cat((value, value.new_zeros(len(value), fresh[name].shape[1] - value.shape[1])), 1)
        found[name] = value
    return found


def _check_words(donors: Donors) -> None:
    for path, donor in zip(donors.paths, donors.models, strict=True):
        if donor.settings_.tokens != "word" or not donor.settings_.lines:
            raise RunError(
                f"{path} does not read words of single sentences, as a tagger does; train it with tokens=word and "
                "lines=true."
            )


def _adopt_body(m: Estimator, donors: Donors) -> None:
    own, more = donors.models[0].settings_, {}
    if own.model in RECURRENT:
        preset = m._given.get("model", "bilstm")
        if own.connections in ("highway", "dense"):  # what one direction has learned fits no place in two
            more["bidirectional"] = False
        if own.backward:
            raise RunError(
                f"{donors.paths[0]} reads lines from their end, and only gives vectors to a tagger; set init_as=vectors."
            )
    else:
        preset = "transformer"
        more["causal"] = own.model == "transformer"
    m.settings_ = adopt(m.task(), m._given, donors, preset=preset, more=more)
