"""Masks: True where a key may be attended to.

A mask is ``(batch, keys)`` when it is the same for all queries, else ``(batch, queries, keys)``; a batch
of 1 stands for every row.
"""

from __future__ import annotations

import torch
from torch import Tensor


def padding(lengths: Tensor, length: int) -> Tensor:
    """True at the first ``lengths[b]`` of ``length`` places: ``(batch,)`` -> ``(batch, length)``.

    >>> an.nn.attention.masks.padding(torch.tensor([1, 3]), 3).int().tolist()
    [[1, 0, 0], [1, 1, 1]]
    """
    return torch.arange(length, device=lengths.device) < lengths[:, None]


def window(length: int, before: int, after: int = 0, *, device: torch.device | None = None) -> Tensor:
    """Each place sees itself, ``before`` places to the left and ``after`` to the right: ``(1, T, T)``.

    ``length`` is T; ``device``: where the mask is made.

    >>> an.nn.attention.masks.window(3, before=1).int().tolist()
    [[[1, 0, 0], [1, 1, 0], [0, 1, 1]]]
    """
    place = torch.arange(length, device=device)
    distance = place - place[:, None]  # key minus query
    return ((distance >= -before) & (distance <= after))[None]


def causal(length: int, *, device: torch.device | None = None) -> Tensor:
    """Each place sees itself and what came before it: ``(1, T, T)``, True where the place t of a query may see the place s of a key.

        mask[0, t, s] = (s ≤ t)

    ``length`` is T; ``device``: where the mask is made.

    >>> an.nn.attention.masks.causal(3).int().tolist()
    [[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]
    """
    return window(length, before=length, device=device)


def chunks(length: int, chunk: int, left: int, *, device: torch.device | None = None) -> Tensor:
    """Each place sees all of its own chunk of ``chunk`` places and of ``left`` chunks before it: ``(1, T, T)``.

    ``length`` is T; ``device``: where the mask is made.

    >>> an.nn.attention.masks.chunks(4, 2, 0)[0].int().tolist()
    [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]
    """
    number = torch.arange(length, device=device) // chunk
    apart = number[:, None] - number  # of query and key
    return ((apart >= 0) & (apart <= left))[None]


def join(*masks: Tensor | None) -> Tensor | None:
    """What all the given masks allow, as ``(batch, queries, keys)``; None when there is none.

    ``masks``: each ``(batch, keys)``, ``(batch, queries, keys)`` or None.

    >>> masks = an.nn.attention.masks
    >>> masks.join(masks.causal(2), masks.padding(torch.tensor([1]), 2)).int().tolist()
    [[[1, 0], [1, 0]]]
    """
    joined: Tensor | None = None
    for mask in masks:
        if mask is not None:
            mask = by_query(mask)
            joined = mask if joined is None else joined & mask
    return joined


def by_query(mask: Tensor) -> Tensor:
    """``(batch, keys)`` as ``(batch, 1, keys)``; a mask with queries as it is.

    ``mask``: either of the two.

    >>> an.nn.attention.masks.by_query(torch.ones(2, 5)).shape
    torch.Size([2, 1, 5])
    """
    return mask.unsqueeze(1) if mask.dim() == 2 else mask


def same(numbers: Tensor) -> Tensor:
    """True where two places have the same number: ``(batch, time)`` -> ``(batch, time, time)``.

    ``numbers``: such as the word that each piece belongs to.

    >>> an.nn.attention.masks.same(torch.tensor([[0, 0, 1]])).int().tolist()
    [[[1, 1, 0], [1, 1, 0], [0, 0, 1]]]
    """
    return numbers.unsqueeze(2) == numbers.unsqueeze(1)
