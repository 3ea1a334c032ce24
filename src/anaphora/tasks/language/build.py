"""The settings of a language model become a network here, and only here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anaphora.data.symbols import BOS, EOS
from anaphora.models.classical.ngram import NGram
from anaphora.models.classical.ngram.counts import Words
from anaphora.models.classical.ngram.files import ARRAYS
from anaphora.models.classical.ngram.table import BackoffTable
from anaphora.models.language import DocumentBody, Language, RecurrentBody, TransformerBody
from anaphora.models.language_masked import MaskedLanguage, Transform
from anaphora.models.language_window import WindowBody
from anaphora.nn import transformer
from anaphora.nn.embedding import Embedding, Output
from anaphora.nn.mixture import MixtureOutput
from anaphora.settings.language import LanguageSettings
from anaphora.tasks.parts import (
    ACTIVATIONS,
    encoder_layer,
    entrance,
    make_norm,
    make_positions,
    make_reader,
    transformer_encoder,
)


def build_language(s: LanguageSettings, symbols: int, line_break: int = 0) -> Language | MaskedLanguage:
    """The network a preset names, with fresh weights, for a vocabulary of this size with this symbol of a line break."""
    ends = {"line_break": line_break} if s.documents == "blank" else {}
    if s.model == "masked":
        return _masked(s, symbols, ends)
    if s.model == "transformer":
        return _transformer(s, symbols, ends)
    if s.model == "nplm":
        return _window(s, symbols)
    return _recurrent(s, symbols)


def _recurrent(s: LanguageSettings, symbols: int) -> Language:
    embedding = Embedding(symbols, s.embedding, scaled=s.embedding_scale)
    layers = make_reader(
        s,
        s.embedding,
        bidirectional=False,
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
    embedding = Embedding(symbols, s.embedding, scaled=s.embedding_scale)
    body = WindowBody(
        embedding,
        s.order - 1,
        s.hidden,
        direct=s.direct,
        word_dropout=s.embedding_dropout,
        dropout=s.input_dropout,
    )
    return _with_output(s, body, embedding)


def _transformer(s: LanguageSettings, symbols: int, ends: Mapping[str, int]) -> Language:
    embedding = Embedding(symbols, s.hidden, scaled=s.embedding_scale)
    stack = transformer.TransformerEncoder(encoder_layer(s), s.layers)
    kind: Any = DocumentBody if ends else TransformerBody
    body = kind(
        embedding,
        stack,
        positions=make_positions(s, s.context),
        dropout=s.dropout,
        context=s.context,
        **ends,
        **entrance(s),
    )
    return _with_output(s, body, embedding)


def _masked(s: LanguageSettings, symbols: int, ends: Mapping[str, int]) -> MaskedLanguage:
    embedding = Embedding(symbols, s.hidden, scaled=s.embedding_scale)
    output = Output(s.hidden, symbols, tied=embedding if s.tie else None)
    transform = None
    if s.output_transform:
        act = ACTIVATIONS[s.activation]
        transform = Transform(s.hidden, s.hidden, activation=act, norm=make_norm(s)(s.hidden))
    body = transformer_encoder(s, embedding, places=s.context + 1)
    return MaskedLanguage(body, output, context=s.context, transform=transform, **ends)


def _with_output(
    s: LanguageSettings, body: RecurrentBody | TransformerBody | WindowBody, embedding: Embedding
) -> Language:
    width, tied = embedding.width if s.tie else body.width, embedding if s.tie else None
    output: Output | MixtureOutput
    if s.mixtures > 1:
        output = MixtureOutput(body.width, embedding.symbols, mixtures=s.mixtures, tied=tied)
    else:
        output = Output(width, embedding.symbols, tied=tied)
    return Language(body, output, dropout=s.output_dropout, locked=s.variational)


_LN10 = float(np.log(10.0))


def fit_ngram(s: LanguageSettings, rows: Sequence[Any], symbols: int) -> NGram:
    """Counts of the rows; running text is one row, whose first symbol only begins it."""
    pruned = (*[0] * s.prune, 1) if 0 < s.prune < s.order else (0,)
    model = NGram(s.order, smoothing=s.smoothing, vocab_size=symbols, prune=pruned)
    return model.fit([np.asarray(row)[0 if s.lines else 1 :].tolist() for row in rows])


def ngram_log_probs(model: NGram, rows: Sequence[Any], *, lines: bool) -> list[np.ndarray[Any, Any]]:
    """Natural log p of every symbol: of lines with their </s>, of running text without."""
    found = []
    for row in rows:
        ids = np.asarray(row, dtype=np.int64)
        whole = np.concatenate([[BOS], ids, [EOS]]) if lines else np.concatenate([[BOS], ids[1:]])
        found.append(model.query(whole)[1:] * _LN10)
    return found


def ngram_line_log_probs(
    model: NGram, rows: Sequence[Sequence[int]], begin: int
) -> list[np.ndarray[Any, Any]]:
    """Natural log p of the symbols of each row, given ``begin`` and those before."""
    if begin == BOS:
        return [model.query(np.array([BOS, *row]))[1:] * _LN10 for row in rows]
    found = []
    for row in rows:
        node, values = model.start(1), []
        for before, symbol in zip([begin, *row[:-1]], row, strict=True):
            scores, node = model.step(torch.tensor([before]), node)
            values.append(float(scores[0, symbol]))
        found.append(np.array(values))
    return found


def ngram_tensors(model: NGram) -> dict[str, Tensor]:
    """The table as ``model.safetensors`` holds it; log 0, which no text can have, is the lowest number there is."""
    table = model.table
    arrays = {name: torch.from_numpy(np.array(getattr(table, name))) for name in ARRAYS}
    arrays["log_prob"] = arrays["log_prob"].nan_to_num(neginf=torch.finfo(arrays["log_prob"].dtype).min)
    return {**arrays, "bounds": torch.tensor(table.bounds), "discounts": torch.tensor(model.discounts)}


def rebuild_ngram(s: LanguageSettings, given: dict[str, Tensor]) -> NGram:
    """The model that `ngram_tensors` described."""
    arrays = {name: given[name].cpu().numpy() for name in ARRAYS}
    log_prob = arrays["log_prob"]
    arrays["log_prob"] = np.where(log_prob == np.finfo(log_prob.dtype).min, -np.inf, log_prob)
    bounds = given["bounds"].tolist()
    model = NGram(s.order, smoothing=s.smoothing, vocab_size=bounds[2] - 1)
    model._table = BackoffTable(**arrays, bounds=bounds).checked()
    model._words = Words(bounds[2] - 1, None)
    model.discounts = [tuple(row) for row in given["discounts"].tolist()]
    return model
