"""How probable texts are: log p of every symbol given those before it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.cancellation import each_step
from anaphora.data.batches.pooled import ROWS, by_windows
from anaphora.data.batches.stream import encode_lines, encode_stream
from anaphora.data.symbols import BOS, EOS, PAD
from anaphora.data.text import Text
from anaphora.data.tokenizers.vocabularies import with_unknown
from anaphora.models.language import Language
from anaphora.nn.embedding import aligned_logits
from anaphora.nn.mixture import MixtureOutput
from anaphora.settings.language import ScoreOptions
from anaphora.tasks.adapting import adapted_log_probs
from anaphora.tasks.language.build import ngram_log_probs

if TYPE_CHECKING:
    from anaphora.tasks.language.estimator import LanguageModel

STEPS = 256  # symbols read at a time by models that carry a state
STREAMS = 32  # parts of a long text that are read side by side
LONG = 2048  # symbols of such a part at least

Row = Sequence[int] | np.ndarray[Any, Any]


def line_rows(m: LanguageModel, text: Text) -> list[list[int]]:
    """The lines as symbols, in the order in which they are read."""
    rows = encode_lines(text, m.tokenizer_)
    return [row[::-1] for row in rows] if m.settings_.backward else rows


def training_rows(m: LanguageModel, text: Text) -> list[Any]:
    """What is learned from: the lines, or the whole text as one row; with `unknown_share` of the words that occur once as unknown ones."""
    s, size = m.settings_, m.tokenizer_.size
    if not s.lines:
        return [with_unknown(encode_stream(text, m.tokenizer_), s.unknown_share, size)]
    rows = line_rows(m, text)
    if not s.unknown_share:
        return rows
    ids = with_unknown(np.concatenate(rows), s.unknown_share, size)
    return [row.tolist() for row in np.split(ids, np.cumsum([len(row) for row in rows])[:-1])]


def encoded(m: LanguageModel, text: Text, most: int = 0) -> tuple[list[Any], int]:
    """The text as rows of symbols (a stream is one, with what begins it), and how many characters they are; ``most`` symbols, or all."""
    if m.settings_.lines:
        rows: list[Any] = line_rows(m, text)
        total = sum(len(row) + 1 for row in rows)
        kept: list[Any] = []
        for row in rows:
            if most and sum(map(len, kept)) >= most:
                break
            kept.append(row)
    else:
        ids = encode_stream(text, m.tokenizer_)
        kept, total = [ids[: most + 1] if most else ids], len(ids) - 1
    used = sum(len(row) + 1 for row in kept) if m.settings_.lines else len(kept[0]) - 1
    return kept, round(text.characters * used / total)


def log_probs(m: LanguageModel, model: Any, rows: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """log p by ``model`` of every symbol that `encoded` gave: of a stream, or of lines with their ends."""
    if m._direct:
        return ngram_log_probs(model, rows, lines=m.settings_.lines)
    if m.settings_.lines:
        return symbol_log_probs(model, [[*row, EOS] for row in rows], BOS)
    return [stream_log_probs(model, ids) for ids in rows]


def adapted(m: LanguageModel, rows: Sequence[Any], how: ScoreOptions) -> list[np.ndarray[Any, Any]]:
    """log p of every symbol that `encoded` gave, by a model that learns from the symbols before."""
    if m.settings_.lines:
        return adapted_log_probs(m.model_, [[*row, EOS] for row in rows], [BOS] * len(rows), how)
    return adapted_log_probs(m.model_, [ids[1:] for ids in rows], [int(ids[0]) for ids in rows], how)


@torch.no_grad()
def symbol_log_probs(model: Language, rows: Sequence[Row], begin: int) -> list[np.ndarray[Any, Any]]:
    """log p of each symbol of each row, given ``begin`` and the symbols before it; ``model`` in evaluation mode.

    A Transformer reads long rows in windows that overlap by half, so that every symbol but the first ones is
    predicted from at least half a window; other models carry their state through the whole row.
    """
    order = sorted(range(len(rows)), key=lambda i: (len(rows[i]), i))
    answers: list[np.ndarray[Any, Any]] = [np.zeros(0)] * len(rows)
    read = _in_windows if model.body.context else _carried_on
    for at in each_step(range(0, len(order), ROWS)):
        chosen = order[at : at + ROWS]
        found = read(model, [np.asarray(rows[i], dtype=np.int64) for i in chosen], begin)
        for i, values in zip(chosen, found, strict=True):
            answers[i] = values
    return answers


def stream_log_probs(model: Language, ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """log p of the symbols ``ids[1:]`` of one long text, each given those before it.

    A model that carries a state reads up to 32 parts of it side by side, each of which begins without one.
    """
    symbols = len(ids) - 1
    parts = 1 if model.body.context else max(1, min(STREAMS, symbols // LONG))
    cuts = [symbols * part // parts for part in range(parts + 1)]
    begins = [int(ids[a]) for a in cuts[:-1]]
    rows = [np.asarray(ids[a + 1 : b + 1], dtype=np.int64) for a, b in itertools.pairwise(cuts)]
    if len(rows) == 1:
        return symbol_log_probs(model, rows, begins[0])[0]
    with torch.no_grad():
        return np.concatenate(_carried_on(model, rows, begins))


def _carried_on(
    model: Language, rows: Sequence[np.ndarray[Any, Any]], begin: int | Sequence[int]
) -> list[np.ndarray[Any, Any]]:
    device = next(model.parameters()).device
    lengths = [len(row) for row in rows]
    longest = max(lengths, default=0)
    table = np.full((len(rows), longest + 1), PAD, dtype=np.int64)
    table[:, 0] = begin
    for place, row in enumerate(rows):
        table[place, 1 : 1 + len(row)] = row
    carried, parts = None, []
    for at in each_step(range(0, longest, STEPS)):
        piece = torch.from_numpy(table[:, at : at + STEPS + 1]).to(device)
        hidden, reading = model.read(piece[:, :-1], carried)
        carried = reading.carried
        parts.append(_chosen(model, hidden, piece[:, 1:]).double().cpu().numpy())
    found = np.concatenate(parts, 1) if parts else np.zeros((len(rows), 0))
    return [values[:length] for values, length in zip(found, lengths, strict=True)]


def _in_windows(
    model: Language, rows: Sequence[np.ndarray[Any, Any]], begin: int
) -> list[np.ndarray[Any, Any]]:
    device = next(model.parameters()).device

    def read(table: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        symbols = torch.from_numpy(table).to(device)
        hidden, _ = model.read(symbols[:, :-1])
        return _chosen(model, hidden, symbols[:, 1:]).double().cpu().numpy()

    return by_windows(rows, model.body.context, begin, read)


def _chosen(model: Language, hidden: Tensor, targets: Tensor) -> Tensor:
    """log p of each target ``(rows, time)``, some rows at a time where the vocabulary is large."""
    output, parts = model.output, []
    several = output.mixtures if isinstance(output, MixtureOutput) else 1
    size = max(1, 50_000_000 // (hidden.shape[1] * several * output.symbols or 1))
    for h, t in zip(torch.split(hidden, size), torch.split(targets, size), strict=True):
        if isinstance(output, MixtureOutput):
            parts.append(output.log_prob(h, t))
            continue
        logits = aligned_logits(output, h)[..., : output.symbols].float()
        parts.append(-F.cross_entropy(logits.flatten(0, 1), t.flatten(), reduction="none").view_as(t))
    return torch.cat(parts)
