"""What a tagger begins with: word vectors, the body of one language model, or vectors in context from several."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import RunError
from anaphora.models.pretrained.contextual import ContextualWords
from anaphora.nn.embedding import Embedding
from anaphora.tasks.pretrained import (
    RECURRENT,
    adopt,
    body_weights,
    donor_paths,
    load_donor,
    vector_weights,
)
from anaphora.tasks.tag.learnt import Context

if TYPE_CHECKING:
    from anaphora.tasks.tag.estimator import Tagger


@dataclass(frozen=True)
class Given:
    """The words of a donor, if there is one, and the sizes of those that give vectors in context."""

    tokenizer: Tokenizer | None = None
    context: tuple[Context, ...] = ()


def adopt_words(m: Tagger) -> Given:
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


def first_weights(m: Tagger) -> dict[str, Tensor]:
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


def _adopt_body(m: Tagger, donor: Any, path: Path) -> None:
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
