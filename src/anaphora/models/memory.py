"""What an encoder hands to a decoder."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Memory:
    """annotations ``(batch, S, width)``; mask ``(batch, S)``, True where the source is real; last: the final
    states of a recurrent encoder, one per state name, each ``(layers·directions, batch, hidden)``.
    """

    annotations: Tensor
    mask: Tensor
    last: tuple[Tensor, ...] = ()
