"""Recurrent layers on a GPU against cuDNN. Run: python benchmarks/recurrence_gpu.py [--json | --markdown] [--times N] [--only TEXT] [--eager]

Forward and backward, gradients of the input and of all weights, input as wide as the state. Both sides are captured as CUDA
graphs, so that what is compared is the GPU's work and not Python's; ``--eager`` adds rows in which both sides are called
as they are. The peer is cuDNN in its best precision: for 16-bit rows the faster of bfloat16 and float16. The sides run
in turn, the least of N times counts. Ours must first agree with the reference loop in float32. The rows on ragged
batches compare our layer with itself on full ones, and those on single steps are calls from Python on both sides.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from anaphora import nn
from anaphora.engine.backends.reference import run_reference
from anaphora.nn.recurrent_step import LayerStep
from recurrence import UserMGU
from rows import row, show

Run = Callable[[], Any]
BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
BOUND = {BF16: 2e-2, FP16: 4e-3, FP32: 4e-3}
CHECKED = 12  # steps compared with the reference


@dataclass(frozen=True)
class Case:
    """A cell at a size, the peer's layer, and how many times faster it should be."""

    name: str
    make: Callable[[int], nn.Cell]
    peer: str
    dtype: torch.dtype
    time: int
    batch: int
    hidden: int
    goal: float | None
    layers: int = 1
    bidirectional: bool = False

    @property
    def title(self) -> str:
        kind = {BF16: "bf16", FP16: "fp16", FP32: "tf32"}[self.dtype]
        return f"{self.name} {kind}, T={self.time} B={self.batch} H={self.hidden}"

    @property
    def peer_types(self) -> tuple[torch.dtype, ...]:
        return (FP32,) if self.dtype == FP32 else (BF16, FP16)


def _lstm(n: int) -> nn.Cell:
    return nn.LSTM(n, n)


def _gru(n: int) -> nn.Cell:
    return nn.GRU(n, n, reset="after")


def _peephole(n: int) -> nn.Cell:
    return nn.LSTM(n, n, peephole=True)


def _layer_norm(n: int) -> nn.Cell:
    return nn.LSTM(n, n, layer_norm=True)


def _mgu(n: int) -> nn.Cell:
    return UserMGU(n, n)


CASES = (
    Case("LSTM", _lstm, "LSTM", BF16, 512, 64, 512, 3.0),
    Case("LSTM", _lstm, "LSTM", BF16, 256, 64, 256, 3.0),
    Case("LSTM", _lstm, "LSTM", BF16, 1024, 16, 768, 1.35),
    Case("GRU", _gru, "GRU", BF16, 512, 64, 512, 3.0),
    Case("GRU", _gru, "GRU", BF16, 256, 64, 256, 3.0),
    Case("GRU", _gru, "GRU", BF16, 1024, 16, 768, 3.0),
    Case("LSTM", _lstm, "LSTM", FP32, 512, 64, 512, 3.0),
    Case("LSTM", _lstm, "LSTM", FP32, 512, 1, 512, 3.5),
    Case("peephole LSTM", _peephole, "LSTM", BF16, 512, 64, 512, 2.5),
    Case("user's MGU", _mgu, "GRU", BF16, 512, 64, 512, 2.5),
    Case("LayerNorm LSTM", _layer_norm, "LSTM", BF16, 512, 64, 512, 1.5),
    Case("LSTM", _lstm, "LSTM", BF16, 256, 256, 1024, 1.0),
    Case("GRU", _gru, "GRU", BF16, 256, 256, 1024, None),
    Case("LSTM", _lstm, "LSTM", BF16, 64, 64, 2048, None),
    Case("LSTM, two layers, both directions,", _lstm, "LSTM", BF16, 512, 64, 512, 2.5, 2, True),
)


def both_ways(layer: Run, leaves: list[Tensor], dy: Tensor) -> Run:
    return lambda: torch.autograd.grad(layer(), leaves, dy)


def captured(work: Run) -> Run:
    """The same as one CUDA graph."""
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(beside)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=beside):
        result = work()

    def replay(held: Any = result) -> None:
        graph.replay()

    return replay


def least(runs: list[Run], times: int) -> list[float]:
    """Milliseconds of the fastest run of each, run in turn, the GPU's work included."""
    best = [float("inf")] * len(runs)
    for turn in range(times + 2):
        for side, run in enumerate(runs):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            run()
            torch.cuda.synchronize()
            if turn > 1:
                best[side] = min(best[side], 1000 * (time.perf_counter() - begin))
    return best


def check(case: Case, recurrent: nn.Recurrent) -> None:
    """Outputs and gradients of a few steps against the reference loop in float32."""
    cell = recurrent.cells[0]
    assert isinstance(cell, nn.Cell)
    exact = type(cell)(case.hidden, case.hidden, **cell.options).cuda()
    exact.load_state_dict({k: v.float() for k, v in cell.state_dict().items()})
    x = torch.randn(case.batch, CHECKED, case.hidden, device="cuda", dtype=case.dtype)
    zeros = tuple(torch.zeros(case.batch, case.hidden, device="cuda") for _ in cell.state)
    dy = torch.randn(case.batch, CHECKED, case.hidden, device="cuda", dtype=case.dtype)
    mine, theirs = x.clone().requires_grad_(), x.float().requires_grad_()
    y, _ = nn.Recurrent(cell)(mine)
    expected, _ = run_reference(LayerStep(exact, substitute=False), {}, (theirs,), (), zeros)
    ours = [y, *torch.autograd.grad(y, [mine, *cell.parameters()], dy)]
    right = [expected, *torch.autograd.grad(expected, [theirs, *exact.parameters()], dy.float())]
    for a, b in zip(ours, right, strict=True):
        error = float(((a.float() - b).norm() / b.norm().clamp(min=1e-6)).detach())
        if not error < BOUND[case.dtype]:
            raise SystemExit(f"{case.title}: differs from the reference by {error:.1e}")


