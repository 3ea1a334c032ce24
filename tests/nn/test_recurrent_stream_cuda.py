"""Captured single steps: on a GPU as a CUDA graph, elsewhere with a capture that runs again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from anaphora import nn
from anaphora.nn import recurrent_stream
from anaphora.nn.recurrent_stream import SEEN, CudaStream


def _run_again(work: Callable[[], Tensor], pool: Any) -> tuple[Callable[[], Any], Tensor]:
    result = work().clone()
    return lambda: result.copy_(work()), result


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "cpu":
        monkeypatch.setattr(recurrent_stream, "capture", _run_again)
        monkeypatch.setattr(recurrent_stream, "can_capture", lambda _: True)
        monkeypatch.setattr(recurrent_stream, "current_stream", lambda: 0)
        monkeypatch.setattr(recurrent_stream, "graph_pool", lambda: None)
        monkeypatch.setattr(CudaStream, "_here", lambda self, x: True)
    return str(request.param)


def _steps(layer: nn.Recurrent, stream: CudaStream, x: Tensor) -> tuple[list[Tensor], int]:
    state = layer.initial_state(x.shape[0], x)
    outputs, captured = [], 0
    for now in x.unbind(1):
        found = stream.run(now, state)
        captured += found is not None
        if found is None:  # steps on a CPU would keep packed weights of their own
            y, state = layer(now[:, None], initial=state)
            found = y[:, 0], state
        y, state = found
        outputs.append(y)
    return outputs, captured


@torch.no_grad()
def test_recorded_steps_equal_the_whole_and_outlive_later_ones(device: str) -> None:
    layer = nn.Recurrent(nn.LSTM(3, 8, peephole=True), layers=2, zoneout=0.1).to(device).eval()
    stream = CudaStream(layer)
    for rows in (1, 4):
        x = torch.randn(rows, 9, 3, device=device)
        outputs, captured = _steps(layer, stream, x)
        assert captured == 9 - SEEN
        torch.testing.assert_close(torch.stack(outputs, 1), layer(x)[0], atol=1e-3, rtol=1e-3)


@torch.no_grad()
def test_weights_written_to_are_used_and_new_ones_noticed(device: str) -> None:
    layer = nn.Recurrent(nn.GRU(3, 8)).to(device).eval()
    stream = CudaStream(layer)
    x = torch.randn(2, 6, 3, device=device)
    _steps(layer, stream, x)
    for p in layer.parameters():
        p.mul_(0.5)
    outputs, captured = _steps(layer, stream, x)
    assert captured == 6
    torch.testing.assert_close(torch.stack(outputs, 1), layer(x)[0], atol=1e-3, rtol=1e-3)
    first = next(layer.parameters())
    first.data = first.data.clone()
    assert stream.run(x[:, 0], layer.initial_state(2, x)) is None


@torch.no_grad()
def test_states_of_another_shape_are_left_to_the_layer(device: str) -> None:
    layer = nn.Recurrent(nn.GRU(3, 8)).to(device).eval()
    stream = CudaStream(layer)
    x, state = torch.randn(2, 3, device=device), (torch.zeros(2, 2, 8, device=device),)
    assert all(stream.run(x, state) is None for _ in range(SEEN + 2))
