"""What the training loop needs for tagging: the loss, the dev measures and the samples; and the model's answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from anaphora.cancellation import each_step
from anaphora.data.batches.padded import send
from anaphora.data.batches.pooled import HeldBatches, cut_by_size
from anaphora.data.labelled_targets import NONE, SEPARATOR, UNKNOWN, Targets
from anaphora.data.symbols import PAD, UNK
from anaphora.data.tag_vocabulary import Reader, Words, hiding_rates
from anaphora.inference.session import NotFiniteError
from anaphora.models import tagger as models
from anaphora.tasks.tag.info import TaggerSettings
from anaphora.training.objective import LossSum
from anaphora.training.own import chosen_metric, no_own_loss, own_loss, summed

if TYPE_CHECKING:
    from anaphora.tasks.tag.estimator import Tagger

Frames = NDArray[np.float32]
"""A sequence ``(time, features)``."""
Labels = NDArray[Any]
"""Of a sequence, as `Targets.encode` gives them: ``(time,)``, or ``(time, classes)`` of 0 and 1."""


@dataclass(frozen=True)
class TagTensors:
    """A batch as the model takes it; PAD and tag 0 past each row's length."""

    source: Tensor
    """(batch, time), (batch, time, 1 + letters) where spellings are read, or frames (batch, time, features)"""
    lengths: Tensor
    """(batch,)"""
    tags: Tensor
    """(batch, time), or (batch, time, classes) where a frame may have several"""


@dataclass(frozen=True)
class TagBatch:
    """Some sentences, or sequences of frames, as numbers. ``indices`` say where in the data each comes from."""

    words: list[Words] | list[Frames]
    tags: list[Labels]
    indices: list[int]

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def symbols(self) -> int:
        """Words or frames to tag."""
        return sum(map(len, self.words))

    def shard(self, index: int, of: int) -> TagBatch:
        """Rows ``index``, ``index + of``, …: the part of one of ``of`` workers. It may be empty."""
        return TagBatch(self.words[index::of], self.tags[index::of], self.indices[index::of])

    def tensors(self, device: torch.device | str = "cpu") -> TagTensors:
        return TagTensors(
            source=send(_source(self.words), device),
            lengths=send([len(row) for row in self.words], device),
            tags=send(_padded(self.tags, 0), device),
        )


def _source(rows: Sequence[Words | Frames]) -> np.ndarray[Any, Any]:
    """The rows, padded in time; letters only as far as the longest spelling goes."""
    table = _padded(rows, 0 if rows[0].dtype.kind == "f" else PAD)
    if table.dtype.kind == "f":
        return table
    table = table.astype(np.int64)
    if table.shape[2] == 1:
        return table[..., 0]
    longest = int(np.flatnonzero((table != PAD).any((0, 1)))[-1])
    return table[..., : longest + 1]


def _padded(rows: Sequence[np.ndarray[Any, Any]], fill: int) -> np.ndarray[Any, Any]:
    """Rows ``(time, …)`` as one table ``(rows, longest, …)``; words of some rows may have more pieces than those of others."""
    longest = np.max([row.shape for row in rows], axis=0)
    table = np.full((len(rows), *longest), fill, dtype=rows[0].dtype)
    for place, row in zip(table, rows, strict=True):
        place[tuple(map(slice, row.shape))] = row
    return table


def training_batches(
    words: list[Any], tags: list[Labels], *, batch_tokens: int, max_tokens: int, seed: int
) -> HeldBatches[TagBatch]:
    """An endless stream of batches of sentences (or sequences of frames) of about equal length."""

    def make(rows: list[int]) -> TagBatch:
        return TagBatch([words[i] for i in rows], [tags[i] for i in rows], rows)

    return HeldBatches(
        [len(row) for row in words], make, batch_tokens=batch_tokens, max_tokens=max_tokens, seed=seed
    )


def reading_batches(words: list[Any], tags: list[Labels] | None = None, size: int = 4096) -> list[TagBatch]:
    """All sentences once, those of about equal length together."""
    order = sorted(range(len(words)), key=lambda i: (-len(words[i]), i))
    lengths = np.array([len(words[i]) for i in order], dtype=np.int64)
    given = tags or [np.zeros(len(row), np.int64) for row in words]
    return [
        TagBatch([words[i] for i in order[a:b]], [given[i] for i in order[a:b]], order[a:b])
        for a, b in cut_by_size(lengths, size)
    ]


