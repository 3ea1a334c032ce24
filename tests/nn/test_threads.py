"""Eight threads that share layers, or have layers of their own, get the bits that one thread gets."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

from anaphora import nn
from anaphora.engine.backends.c import compiled

THREADS = 8
Result = TypeVar("Result")
TraceFunction = Callable[[FrameType, str, Any], Any]


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    compiled.clear()
    yield
    sys.setswitchinterval(before)


def _together(work: Callable[[int], Result]) -> list[Result]:
    """``work`` of each thread's number, begun at the same time."""
    begin = threading.Barrier(THREADS)

    def one(number: int) -> Result:
        torch.set_num_threads(1)
        begin.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(one, range(THREADS)))


def _switch_within(frame: FrameType, event: str, arg: object) -> TraceFunction | None:
    """Gives way to other threads before every instruction of the workspace."""
    if frame.f_code.co_filename != compiled.__file__:
        return None
    frame.f_trace_opcodes = True
    if event == "opcode":
        time.sleep(0)
    return _switch_within


def test_a_buffer_has_one_user_at_a_time() -> None:
    def use(number: int) -> bool:
        like, alone = torch.empty(0), True
        sys.settrace(_switch_within)
        for _ in range(20):
            buffers = [compiled.take(like, compiled.SMALL) for _ in range(2)]
            for buffer in buffers:
                buffer[:4] = number
            alone = alone and all(bool((buffer[:4] == number).all()) for buffer in buffers)
            compiled.give_back(buffers)
        sys.settrace(None)
        return alone

    assert all(_together(use))
    waiting = [buffer for buffers in compiled._free.values() for buffer in buffers]
    assert len({buffer.data_ptr() for buffer in waiting}) == len(waiting)
    assert compiled.held() == sum(buffer.nbytes for buffer in waiting)


class Own(nn.Cell):
    """A cell that PyTorch does not have, so that only the engine runs it fast."""

    def setup(self, inputs: int, hidden: int) -> None:
        self.affine = nn.Affine(inputs, hidden, hidden)
        self.slope = torch.nn.Parameter(torch.full((hidden,), 0.5))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return torch.tanh(self.affine(x, h)) * self.slope + h * 0.5


def _work(layer: nn.Recurrent, number: int) -> list[Tensor]:
    """Outputs and gradients of whole sequences, then single steps."""
    x = torch.linspace(-1, 1, 4 * 24 * 8).view(4, 24, 8) * (1 + number)
    found = []
    for rows in (4, 1):
        y, last = layer(x[:rows].requires_grad_())
        found += [y, *torch.autograd.grad(y.square().sum(), tuple(layer.parameters()))]
        with torch.no_grad():
            state = last
            for _ in range(4):
                y, state = layer.step(x[:rows, 0], state)
        found += [y, *state]
    return [value.detach() for value in found]


@pytest.mark.parametrize("cell", [nn.LSTM, Own])
@pytest.mark.parametrize("shared", [True, False])
def test_layers_run_in_threads(cell: type[nn.Cell], shared: bool) -> None:
    def make() -> list[nn.Recurrent]:
        torch.manual_seed(0)
        first = nn.Recurrent(cell(8, 32)).eval()
        others = [nn.Recurrent(cell(8, 32)).eval() for _ in range(THREADS - 1)]
        return [first] * THREADS if shared else [first, *others]

    alone = [_work(layer, number) for number, layer in enumerate(make())]
    for _ in range(2):
        layers = make()
        together = _together(lambda number, layers=layers: _work(layers[number], number))
        for one, other in zip(alone, together, strict=True):
            assert all(map(torch.equal, one, other))


def test_weight_dropout_in_a_thread_is_not_seen_by_others() -> None:
    """The weights of one call must not be put into a module that other threads read."""
    torch.manual_seed(0)
    cell = Own(8, 32)
    noisy, plain = nn.Recurrent(cell, weight_dropout=0.5).train(), nn.Recurrent(cell).eval()
    x = torch.randn(2, 6, 8)
    expected = plain(x)[0]

    def run(number: int) -> list[Tensor]:
        return [(noisy if number % 2 else plain)(x)[0] for _ in range(5)]

    for number, outputs in enumerate(_together(run)):
        if number % 2 == 0:
            assert all(torch.equal(output, expected) for output in outputs)
            assert all(output.requires_grad for output in outputs)
