"""What the training loop needs for tagging: the loss, the dev measures and the samples; and decoding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anaphora.data.pooled import HeldBatches, cut_by_size
from anaphora.data.sending import padded, send
from anaphora.data.symbols import PAD, UNK
from anaphora.data.tag_vocabulary import Words
from anaphora.models.tagger import Tagger
from anaphora.tasks.given import NotFiniteError
from anaphora.tasks.tag.info import TaggerSettings
from anaphora.tasks.tag.metrics import tag_scores
from anaphora.training.objective import LossSum
from anaphora.training.own import chosen_metric, no_own_loss, own_loss, own_measures, summed


@dataclass(frozen=True)
class TagTensors:
    """A batch as the model takes it; PAD and tag 0 past each row's length."""

    source: Tensor
    """(batch, time), or (batch, time, 1 + letters) where spellings are read"""
    lengths: Tensor
    """(batch,)"""
    tags: Tensor
    """(batch, time)"""


@dataclass(frozen=True)
class TagBatch:
    """Some sentences as numbers. ``indices`` say where in the data each comes from."""

    words: list[Words]
    tags: list[list[int]]
    indices: list[int]

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def symbols(self) -> int:
        """Words to tag."""
        return sum(map(len, self.words))

    def shard(self, index: int, of: int) -> TagBatch:
        """Rows ``index``, ``index + of``, …: the part of one of ``of`` workers. It may be empty."""
        return TagBatch(self.words[index::of], self.tags[index::of], self.indices[index::of])

    def tensors(self, device: torch.device | str = "cpu") -> TagTensors:
        lengths = [len(row) for row in self.words]
        return TagTensors(
            source=send(_source(self.words, max(lengths)), device),
            lengths=send(lengths, device),
            tags=padded(self.tags, device),
        )


def _source(rows: Sequence[Words], time: int) -> np.ndarray[Any, Any]:
    """The rows, padded in time; letters only as far as the longest spelling goes."""
    table = np.full((len(rows), time, rows[0].shape[1]), PAD, dtype=np.int64)
    for place, row in zip(table, rows, strict=True):
        place[: len(row)] = row
    if table.shape[2] == 1:
        return table[..., 0]
    longest = int(np.flatnonzero((table != PAD).any((0, 1)))[-1])
    return table[..., : longest + 1]


def training_batches(
    words: list[Words], tags: list[list[int]], *, batch_tokens: int, max_tokens: int, seed: int
) -> HeldBatches[TagBatch]:
    """An endless stream of batches of sentences of about equal length."""

    def make(rows: list[int]) -> TagBatch:
        return TagBatch([words[i] for i in rows], [tags[i] for i in rows], rows)

    return HeldBatches(
        [len(row) for row in words], make, batch_tokens=batch_tokens, max_tokens=max_tokens, seed=seed
    )


def reading_batches(
    words: list[Words], tags: list[list[int]] | None = None, size: int = 4096
) -> list[TagBatch]:
    """All sentences once, those of about equal length together."""
    order = sorted(range(len(words)), key=lambda i: (-len(words[i]), i))
    lengths = np.array([len(words[i]) for i in order], dtype=np.int64)
    given = tags or [[0] * len(row) for row in words]
    return [
        TagBatch([words[i] for i in order[a:b]], [given[i] for i in order[a:b]], order[a:b])
        for a, b in cut_by_size(lengths, size)
    ]


SHOWN = 4


