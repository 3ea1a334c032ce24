"""Linear recurrences on the CPU: the scan backend against the compiled loop, nn.GRU and torch's associative_scan; and
recurrences with matrix-valued and expanded states against the same by torch, in chunks of steps.

    python benchmarks/scan.py [--quick] [--json FILE]

One thread; forward and backward of a whole layer, input as wide as the state, gradients of the input and all weights. The
contestants take turns, and the least time of each counts, so that a busy machine is unfair to none. Targets: a layer takes
a third of nn.GRU's time or less at equal sizes and is never slower than the compiled loop; the scan alone, from
pre-activations to outputs, takes a fifth of the time of torch's associative_scan or less; a matrix-valued scan is never
slower than torch's chunks.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora import nn
from anaphora.engine.backends.base import BackendName
from anaphora.engine.dispatch import force
from anaphora.ops import selective
from anaphora.ops.matrix_scan import matrix_scan
from anaphora.ops.matrix_scan.scan import by_chunks
from anaphora.ops.selective import selective_scan

MATRICES = {
    "GLA": (True, False),
    "RetNet": (False, False),
    "delta rule": (False, True),
    "RWKV-7": (True, True),
}
SIZES = ((32, 100, 256), (16, 500, 128), (32, 512, 256), (8, 2048, 256), (1, 4096, 256), (1, 64, 128))


class MinGRU(nn.Cell):
    """Feng et al. 2024."""

    def setup(self, inputs: int, hidden: int) -> None:
        self.both = nn.Affine(inputs, 2 * hidden, blocks=2)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z, new = self.both(x).chunk(2, -1)
        z = torch.sigmoid(z)
        return (1 - z) * h + z * new


class Given(nn.Cell):
    """The same from pre-activations: x holds both. The scan alone."""

    def setup(self, inputs: int, hidden: int) -> None:
        self.one = torch.nn.Parameter(torch.ones(hidden))  # a cell needs a parameter to have a type

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z, new = x.chunk(2, -1)
        z = torch.sigmoid(z)
        return (self.one - z) * h + z * new


def contestants(batch: int, steps: int, width: int) -> dict[str, Callable[[], Any]]:
    """What is timed, by name: each runs forward and backward once."""
    torch.manual_seed(0)
    x = torch.randn(batch, steps, width, requires_grad=True)
    dy = torch.randn(batch, steps, width)
    layer = nn.Recurrent(MinGRU(width, width))
    gru = torch.nn.GRU(width, width, batch_first=True)
    linear = torch.nn.Linear(width, 2 * width)

    def ours(name: BackendName | None) -> Any:
        with force(name):
            y, _ = layer(x)
        return torch.autograd.grad(y, [x, *layer.parameters()], dy)

    def theirs() -> Any:
        return torch.autograd.grad(gru(x)[0], [x, *gru.parameters()], dy)

    both = torch.randn(batch, steps, 2 * width, requires_grad=True)
    alone = nn.Recurrent(Given(2 * width, width))

    def scan_alone() -> Any:
        with force("scan"):
            return torch.autograd.grad(alone(both)[0], both, dy)

    def associative() -> Any:
        from torch._higher_order_ops.associative_scan import associative_scan

        z, new = both.chunk(2, -1)
        z = torch.sigmoid(z)

        def joined(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return left[0] * right[0], right[0] * left[1] + right[1]

        y = associative_scan(joined, (1 - z, z * new), 1, combine_mode="generic")[1]
        return torch.autograd.grad(y, both, dy)

    return {
        "chosen": lambda: ours(None),
        "scan": lambda: ours("scan"),
        "c": lambda: ours("c"),
        "nn.GRU": theirs,
        "scan alone": scan_alone,
        "associative_scan": associative,
        "products alone": lambda: torch.autograd.grad(
            linear(x), [x, *linear.parameters()], torch.cat((dy, dy), -1)
        ),
    }


def matrix_contestants(by_channel: bool, delta: bool) -> dict[str, Callable[[], Any]]:
    """Eight rows of 512 steps, four heads of 64 × 64: ours, and chunks by torch."""
    torch.manual_seed(0)
    shape = (8, 512, 4)
    r, k, v = (torch.randn(*shape, 64, requires_grad=True) for _ in range(3))
    log_w = F.logsigmoid(torch.randn(*shape, *([64] if by_channel else [])) + 3).requires_grad_()
    a = F.normalize(torch.randn(*shape, 64), dim=-1).requires_grad_() if delta else None
    b = (-0.5 * a).detach().requires_grad_() if a is not None else None
    dy = torch.randn(*shape, 64)
    leaves = [x for x in (r, k, v, log_w, a, b) if x is not None]

    def ours() -> Any:
        return torch.autograd.grad(matrix_scan(r, k, v, log_w, a, b)[0], leaves, dy)

    def chunks() -> Any:
        return torch.autograd.grad(by_chunks(r, k, v, log_w, None, a, b)[0], leaves, dy)

    return {"ours": ours, "torch": chunks}


def selective_contestants() -> dict[str, Callable[[], Any]]:
    """Eight rows of 512 steps, 256 channels of 16 numbers: ours, and chunks by torch."""
    torch.manual_seed(0)
    u = torch.randn(8, 512, 256, requires_grad=True)
    delta = (0.1 * torch.rand(8, 512, 256)).requires_grad_()
    rate = -torch.arange(1, 17).float().expand(256, 16).contiguous().requires_grad_()
    b, c = (torch.randn(8, 512, 16, requires_grad=True) for _ in range(2))
    dy, leaves = torch.randn(8, 512, 256), (u, delta, rate, b, c)
    given = (*leaves, torch.zeros(8, 256, 16))
    return {
        "ours": lambda: torch.autograd.grad(selective_scan(*given)[0], leaves, dy),
        "torch": lambda: torch.autograd.grad(selective.by_chunks(*given)[0], leaves, dy),
    }


def measure(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Milliseconds, the least of some rounds in turns; slow contestants take part in fewer of them."""
    found: dict[str, float] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for run in runs.values():
            run()
        for turn in range(rounds):
            for name, run in runs.items():
                if turn > 2 and found[name] > 1000:
                    continue
                begin = time.perf_counter()
                run()
                took = 1e3 * (time.perf_counter() - begin)
                found[name] = min(took, found.get(name, took))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two sizes, few rounds")
    parser.add_argument("--json", type=Path, help="write the times to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    rounds = 5 if options.quick else 15
    states = {name: matrix_contestants(*kind) for name, kind in MATRICES.items()}
    for name, runs in {**states, "Mamba": selective_contestants()}.items():
        found = measure(runs, rounds)
        ratio = found["torch"] / found["ours"]
        print(f"{name}: ours {found['ours']:.1f}, torch {found['torch']:.1f} ms; {ratio:.1f}×", flush=True)
        rows.append({"state": name, "milliseconds": found})
    for size in SIZES[:2] if options.quick else SIZES:
        found = measure(contestants(*size), rounds)
        best = found["chosen"]
        said = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
        ratios = f"{found['nn.GRU'] / best:.1f}× nn.GRU, {found['c'] / best:.2f}× c, "
        ratios += f"the scan alone {found['associative_scan'] / found['scan alone']:.1f}× associative_scan"
        print(f"B={size[0]} T={size[1]} H={size[2]}: {said} ms; {ratios}", flush=True)
        rows.append({"batch": size[0], "time": size[1], "hidden": size[2], "milliseconds": found})
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
