"""Recurrent layers on a GPU. Run: python benchmarks/recurrence_cuda.py [--json] [--times N]

Forward and backward in float32 (no shortened products), gradients of the input and all weights. Each cell against the
same loop of operations launched one by one, against its equations in plain torch, and
against cuDNN's layer of like size; the sides in turn, the least of N times. Ours must equal plain torch first.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from anaphora import nn
from anaphora.kernels.recurrence import gpu
from anaphora.kernels.recurrence.bptt import run_bptt
from anaphora.kernels.recurrence.choose import force
from anaphora.kernels.recurrence.reference import run_reference
from anaphora.nn.recurrent_step import LayerStep
from recurrence import CELLS, CHECKED, both_ways, check
from rows import row, show

SHAPES = ((100, 32, 256), (500, 16, 128))  # time, batch, width of input and state
Run = Callable[[], list[Tensor]]


def least(runs: list[Run], times: int) -> list[float]:
    """Milliseconds of the fastest run of each, run in turn, the GPU's work included."""
    best = [float("inf")] * len(runs)
    for _ in range(times + 3):  # shapes are recorded when they come again
        for side, run in enumerate(runs):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            run()
            torch.cuda.synchronize()
            best[side] = min(best[side], 1000 * (time.perf_counter() - begin))
    return best


@contextmanager
def _one_by_one() -> Iterator[None]:
    recorded = gpu.run_graphed
    gpu.run_graphed = run_bptt
    try:
        with force("graph"):
            yield
    finally:
        gpu.run_graphed = recorded


def measure(times: int) -> list[dict[str, object]]:
    rows = []
    for T, B, H in SHAPES:
        peers = {
            "nn.LSTM": torch.nn.LSTM(H, H, batch_first=True).cuda(),
            "nn.GRU": torch.nn.GRU(H, H, batch_first=True).cuda(),
        }
        x = torch.randn(B, T, H, device="cuda", requires_grad=True)
        for name, make, peer, _ in CELLS:
            cell = make(H).cuda()
            mine, *others = measure_cell(name, cell, peers[peer], x, times)
            said = f"{name}, T={T} B={B} H={H}"
            labels = ["the same operations one by one", "its equations in plain torch", f"{peer} by cuDNN"]
            rows += [row(said, k, mine, v, "ms", goal=None) for k, v in zip(labels, others, strict=True)]
    return rows


def measure_cell(name: str, cell: nn.Cell, peer: torch.nn.Module, x: Tensor, times: int) -> list[float]:
    recurrent, leaves = nn.Recurrent(cell), [x, *cell.parameters()]
    zeros = tuple(torch.zeros(x.shape[0], cell.hidden, device="cuda") for _ in cell.state)
    step = LayerStep(cell, substitute=False)
    dy = torch.randn(*x.shape[:2], cell.hidden, device="cuda")

    def single() -> Tensor:
        with _one_by_one():
            return recurrent(x)[0]

    def plain(x: Tensor) -> Tensor:
        return run_reference(step, {}, (x,), (), zeros)[0]

    start, dstart = x[:, :CHECKED], dy[:, :CHECKED]
    for _ in range(3):
        ours = both_ways(lambda: recurrent(start)[0], leaves, dstart)()
    check(name, ours, both_ways(lambda: plain(start), leaves, dstart)())
    runs = [
        both_ways(lambda: recurrent(x)[0], leaves, dy),
        both_ways(single, leaves, dy),
        both_ways(lambda: plain(x), leaves, dy),
        both_ways(lambda: peer(x)[0], [x, *peer.parameters()], dy),
    ]
    return least(runs, times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--times", type=int, default=10, help="runs of each side (default 10)")
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    if torch.cuda.is_available():
        torch.backends.cudnn.allow_tf32 = False
        torch.manual_seed(0)
        rows = measure(options.times)
    else:
        print("recurrence_cuda: skipped, there is no NVIDIA GPU here.", file=sys.stderr)
    show(rows, as_json=options.json)


if __name__ == "__main__":
    main()
