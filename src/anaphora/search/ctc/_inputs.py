"""What all CTC functions take: scores over frames, and targets, each with its lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

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
