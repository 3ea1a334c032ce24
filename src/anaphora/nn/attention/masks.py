"""Masks: True where a key may be attended to.

A mask is ``(batch, keys)`` when it is the same for all queries, else ``(batch, queries, keys)``; a batch
of 1 stands for every row.
"""

from __future__ import annotations

import torch
from torch import Tensor


def padding(lengths: Tensor, length: int) -> Tensor:
    """True at the first ``lengths[b]`` of ``length`` places: ``(batch,)`` -> ``(batch, length)``."""
    return torch.arange(length, device=lengths.device) < lengths[:, None]


def window(length: int, before: int, after: int = 0, *, device: torch.device | None = None) -> Tensor:
    """Each place sees itself, ``before`` places to the left and ``after`` to the right: ``(1, T, T)``."""
    place = torch.arange(length, device=device)
    distance = place - place[:, None]  # key minus query
    return ((distance >= -before) & (distance <= after))[None]


def causal(length: int, *, device: torch.device | None = None) -> Tensor:
    """Each place sees itself and what came before it: ``(1, T, T)``."""
    return window(length, before=length, device=device)


def join(*masks: Tensor | None) -> Tensor | None:
    """What all the given masks allow, as ``(batch, queries, keys)``; None when there is none."""
    joined: Tensor | None = None
    for mask in masks:
        if mask is not None:
            mask = by_query(mask)
            joined = mask if joined is None else joined & mask
    return joined


def by_query(mask: Tensor) -> Tensor:
    """``(batch, keys)`` as ``(batch, 1, keys)``; a mask with queries as it is."""
    return mask.unsqueeze(1) if mask.dim() == 2 else mask


def same(numbers: Tensor) -> Tensor:
    """True where two places have the same number: ``(batch, time)`` -> ``(batch, time, time)``."""
    return numbers.unsqueeze(2) == numbers.unsqueeze(1)
