"""Linear recurrences on a GPU: the generated scan kernels against a copy, the engine's other backends and torch.

    python benchmarks/scan_gpu.py [--quick] [--json FILE]

bfloat16, float32 states. Times are those of the GPU (events around a CUDA graph of the call where it can be captured), the
least of some rounds in turns. Peers that are not installed are named with the error.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anaphora import nn
from anaphora.engine.backends.base import BackendName
from anaphora.engine.backends.scan import run as generated
from anaphora.engine.dispatch import force

ROUNDS = 7


class Pairs(nn.Cell):
    """h_t = a ∘ h_{t−1} + b from a and b: the scan alone."""

    def setup(self, inputs: int, hidden: int) -> None:
        self.one = torch.nn.Parameter(torch.ones(1))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return a * h + b


def milliseconds(run: Callable[[], Any], capture: bool = True) -> float:
    """The least of some rounds, as a CUDA graph where the call can be captured, if that is wanted."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    call: Callable[[], Any] = run
    try:
        if capture:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                run()
            call = graph.replay
    except RuntimeError:
        torch.cuda.synchronize()
    best = float("inf")
    for _ in range(ROUNDS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end))
    return best


def tried(run: Callable[[], Any], capture: bool = True) -> float | str:
    try:
        return milliseconds(run, capture)
    except Exception as error:  # a peer may fail in any way; it is named
        torch.cuda.synchronize()
        return f"{type(error).__name__}: {str(error)[:120]}"


def copy_of(numbers: int) -> float:
    """The time in which as many 16-bit numbers are read or written by a plain copy."""
    source = torch.empty(numbers // 2, device="cuda", dtype=torch.bfloat16)
    target = torch.empty_like(source)
    return min(
        milliseconds(lambda: target.copy_(source)), milliseconds(lambda: torch.neg(source, out=target))
    )


def scan_alone(batch: int, steps: int, width: int) -> dict[str, float | str]:
    """The scan alone, serial and in chunks; a copy of as many bytes; peers."""
    x = torch.rand(batch, steps, 2 * width, device="cuda").bfloat16().requires_grad_()
    dy = torch.randn(batch, steps, width, device="cuda").bfloat16()
    layer = nn.Recurrent(Pairs(2 * width, width)).cuda().bfloat16()
    found: dict[str, float | str] = {}
    # Forward reads a and b and writes h; backward reads a, h and dh and writes da and db.
    copies = {"forward": copy_of(3 * batch * steps * width), "backward": copy_of(5 * batch * steps * width)}
    found |= {f"copy of the {name} pass's bytes": value for name, value in copies.items()}

    def forward() -> Any:
        with torch.no_grad(), force("scan"):
            return layer(x)[0]

    def both() -> Any:
        with force("scan"):
            return torch.autograd.grad(layer(x)[0], x, dy)

    def measured(name: str) -> None:
        with force("scan"):
            y = layer(x)[0]
        took = {"forward": tried(forward)}
        took["backward"] = tried(lambda: torch.autograd.grad(y, x, dy, retain_graph=True))
        took["forward and backward"] = tried(both)
        for what, value in took.items():
            found[f"{name} {what}"] = value
            if what in copies and not isinstance(value, str):
                found[f"{name} {what}, share of the copy's speed in %"] = 100 * copies[what] / value

    usual = generated.FEWEST
    for name, fewest in (("serial", 0), ("chunks", 1 << 30)):
        generated.FEWEST = fewest
        measured(name)
    generated.FEWEST = usual
    found["chosen forward"] = tried(forward)
    if steps <= 4096:
        found |= peers(x, dy)
    return found


def peers(x: Tensor, dy: Tensor) -> dict[str, float | str]:
    a, b = (t.contiguous() for t in x.detach().chunk(2, -1))
    found: dict[str, float | str] = {}
    try:
        from torch._higher_order_ops.associative_scan import associative_scan

        def joined(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            return left[0] * right[0], right[0] * left[1] + right[1]

        scan = torch.compile(lambda p, q: associative_scan(joined, (p, q), 1, combine_mode="pointwise")[1])
        p, q = a.float(), b.float()
        found["torch associative_scan, compiled, forward"] = tried(lambda: scan(p, q))
    except Exception as error:
        found["torch associative_scan, compiled, forward"] = f"{type(error).__name__}: {str(error)[:120]}"
    try:
        from fla.ops.hgrn import chunk_hgrn  # type: ignore[import-not-found]

        p, q = b.clone().requires_grad_(), a.float().clamp(min=1e-3).log().bfloat16().requires_grad_()
        found["fla chunk_hgrn forward"] = tried(lambda: chunk_hgrn(p.detach(), q.detach()))
        found["fla chunk_hgrn forward and backward"] = tried(
            lambda: torch.autograd.grad(chunk_hgrn(p, q)[0], (p, q), dy)
        )
    except Exception as error:
        found["fla chunk_hgrn"] = f"{type(error).__name__}: {str(error)[:120]}"
    return found


def layer_of_mingru(batch: int, steps: int, width: int) -> dict[str, float | str]:
    """A whole minGRU layer, forward and backward, by every backend, and its projections alone."""
    x = torch.randn(batch, steps, width, device="cuda").bfloat16().requires_grad_()
    dy = torch.randn(batch, steps, width, device="cuda").bfloat16()
    layer = nn.Recurrent(nn.MinGRU(width, width)).cuda().bfloat16()
    linear = torch.nn.Linear(width, 2 * width).cuda().bfloat16()
    two = torch.cat((dy, dy), -1)

    def by(name: BackendName) -> Any:
        with force(name):
            return torch.autograd.grad(layer(x)[0], [x, *layer.parameters()], dy)

    found: dict[str, float | str] = {
        "projections alone": milliseconds(
            lambda: torch.autograd.grad(linear(x), [x, *linear.parameters()], two)
        )
    }
    names: tuple[BackendName, ...] = (
        ("scan", "persistent", "triton") if steps <= 4096 else ("scan", "persistent")
    )
    for name in names:
        found[name] = tried(lambda name=name: by(name))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="short sequences only")
    parser.add_argument("--json", type=Path, help="write the times to this file")
    options = parser.parse_args()
    sizes = [(32, 512, 512), (32, 4096, 512)] + ([] if options.quick else [(32, 65536, 512), (1, 65536, 256)])
    rows: list[dict[str, Any]] = []
    for what, measure in (("scan alone", scan_alone), ("minGRU layer", layer_of_mingru)):
        for size in sizes:
            found = measure(*size)
            torch.cuda.empty_cache()
            rows.append(
                {"what": what, "batch": size[0], "time": size[1], "hidden": size[2], "milliseconds": found}
            )
            print(f"{what}, B={size[0]} T={size[1]} H={size[2]}", flush=True)
            for name, value in found.items():
                print(
                    f"  {name}: {value if isinstance(value, str) else f'{value:.1f}' if name.endswith('%') else f'{value:.4f} ms'}",
                    flush=True,
                )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
