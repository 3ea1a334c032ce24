"""Convolution over time, dilated stacks, networks on a window, highway layers."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from anaphora.nn import inside
from anaphora.nn.attention import masks
from anaphora.nn.convolution import Convolution, DilatedStack, WindowMLP
from anaphora.nn.highway import Highway


def impulse(weights: list[float], **options: object) -> list[float]:
    """The response of a convolution from one feature to one, with the given weights, to 1, 0 … at place 2 of 5."""
    layer = Convolution(1, 1, len(weights), **options)  # type: ignore[arg-type]
    layer.weight.data = torch.tensor(weights).view(1, 1, -1)
    x = torch.zeros(1, 5, 1)
    x[0, 2] = 1.0
    return layer(x).flatten().tolist()  # type: ignore[no-any-return]


def test_by_hand() -> None:
    """y_t = W_0 x_{t−1} + W_1 x_t + W_2 x_{t+1}: place 2 is the right neighbour of place 1."""
    assert impulse([1.0, 2.0, 3.0]) == [0.0, 3.0, 2.0, 1.0, 0.0]
    assert impulse([1.0, 2.0, 3.0], causal=True) == [0.0, 0.0, 3.0, 2.0, 1.0]
    assert impulse([1.0, 2.0], causal=True, dilation=2) == [0.0, 0.0, 2.0, 0.0, 1.0]
    assert impulse([1.0, 2.0, 3.0], dilation=2) == [3.0, 0.0, 2.0, 0.0, 1.0]


def test_equals_pytorchs_conv1d() -> None:
    ours = Convolution(3, 4, 5, dilation=2).double()
    theirs = nn.Conv1d(3, 4, 5, dilation=2, padding="same").double()
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 7, 3, dtype=torch.float64)
    torch.testing.assert_close(ours(x), theirs(x.transpose(1, 2)).transpose(1, 2))


BLOCKS = {
    "centred": lambda: Convolution(3, 3, 3),
    "causal": lambda: Convolution(3, 3, 2, causal=True),
    "stack": lambda: DilatedStack(3, 2, 3),
    "window": lambda: WindowMLP(3, 5, 3, before=2, after=1),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_row_alone_equals_the_row_in_a_batch(name: str) -> None:
    block = BLOCKS[name]().double()
    lengths = torch.tensor([6, 4, 1])
    mask = masks.padding(lengths, 6)
    x = torch.randn(3, 6, 3, dtype=torch.float64)
    together = block(x, mask)
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(together[row, :length], block(x[row : row + 1, :length])[0])


@pytest.mark.parametrize("name", ["causal", "stack"])
def test_causal_blocks_do_not_look_ahead(name: str) -> None:
    block = BLOCKS[name]()
    x = torch.randn(1, 6, 3)
    later = x.clone()
    later[:, 4:] = 9.0
    assert torch.equal(block(later)[:, :4], block(x)[:, :4])


def reach(block: nn.Module, x: Tensor) -> list[int]:
    """The places that the last output depends on."""
    (gradient,) = torch.autograd.grad(block(x)[0, -1].sum(), x)
    return gradient.abs().sum(-1)[0].nonzero().flatten().tolist()  # type: ignore[no-any-return]


def test_receptive_field_doubles_with_each_layer() -> None:
    for layers in (1, 2, 3, 4):
        stack = DilatedStack(2, 2, layers).double()
        for layer in stack.layers:
            nn.init.uniform_(layer.weight, 0.1, 1.0)  # positive, so that no unit is off
        x = torch.rand(1, 40, 2, dtype=torch.float64, requires_grad=True)
        assert stack.receptive_field == 2**layers
        assert reach(stack, x) == list(range(40 - 2**layers, 40))


def test_window_network_by_hand() -> None:
    network = WindowMLP(1, 1, 1, before=1, after=1, activation=lambda a: a)
    network.first.weight.data = torch.tensor([[100.0, 10.0, 1.0]])
    for part, value in ((network.first.bias, 0.0), (network.second.weight, 1.0), (network.second.bias, 0.5)):
        part.data.fill_(value)
    y = network(torch.tensor([[[1.0], [2.0], [3.0]]]))
    assert y.flatten().tolist() == [12.5, 123.5, 230.5]


def test_highway_by_hand() -> None:
    """g = σ(0) = 1/2: half of relu(2x), half of x."""
    layer = Highway(1, gate_bias=0.0)
    layer.transform.weight.data.fill_(2.0)
    layer.gate.weight.data.zero_()
    assert layer(torch.tensor([[3.0], [-3.0]])).flatten().tolist() == [4.5, -1.5]
    with inside.record() as notes:
        layer(torch.tensor([[3.0]]))
    assert [(note.name, note.value.item()) for note in notes] == [("gate", 0.5)]


def test_a_deep_highway_starts_by_handing_its_input_on() -> None:
    x = torch.randn(4, 16)
    deep = nn.Sequential(*(Highway(16, gate_bias=-8.0) for _ in range(20)))
    torch.testing.assert_close(deep(x), x, rtol=0, atol=0.2)


def test_even_centred_kernels_and_empty_ones_are_refused() -> None:
    for options in ({"kernel": 0, "causal": True}, {"kernel": -1}, {"kernel": 3, "dilation": 0}):
        with pytest.raises(ValueError, match="must be at least 1"):
            Convolution(3, 3, **options)
    with pytest.raises(ValueError, match="odd kernel, not 4"):
        Convolution(1, 1, 4)
