"""The decoder that is told at every step what was seen."""

from __future__ import annotations

import torch

from anaphora.models.bridge import LearntStart
from anaphora.models.decoders import ConditionedDecoder
from anaphora.models.memory import Memory
from anaphora.nn import LSTM, Elman, Recurrent
from anaphora.nn.embedding import Embedding, Output


def made(cell: type[Elman] | type[LSTM]) -> tuple[ConditionedDecoder, Memory]:
    torch.manual_seed(0)
    embedding, recurrent = Embedding(7, 3), Recurrent(cell(3 + 5, 4))
    start = LearntStart(recurrent)
    for state in start.first:
        torch.nn.init.normal_(state)
    decoder = ConditionedDecoder(embedding, recurrent, Output(4, 7), bridge=start)
    seen = torch.randn(1, 2, 5)
    return decoder.eval(), Memory(torch.zeros(2, 6, 5), torch.ones(2, 6, dtype=torch.bool), (seen,))


def test_the_equation_of_the_plain_cell() -> None:
    """h = tanh(W_xh x + W_ih v + W_hh h + b), the two input matrices being columns of one."""
    decoder, memory = made(Elman)
    target = torch.tensor([[1, 4, 5], [1, 6, 2]])
    weights = dict(decoder.recurrent.named_parameters())
    (into,) = [w for w in weights.values() if w.shape == (4, 8)]
    (over,) = [w for w in weights.values() if w.shape == (4, 4)]
    bias = sum(w for w in weights.values() if w.shape == (4,))
    h, v = decoder.bridge(memory)[0][0], memory.last[0][0]
    with torch.no_grad():
        expected = []
        for x in decoder.embedding(target).unbind(1):
            h = torch.tanh(x @ into[:, :3].T + v @ into[:, 3:].T + h @ over.T + bias)
            expected.append(decoder.output(h))
        torch.testing.assert_close(decoder(target, memory), torch.stack(expected, 1))


def test_whole_captions_and_steps_give_the_same_logits() -> None:
    decoder, memory = made(LSTM)
    target = torch.tensor([[1, 4, 5, 3], [1, 6, 2, 2]])
    with torch.no_grad():
        whole = decoder(target, memory)
        state = decoder.start(memory).select(torch.tensor([1, 0]))
        for symbols, expected in zip(target.flip(0).unbind(1), whole.flip(0).unbind(1), strict=True):
            logits, state = decoder.step(symbols, state)
            torch.testing.assert_close(logits, expected)


def test_what_was_seen_matters_at_every_step() -> None:
    decoder, memory = made(LSTM)
    other = Memory(memory.annotations, memory.mask, (memory.last[0] + 1,))
    target = torch.tensor([[1, 4], [1, 4]])
    state = decoder.start(memory)
    _, state = decoder.step(target[:, 0], state)
    told = decoder.start(other)
    changed = type(state)(state.states, told.vector)
    assert not torch.allclose(decoder.step(target[:, 1], state)[0], decoder.step(target[:, 1], changed)[0])
