"""Which steps of a chunk a sum of logarithms runs over."""

from __future__ import annotations

import torch
from torch import Tensor

_kept: dict[tuple[int, torch.device], tuple[Tensor, Tensor]] = {}


def masks(chunk: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Ones and zeros ``(2·levels + 2, chunk, chunk)`` in float16 and in bfloat16.

    ``[level, i, s]``: whether step s lies between step i and the middle of its block of 2·2^level steps (after the middle up
    to i itself, or after i up to the middle); then s ≤ i, and s > i; then for each level whether i and s are in different
    halves of one such block.
    """
    found = _kept.get((chunk, device))
    if found is None:
        found = _made(chunk, device)
        if device.type == "cuda":
            if torch.cuda.is_current_stream_capturing():
                return found  # what a graph allocates is the graph's own
            torch.cuda.current_stream(device).synchronize()  # other streams will read it
        _kept[chunk, device] = found
    return found


def _made(chunk: int, device: torch.device) -> tuple[Tensor, Tensor]:
    i, s = torch.arange(chunk, device=device)[:, None], torch.arange(chunk, device=device)
    found = []
    for level in range(chunk.bit_length() - 1):
        right = ((i >> level) & 1).bool()
        found.append((((i ^ s) >> level) == 0) & torch.where(right, s <= i, s > i))
    halves = [((i ^ s) >> level) == 1 for level in range(len(found))]
    table = torch.stack([*found, s <= i, s > i, *halves])
    return table.half(), table.bfloat16()
