"""A tagger that begins with what another model has learned: its words or pieces, its sizes, its weights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from anaphora.data.contexts import Context
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import RunError, SettingsError
from anaphora.models.pretrained.contextual import ContextualWords
from anaphora.nn.embedding import Embedding
from anaphora.tasks.begun.coverage import warn_of_unknown
from anaphora.tasks.pretrained import (
    RECURRENT,
    Donors,
    adopt,
    body_weights,
    check_room,
    is_public,
    letter_table,
    vector_weights,
)
from anaphora.tasks.tuning import usual_training

if TYPE_CHECKING:
    from anaphora.tasks.tag.estimator import Tagger as Estimator

_CELL = re.compile(r"(encoder\.recurrent\.cells\.)(\d+)(\..*)")


@dataclass(frozen=True)
class Given:
    """The words of a donor, if there is one, and the sizes of those that give vectors in context."""

    tokenizer: Tokenizer | None = None
    context: tuple[Context, ...] = ()
    framing: Literal["", "begin", "both"] = ""


def adopt_words(m: Estimator, sentences: Sequence[Sequence[str]]) -> Given:
    """Take over symbols and sizes from what ``init`` and ``embeddings`` name; the tagger's settings change with it.
    ``sentences`` are the words to learn from."""
    donors = Donors.open(m.settings_)
    if donors is None:
        return Given()
    if not donors.vectors and _in_pieces(donors):
        return _adopt_pieces(m, donors)
    if donors.spelled:
        _check_characters(m, donors)
        check_room(m.settings_, sum(one.width for one in donors.of_letters))
        return Given(context=donors.of_letters)
    _check_words(donors)
    warn_of_unknown(donors, map(" ".join, sentences))
    if donors.vectors:
        check_room(m.settings_, sum(one.width for one in donors.contexts))
    else:
        _adopt_body(m, donors)
    return Given(donors.tokenizer, donors.contexts)


def _check_characters(m: Estimator, donors: Donors) -> None:
    """Models of characters need the letters of the words that they are asked about."""
    for path, donor in zip(donors.paths, donors.models, strict=True):
        if not donor.settings_.lines:
            raise RunError(f"{path} reads running text, but a tagger sentences; train it with lines=true.")
    if m.settings_.characters == "none":
        raise SettingsError(
            [
                f"{donors.paths[0]}, which init names, reads characters, but characters = 'none'; leave characters out."
            ]
        )


def _in_pieces(donors: Donors) -> bool:
    """Whether the donor cuts words into pieces and has layers that attend to them."""
    own = donors.models[0].settings_
    return own.model not in RECURRENT and (is_public(donors.models[0]) or own.tokens == "bpe")


def _adopt_pieces(m: Estimator, donors: Donors) -> Given:
    """Take over the pieces of a Transformer; they show the spelling of a word, unless capitals are lost."""
    donor = donors.models[0]
    own, public = donor.settings_, is_public(donor)
    if not public and not own.lines:
        raise RunError(
            f"{donors.paths[0]} reads running text, but a tagger sentences; train it with lines=true."
        )
    causal = own.model == "transformer"
    fixed: dict[str, Any] = {"causal": causal, "hide_rare": 0.0}
    usual: dict[str, Any] = {
        "pieces": "last" if causal else "first",
        "characters": "none",
        "batch_tokens": 512,
    }
    usual |= usual_training(m._given, own.hidden) if public else {}
    more = fixed | {key: value for key, value in usual.items() if key not in m._given}
    m.settings_ = adopt(m.task(), m._given, donors, preset="transformer", more=more)
    return Given(donors.tokenizer, framing="both" if public else "begin")


def first_weights(m: Estimator) -> dict[str, Tensor]:
    """The weights that are taken over, by their names in the tagger."""
    s, donors = m.settings_, Donors.open(m.settings_)
    embedding = m.model_.encoder.embedding  # type: ignore[union-attr]
    if donors is not None and not donors.vectors:
        body = body_weights(donors.models[0], "encoder.")
        return _one_direction(body, m.model_.state_dict()) if s.bidirectional else body  # type: ignore[union-attr]
    found = donors.frozen() if donors is not None else {}
    if donors is not None and donors.spelled:
        table = letter_table(donors.tokenizer, m.learnt_.letters or "")
        found |= {f"encoder.embedding.readers.{i}.table": table for i in range(len(donors.models))}
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
                f"{path} does not read words of single sentences; train it with tokens=word and lines=true, or set "
                "init_as=vectors for a model of characters."
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
    m.settings_ = s = adopt(m.task(), m._given, donors, preset=preset, more=more)
    if own.model in RECURRENT and s.bidirectional and (s.freeze or s.unfreeze != "all"):
        key = "freeze" if s.freeze else "unfreeze"
        raise SettingsError(
            [
                f"{key} holds layers as {donors.paths[0]} has them, but here they also read from the end, which is new; set "
                "bidirectional = false."
            ]
        )
