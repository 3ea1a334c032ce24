"""What an encoder hands to a decoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Memory:
    """annotations ``(batch, S, width)``; mask ``(batch, S)``, True where the source is real; last: the final
    states of a recurrent encoder, one per state name, each ``(layers·directions, batch, hidden)``.
    """

    annotations: Tensor
    mask: Tensor
    last: tuple[Tensor, ...] = ()


def join_memories(each: Sequence[Memory], places: int) -> Memory:
    """The memories of single sources ``(1, S_i, width)`` as one of a batch, padded with zeros to ``places``."""
    annotations = [F.pad(m.annotations, (0, 0, 0, places - m.annotations.shape[1])) for m in each]
    masks = [F.pad(m.mask, (0, places - m.mask.shape[1])) for m in each]
    last = zip(*(m.last for m in each), strict=True)
    return Memory(torch.cat(annotations), torch.cat(masks), tuple(torch.cat(s, 1) for s in last))
