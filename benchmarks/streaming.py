"""One step at a time against PyTorch. Run: python benchmarks/streaming.py [--json | --markdown] [--times N] [--floor]

Batch 1, width 256, float32, no gradient, one thread; 200 steps in a row with the state carried on; both sides in
one process, in turn, the least of N times, per step. All sides must end in the same state. Every step first looks whether
weights or attributes have changed since they were packed; further rows compare it with steps that do not look, once as
usual and once while NumPy refers to the weights, too, so that they are compared byte by byte. With --floor there are more
rows: reading the weights alone, at the measured speed of one thread; its ratio is what this CPU allows.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from anaphora import nn
from processor import Processor
from rows import row

H, STEPS = 256, 200


def least(runs: list[Callable[[], object]], times: int) -> list[float]:
    """Microseconds per step of the fastest run of each, run in turn."""
    best = [float("inf")] * len(runs)
    for _ in range(times + 1):
        for side, run in enumerate(runs):
            begin = time.perf_counter()
            run()
            best[side] = min(best[side], 1e6 * (time.perf_counter() - begin) / STEPS)
    return best


def measure(times: int, floor: bool) -> list[dict[str, Any]]:
    theirs = torch.nn.LSTM(H, H, batch_first=True).eval()
    cell = torch.nn.LSTMCell(H, H).eval()
    cell.load_state_dict({k.removesuffix("_l0"): v for k, v in theirs.state_dict().items()})
    ours = nn.Recurrent.from_torch(theirs)
    inputs = list(torch.randn(STEPS, 1, H).unbind(0))
    longer = [x[:, None] for x in inputs]
    zeros = torch.zeros(1, 1, H)

    def step_ours() -> Tensor:
        state = (zeros, zeros)
        for x in inputs:
            y, state = ours.step(x, state)
        return y

    def step_layer() -> Tensor:
        state = (zeros, zeros)
        for x in longer:
            y, state = theirs(x, state)
        return y[:, 0]

    def step_cell() -> Tensor:
        state = (zeros[0], zeros[0])
        for x in inputs:
            state = cell(x, state)
        return state[0]

    def step_blindly() -> Tensor:
        (stream,) = ours._streams
        looks, stream.same = stream.same, lambda: True
        try:
            return step_ours()
        finally:
            stream.same = looks

    with torch.no_grad():
        for other in (step_layer, step_cell):
            torch.testing.assert_close(step_ours(), other(), atol=1e-5, rtol=1e-4)
        mine, layer, alone, blind = least([step_ours, step_layer, step_cell, step_blindly], times)
        arrays = [p.detach().numpy() for p in ours.parameters()]
        step_ours()
        compared, blind_again = least([step_ours, step_blindly], times)
        del arrays
    peers = (("nn.LSTM, step by step", layer, 8.0), ("nn.LSTMCell", alone, 2.0))
    rows = [row(f"LSTM step, B=1 H={H}", peer, mine, theirs, "us", goal=goal) for peer, theirs, goal in peers]
    if floor:
        size = sum(4 * p.numel() for p in ours.parameters())
        reading = 1e6 * size / Processor().bytes_read(size)
        rows += [
            row("reading its weights alone", peer, reading, theirs, "us", goal=None)
            for peer, theirs, _ in peers
        ]
    blindly = "steps that do not look"
    rows.append(row("its look for changes", blindly, mine, blind, "us", goal=0.95))
    rows.append(row("the same, weights held by NumPy", blindly, compared, blind_again, "us", goal=None))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/measured/cells.md")
    parser.add_argument("--times", type=int, default=10, help="runs of each side (default 10)")
    parser.add_argument("--floor", action="store_true", help="also what the processor allows")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = measure(options.times, options.floor)
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    if options.markdown:
        for r in rows:
            figures = f"{r['ours']:.4g} {r['unit']} | {r['theirs']:.4g} {r['unit']} | {r['ratio']}"
            print(f"| {r['row']} | `{r['peer']}` | {figures} |")
        return
    for r in rows:
        print(
            f"{r['row']:26} {r['peer']:24} {r['ours']:9} {r['theirs']:9} {r['unit']}  {r['ratio']:6}  {r['goal'] or ''}"
        )


if __name__ == "__main__":
    main()
