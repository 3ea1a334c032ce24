"""The settings of a tagger become a model here, and only here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from anaphora.data.tag_learnt import Context
from anaphora.data.tag_schemes import allowed
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import RunError
from anaphora.models.encoders import RecurrentEncoder, TransformerEncoder
from anaphora.models.pretrained.contextual import ContextReader, ContextualWords
from anaphora.models.tagger import ConvolvedSpelling, RecurrentSpelling, SpelledWords, Tagger
from anaphora.nn import CRF, LSTM, Recurrent
from anaphora.nn.convolution import Convolution
from anaphora.nn.embedding import Embedding, Output
from anaphora.settings import NetworkSettings
from anaphora.tasks.parts import make_recurrent, recurrent_encoder, transformer_encoder
from anaphora.tasks.pretrained import (
    RECURRENT,
    adopt,
    body_weights,
    donor_paths,
    load_donor,
    vector_weights,
)
from anaphora.tasks.tag.info import TaggerSettings

if TYPE_CHECKING:
    from anaphora.tasks.tag.estimator import Tagger as Estimator


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


@dataclass(frozen=True)
class Given:
    """The words of a donor, if there is one, and the sizes of those that give vectors in context."""

    tokenizer: Tokenizer | None = None
    context: tuple[Context, ...] = ()


def adopt_words(m: Estimator) -> Given:
    """Take over symbols and sizes from what ``init`` and ``embeddings`` name; the tagger's settings change with it."""
    s = m.settings_
    paths = donor_paths(s.init)
    donors = [_donor(path, several=len(paths) > 1) for path in paths]
    if len(donors) == 1:
        _adopt_body(m, donors[0], paths[0])
        return Given(donors[0].tokenizer_)
    if donors:
        words = donors[0].tokenizer_
        for path, donor in zip(paths, donors, strict=True):
            if donor.tokenizer_.spellings != words.spellings:
                raise RunError(
                    f"{path} knows other words than {paths[0]}; train both on the same text with the same vocab_size."
                )
        return Given(words, tuple(_context(donor) for donor in donors))
    return Given()


def first_weights(m: Estimator) -> dict[str, Tensor]:
    """The weights that are taken over, by their names in the tagger."""
    s, paths = m.settings_, donor_paths(m.settings_.init)
    embedding = m.model_.encoder.embedding  # type: ignore[union-attr]
    if len(paths) == 1:
        return body_weights(_donor(paths[0], several=False), "encoder.")
    found: dict[str, Tensor] = {}
    for number, path in enumerate(paths):
        found |= body_weights(_donor(path, several=True), f"encoder.embedding.readers.{number}.")
    if s.embeddings:
        own, name = embedding, "encoder.embedding.weight"
        if isinstance(embedding, ContextualWords):
            own, name = embedding.own, "encoder.embedding.own.weight"
        assert isinstance(own, Embedding)
        width = own.weight.shape[1]
        found[name] = vector_weights(s.embeddings, m.tokenizer_, width=width, seed=s.seed)
    return found


def _donor(path: Path, *, several: bool) -> Any:
    """A language model of words in sentences."""
    donor = load_donor(path, only=RECURRENT if several else (*RECURRENT, "transformer", "masked"))
    if donor.settings_.tokens != "word" or not donor.settings_.lines:
        raise RunError(
            f"{path} does not read words of single sentences, as a tagger does; train it with tokens=word and lines=true."
        )
    return donor


def _adopt_body(m: Estimator, donor: Any, path: Path) -> None:
    own = donor.settings_
    more: dict[str, Any] = {"characters": "none"}
    if own.model in RECURRENT:
        preset = m._given.get("model", "bilstm")
        more["bidirectional"] = False
    else:
        preset = "transformer"
        more["causal"] = own.model == "transformer"
    m.settings_ = adopt(m.task(), m._given, donor, path, preset=preset, more=more)


def _context(donor: Any) -> Context:
    own = donor.settings_
    return Context(own.cell, own.embedding, own.hidden, own.layers, donor.begin, own.backward)
