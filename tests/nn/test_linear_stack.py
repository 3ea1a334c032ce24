"""Stacks of blocks, also of different kinds: pieces, single steps, lengths, both directions, and long sequences."""

from __future__ import annotations

import pytest
import torch

from anaphora.nn import LSTM, MinGRU, linear
from anaphora.nn.linear import LinearBlock, LinearStack

pytestmark = pytest.mark.usefixtures("quick_compiler")
INPUTS, WIDTH = 5, 8


def mixed(layers: int = 6, *, bidirectional: bool = False) -> LinearStack:
    """A pattern of five kinds; the sixth block is of the first kind again."""
    torch.manual_seed(0)
    pattern = [
        LinearBlock(linear.Griffin(WIDTH), feedforward=16, activation=torch.nn.functional.gelu),
        LinearBlock(linear.LocalAttention(WIDTH, 2, window=3), feedforward=16),
        LinearBlock(linear.MLSTM(WIDTH, 2)),
        LinearBlock(linear.SLSTMLayer(WIDTH, 2), feedforward=16),
        linear.RWKV4Block(WIDTH),
    ]
    return LinearStack(INPUTS, pattern, layers=layers, bidirectional=bidirectional).double().eval()


def test_pieces_steps_and_rows_equal_the_whole() -> None:
    stack, x = mixed(), torch.randn(3, 11, INPUTS, dtype=torch.float64)
    with torch.no_grad():
        whole, last = stack(x)
        first, state = stack(x[:, :4])
        rest, state = stack(x[:, 4:], None, state)
        torch.testing.assert_close(torch.cat((first, rest), 1), whole, atol=1e-9, rtol=1e-9)
        torch.testing.assert_close(state, last, atol=1e-9, rtol=1e-9)
        state = stack.initial_state(3, x)
        assert [s.shape for s in state] == [s.shape for s in last]
        for t, xt in enumerate(x.unbind(1)):
            y, state = stack.step(xt, state)
            torch.testing.assert_close(y, whole[:, t], atol=1e-9, rtol=1e-9)
        assert [s.shape for s in state] == [s.shape for s in last]  # nothing has grown
        chosen = tuple(s.index_select(1, torch.tensor([2])) for s in last)  # as a beam selects rows
        more = torch.randn(1, 2, INPUTS, dtype=torch.float64)
        alone, _ = stack(torch.cat((x[2:], more), 1))
        torch.testing.assert_close(stack(more, None, chosen)[0], alone[:, 11:], atol=1e-9, rtol=1e-9)


def test_both_directions_end_where_rows_end() -> None:
    stack, x = mixed(bidirectional=True), torch.randn(2, 9, INPUTS, dtype=torch.float64)
    with torch.no_grad():
        y, _ = stack(x, torch.tensor([9, 4]))
        alone, _ = stack(x[1:, :4])
    assert y.shape[2] == 2 * WIDTH
    assert not y[1, 4:].any()
    torch.testing.assert_close(y[1:, :4], alone, atol=1e-9, rtol=1e-9)
    with pytest.raises(ValueError, match="cannot go on from a state"):
        stack(x, None, stack.initial_state(2, x))


def test_copies_have_weights_of_their_own() -> None:
    stack = mixed(11)
    firsts = [block.mixer.project.weight for block in (stack.blocks[0], stack.blocks[5], stack.blocks[10])]  # type: ignore[union-attr]
    assert not torch.equal(firsts[0], firsts[1])  # type: ignore[arg-type]
    assert not torch.equal(firsts[1], firsts[2])  # type: ignore[arg-type]


def test_every_parameter_learns() -> None:
    stack = mixed().train()
    y, last = stack(torch.randn(2, 7, INPUTS, dtype=torch.float64))
    (y.square().sum() + sum(s.double().square().sum() for s in last)).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in stack.parameters())


KINDS = {
    "retnet": lambda: linear.RetNet(WIDTH, 2),
    "gla": lambda: linear.GLA(WIDTH, 2),
    "mamba": lambda: linear.Mamba(WIDTH),
    "mamba2": lambda: linear.Mamba2(WIDTH, 2),
    "mlstm": lambda: linear.MLSTM(WIDTH, 2),
    "deltanet": lambda: linear.DeltaNet(WIDTH, 2, signed=True),
    "gated-deltanet": lambda: linear.GatedDeltaNet(WIDTH, 2),
    "rwkv4": lambda: linear.RWKV4(WIDTH),
    "rwkv7": lambda: linear.RWKV7(WIDTH, 2),
    "griffin": lambda: linear.Griffin(WIDTH),
    "local": lambda: linear.LocalAttention(WIDTH, 2, window=8),
    "mingru": lambda: linear.CellLayer(MinGRU(WIDTH, WIDTH)),
    "lstm": lambda: linear.CellLayer(LSTM(WIDTH, WIDTH)),
}


@pytest.mark.parametrize(
    "kind", [k if k in ("gla", "griffin") else pytest.param(k, marks=pytest.mark.slow) for k in KINDS]
)
def test_sixty_five_thousand_steps(kind: str) -> None:
    """Finite, and from a state far away the last steps come out as in double precision."""
    torch.manual_seed(0)
    layer, x = KINDS[kind]().eval(), torch.randn(1, 65_536, WIDTH)
    with torch.no_grad():
        y, _ = layer(x)
        _, middle = layer(x[:, :-256])
        exact = tuple(s.double() if s.is_floating_point() else s for s in middle)
        again, _ = layer.double()(x[:, -256:].double(), None, exact)
    assert y.isfinite().all()
    torch.testing.assert_close(y[:, -256:].double(), again, atol=2e-3, rtol=2e-3)


def test_row_dropout_drops_the_same_values_at_every_step_of_a_row() -> None:
    read: list[torch.Tensor] = []
    block = LinearBlock(linear.GLA(WIDTH, heads=2), feedforward=16, row_dropout=0.5)
    for part in (block.mixer, block.feedforward):
        part.register_forward_pre_hook(lambda _, given: read.append(given[0]))
    x = 1 + torch.rand(4, 7, WIDTH)
    torch.manual_seed(1)
    block.train()(x, None, None)
    for seen in read:
        dropped = seen == 0
        assert dropped.any()
        assert not dropped.all()
        assert (dropped == dropped[:, :1]).all()
        assert not (dropped == dropped[:1]).all()  # rows differ
    assert len(read) == 2
    read.clear()
    block.eval()(x, None, None)
    assert all((seen != 0).all() for seen in read)
