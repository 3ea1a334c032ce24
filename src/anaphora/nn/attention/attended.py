"""What is attended to while decoding: computed once, then only its rows are chosen."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Attended:
    """Tensors that stay the same from step to step, each ``(rows, …)``, and their mask ``(rows, keys)``.

    ``source`` ``(rows,)`` says to which item of the batch each row belongs.

    ``tensors`` are what a decoder attends to, such as the annotations and their projections.

    >>> kept = an.nn.attention.Attended.of((torch.arange(6.0).view(2, 3),), mask=None)
    >>> kept.select(torch.tensor([1, 1])).source.tolist()               # a beam that follows the second item twice
    [1, 1]
    """

    tensors: tuple[Tensor, ...]
    mask: Tensor | None
    source: Tensor

    @classmethod
    def of(cls, tensors: tuple[Tensor, ...], mask: Tensor | None) -> Attended:
        """One row per item, before a search has multiplied them."""
        first = tensors[0]
        return cls(tensors, mask, torch.arange(first.shape[0], device=first.device))

    def select(self, rows: Tensor) -> Attended:
        """The given rows, in their order; rows may repeat."""
        source = self.source.index_select(0, rows)
        # A search mostly moves rows within an item, and then nothing needs to be copied. To find that out
        # on a GPU would make the host wait for it, which costs more than the copy.
        if rows.device.type == "cpu" and torch.equal(source, self.source):
            return self
        mask = None if self.mask is None else self.mask.index_select(0, rows)
        return Attended(tuple(tensor.index_select(0, rows) for tensor in self.tensors), mask, source)