SHOWN = 4


class TagObjective:
    """What is minimised for every word or frame:

    - class: −log p(y | x), of the whole sequence where a CRF scores it;
    - classes: Σ_k of −log σ(z_k) for those it has and −log(1 − σ(z_k)) for the others;
    - number: (z − (y − mean)/scale)².

    While training, words are hidden at random by ``hiding`` (a rate for each symbol). ``dev`` are sequences as ``(what to
    show, what the model reads, labels)``. The measures are ``loss`` and those of `scores_of`.
    """

    counts = "words"

    def __init__(
        self,
        targets: Targets,
        dev: Sequence[tuple[str, Any, list[str]]],
        *,
        hiding: NDArray[np.float32] | None = None,
        settings: TaggerSettings,
        metric: str,
        scores: Callable[[list[list[Any]], list[list[str]]], dict[str, Any]],
    ):
        self.metric, greater = chosen_metric(settings, metric)
        self.greater_is_better = self.metric != "loss" if greater is None else greater
        if settings.chained:
            no_own_loss(settings, "a CRF is trained by its own; choose the preset bilstm, or crf = false")
        self._settings, self._own_loss = settings, own_loss(settings)
        self.chance = math.log(max(targets.size, 2)) if targets.kind == "class" else None
        self._targets, self._dev, self._scores = targets, list(dev), scores
        self._hiding = None if hiding is None else torch.from_numpy(hiding)
        self._outputs: list[list[Any]] = []

    def loss(self, model: models.Tagger, batch: TagBatch) -> LossSum:
        t, kind = batch.tensors(next(model.parameters()).device), self._targets.kind
        source = self._with_words_hidden(t.source) if model.training else t.source
        emissions = model(source, t.lengths)
        if self._own_loss is None and kind == "class":
            return LossSum(model.loss(emissions, t.tags, t.lengths), batch.symbols)
        real = torch.arange(t.tags.shape[1], device=t.tags.device) < t.lengths[:, None]
        outputs = emissions[..., 0] if kind == "number" else emissions
        losses = self._own_loss or (squared_errors if kind == "number" else entropies)
        return LossSum(summed(losses, outputs, t.tags, real), batch.symbols)

    def _with_words_hidden(self, source: Tensor) -> Tensor:
        """Some symbols become UNK, each at its rate; spellings stay."""
        if self._hiding is None:
            return source
        self._hiding = self._hiding.to(source.device)
        words = source if source.dim() == 2 else source[..., 0]
        hide = torch.rand(words.shape, device=words.device) < self._hiding[words]
        hidden = words.masked_fill(hide, UNK)
        return hidden if source.dim() == 2 else torch.cat((hidden.unsqueeze(2), source[..., 1:]), 2)

    @torch.no_grad()
    def evaluate(self, model: models.Tagger) -> dict[str, float]:
        if not self._dev:
            return {}
        sequences, gold = [x for _, x, _ in self._dev], [labels for *_, labels in self._dev]
        self._outputs, _ = answers(model, self._targets, sequences, self._settings.threshold)
        scores = self._scores(self._outputs, gold)
        kept = {key: value for key, value in scores.items() if isinstance(value, float)}
        return {"loss": self._dev_loss(model), **kept}

    def _dev_loss(self, model: models.Tagger) -> float:
        """Per word or frame, over sequences whose labels were all seen in training: others have no probability."""
        truth = [(x, self._targets.encode(labels)) for _, x, labels in self._dev]
        known = [(x, row) for x, row in truth if self._targets.kind != "class" or (row != UNKNOWN).all()]
        batches = reading_batches([x for x, _ in known], [row for _, row in known]) if known else []
        parts = [self.loss(model, batch) for batch in batches]
        return sum(float(part.total) for part in parts) / max(sum(int(part.count) for part in parts), 1)

    def samples(self, model: models.Tagger) -> list[dict[str, str]]:
        """The first dev sequences with the labels of the last evaluation."""
        return [
            {"source": shown, "reference": " ".join(labels), "output": " ".join(map(spelled, output))}
            for (shown, _, labels), output in zip(self._dev[:SHOWN], self._outputs, strict=False)
        ]


