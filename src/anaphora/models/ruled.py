"""Steps of a model whose outputs must begin so, may not have some symbols, or end at their greatest length."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from anaphora.data.symbols import EOS
from anaphora.data.tokenizers.vocabularies import Around

Step = Callable[[Tensor, Any], tuple[Tensor, Any]]


@dataclass(frozen=True)
class Counted:
    """A state, and how many steps it has taken."""

    state: Any
    steps: int

    def select(self, rows: Tensor) -> Counted:
        return Counted(self.state.select(rows), self.steps)

    @property
    def attention(self) -> Tensor:
        """Where the newest step looked; see `WatchedState`."""
        found: Tensor = self.state.attention
        return found

    @property
    def places(self) -> Tensor:
        found: Tensor = self.state.places
        return found


def ruled(step: Step, around: Around, limits: Sequence[int]) -> Step:
    """``step``, which gives log p ``(rows, symbols)``, under the rules of ``around``: what is forced costs nothing and what is
    forbidden is −∞, while all else keeps its log p. ``limits``: the most symbols of each output; only where they are one
    number can an end be forced there."""
    last = limits[0] - 1 if around.ends and len(set(limits)) == 1 else None
    never = torch.tensor(around.never, dtype=torch.long)

    def next_step(symbols: Tensor, counted: Counted) -> tuple[Tensor, Counted]:
        log_probs, state = step(symbols, counted.state)
        at = counted.steps
        if at < len(around.first) or at == last:
            forced = around.first[at] if at < len(around.first) else EOS
            log_probs = torch.full_like(log_probs, -math.inf)
            log_probs[:, forced] = 0.0
        elif len(never):
            log_probs = log_probs.index_fill(1, never.to(log_probs.device), -math.inf)
        return log_probs, Counted(state, at + 1)

    return next_step
