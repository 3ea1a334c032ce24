"""The batches of recordings that a transcriber learns from."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from anaphora.data.audio.frames import Ear
from anaphora.data.audio.recordings import Recordings
from anaphora.data.batches.pooled import HeldBatches, random_of
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import DataError
from anaphora.settings.own import Part
from anaphora.settings.transcribe import TranscriberSettings

Frames = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class SpokenBatch:
    """Some recordings as frames ``(time, features)``, and the symbols of their transcripts."""

    inputs: list[Frames]
    targets: list[list[int]]
    indices: list[int]
    """Where in the data each row comes from."""
    copies: int = 1
    """Rows that follow each other are the same recording, varied in so many ways."""
    others: list[list[int]] = field(default_factory=list)
    """Of rows that are mixed, the symbols of the recording that was mixed into each; else nothing."""
    shares: list[float] = field(default_factory=list)
    """How much of each row is that other recording."""

    def __len__(self) -> int:
        return len(self.indices) // self.copies

    @property
    def symbols(self) -> int:
        """Target symbols, the end of each row included."""
        return sum(map(len, self.targets)) + len(self.targets)

    def shard(self, index: int, workers: int) -> SpokenBatch:
        """Recordings ``index``, ``index + workers``, …: the part of one of them. It may be empty."""
        rows = [i for i in range(len(self.indices)) if i // self.copies % workers == index]
        return SpokenBatch(
            [self.inputs[i] for i in rows],
            [self.targets[i] for i in rows],
            [self.indices[i] for i in rows],
            self.copies,
            [self.others[i] for i in rows] if self.others else [],
            [self.shares[i] for i in rows] if self.shares else [],
        )


def spoken_batches(
    s: TranscriberSettings, data: Recordings, ear: Ear, tokenizer: Tokenizer
) -> HeldBatches[SpokenBatch]:
    """The batches of training: each recording varied again in every epoch, some of them joined, with ``consistency`` as two copies, with
    ``mixup`` mixed."""
    targets = tokenizer.encode_batch(data.transcripts)
    _check_room(s, data.lengths.tolist(), targets)

    def make(indices: list[int]) -> SpokenBatch:
        frames, said, places = [], [], []
        for i in indices:
            rows = ear.chosen(data, i, s.seed, batches.epoch, i)
            joined = len(rows) > 1  # said one after the other
            text = tokenizer.encode(" ".join(data.transcripts[j] for j in rows)) if joined else targets[i]
            for copy in range(copies):
                frames.append(ear.vary(data, rows, s.seed, batches.epoch, i, copy=copy))
                said.append(text)
                places.append(i)
        batch = SpokenBatch(frames, said, places, copies)
        return mixed(batch, s.mixup, s.seed, batches.epoch, indices[0]) if s.mixup else batch

    copies = 2 if s.consistency else 1
    heard_together = copies * (s.joined + 1) / 2  # recordings on average
    batches = HeldBatches(
        data.lengths,
        make,
        batch_tokens=max(1, int(s.batch_tokens / heard_together)),
        max_tokens=s.max_tokens,
        seed=s.seed,
    )
    return batches


def _check_room(s: TranscriberSettings, lengths: Sequence[int], targets: Sequence[Sequence[int]]) -> None:
    """CTC cannot say more symbols than there are frames: count such recordings, and stop where all are so."""
    if not (isinstance(s.model, Part) or s.model.endswith(("-ctc", "wav2vec2"))):
        return
    k = s.subsample
    short = sum(-(-n // k) < len(target) for n, target in zip(lengths, targets, strict=True))
    if short == len(lengths):
        raise DataError(
            f"no recording has as many frames (of {k * s.hop:g} s) as its transcript has symbols; "
            "lower subsample or hop, or choose longer symbols (tokens)."
        )
    if short:
        warnings.warn(
            f"{short} of {len(lengths)} recordings are too short for their transcripts and teach nothing; lower "
            "subsample, or check them",
            stacklevel=4,
        )


def mixed(batch: SpokenBatch, alpha: float, *place: int) -> SpokenBatch:
    """Each recording x with another of the batch, x', below it, frame by frame, the end of the shorter one filled with zeros:

        (1 − λ) x + λ x',    λ = min(b, 1 − b),  b ~ Beta(α, α)

    (mixup, Zhang et al. 2018). The loss is mixed by the same shares, so a network learns to be as sure of a word as much of it is there.
    What is drawn depends on ``place`` alone. Copies of a recording are mixed alike.
    """
    draw, copies = random_of(*place, 59), batch.copies
    order = draw.permutation(len(batch))
    beta = draw.beta(alpha, alpha, len(batch))
    shares = np.minimum(beta, 1 - beta).repeat(copies).tolist()
    others = [int(j) * copies + copy for j in order for copy in range(copies)]
    return replace(
        batch,
        inputs=[_both(x, batch.inputs[j], w) for x, j, w in zip(batch.inputs, others, shares, strict=True)],
        others=[batch.targets[j] for j in others],
        shares=shares,
    )


def _both(one: Frames, other: Frames, share: float) -> Frames:
    """(1 − share) one + share other ``(longer time, features)``."""
    found = np.zeros((max(len(one), len(other)), one.shape[1]), np.float32)
    found[: len(one)] = (1 - share) * one
    found[: len(other)] += share * other
    return found
