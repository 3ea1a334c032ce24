"""The settings of a tagger become a model here, and only here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from anaphora.data.contexts import Context
from anaphora.data.sources.conll import words_of
from anaphora.data.tag_learnt import Learnt
from anaphora.data.tag_schemes import allowed
from anaphora.models import tagger as models
from anaphora.models.classical.hmm.tagger import HMMTagger
from anaphora.models.classifier import VectorInput
from anaphora.models.encoders import RecurrentEncoder, TransformerEncoder, WindowEncoder
from anaphora.models.listener import ConvolutionListener
from anaphora.models.own import OwnEncoder, OwnTagger
from anaphora.models.pieces import PieceEncoder
from anaphora.models.pretrained.contextual import ContextualWords
from anaphora.models.tagger import (
    ConvolvedSpelling,
    CorrectedWords,
    RecurrentSpelling,
    SpelledWords,
)
from anaphora.nn import CRF, LSTM, Recurrent
from anaphora.nn.convolution import Convolution
from anaphora.nn.embedding import Embedding, Output
from anaphora.tasks.own import own_model
from anaphora.tasks.parts import (
    ENDS,
    frame_network,
    own_encoder,
    recurrent_encoder,
    transformer_encoder,
    width_of,
)
from anaphora.tasks.pretrained import context_reader
from anaphora.tasks.tag.info import TaggerSettings

if TYPE_CHECKING:
    from anaphora.tasks.tag.estimator import Tagger

_WINDOW = 3  # characters that a filter sees together


def fresh_tagger(m: Tagger) -> models.Tagger:
    """The network of ``m``, the user's own or that of its preset, for what was learned of the data."""
    s, learnt, outputs = m.settings_, m.learnt_, m.targets_.size
    sizes: dict[str, Any]
    if m.framewise:
        sizes = {"features": len(m._reader.inputs.mean)}  # type: ignore[union-attr]
    else:
        letters = m._reader.letters  # type: ignore[union-attr]
        sizes = {"words": m.tokenizer_.size, "letters": letters.size if letters else 0}
    own = own_model(
        m.command,
        s,
        inputs=sizes.get("features") or sizes["words"],
        outputs=outputs,
        vocabulary=None if m.framewise else m.tokenizer_,
        labels=learnt.tags,
    )
    if own is not None:
        return OwnTagger(own, outputs, rules=tag_rules(learnt.scheme, learnt.tags))
    context: dict[str, Any] = {"context": learnt.context, "framing": learnt.framing}
    return build_tagger(s, learnt.tags, learnt.scheme, **context, **sizes)


def build_tagger(
    s: TaggerSettings,
    tags: Sequence[str],
    scheme: str,
    *,
    words: int = 0,
    letters: int = 0,
    context: Sequence[Context] = (),
    features: int = 0,
    framing: str = "",
) -> models.Tagger:
    """The model a preset names, with fresh weights: for ``words`` symbols and ``letters`` characters, with room for the
    weights of the language models of ``context``; or for frames of ``features`` numbers. Without ``tags`` its output is a
    number. With ``framing`` (see `Learnt`) words come in pieces."""
    dropout = s.dropout
    if features:  # a frame is measured; a word's vector is learned and can be spared
        dropout = s.dropout if s.model == "transformer" else 0.0
        wide = VectorInput(features, s.hidden if s.model == "transformer" else None)
        embedding: nn.Module = frame_network(s, features, s.hidden) or wide
    else:
        embedding = _words(s, words, 0 if framing else letters, context)
    spelling = _spelling(s, letters) if framing else None
    encoder = _encoder(s, embedding, dropout=dropout, framing=framing, spelling=spelling)
    return models.Tagger(
        encoder,
        Output(encoder.width, max(1, len(tags))),
        rules=tag_rules(scheme, tags),
        crf=CRF(len(tags)) if s.chained else None,
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
    return ContextualWords(own, [context_reader(one, words, letters) for one in context]) if context else own


def _encoder(
    s: TaggerSettings,
    embedding: nn.Module,
    *,
    dropout: float,
    framing: str,
    spelling: RecurrentSpelling | ConvolvedSpelling | None,
) -> RecurrentEncoder | TransformerEncoder | WindowEncoder | OwnEncoder:
    """What reads the vectors of ``embedding``; ``dropout`` is that of these vectors."""
    if reader := own_encoder("tag", s, embedding, dropout=dropout):
        return reader
    if s.model == "transformer":
        pieces = partial(PieceEncoder, end=framing == "both", word=s.pieces, spelling=spelling)
        made = pieces if framing else TransformerEncoder
        return transformer_encoder(s, embedding, places=s.max_tokens + ENDS, causal=s.causal, made=made)
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
    if s.characters == "none" or not letters:
        return None
    embedding = Embedding(letters, s.character_embedding, scaled=True)
    if s.characters == "conv":
        return ConvolvedSpelling(embedding, Convolution(s.character_embedding, s.character_hidden, _WINDOW))
    cell = LSTM(s.character_embedding, s.character_hidden)
    return RecurrentSpelling(embedding, Recurrent(cell, bidirectional=True))


def counted_hmm(learnt: Learnt, order: int, sentences: Iterable[tuple[str, str]]) -> HMMTagger:
    """The hidden Markov model of tagged sentences."""
    return HMMTagger.fit(
        ((words_of(words), words_of(tags)) for words, tags in sentences),
        words=learnt.words,
        tags=learnt.tags,
        order=order,
        rules=allowed(learnt.scheme, learnt.tags),
    )


def hmm_tensors(model: HMMTagger) -> dict[str, Tensor]:
    """The counts, as ``model.safetensors`` holds them."""
    return {"counts": torch.from_numpy(model.counts), "moves": torch.from_numpy(model.moves)}


def rebuilt_hmm(learnt: Learnt, order: int, tensors: Mapping[str, Tensor]) -> HMMTagger:
    """The model that `hmm_tensors` described; a RuntimeError where they are another one's."""
    counts, moves = tensors["counts"].cpu().numpy(), tensors["moves"].cpu().numpy()
    if (
        counts.shape != (2, len(learnt.words), len(learnt.tags))
        or moves.shape != (len(learnt.tags) + 1,) * order
    ):
        raise RuntimeError("counts of other words or tags")
    return HMMTagger(learnt.words, learnt.tags, counts, moves, rules=allowed(learnt.scheme, learnt.tags))
