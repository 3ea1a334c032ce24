"""What a run of a recurrence is given, and the part of a call that holds no tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from anaphora.kernels.recurrence.backends.reference import States


class Arguments(NamedTuple):
    """All tensors of a run, in the order autograd sees them."""

    matrices: Sequence[Tensor]  # (out, in), as the plan stacks them
    vectors: Sequence[Tensor]  # (n,)
    steps: Sequence[Tensor]  # (B, T, ·)
    rows: Sequence[Tensor]  # (B, ·)
    initial: States  # (B, ·)

    def flat(self) -> list[Tensor]:
        return [t for group in self for t in group]

    def counts(self) -> tuple[int, ...]:
        return tuple(len(group) for group in self)


@dataclass(frozen=True)
class Call:
    """How a run goes: how many tensors of each kind, the rows' lengths, and the direction."""

    counts: tuple[int, ...]
    lengths: Tensor | None
    reverse: bool

    def arguments(self, tensors: Sequence[Tensor]) -> Arguments:
        """The flat list in its groups again."""
        groups, at = [], 0
        for count in self.counts:
            groups.append(tuple(tensors[at : at + count]))
            at += count
        return Arguments(*groups)