def objective_and_batches(
    m: Tagger, train: tuple[list[Any], list[list[str]]], dev: tuple[list[Any], list[list[str]]]
) -> tuple[TagObjective, HeldBatches[TagBatch]]:
    """What ``m`` minimises, and the batches it learns from; ``train`` and ``dev`` are sequences and their labels."""
    s, targets, reader = m.settings_, m.targets_, m._reader
    inputs, labels = train
    read: list[Any] = [*reader.read(inputs)]
    batches = training_batches(
        read,
        [targets.encode(row) for row in labels],
        batch_tokens=s.batch_tokens,
        max_tokens=s.max_tokens,
        seed=s.seed,
    )
    held, wanted = dev
    shown = [outline(x) if m.framewise else " ".join(x) for x in held]
    rates = hiding_rates(read, m.tokenizer_.size, s.hide_rare) if isinstance(reader, Reader) else None
    sequences = list(zip(shown, reader.read(held), wanted, strict=True))
    objective = TagObjective(
        targets, sequences, hiding=rates, settings=s, metric=m._metric(), scores=m._report
    )
    return objective, batches


def squared_errors(outputs: Tensor, truth: Tensor) -> Tensor:
    """(z − y)² of each of ``(n,)`` numbers."""
    return (outputs - truth).square()


def entropies(outputs: Tensor, truth: Tensor) -> Tensor:
    """The binary cross entropy of each of ``(n, K)`` classes."""
    return F.binary_cross_entropy_with_logits(outputs, truth, reduction="none")


def outline(x: Any) -> str:
    """A few numbers that stand for a sequence of frames."""
    head = " ".join(f"{value:.3g}" for value in x.ravel()[:8])
    return f"{x.shape[0]} × {x.shape[1]}: {head} …"


def spelled(label: Any) -> str:
    """An answer as it is written: a tag, ``a|b`` of several, a number with six digits."""
    if isinstance(label, list):
        return SEPARATOR.join(map(str, label)) or NONE
    return f"{label:.6g}" if isinstance(label, float) else str(label)


@torch.no_grad()
def answers(
    model: models.Tagger, targets: Targets, sequences: list[Any], threshold: float, *, strict: bool = False
) -> tuple[list[list[Any]], list[NDArray[np.float64]]]:
    """The labels of every sequence, and ``(time, classes)`` how probable each class is by itself (of numbers nothing).

    Of one class the best that the rules allow, of several those above ``threshold``. ``strict``: outputs that are not
    finite are a `NotFiniteError` with the sequence's number.
    """
    labels: list[list[Any]] = [[] for _ in sequences]
    shares: list[NDArray[np.float64]] = [np.zeros((0, len(targets.names)))] * len(sequences)
    filled = [i for i, sequence in enumerate(sequences) if len(sequence)]
    device = next(model.parameters()).device
    names = targets.values
    for batch in each_step(reading_batches([sequences[i] for i in filled])):
        t = batch.tensors(device)
        places, lengths = [filled[i] for i in batch.indices], [len(row) for row in batch.words]
        emissions = model(t.source, t.lengths)
        if strict:
            _check_emissions(emissions, lengths, places)
        found, chances = _of_kind(model, targets.kind, emissions, t.lengths, threshold)
        for row, (place, length) in enumerate(zip(places, lengths, strict=True)):
            shares[place] = chances[row, :length]
            if targets.kind == "number":
                labels[place] = targets.numbers(found[row, :length]).tolist()
            elif targets.kind == "class":
                labels[place] = [names[i] for i in found[row, :length].tolist()]
            else:
                labels[place] = [[names[i] for i in np.flatnonzero(here)] for here in found[row, :length]]
    return labels, shares


def _of_kind(
    model: models.Tagger, kind: str, emissions: Tensor, lengths: Tensor, threshold: float
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Outputs ``(batch, time, …)``: the number of the best class, a table of those above ``threshold``, or a number; and the
    probabilities of the classes."""
    if kind == "number":
        return emissions.double().cpu().numpy(), np.zeros((*emissions.shape[:2], 0))
    if kind == "class":
        chances = model.marginals(emissions, lengths).double().cpu().numpy()
        return model.decode(emissions, lengths).cpu().numpy(), chances
    chances = emissions.double().sigmoid().cpu().numpy()
    return chances >= threshold, chances


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
        raise NotFiniteError(f"input {min(bad) + 1}")
