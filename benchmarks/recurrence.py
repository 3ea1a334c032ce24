"""Recurrent layers against PyTorch's. Run: python benchmarks/recurrence.py [--json | --markdown] [--times N] [--threads N] [--floor]

Forward and backward in float32, gradients of the input and all weights; both sides in one process, in turn, the
least of N times. Cells that PyTorch has are compared with its layer first, all others with the reference loop,
outputs and gradients: a side that computes something else is not timed. With --floor every cell has a second row:
its products alone, by code that never waits, at the measured peak of one thread; its ratio is what this processor
allows.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from anaphora import nn
from anaphora.engine.backends.reference import run_reference
from anaphora.nn.recurrent_step import LayerStep
from processor import Processor

SHAPES = ((100, 32, 256), (500, 16, 128))  # time, batch, width of input and state
CHECKED = (
    12  # steps compared with the reference: over hundreds, rounding grows in some cells with any backend
)
Run = Callable[[], list[Tensor]]


class UserMGU(nn.Cell):
    """The minimal gated unit as a user writes it in docs/guides/cells.md."""

    state = ("h",)

    def setup(self, inputs: int, hidden: int) -> None:
        self.f = nn.Affine(inputs, hidden, hidden)
        self.g = nn.Affine(inputs, hidden, hidden)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        f = torch.sigmoid(self.f(x, h))
        return (1 - f) * h + f * torch.tanh(self.g(x, f * h))


CELLS = (
    ("LSTM", lambda n: nn.LSTM(n, n), "nn.LSTM", 1.0),
    ("GRU, reset after", lambda n: nn.GRU(n, n, reset="after"), "nn.GRU", 1.6),
    ("GRU, reset before", lambda n: nn.GRU(n, n, reset="before"), "nn.GRU", 1.2),
    ("peephole LSTM", lambda n: nn.LSTM(n, n, peephole=True), "nn.LSTM", 1.0),
    ("LayerNorm LSTM", lambda n: nn.LSTM(n, n, layer_norm=True), "nn.LSTM", 0.8),
    ("user's MGU", lambda n: UserMGU(n, n), "nn.GRU", 1.2),
)


def least(ours: Run, theirs: Run, times: int) -> tuple[float, float]:
    """Milliseconds of the fastest run of each, run in turn."""
    best = [float("inf")] * 2
    for _ in range(times + 1):
        for side, run in enumerate((ours, theirs)):
            begin = time.perf_counter()
            run()
            best[side] = min(best[side], 1000 * (time.perf_counter() - begin))
    return best[0], best[1]


def row(
    name: str, peer: str, ours: float, theirs: float, goal: float | None, unit: str = "ms"
) -> dict[str, object]:
    return {
        "row": name,
        "peer": peer,
        "ours": round(ours, 3),
        "theirs": round(theirs, 3),
        "unit": unit,
        "ratio": round(theirs / ours, 2),
        "goal": goal,
    }


def check(name: str, ours: list[Tensor], theirs: list[Tensor]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        error = float(((a - b).norm() / b.norm().clamp(min=1e-9)).detach())
        if error > 1e-4:
            raise SystemExit(f"{name}: the two sides differ by {error:.1e}")


def both_ways(layer: Callable[[], Tensor], leaves: list[Tensor], dy: Tensor) -> Run:
    def run() -> list[Tensor]:
        y = layer()
        return [y, *torch.autograd.grad(y, leaves, dy)]

    return run


def products_alone(cell: nn.Cell, steps: int, processor: Processor) -> float:
    """Milliseconds of a cell's products at the peak.

    Every weight meets every step three times, each time with a multiplication and an addition: in the forward pass,
    for the gradient of what it multiplies, and for its own.
    """
    weights = sum(p.numel() for p in cell.parameters() if p.dim() == 2)
    return 1000 * 3 * 2 * weights * steps / processor.operations()


def measure_cells(times: int, floor: bool) -> list[dict[str, object]]:
    rows = []
    processor = Processor() if floor else None
    for T, B, H in SHAPES:
        peers = {
            "nn.LSTM": torch.nn.LSTM(H, H, batch_first=True),
            "nn.GRU": torch.nn.GRU(H, H, batch_first=True),
        }
        x = torch.randn(B, T, H, requires_grad=True)
        twin = nn.Recurrent.from_torch(peers["nn.LSTM"])
        check("LSTM", [twin(x)[0]], [peers["nn.LSTM"](x)[0]])
        for name, make, peer, goal in CELLS:
            cell, shape = make(H), f"T={T} B={B} H={H}"
            mine, theirs = measure_cell(name, cell, peers[peer], x, times)
            rows.append(row(f"{name}, {shape}", peer, mine, theirs, goal))
            if processor is not None:
                least_possible = products_alone(cell, T * B, processor)
                rows.append(row(f"its products alone, {shape}", peer, least_possible, theirs, None))
    return rows


def measure_cell(
    name: str, cell: nn.Cell, peer: torch.nn.Module, x: Tensor, times: int
) -> tuple[float, float]:
    recurrent = nn.Recurrent(cell)
    dy = torch.randn(*x.shape[:2], cell.hidden)
    zeros = tuple(torch.zeros(x.shape[0], cell.hidden) for _ in cell.state)
    step = LayerStep(cell, substitute=False)
    leaves = [x, *cell.parameters()]
    start, dstart = x[:, :CHECKED], dy[:, :CHECKED]
    check(
        name,
        both_ways(lambda: recurrent(start)[0], leaves, dstart)(),
        both_ways(lambda: run_reference(step, {}, (start,), (), zeros)[0], leaves, dstart)(),
    )
    ours = both_ways(lambda: recurrent(x)[0], leaves, dy)
    theirs = both_ways(lambda: peer(x)[0], [x, *peer.parameters()], dy)
    return least(ours, theirs, times)


def measure_ragged(times: int) -> list[dict[str, object]]:
    rows = []
    for T, B, H in SHAPES:
        theirs = torch.nn.LSTM(H, H, batch_first=True)
        recurrent = nn.Recurrent.from_torch(theirs)
        x = torch.randn(B, T, H, requires_grad=True)
        dy = torch.randn(B, T, H)
        lengths = torch.randint(T // 2, T + 1, (B,))
        lengths[0] = T

        def packed(
            x: Tensor = x, lengths: Tensor = lengths, theirs: torch.nn.LSTM = theirs, T: int = T
        ) -> Tensor:
            pack = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            return pad_packed_sequence(theirs(pack)[0], batch_first=True, total_length=T)[0]

        ours_run = both_ways(lambda r=recurrent, x=x, n=lengths: r(x, n)[0], [x, *recurrent.parameters()], dy)
        their_run = both_ways(packed, [x, *theirs.parameters()], dy)
        check("ragged LSTM", ours_run()[:2], their_run()[:2])
        mine, peers_time = least(ours_run, their_run, max(3, times // 2))
        rows.append(row(f"ragged LSTM, T={T // 2}…{T} B={B} H={H}", "nn.LSTM, packed", mine, peers_time, 3.0))
    return rows


def measure_first_use() -> list[dict[str, object]]:
    """A new cell's first call, with an empty cache and with a filled one; the limit is three seconds."""
    seconds = []
    old = os.environ.get("ANAPHORA_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ANAPHORA_CACHE"] = folder
        from anaphora.native.c import CLibrary

        for _ in range(2):
            CLibrary.opened.clear()  # as in a new process
            recurrent = nn.Recurrent(UserMGU(24, 40))
            begin = time.perf_counter()
            recurrent(torch.randn(4, 5, 24))
            seconds.append(time.perf_counter() - begin)
    if old is None:
        del os.environ["ANAPHORA_CACHE"]
    else:
        os.environ["ANAPHORA_CACHE"] = old
    return [
        row("first use of a new cell", "limit of 3 s", seconds[0], 3.0, 1.0, "s"),
        row("first use, from the cache", "limit of 3 s", seconds[1], 3.0, 1.0, "s"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/measured/cells.md")
    parser.add_argument("--times", type=int, default=10, help="runs of each side (default 10)")
    parser.add_argument("--threads", type=int, default=1, help="threads of both sides (default 1)")
    parser.add_argument("--floor", action="store_true", help="also what the processor allows (one thread)")
    options = parser.parse_args()
    if options.floor and options.threads != 1:
        parser.error("--floor measures the peak of one thread; leave out --threads")
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    rows = [
        *measure_cells(options.times, options.floor),
        *measure_ragged(options.times),
        *measure_first_use(),
    ]
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    if options.markdown:
        for r in rows:
            figures = f"{r['ours']:.4g} {r['unit']} | {r['theirs']:.4g} {r['unit']} | {r['ratio']}"
            print(f"| {r['row']} | `{r['peer']}` | {figures} |")
        return
    print(f"{'':34} {'peer':18} {'ours':>9} {'theirs':>9}      ratio  goal")
    for r in rows:
        print(
            f"{r['row']:34} {r['peer']:18} {r['ours']:9} {r['theirs']:9} {r['unit']:3} {r['ratio']:6}  {r['goal'] or ''}"
        )


if __name__ == "__main__":
    main()
