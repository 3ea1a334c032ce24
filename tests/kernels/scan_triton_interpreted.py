"""The generated scan kernels on the CPU, by Triton's interpreter: prints the largest difference to the loop for every case.

Run with TRITON_INTERPRET=1; see test_scan_triton.py.
"""

from __future__ import annotations

import json
from typing import Any

import torch
import triton_on_cpu
from recurrence_results import Run, inputs, reference, results
from test_scan import CELLS

from anaphora.kernels.recurrence.backends.base import LayerRun
from anaphora.kernels.recurrence.backends.scan import generated
from anaphora.kernels.recurrence.backends.scan.walk import Direction, run_units
from anaphora.nn.recurrent_step import LayerStep

B, T, I, H = 2, 21, 3, 5
LENGTHS = torch.tensor([13, 21])


def by_kernels(cell: Any) -> Any:
    engine = Run(LayerStep(cell))

    def run(*arguments: Any) -> Any:
        ready = engine.planned(*arguments)
        assert ready.plan is not None
        given = ready.arguments(LayerRun(engine.engine.function, *arguments))
        how = Direction(arguments[4], arguments[5], *arguments[1][0].shape[:2])
        return run_units(ready.plan, given, how, generated.GeneratedUnits(ready.plan))

    return run


def main() -> None:
    triton_on_cpu.filled()
    errors = {}
    generated.SHORTEST = 2
    for k, (name, make) in enumerate(CELLS.items()):
        torch.manual_seed(k)
        cell = make(I, H)
        x, initial = inputs(cell, torch.float32, B, T)
        for parallel in (False, True):
            generated.FEWEST, generated.ENOUGH = (1000, 6) if parallel else (0, 0)
            lengths, reverse = (LENGTHS if (k + parallel) % 2 else None), k % 3 == 1
            ours = results(by_kernels(cell), cell, x, initial, lengths, reverse)
            theirs = results(reference(cell), cell, x, initial, lengths, reverse)
            worst = max(
                float((a - b).detach().abs().max() / (1 + b.abs().max()))
                for a, b in zip(ours, theirs, strict=True)
            )
            errors[f"{name}{' in chunks' if parallel else ''}"] = worst
    print(json.dumps(errors))


if __name__ == "__main__":
    main()
