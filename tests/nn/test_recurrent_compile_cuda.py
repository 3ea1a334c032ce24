"""``torch.compile(mode="reduce-overhead")``: what surrounds a recurrent layer is captured as CUDA graphs, the layer is not."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from anaphora import nn

pytestmark = pytest.mark.cuda
B, T, V, H = 8, 12, 50, 64


class Model(torch.nn.Module):
    """Symbols to logits, with work for the compiler on both sides of the layer."""

    def __init__(self, cell: nn.Cell, both: bool):
        super().__init__()
        self.table = torch.nn.Embedding(V, H)
        self.layer = nn.Recurrent(cell, layers=2, bidirectional=both)
        self.out = torch.nn.Linear(self.layer.output_size, V)

    def forward(self, symbols: Tensor, lengths: Tensor | None) -> Tensor:
        y, _ = self.layer(torch.tanh(self.table(symbols)), lengths)
        logits: Tensor = self.out(torch.nn.functional.gelu(y))
        return logits


class Drawing(nn.Cell):
    """Cannot be traced: the loop of plain operations runs inside the operator."""

    def setup(self, inputs: int, hidden: int) -> None:
        self.a = nn.Affine(inputs, hidden, hidden)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return torch.tanh(self.a(x, h)).cumsum(-1) / self.hidden


CELLS = {
    "lstm": lambda: nn.LSTM(H, H),
    "gru": lambda: nn.GRU(H, H),
    "loop": lambda: Drawing(H, H),
}


def _batch(ragged: bool) -> tuple[Tensor, Tensor | None]:
    lengths = torch.randint(0, T + 1, (B,), device="cuda") if ragged else None
    return torch.randint(V, (B, T), device="cuda"), lengths


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
    sys.modules.pop(
        "torch._inductor.cudagraph_trees", None
    )  # its graphs are gone: ours may be replayed again


@pytest.mark.parametrize(
    ("name", "both", "ragged"), [("lstm", True, True), ("gru", False, False), ("loop", False, True)]
)
def test_training_in_reduce_overhead_mode(name: str, both: bool, ragged: bool) -> None:
    """Twelve steps of two equal models, one of them compiled: the first warm up, then graphs are captured and replayed."""
    plain = Model(CELLS[name](), both).cuda()
    other = copy.deepcopy(plain)
    compiled = torch.compile(other, mode="reduce-overhead")
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (plain, other)]
    for _ in range(12):
        symbols, lengths = _batch(ragged)
        losses = []
        for model, optimizer in zip((plain, compiled), optimizers, strict=True):
            torch.compiler.cudagraph_mark_step_begin()
            loss = torch.nn.functional.cross_entropy(model(symbols, lengths).flatten(0, 1), symbols.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach().clone())
        torch.testing.assert_close(losses[1], losses[0], atol=1e-3, rtol=1e-3)
    for a, b in zip(other.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=2e-3, rtol=2e-2)


def test_graphs_are_captured_around_the_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several forward passes may wait for their backward passes, and something is captured at all."""
    captured = []
    begin = torch.cuda.CUDAGraph.capture_begin

    def watched(self: torch.cuda.CUDAGraph, *args: object, **options: object) -> None:
        captured.append(self)
        begin(self, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.cuda.CUDAGraph, "capture_begin", watched)
    model = Model(nn.LSTM(H, H), True).cuda()
    compiled = torch.compile(model, mode="reduce-overhead")
    for _ in range(6):
        symbols, lengths = _batch(True)
        torch.compiler.cudagraph_mark_step_begin()
        model.zero_grad()  # gradients lie in the memory of the graphs, which the next run writes to
        compiled(symbols, lengths).square().mean().backward()
    assert captured


def test_inference_in_reduce_overhead_mode() -> None:
    model = Model(nn.LSTM(H, H), True).cuda().eval()
    compiled = torch.compile(model, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(6):
            symbols, lengths = _batch(True)
            torch.compiler.cudagraph_mark_step_begin()
            torch.testing.assert_close(
                compiled(symbols, lengths), model(symbols, lengths), atol=1e-3, rtol=1e-3
            )
