"""The decoder that looks at the source before each step (Bahdanau et al. 2015)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anaphora.models.decoders.attentive import AttentiveDecoder, AttentiveState
from anaphora.models.memory import Memory
from anaphora.nn import inside
from anaphora.nn.attention import Attention
from anaphora.nn.embedding import Embedding, Output
from anaphora.nn.recurrent import Recurrent


class BahdanauDecoder(AttentiveDecoder):
    """Attention from the previous state; what it finds is part of the recurrent layer's input:

        a_t = Σ_j α_tj h_j,   α_t = softmax score(s_{t−1}, h_j)
        s_t = f(s_{t−1}, [E y_{t−1}; a_t]),   logits = W_o tanh(W [s_t; a_t; E y_{t−1}] + b)

    The recurrent layer takes inputs of width embedding + annotations. Several layers: s_{t−1} is the
    highest one's. Notes ``vectors``, the input of the output layer, on itself.

    ``annotations`` is the width of the encoder's annotations, ``bridge`` makes s_0 from the memory.
    """

    def __init__(
        self,
        embedding: Embedding,
        recurrent: Recurrent,
        attention: Attention,
        output: Output,
        *,
        bridge: nn.Module,
        annotations: int,
        dropout: float = 0.0,
    ):
        seen = recurrent.output_size + annotations + embedding.width
        super().__init__(embedding, recurrent, attention, output, bridge=bridge, seen=seen, dropout=dropout)

    def forced(self, target_in: Tensor, memory: Memory) -> Tensor:
        x = self.dropout(self.embedding(target_in))
        state = self.start(memory)
        found = []
        for embedded in x.unbind(1):
            found_now, state = self._advance(embedded, state)
            found.append(found_now)
        # The output layer needs no earlier step, so it sees all of them at once.
        return self._logits(torch.stack(found, 1), x)

    def step(self, symbols: Tensor, state: AttentiveState) -> tuple[Tensor, AttentiveState]:
        x = self.dropout(self.embedding(symbols))
        found, state = self._advance(x, state)
        return self._logits(found.unsqueeze(1), x.unsqueeze(1)).squeeze(1), state

    def _advance(self, x: Tensor, state: AttentiveState) -> tuple[Tensor, AttentiveState]:
        """[s_t; a_t] ``(rows, hidden + annotations)`` for the embedded symbols ``(rows, embedding)``."""
        annotations, prepared = state.attended.tensors
        before = state.states[0][-1].unsqueeze(1)
        context, _ = self.attention(before, annotations, state.attended.mask, prepared=prepared)
        context = context.squeeze(1)
        s, states = self.recurrent.step(torch.cat((x, context), -1), state.states)
        return torch.cat((s, context), -1), AttentiveState(states, state.attended)

    def _logits(self, found: Tensor, x: Tensor) -> Tensor:
        vectors = torch.tanh(self.readout(torch.cat((found, x), -1)))
        inside.note(self, "vectors", vectors)
        logits: Tensor = self.output(self.dropout(vectors))
        return logits
