"""Mamba's selective scan on a GPU against mamba-ssm's kernel where it is installed, and against its reference in torch.

    python benchmarks/selective_gpu.py [--json FILE]

bfloat16, float32 states, 16 numbers a channel. The reference is the loop over time that the paper's package compares its
kernel with; ``chunks`` is what runs where there is no kernel. Times are those of the GPU, the least of some rounds.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anaphora.ops.selective import by_chunks, selective_scan
from scan_gpu import tried


def reference(u: Tensor, delta: Tensor, rate: Tensor, b: Tensor, c: Tensor, state: Tensor) -> Tensor:
    """One step after the other, in float32, as published."""
    decay = torch.exp(delta.float()[..., None] * rate)
    added = (delta.float() * u.float())[..., None] * b.float()[:, :, None]
    found = []
    for a, x, out in zip(decay.unbind(1), added.unbind(1), c.float().unbind(1), strict=True):
        state = a * state + x
        found.append(torch.einsum("bhn,bn->bh", state, out))
    return torch.stack(found, 1).to(u.dtype)


def measured(batch: int, steps: int, width: int) -> dict[str, float | str]:
    torch.manual_seed(0)
    kind = {"device": "cuda", "dtype": torch.bfloat16}
    u = torch.randn(batch, steps, width, **kind).requires_grad_()
    delta = torch.rand(batch, steps, width, **kind).mul_(0.1).requires_grad_()
    rate = -torch.arange(1, 17, device="cuda").float().expand(width, 16).contiguous().requires_grad_()
    b, c = (torch.randn(batch, steps, 16, **kind).requires_grad_() for _ in range(2))
    state = torch.zeros(batch, width, 16, device="cuda")
    dy = torch.randn(batch, steps, width, **kind)
    given = (u, delta, rate, b, c, state)
    found: dict[str, float | str] = {}

    def timed(name: str, scan: Any, capture: bool = True) -> None:
        def forward() -> Any:
            with torch.no_grad():
                return scan(*given)

        def both() -> Any:
            return torch.autograd.grad(scan(*given), (u, delta, rate, b, c), dy)

        found[f"{name} forward"] = tried(forward, capture)
        found[f"{name} forward and backward"] = tried(both, capture)

    timed("ours", lambda *t: selective_scan(*t)[0])
    timed("reference", reference)
    timed("chunks", lambda *t: by_chunks(*t)[0], capture=False)
    try:
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn

        def theirs(u: Tensor, delta: Tensor, rate: Tensor, b: Tensor, c: Tensor, state: Tensor) -> Tensor:
            across = [t.transpose(1, 2).contiguous() for t in (u, delta, b, c)]
            return selective_scan_fn(across[0], across[1], rate, across[2], across[3]).transpose(1, 2)

        timed("mamba-ssm", theirs)
    except Exception as error:
        found["mamba-ssm"] = f"{type(error).__name__}: {str(error)[:120]}"
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="write the times to this file")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for size in ((8, 2048, 1536), (64, 256, 768)):
        found = measured(*size)
        torch.cuda.empty_cache()
        rows.append({"batch": size[0], "time": size[1], "channels": size[2], "milliseconds": found})
        print(f"selective scan, B={size[0]} T={size[1]} H={size[2]}", flush=True)
        for name, value in found.items():
            print(f"  {name}: {value if isinstance(value, str) else f'{value:.3f} ms'}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
