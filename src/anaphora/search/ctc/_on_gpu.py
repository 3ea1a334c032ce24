"""Targets and lengths for kernels of a GPU.

What the caller has on the GPU stays there, unchecked: the kernels report a length or symbol that is out of range, and only then is it
copied to the host, where the checks that every caller gets name it. So a loss waits for the GPU once, at its end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from anaphora.ops.gpu.reported import LOST, WRONG
from anaphora.search.ctc._inputs import Lengths, Targets, checked_lengths, checked_targets


class Given(NamedTuple):
    """What a loss was given, as it came, for scores with so many rows, frames and symbols."""

    name: str
    targets: Targets
    logit_lengths: Lengths
    target_lengths: Lengths
    rows: int
    time: int
    symbols: int
    blank: int
    reduction: str
    impossible: str

    def checked(self) -> tuple[Tensor, Tensor, Tensor]:
        """Labels ``(batch, longest)``, frames and sizes ``(batch,)`` on the CPU; raises ValueError or `DataError`."""
        frames = checked_lengths(self.name, self.logit_lengths, self.rows, self.time)
        labels, sizes = checked_targets(
            self.name, self.targets, self.target_lengths, self.rows, self.symbols, self.blank
        )
        return labels, frames, sizes

    def reduced(self, losses: Tensor, sizes: Tensor | None) -> Tensor:
        """Return the losses ``(batch,)`` after the reduction; ``sizes`` is None where all targets are full."""
        if self.reduction == "none":
            return losses
        if self.reduction == "sum":
            return losses.sum()
        counts: Any = self.targets if sizes is None else sizes  # full targets are a tensor
        longest = torch.tensor(counts.shape[1]) if sizes is None else counts
        return (losses / longest.clamp(min=1).to(losses)).sum() / max(self.rows, 1)

    def lost(self, reported: Tensor) -> list[int]:
        """The rows that no alignment spells, of what a kernel reported ``(batch,)``; raises where it found wrong numbers.

        This waits for the GPU.
        """
        status = reported.tolist()
        if WRONG in status:
            self.checked()
            raise RuntimeError(f"{self.name}: targets or lengths changed on the GPU while they were read.")
        return [row for row, said in enumerate(status) if said == LOST] if LOST in status else []


class Placed(NamedTuple):
    """Labels ``(batch, longest)``, frames and sizes ``(batch,)`` on the GPU, int64 and contiguous; None stands for full rows."""

    labels: Tensor
    frames: Tensor | None
    sizes: Tensor | None
    checked: bool  # whether the host has checked all of them


def placed(scores: Tensor, given: Given) -> Placed:
    """Targets and lengths on the GPU of the scores; what does not lie there is checked and copied."""
    rows = given.rows
    targets: Any = given.targets
    if _lies_there(targets, scores):
        if targets.dim() != 2 or targets.shape[0] != rows:
            given.checked()  # raises
        frames = _length(scores, given, given.logit_lengths, given.time)
        sizes = _length(scores, given, given.target_lengths, targets.shape[1])
        return Placed(_whole(targets), frames, sizes, False)
    labels, sizes = checked_targets(
        given.name, targets, given.target_lengths, rows, given.symbols, given.blank
    )
    lengths: Any = given.logit_lengths
    if _lies_there(lengths, scores) and lengths.shape == (rows,):
        labels, sizes = _copied(scores, labels, sizes)
        return Placed(labels, _whole(lengths), sizes, False)
    frames = checked_lengths(given.name, lengths, rows, given.time)
    labels, frames, sizes = _copied(scores, labels, frames, sizes)
    return Placed(labels, frames, sizes, True)


def _length(scores: Tensor, given: Given, lengths: Any, most: int) -> Tensor | None:
    if lengths is None:
        return None
    if _lies_there(lengths, scores) and lengths.shape == (given.rows,):
        return _whole(lengths)
    return _copied(scores, checked_lengths(given.name, lengths, given.rows, most))[0]


def _lies_there(given: Any, scores: Tensor) -> bool:
    return isinstance(given, Tensor) and given.device == scores.device


def _whole(given: Any) -> Tensor:
    numbers: Tensor = given.detach().to(torch.int64).contiguous()
    return numbers


def _copied(scores: Tensor, *numbers: Tensor) -> tuple[Tensor, ...]:
    """The same on the GPU, by one copy."""
    together = torch.cat([each.flatten() for each in numbers]).to(scores.device)
    parts = torch.split(together, [each.numel() for each in numbers])
    return tuple(part.view(each.shape) for part, each in zip(parts, numbers, strict=True))