def layer_of(case: Case) -> nn.Recurrent:
    made = nn.Recurrent(case.make(case.hidden), layers=case.layers, bidirectional=case.bidirectional)
    return made.to("cuda", case.dtype)


def measure(case: Case, times: int, eager: bool) -> list[dict[str, Any]]:
    recurrent = layer_of(case)
    check(case, recurrent)
    runs = [_work(case, recurrent, case.dtype)]
    for dtype in case.peer_types:
        peer = getattr(torch.nn, case.peer)(
            case.hidden,
            case.hidden,
            case.layers,
            batch_first=True,
            bidirectional=case.bidirectional,
        ).to("cuda", dtype)
        runs.append(_work(case, peer, dtype))
    named = f"nn.{case.peer} by cuDNN"
    mine, *others = least([captured(run) for run in runs], times)
    rows = [row(case.title, named, mine, min(others), "ms", goal=case.goal)]
    if eager:
        mine, *others = least(runs, times)
        rows.append(row(f"{case.title}, called", named, mine, min(others), "ms", goal=None))
    return rows


def _work(case: Case, layer: torch.nn.Module, dtype: torch.dtype) -> Run:
    shape = (case.batch, case.time, case.hidden)
    x = torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True)
    dy = torch.randn(*shape[:2], case.hidden * (1 + case.bidirectional), device="cuda", dtype=dtype)
    return both_ways(lambda: layer(x)[0], [x, *layer.parameters()], dy)


def measure_ragged(times: int) -> list[dict[str, Any]]:
    """Rows of half the length or more: our layer must not be slower for it."""
    rows = []
    for case in (CASES[0], CASES[11]):
        recurrent = layer_of(case)
        x = torch.randn(case.batch, case.time, case.hidden, device="cuda", dtype=BF16, requires_grad=True)
        dy = torch.randn_like(x)
        lengths = torch.randint(case.time // 2, case.time + 1, (case.batch,), device="cuda")
        lengths[0] = case.time
        leaves = [x, *recurrent.parameters()]
        full = both_ways(lambda r=recurrent, x=x: r(x)[0], leaves, dy)
        ragged = both_ways(lambda r=recurrent, x=x, n=lengths: r(x, n)[0], leaves, dy)
        mine, other = least([captured(ragged), captured(full)], times)
        rows.append(row(f"ragged {case.title}", "our layer, full rows", mine, other, "ms", goal=1.0))
    return rows


def measure_steps(times: int) -> list[dict[str, Any]]:
    """One symbol after the other, as in generation: a call of ``step`` against a call of cuDNN's layer for one step."""
    rows = []
    for batch, hidden in ((1, 512), (32, 512)):
        recurrent = nn.Recurrent(nn.LSTM(hidden, hidden), layers=2).cuda().eval()
        peer = recurrent.to_torch()
        x = torch.randn(batch, hidden, device="cuda")

        def ours(r: nn.Recurrent = recurrent, x: Tensor = x) -> None:
            state = r.initial_state(len(x), x)
            for _ in range(100):
                _, state = r.step(x, state)

        def theirs(p: Any = peer, x: Tensor = x) -> None:
            state = None
            for _ in range(100):
                _, state = p(x[:, None], state)

        with torch.inference_mode():
            mine, other = least([ours, theirs], times)
        title = f"LSTM, two layers, single steps, B={batch} H={hidden}"
        rows.append(row(title, "nn.LSTM, one step a call", 10 * mine, 10 * other, "µs/step", goal=None))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/reference/engine.md")
    parser.add_argument("--times", type=int, default=10, help="runs of each side (default 10)")
    parser.add_argument("--only", default="", help="rows whose name holds this text")
    parser.add_argument("--eager", action="store_true", help="rows for layers called as they are, too")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if torch.cuda.is_available():
        torch.manual_seed(0)
        for case in CASES:
            if options.only in case.title:
                rows += measure(case, options.times, options.eager)
        if options.only in "ragged":
            rows += measure_ragged(options.times)
        if options.only in "single steps":
            rows += measure_steps(options.times)
    else:
        print("recurrence_gpu: skipped, there is no NVIDIA GPU here.", file=sys.stderr)
    if options.markdown:
        for r in rows:
            goal = "" if r["goal"] is None else f"{r['goal']:g}"
            figures = f"{r['ours']:g} {r['unit']} | {r['theirs']:g} {r['unit']} | **{r['ratio']:g}** | {goal}"
            print(f"| {r['row']} | {r['peer']} | {figures} |")
        return
    show(rows, as_json=options.json)


if __name__ == "__main__":
    main()
