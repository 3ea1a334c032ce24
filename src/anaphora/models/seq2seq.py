"""Sequence to sequence: an encoder reads the source, a decoder writes the target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from anaphora.errors import AnaphoraError
from anaphora.models.decoders.base import Decoder
from anaphora.models.memory import Memory
from anaphora.nn import inside


@dataclass(frozen=True)
class WatchedState:
    """A decoder's state, and how its newest step looked at the source: ``attention`` ``(rows, S)``, before the
    first step all zeros. ``places`` ``(rows, S)``: True where the source has a symbol.
    """

    state: Any
    attention: Tensor
    places: Tensor

    def select(self, rows: Tensor) -> WatchedState:
        chosen = (tensor.index_select(0, rows) for tensor in (self.attention, self.places))
        return WatchedState(self.state.select(rows), *chosen)


class Seq2Seq(nn.Module):
    """p(y | x) = ∏_t p(y_t | y_<t, x) from any encoder and any decoder.

    Symbols are ``(batch, time)``, padded at the end. A row's result does not depend on the other rows.
    """

    def __init__(self, encoder: nn.Module, decoder: Decoder):
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def forward(
        self,
        source: Tensor,
        source_lengths: Tensor,
        target_in: Tensor,
        target_lengths: Tensor | None = None,
        *,
        teacher_forcing: float = 1.0,
    ) -> Tensor:
        """Logits ``(batch, T, symbols)`` of each next symbol, given ``target_in`` ``(batch, T)`` up to it.

        Target lengths complete the batch but change nothing: no place looks ahead, so padding at the end of
        a target is never seen, and the loss leaves its logits out. For ``teacher_forcing`` below 1 see
        `Decoder.forward`.
        """
        logits: Tensor = self.decoder(target_in, self.encode(source, source_lengths), teacher_forcing)
        return logits

    def encode(self, source: Tensor, source_lengths: Tensor) -> Memory:
        """source ``(batch, S)``, its lengths ``(batch,)``."""
        memory: Memory = self.encoder(source, source_lengths)
        return memory

    def start(self, memory: Memory) -> Any:
        """The decoder's state before its first symbol; its ``select(rows)`` keeps, drops or repeats rows."""
        return self.decoder.start(memory)

    def step(self, symbols: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Log probabilities ``(rows, symbols)``, in float32, of what follows ``symbols`` ``(rows,)``. Those of a decoder that is
        ``normalised`` stay as they are: what it never writes is −∞, and the rest need not sum to 1."""
        scores, state = self.decoder.step(symbols, state)
        scores = scores.float()
        return scores if self.decoder.normalised else torch.log_softmax(scores, -1), state

    def start_watched(self, memory: Memory) -> WatchedState:
        """As `start`, for `step_watched`."""
        self._attention(-1)
        return WatchedState(
            self.start(memory), torch.zeros_like(memory.mask, dtype=torch.float32), memory.mask
        )

    def step_watched(self, symbols: Tensor, watched: WatchedState) -> tuple[Tensor, WatchedState]:
        """As `step`; the state also tells where the highest attention looked, the mean of its heads."""
        with inside.record() as notes:
            log_probs, state = self.step(symbols, watched.state)
        weights = _weights(notes, self._attention(-1), head=None)
        return log_probs, WatchedState(state, weights.squeeze(1).float(), watched.places)

    @torch.no_grad()
    def alignment(
        self,
        source: Tensor,
        source_lengths: Tensor,
        target_in: Tensor,
        *,
        layer: int = -1,
        head: int | None = None,
    ) -> Tensor:
        """How much each target place looked at each source place: ``(batch, T, S)``, rows sum to 1.

        Row t belongs to the symbol predicted after ``target_in[:, t]``. ``layer`` chooses among several,
        by default the highest; ``head`` chooses one of several heads, by default their mean.
        """
        attention = self._attention(layer)
        training = self.training
        self.eval()
        try:
            with inside.record() as notes:
                self(source, source_lengths, target_in)
        finally:
            self.train(training)
        return _weights(notes, attention, head)

    def _attention(self, layer: int) -> nn.Module:
        if not self.decoder.attentions:
            raise AnaphoraError(
                "this model has no attention, so there is no alignment to show: "
                "train lstm-attention, gru-attention or transformer instead."
            )
        return self.decoder.attentions[layer]


def _weights(notes: list[inside.Note], attention: nn.Module, head: int | None) -> Tensor:
    """What ``attention`` noted, ``(batch, T, S)``: decoders that go step by step leave one note per step."""
    weights = torch.cat([n.value for n in notes if n.module is attention and n.name == "weights"], -2)
    if weights.dim() == 3:
        return weights
    return weights.mean(1) if head is None else weights[:, head]
