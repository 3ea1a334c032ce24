"""What the parts of a persistent kernel's step cost on this GPU. Run: python benchmarks/persistent_costs.py [--json] [--seconds N]

The library divides a layer over the GPU by an estimate of what a step costs: a sum of parts, each with a constant
(`Costs` in `engine/backends/persistent/tiling.py`). This measures kernels of many shapes, fits the constants to
them by least squares of the relative error, and prints them beside those that are built in. Two lengths of each kernel are
measured, so that what a launch costs does not count. A constant that no measured kernel depends on is left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from itertools import product
from typing import Any

import torch
from torch import Tensor

from anaphora import nn
from anaphora.engine.arguments import Arguments
from anaphora.engine.backends.persistent.clusters import clustered, clusters_at_once
from anaphora.engine.backends.persistent.launch import Pass, Programs, make_programs
from anaphora.engine.backends.persistent.passes import Passes
from anaphora.engine.backends.persistent.source import Kernel
from anaphora.engine.backends.persistent.tiling import Costs, Tiling, cost, counts, tile
from anaphora.engine.plan import make_plan
from anaphora.engine.trace import trace
from anaphora.nn.recurrent_step import LayerStep

SHORT, LONG = 64, 320  # steps
TIMES = 4  # runs of each, of which the fastest counts
BATCH, INPUTS = 24, 32
KINDS = {torch.bfloat16: "bf16", torch.float32: "tf32"}
CELLS: dict[str, Callable[[int], nn.Cell]] = {
    "lstm": lambda h: nn.LSTM(INPUTS, h),
    "gru, two products": lambda h: nn.GRU(INPUTS, h),
    "lstm, layer norm": lambda h: nn.LSTM(INPUTS, h, layer_norm=True),
}
SHAPES = tuple(product((16, 32, 8, 64), (1, 2), (8, 4)))  # columns and tiles of a block, and its warps
SIZES = tuple(product((512, 256, 384), (torch.bfloat16, torch.float32)))  # units, numbers


@dataclass(frozen=True)
class Sample:
    """A kernel that was measured."""

    cell: str
    hidden: int
    dtype: str
    backward: bool
    tiling: Tiling
    parts: dict[str, float]
    expected: float  # µs per step, by the built-in constants
    measured: float


class Layer:
    """A cell and its inputs on the GPU."""

    def __init__(self, name: str, hidden: int, dtype: torch.dtype, device: torch.device):
        self.name, self.hidden, self.dtype, self.device = name, hidden, dtype, device
        self.half = dtype != torch.float32
        cell = CELLS[name](hidden).to(device, dtype)
        x = self._drawn(BATCH, 2, INPUTS).requires_grad_()
        self.initial = tuple(self._drawn(BATCH, hidden) for _ in cell.state)
        params = dict(cell.named_parameters())
        traced = trace(LayerStep(cell), params, (x,), (), self.initial)
        plan = make_plan(traced, [INPUTS], [], [hidden] * len(cell.state), {0})
        matrices, vectors = traced.boundary(params)
        self.matrices = [torch.cat([matrices[p] for p in m.parts]).detach() for m in plan.matrices]
        self.vectors = [v.detach() for v in vectors]
        self.programs: Programs = make_programs(plan)

    def _drawn(self, *shape: int) -> Tensor:
        return torch.randn(*shape, device=self.device).to(self.dtype)

    def given(self, steps: int) -> Arguments:
        return Arguments(self.matrices, self.vectors, (self._drawn(BATCH, steps, INPUTS),), (), self.initial)


class Bench:
    """Measures layers on one GPU."""

    def __init__(self, device: torch.device):
        facts = torch.cuda.get_device_properties(device)
        self.device, self.sms = device, facts.multi_processor_count
        self.architecture = f"sm_{facts.major}{facts.minor}a"

    def tilings(self, layer: Layer, shape: tuple[int, int, int], near: bool) -> tuple[Tiling, Tiling] | None:
        """Of the forward and the backward pass; None where they do not fit, or not all rows at once."""
        found = []
        for program in (layer.programs.forward, layer.programs.backward):
            tiling = tile(program, layer.hidden, *shape, layer.half)
            if tiling is None:
                return None
            room = self.sms
            if near:
                tiling = clustered(program, tiling, layer.half)
                if not tiling.cluster:
                    return None
                room = clusters_at_once(tiling.cluster, self.architecture, self.device) * tiling.slices
            if tiling.slices * tiling.groups(BATCH) > room:
                return None
            found.append(tiling)
        return found[0], found[1]

    def samples(self, layer: Layer, tilings: tuple[Tiling, Tiling]) -> Iterator[Sample]:
        passes = self.passes(layer, tilings)
        short, long = self.times(passes, layer, SHORT), self.times(passes, layer, LONG)
        for one, begin, end in zip(passes.all[:2], short, long, strict=True):
            program, tiling = one.program, one.tiling
            yield Sample(
                layer.name,
                layer.hidden,
                KINDS[layer.dtype],
                program.backward,
                tiling,
                counts(program, tiling, layer.half),
                cost(program, tiling, BATCH, layer.half, self.sms),
                1000 * (end - begin) / (LONG - SHORT),
            )

    def passes(self, layer: Layer, tilings: tuple[Tiling, Tiling]) -> Passes:
        kind = KINDS[layer.dtype]
        made = [Kernel(layer.programs.forward, tilings[0], kind)]
        made.append(Kernel(layer.programs.backward, tilings[1], kind, made[0]))
        forward, backward = (Pass(k, self.device, self.architecture, self.sms) for k in made)
        return Passes(layer.programs, forward, backward, forward)

    def times(self, passes: Passes, layer: Layer, steps: int) -> tuple[float, float]:
        """Milliseconds of the forward and of the backward kernel."""
        given = layer.given(steps)
        given = given._replace(steps=passes.time_first(given.steps, None, True))
        dy = torch.randn(BATCH, steps, layer.hidden, device=self.device).to(layer.dtype)
        best = [float("inf")] * 2
        for _ in range(TIMES):  # fresh arrays: kernels wait for what is not written yet
            begun = passes.begin(given, None, torch.empty_like(dy), keep=True)
            best[0] = min(best[0], self.clock(begun.run, begun.arrays, steps))
            kept = passes.kept(begun, given)
            after = passes.begin_backward(given, kept, dy, [None] * len(layer.initial))
            best[1] = min(best[1], self.clock(after.run, after.arrays, steps))
        return best[0], best[1]

    def clock(self, one: Pass, arrays: Any, steps: int) -> float:
        one.loaded  # noqa: B018 (compiled before the clock starts)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        one.run([arrays], steps, BATCH, False, False)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)


def measured(seconds: float) -> list[Sample]:
    """As many kernels as the time allows, the most different ones first."""
    until, device = time.monotonic() + seconds, torch.device("cuda", torch.cuda.current_device())
    bench, found, layers = Bench(device), list[Sample](), dict[tuple[Any, ...], Layer]()
    order = sorted(
        product(range(len(SHAPES)), range(len(SIZES)), range(len(CELLS)), (False, True)),
        key=lambda k: (7 * k[0] + 5 * k[1] + 3 * k[2] + k[3]) % 16,
    )
    for shape, size, name, near in order:
        if time.monotonic() > until:
            break
        key = (list(CELLS)[name], *SIZES[size])
        if key not in layers:
            layers[key] = Layer(*key, device)
        tilings = bench.tilings(layers[key], SHAPES[shape], near)
        if tilings is not None:
            found += bench.samples(layers[key], tilings)
            print(f"\r{len(found)} kernels measured", end="", file=sys.stderr)
    print(file=sys.stderr)
    return found


def fitted(samples: list[Sample]) -> dict[str, float]:
    """The constants that make the sums of parts closest to the times, relative to these."""
    names = [
        f.name
        for f in fields(Costs)
        if len({s.parts.get(f.name, 0) for s in samples}) > 1 or f.name == "step"
    ]
    rows = [[s.parts.get(name, 0) / s.measured for name in names] for s in samples]
    matrix = torch.tensor(rows, dtype=torch.float64)
    scale = matrix.norm(dim=0)
    ones = torch.ones(len(samples), 1, dtype=torch.float64)
    solved = torch.linalg.lstsq(matrix / scale, ones, driver="gelsd").solution[:, 0] / scale
    return dict(zip(names, solved.tolist(), strict=True))


def error(samples: list[Sample], costs: dict[str, float]) -> float:
    """The median of |expected / measured − 1|."""
    off = [abs(sum(costs.get(k, 0) * v for k, v in s.parts.items()) / s.measured - 1) for s in samples]
    return float(torch.tensor(off).median())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print constants and kernels as JSON")
    parser.add_argument("--seconds", type=float, default=60, help="time to measure for (default 60)")
    options = parser.parse_args()
    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9:
        print("persistent_costs: skipped, there is no Hopper GPU here.", file=sys.stderr)
        return
    torch.manual_seed(0)
    samples = measured(options.seconds)
    built_in, found = asdict(Costs()), fitted(samples)
    errors = {"built in": error(samples, built_in), "fitted": error(samples, found)}
    if options.json:
        kernels = [asdict(s) for s in samples]
        print(
            json.dumps(
                {
                    "gpu": torch.cuda.get_device_name(),
                    "built in": built_in,
                    "fitted": found,
                    "median error": errors,
                    "kernels": kernels,
                }
            )
        )
        return
    print(f"{torch.cuda.get_device_name()}, {len(samples)} kernels, µs per step")
    print(f"{'part':<16}{'built in':>12}{'fitted':>12}")
    for name, value in built_in.items():
        here = f"{found[name]:12.3g}" if name in found else f"{'-':>12}"
        print(f"{name:<16}{value:12.3g}{here}")
    print(f"{'median error':<16}{errors['built in']:12.1%}{errors['fitted']:12.1%}")


if __name__ == "__main__":
    main()
