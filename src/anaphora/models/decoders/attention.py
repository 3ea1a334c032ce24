"""Decoders that look at the source: after each step (Luong et al. 2015), or before it (Bahdanau et al. 2015)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anaphora.models.decoders.base import Decoder
from anaphora.models.memory import Memory
from anaphora.nn import inside
from anaphora.nn.attention import Attended, Attention
from anaphora.nn.embedding import Embedding, Output
from anaphora.nn.recurrent import Recurrent


# ----------------------------------------------------------------------
# What decoders with attention over the annotations share: their parts, and where they start.
@dataclass(frozen=True)
class AttentiveState:
    """states: one per state of the cell, each ``(layers, rows, hidden)``; attended: the annotations and what
    attention prepared of them; vector: the last attentional vector ``(rows, width)`` for input feeding.
    """

    states: tuple[Tensor, ...]
    attended: Attended
    vector: Tensor | None = None

    def select(self, rows: Tensor) -> AttentiveState:
        return AttentiveState(
            tuple(state.index_select(1, rows) for state in self.states),
            self.attended.select(rows),
            None if self.vector is None else self.vector.index_select(0, rows),
        )


class AttentiveDecoder(Decoder):
    """Embedding, recurrent layer, attention, readout and output layer; ``bridge`` makes s_0 from the memory.

    ``seen`` is the width of what the readout sees: tanh(W · + b) of it goes to the output layer.
    """

    def __init__(
        self,
        embedding: Embedding,
        recurrent: Recurrent,
        attention: Attention,
        output: Output,
        *,
        bridge: nn.Module,
        seen: int,
        dropout: float,
    ):
        super().__init__()
        self.embedding = embedding
        self.recurrent = recurrent
        self.attention = attention
        self.bridge = bridge
        self.readout = nn.Linear(seen, output.width)
        nn.init.xavier_uniform_(self.readout.weight)
        nn.init.zeros_(self.readout.bias)
        self.output = output
        self.dropout = nn.Dropout(dropout)

    @property
    def attentions(self) -> list[nn.Module]:
        return [self.attention]

    def start(self, memory: Memory) -> AttentiveState:
        annotations = memory.annotations
        attended = Attended.of((annotations, self.attention.prepare(annotations)), memory.mask)
        return AttentiveState(self.bridge(memory), attended)


# ----------------------------------------------------------------------
# The decoder whose states look back at the source after each step (Luong et al. 2015).
class AttentionDecoder(AttentiveDecoder):
    """The recurrent layer runs first, then each of its states attends to the annotations:

        s_t = f(s_{t−1}, E y_{t−1}),   a_t = Σ_j α_tj h_j,   α_t = softmax score(s_t, h_j)
        s̃_t = tanh(W [a_t; s_t] + b),  logits = W_o s̃_t

    Nothing in s_t depends on attention, so all steps of a known target are computed at once. With
    ``input_feeding`` s_t = f(s_{t−1}, [E y_{t−1}; s̃_{t−1}]), and the steps must follow one another; the
    recurrent layer then takes inputs of width embedding + output. Notes ``vectors``, the s̃_t, on itself.

    ``lexical`` is the width of the vectors of source symbols E x_j that end the annotations (`RecurrentEncoder` with ``symbols``), or 0.
    What is looked at then also speaks for itself, past the states (Nguyen & Chiang 2018):

        s̃_t = tanh(W [a_t; s_t] + b) + V e_t,   e_t = Σ_j α_tj E x_j

    Scores are those of the h_j alone. Where source and target share their vectors, V begins as ½ I, so that a letter which is looked at is
    written again before anything is learned.

    ``annotations`` is the width of the h_j, ``bridge`` makes s_0 from the memory.
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
        input_feeding: bool = False,
        lexical: int = 0,
        shared: bool = False,
    ):
        seen = annotations + recurrent.output_size
        super().__init__(embedding, recurrent, attention, output, bridge=bridge, seen=seen, dropout=dropout)
        self.input_feeding = input_feeding
        self.keys = annotations
        self.lexical = nn.Linear(lexical, output.width, bias=False) if lexical else None
        if self.lexical is not None:
            nn.init.xavier_uniform_(self.lexical.weight)
            if shared:
                self.lexical.weight.data.copy_(torch.eye(output.width, lexical) / 2)

    def forced(self, target_in: Tensor, memory: Memory) -> Tensor:
        x = self.dropout(self.embedding(target_in))
        if self.input_feeding:
            return self._logits(self._fed(x, memory))
        states, _ = self.recurrent(x, initial=self.bridge(memory))
        vectors = self._look(states, memory.annotations, memory.mask)
        inside.note(self, "vectors", vectors)
        return self._logits(vectors)

    def _fed(self, x: Tensor, memory: Memory) -> Tensor:
        """The attentional vectors ``(batch, T, width)``, each fed into the next step."""
        state = self.start(memory)
        vectors = []
        for embedded in x.unbind(1):
            vector, state = self._advance(embedded, state)
            vectors.append(vector)
        return torch.stack(vectors, 1)

    def start(self, memory: Memory) -> AttentiveState:
        annotations = memory.annotations
        attended = Attended.of(
            (annotations, self.attention.prepare(annotations[..., : self.keys])), memory.mask
        )
        nothing = annotations.new_zeros(annotations.shape[0], self.output.width)
        return AttentiveState(self.bridge(memory), attended, nothing if self.input_feeding else None)

    def step(self, symbols: Tensor, state: AttentiveState) -> tuple[Tensor, AttentiveState]:
        vector, state = self._advance(self.dropout(self.embedding(symbols)), state)
        return self._logits(vector), state

    def _advance(self, x: Tensor, state: AttentiveState) -> tuple[Tensor, AttentiveState]:
        """From the embedded symbols ``(rows, embedding)`` to the attentional vectors ``(rows, width)``."""
        if state.vector is not None:
            x = torch.cat((x, state.vector), -1)
        s, states = self.recurrent.step(x, state.states)
        annotations, prepared = state.attended.tensors
        vector = self._look(s.unsqueeze(1), annotations, state.attended.mask, prepared).squeeze(1)
        inside.note(self, "vectors", vector.unsqueeze(1))
        return vector, AttentiveState(states, state.attended, vector if self.input_feeding else None)

    def _look(
        self, s: Tensor, annotations: Tensor, mask: Tensor | None, prepared: Tensor | None = None
    ) -> Tensor:
        """tanh(W [a; s] + b), plus V e where symbols speak for themselves, for states s ``(batch, T, hidden)``."""
        if self.lexical is None:
            context, _ = self.attention(s, annotations, mask, prepared=prepared)
            return torch.tanh(self.readout(torch.cat((context, s), -1)))
        keys = annotations[..., : self.keys]
        context, _ = self.attention(s, keys, mask, annotations, prepared=prepared)
        said: Tensor = self.lexical(context[..., self.keys :])
        return torch.tanh(self.readout(torch.cat((context[..., : self.keys], s), -1))) + said

    def _logits(self, vectors: Tensor) -> Tensor:
        logits: Tensor = self.output(self.dropout(vectors))
        return logits


# ----------------------------------------------------------------------
# The decoder that looks at the source before each step (Bahdanau et al. 2015).
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