class TagObjective:
    """−log p(y | x), per word. While training, words are hidden at random by ``hiding`` (a rate for each symbol).

    ``dev`` are sentences as ``(words, their symbols, tags)``. The measures are ``loss``, ``accuracy`` and, where tags
    mark ``spans``, ``precision``, ``recall`` and ``f1``.
    """

    def __init__(
        self,
        tags: Sequence[str],
        dev: Sequence[tuple[list[str], Words, list[str]]],
        *,
        hiding: NDArray[np.float32],
        settings: TaggerSettings,
        metric: str,
        spans: bool,
    ):
        self.metric, greater = chosen_metric(settings, metric)
        self.greater_is_better = self.metric != "loss" if greater is None else greater
        if settings.model == "bilstm-crf":
            no_own_loss(settings, "a CRF is trained by its own; choose the preset bilstm")
        self._settings, self._own_loss = settings, own_loss(settings)
        self.chance = math.log(max(len(tags), 2))
        self._tags, self._dev, self._spans = list(tags), list(dev), spans
        self._numbers = {tag: number for number, tag in enumerate(tags)}
        self._hiding = torch.from_numpy(hiding)
        self._outputs: list[list[str]] = []

    def loss(self, model: Tagger, batch: TagBatch) -> LossSum:
        t = batch.tensors(next(model.parameters()).device)
        source = self._with_words_hidden(t.source) if model.training else t.source
        emissions = model(source, t.lengths)
        if self._own_loss is None:
            return LossSum(model.loss(emissions, t.tags, t.lengths), batch.symbols)
        real = torch.arange(t.tags.shape[1], device=t.tags.device) < t.lengths[:, None]
        return LossSum(summed(self._own_loss, emissions, t.tags, real), batch.symbols)

    def _with_words_hidden(self, source: Tensor) -> Tensor:
        """Some symbols become UNK, each at its rate; spellings stay."""
        self._hiding = self._hiding.to(source.device)
        words = source if source.dim() == 2 else source[..., 0]
        hide = torch.rand(words.shape, device=words.device) < self._hiding[words]
        hidden = words.masked_fill(hide, UNK)
        return hidden if source.dim() == 2 else torch.cat((hidden.unsqueeze(2), source[..., 1:]), 2)

    @torch.no_grad()
    def evaluate(self, model: Tagger) -> dict[str, float]:
        if not self._dev:
            return {}
        words, gold = [words for _, words, _ in self._dev], [tags for *_, tags in self._dev]
        paths, _ = decode(model, words)
        self._outputs = [[self._tags[number] for number in path] for path in paths]
        scores = tag_scores(self._outputs, gold, spans=self._spans)
        del scores["by_type"]
        return {
            "loss": self._dev_loss(model),
            **scores,
            **own_scores(self._settings, gold, self._outputs, scores),
        }

    def _dev_loss(self, model: Tagger) -> float:
        """Per word, over sentences whose tags were all seen in training: others have no probability."""
        known = [(words, tags) for _, words, tags in self._dev if all(tag in self._numbers for tag in tags)]
        numbers = [[self._numbers[tag] for tag in tags] for _, tags in known]
        parts = [self.loss(model, batch) for batch in reading_batches([words for words, _ in known], numbers)]
        return sum(float(part.total) for part in parts) / max(sum(int(part.count) for part in parts), 1)

    def samples(self, model: Tagger) -> list[dict[str, str]]:
        """The first dev sentences with the tags of the last evaluation."""
        return [
            {"source": " ".join(words), "reference": " ".join(tags), "output": " ".join(output)}
            for (words, _, tags), output in zip(self._dev[:SHOWN], self._outputs, strict=False)
        ]


def own_scores(
    settings: TaggerSettings, gold: Sequence[list[str]], found: Sequence[list[str]], measured: dict[str, Any]
) -> dict[str, float]:
    """The user's measures of the tags of all words, one after the other."""
    truth, answers = ([tag for tags in rows for tag in tags] for rows in (gold, found))
    return own_measures(settings, truth, answers, measured)


@torch.no_grad()
def decode(
    model: Tagger, sentences: list[Words], *, probabilities: bool = False, strict: bool = False
) -> tuple[list[list[int]], list[list[float]]]:
    """The best tags of every sentence and, if asked for, how probable each of them is by itself.

    ``strict``: scores that are not finite are a `NotFiniteError` with the sentence's number.
    """
    paths: list[list[int]] = [[] for _ in sentences]
    chances: list[list[float]] = [[] for _ in sentences]
    filled = [i for i, sentence in enumerate(sentences) if len(sentence)]
    device = next(model.parameters()).device
    for batch in reading_batches([sentences[i] for i in filled]):
        t = batch.tensors(device)
        emissions = model(t.source, t.lengths)
        if strict:
            _check_emissions(
                emissions, [len(words) for words in batch.words], [filled[i] for i in batch.indices]
            )
        best = model.decode(emissions, t.lengths)
        rows = best.tolist()
        if probabilities:
            found = model.marginals(emissions, t.lengths).gather(2, best.unsqueeze(2)).squeeze(2).tolist()
        for row, place in enumerate(batch.indices):
            length = len(batch.words[row])
            paths[filled[place]] = rows[row][:length]
            if probabilities:
                chances[filled[place]] = found[row][:length]
    return paths, chances


def _check_emissions(emissions: Tensor, lengths: list[int], places: list[int]) -> None:
    """``emissions`` (rows, time, tags) of the sentences at ``places``; what lies past a sentence's end is not looked at."""
    if bool(torch.isfinite(emissions).all()):
        return
    bad = [
        place
        for row, length, place in zip(emissions, lengths, places, strict=True)
        if not bool(torch.isfinite(row[:length]).all())
    ]
    if bad:
        raise NotFiniteError(f"sentence {min(bad) + 1}")
