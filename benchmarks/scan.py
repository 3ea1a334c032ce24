"""Linear recurrences on the CPU: the scan backend against the compiled loop, nn.GRU and torch's associative_scan.

    python benchmarks/scan.py [--quick] [--json FILE]

One thread; forward and backward of a whole layer, input as wide as the state, gradients of the input and all weights. The
contestants take turns, and the least time of each counts, so that a busy machine is unfair to none. Targets: a layer takes
a third of nn.GRU's time or less at equal sizes and is never slower than the compiled loop; the scan alone, from
pre-activations to outputs, takes a fifth of the time of torch's associative_scan or less.
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

from anaphora import nn
from anaphora.kernels.recurrence.backends.base import BackendName
from anaphora.kernels.recurrence.dispatch import force

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


def measure(batch: int, steps: int, width: int, rounds: int) -> dict[str, float]:
    """Milliseconds, the least of some rounds in turns; slow contestants take part in fewer of them."""
    runs = contestants(batch, steps, width)
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
    rows = []
    for size in SIZES[:2] if options.quick else SIZES:
        found = measure(*size, rounds=5 if options.quick else 15)
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
