"""Check what CTC and transducer losses take: scores over frames, and targets, each with its lengths, on any device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anaphora.errors import DataError

Lengths: TypeAlias = Tensor | NDArray[np.integer] | Sequence[int] | None
Targets: TypeAlias = Tensor | NDArray[np.integer] | Sequence[Sequence[int]]


def checked_scores(
    name: str, scores: Tensor | NDArray[np.floating], lengths: Lengths, blank: int
) -> tuple[Tensor, Tensor]:
    """Scores ``(batch, time, symbols)`` as a tensor and their lengths ``(batch,)`` on the CPU."""
    scores = checked_kind(name, scores, blank)
    return scores, checked_lengths(name, lengths, scores.shape[0], scores.shape[1])


def checked_kind(name: str, scores: Tensor | NDArray[np.floating], blank: int) -> Tensor:
    """Scores ``(batch, time, symbols)`` as a tensor."""
    scores = torch.as_tensor(scores)
    if scores.dim() != 3 or not scores.is_floating_point():
        raise ValueError(
            f"{name}: scores must be floats (batch, time, symbols), got {tuple(scores.shape)} of {scores.dtype}."
        )
    if not 0 <= blank < scores.shape[2]:
        raise ValueError(f"{name}: blank={blank} must be one of the {scores.shape[2]} symbols.")
    return scores


def checked_log_probs(
    name: str, log_probs: Tensor | NDArray[np.floating], lengths: Lengths, blank: int
) -> tuple[Tensor, Tensor]:
    """As `checked_scores`, without a gradient, and without NaN on real frames: no search can rank it."""
    scores, frames = checked_scores(name, log_probs, lengths, blank)
    scores = scores.detach()
    spoilt = scores.isnan().any(-1).cpu() & (torch.arange(scores.shape[1]) < frames[:, None])
    if bool(spoilt.any()):
        row, frame = spoilt.nonzero()[0].tolist()
        raise DataError(
            f"{name}: row {row} holds NaN at frame {frame}; look for the first NaN in the model that made it."
        )
    return scores, frames


def checked_lengths(name: str, lengths: Lengths, rows: int, most: int) -> Tensor:
    """Lengths ``(batch,)`` on the CPU, each between 0 and `most`, which stands for None."""
    return torch.from_numpy(_checked_numbers(name, lengths, rows, most))


def _checked_numbers(name: str, lengths: Lengths, rows: int, most: int) -> NDArray[np.int64]:
    found = np.full(rows, most) if lengths is None else _numbers(lengths)
    if found.shape != (rows,) or ((found < 0) | (found > most)).any():
        raise ValueError(f"{name}: lengths must be {rows} numbers from 0 to {most}, got {found.tolist()}.")
    return found


def _numbers(given: Tensor | NDArray[np.integer] | Sequence[int]) -> NDArray[np.int64]:
    """Return whole numbers as an array: small operations take a fraction of torch's time there, and no one follows them."""
    if isinstance(given, Tensor):
        array: NDArray[np.int64] = given.detach().to("cpu", torch.int64).numpy()
        return array
    return np.asarray(given).astype(np.int64)


def checked_targets(
    name: str, targets: Targets, lengths: Lengths, rows: int, symbols: int, blank: int
) -> tuple[Tensor, Tensor]:
    """Targets ``(batch, longest)`` and their lengths ``(batch,)`` on the CPU; places past a row's end hold the blank."""
    if isinstance(targets, Tensor | np.ndarray):
        padded = _numbers(targets)
        if padded.ndim != 2 or padded.shape[0] != rows:
            raise ValueError(
                f"{name}: targets must be ({rows}, longest) or {rows} lists, got {tuple(padded.shape)}."
            )
        sizes = _checked_numbers(name, lengths, rows, padded.shape[1])
    else:
        if len(targets) != rows:
            raise ValueError(f"{name}: {rows} rows of scores need {rows} targets, got {len(targets)}.")
        sizes = np.array([len(target) for target in targets], np.int64)
        if lengths is not None:
            raise ValueError(
                f"{name}: targets given as lists have their own lengths; leave target_lengths out."
            )
        padded = np.full((rows, max([0, *sizes.tolist()])), blank)
        for row, target in zip(padded, targets, strict=True):
            row[: len(target)] = _numbers(target)
    real = np.arange(padded.shape[1]) < sizes[:, None]
    wrong = real & ((padded == blank) | (padded < 0) | (padded >= symbols))
    if wrong.any():
        row, place = np.argwhere(wrong)[0].tolist()
        raise DataError(
            f"{name}: target {row} holds {int(padded[row, place])} at place {place}; symbols of a target are "
            f"0 to {symbols - 1} without the blank {blank}."
        )
    return torch.from_numpy(np.where(real, padded, blank)), torch.from_numpy(sizes)


def frames_needed(targets: Tensor, target_lengths: Tensor) -> Tensor:
    """The fewest frames ``(batch,)`` that can spell each target: one per symbol and a blank between equal neighbours."""
    if targets.shape[1] < 2:
        return target_lengths
    table, sizes = (
        targets.numpy(),
        target_lengths.numpy(),
    )  # small operations take a fraction of torch's time there
    within = np.arange(1, table.shape[1]) < sizes[:, None]
    return torch.from_numpy(sizes + ((table[:, 1:] == table[:, :-1]) & within).sum(1))


def refuse(
    name: str, rows: Sequence[int], lengths: Tensor, targets: Tensor, target_lengths: Tensor
) -> DataError:
    """The error for targets that no path spells; it names the first few rows and says why."""
    needed = frames_needed(targets, target_lengths)
    reasons = []
    for row in rows[:5]:
        have, want = int(lengths[row]), int(needed[row])
        short = f"{int(target_lengths[row])} symbols need {want} frames, there are {have}"
        reasons.append(f"{row} ({short if want > have else 'every path has probability 0'})")
    more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
    return DataError(
        f"{name}: no path spells target {', '.join(reasons)}{more}; drop such rows, give the model more frames"
        + (' or pass impossible="zero".' if name == "ctc_loss" else ".")
    )


# ----------------------------------------------------------------------
# Targets and lengths for kernels of a GPU.
#
# What the caller has on the GPU stays there, unchecked: the kernels report a length or symbol that is out of range, and only then is it
# copied to the host, where the checks that every caller gets name it. So a loss waits for the GPU once, at its end.
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


# ----------------------------------------------------------------------
# What kernels of losses report of a row, as ``Status`` in ``rows.cu`` has it.
WRONG = 1
"""A length or a symbol is out of range: the row's results have no meaning."""
LOST = 2
"""Nothing spells the target with a probability above 0: the loss and its gradient are zero."""
