"""What every decoder can do, and scheduled sampling for all that go step by step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from anaphora.models.memory import Memory


class Decoder(nn.Module):
    """A decoder computes the same logits by two methods.

    ``decoder(target_in, memory)`` for a whole target ``(batch, T)`` -> ``(batch, T, symbols)``;
    ``state = decoder.start(memory)``, then ``logits, state = decoder.step(symbols, state)`` for symbols
    ``(rows,)`` -> ``(rows, symbols)``. A state has ``select(rows)``, with which a search keeps, drops and
    repeats rows.
    """

    places: int | None = None
    """How many symbols it can write at most; None: there is no limit."""
    normalised = False
    """Whether a step gives log p instead of logits."""

    @property
    def attentions(self) -> list[nn.Module]:
        """The modules that attend to the memory, from the lowest to the highest; none in a plain decoder."""
        return []

    def forward(self, target_in: Tensor, memory: Memory, teacher_forcing: float = 1.0) -> Tensor:
        """Logits ``(batch, T, symbols)``, fed with the true previous symbols ``target_in`` ``(batch, T)``.

        With ``teacher_forcing`` p < 1 each input but the first is, with probability 1 − p, the symbol that
        the model itself would have chosen (scheduled sampling, Bengio et al. 2015). Coins come from
        torch's global generator, one for every row and place.
        """
        if teacher_forcing < 1.0:
            return self.sampled(target_in, memory, teacher_forcing)
        return self.forced(target_in, memory)

    def forced(self, target_in: Tensor, memory: Memory) -> Tensor:
        """Logits when every input is the true previous symbol."""
        state = self.start(memory)
        logits = []
        for symbols in target_in.unbind(1):
            scores, state = self.step(symbols, state)
            logits.append(scores)
        return torch.stack(logits, 1)

    def sampled(self, target_in: Tensor, memory: Memory, teacher_forcing: float) -> Tensor:
        """Logits under scheduled sampling, one step after the other."""
        true = coins(target_in, teacher_forcing)
        state = self.start(memory)
        logits: list[Tensor] = []
        for symbols, keep in zip(target_in.unbind(1), true.unbind(1), strict=True):
            if logits:
                symbols = torch.where(keep, symbols, logits[-1].argmax(-1))
            scores, state = self.step(symbols, state)
            logits.append(scores)
        return torch.stack(logits, 1)

    def start(self, memory: Memory) -> Any:
        """The state before the first symbol, one row per item of the memory."""
        raise TypeError(f"{type(self).__name__} does not define start(memory)")

    def step(self, symbols: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Logits ``(rows, symbols)`` of what follows the given symbols ``(rows,)``, and the next state."""
        raise TypeError(f"{type(self).__name__} does not define step(symbols, state)")


def coins(target_in: Tensor, teacher_forcing: float) -> Tensor:
    """True, with probability ``teacher_forcing``, where the true symbol is fed: ``(batch, T)``."""
    return torch.rand(target_in.shape, device=target_in.device) < teacher_forcing
