"""Several encoder-decoders of one vocabulary as one, which any search accepts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from anaphora.models.memory import Memory
from anaphora.models.seq2seq import Seq2Seq


@dataclass(frozen=True)
class EnsembleMemory(Memory):
    """The memory of the first member, and ``each`` of them."""

    each: tuple[Memory, ...] = ()


@dataclass(frozen=True)
class EnsembleState:
    """The state of each member."""

    each: tuple[Any, ...]

    def select(self, rows: Tensor) -> EnsembleState:
        return EnsembleState(tuple(state.select(rows) for state in self.each))


class EnsembleDecoder(nn.Module):
    """p(y_t | y_<t, x) = 1/K Σ_k p_k(y_t | y_<t, x): the mean of the members' probabilities at every step."""

    normalised = True

    def __init__(self, members: Sequence[Seq2Seq]):
        super().__init__()
        self._members = list(members)  # registered by the ensemble
        limits = [member.decoder.places for member in members if member.decoder.places is not None]
        self.places = min(limits, default=None)

    @property
    def attentions(self) -> list[nn.Module]:
        return []

    def start(self, memory: EnsembleMemory) -> EnsembleState:
        pairs = zip(self._members, memory.each, strict=True)
        return EnsembleState(tuple(member.start(one) for member, one in pairs))

    def step(self, symbols: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        """Log p ``(rows, symbols)`` after ``symbols`` ``(rows,)``."""
        found = [member.step(symbols, one) for member, one in zip(self._members, state.each, strict=True)]
        log_probs = torch.logsumexp(torch.stack([one for one, _ in found]), 0) - math.log(len(found))
        return log_probs, EnsembleState(tuple(next_ for _, next_ in found))


class Ensemble(nn.Module):
    """What a search needs of a `Seq2Seq`, computed by several of them whose symbols are the same."""

    def __init__(self, members: Sequence[Seq2Seq]):
        super().__init__()
        if not members:
            raise ValueError("an ensemble needs at least one member")
        self.members = nn.ModuleList(members)
        self.decoder = EnsembleDecoder(members)
        self.encoder = nn.Identity()

    def encode(self, source: Tensor, source_lengths: Tensor) -> EnsembleMemory:
        """source ``(batch, S)``, its lengths ``(batch,)``."""
        each = tuple(member.encode(source, source_lengths) for member in self.members)  # type: ignore[operator]
        first = each[0]
        return EnsembleMemory(first.annotations, first.mask, first.last, each)

    def start(self, memory: EnsembleMemory) -> EnsembleState:
        return self.decoder.start(memory)

    def step(self, symbols: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        return self.decoder.step(symbols, state)
