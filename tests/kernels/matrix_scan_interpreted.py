"""The fused matrix scan on the CPU, by Triton's interpreter: prints the largest difference to plain torch in float64.

Run with TRITON_INTERPRET=1; see test_matrix_scan.py.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import torch
import triton_on_cpu
from torch import Tensor

from anaphora.ops.matrix_scan import launch
from anaphora.ops.matrix_scan.scan import by_chunks as plain

# B, T, N, D, E, decays by channel, a state before, type
CASES = {
    "one chunk": (1, 64, 1, 16, 16, True, False, torch.float32),
    "shorter than a chunk, odd sides": (2, 37, 1, 5, 3, True, True, torch.float32),
    "three chunks and a rest, odd sides": (1, 197, 2, 19, 35, True, True, torch.float32),
    "several blocks": (1, 70, 1, 70, 140, True, True, torch.float32),
    "by head, three chunks and a rest": (1, 197, 2, 19, 35, False, True, torch.float32),
    "by head, several blocks": (2, 70, 1, 70, 140, False, False, torch.float32),
    "by head, bfloat16": (1, 133, 2, 40, 24, False, True, torch.bfloat16),
    "bfloat16": (1, 133, 2, 40, 24, True, True, torch.bfloat16),
    "float16": (1, 70, 1, 16, 16, True, False, torch.float16),
    "mild": (1, 133, 2, 19, 35, True, True, torch.float32),
    "mild, bfloat16": (1, 133, 2, 40, 24, True, True, torch.bfloat16),
}
MILD = {
    "mild": 0.3,
    "mild, bfloat16": 2.0,
}  # the largest −log w: 64 such steps are within what a single product takes


def drawn(case: tuple, seed: int, most: float | None = None) -> list[Tensor | None]:
    """Arguments with decays of every size, or with logarithms of −``most`` at least."""
    batch, time, heads, d, e, by_channel, begun, kind = case
    torch.manual_seed(seed)
    r, k = (torch.randn(batch, time, heads, d).to(kind) for _ in range(2))
    v = torch.randn(batch, 2 * time, heads, e).to(kind)[:, ::2]  # strides of its own
    log_w = -(torch.rand(batch, time, heads, *([d] if by_channel else [])) ** 4) * 3
    if most is None:
        log_w[torch.rand_like(log_w) < 0.05] = -torch.inf
        log_w[torch.rand_like(log_w) < 0.05] = 0.0
        log_w[torch.rand_like(log_w) < 0.02] = -50.0
    else:
        log_w *= most / 3
    state = torch.randn(batch, heads, d, e) if begun else None
    return [r, k, v, log_w, state]


def results(function, given: list[Tensor | None], seed: int) -> list[Tensor]:
    leaves = [None if x is None else x.detach().requires_grad_() for x in given]
    y, last = function(*leaves)
    torch.manual_seed(seed)
    weights = torch.randn(y.shape).to(y), torch.randn(last.shape).to(last)
    grads = torch.autograd.grad((y, last), [x for x in leaves if x is not None], weights)
    return [y, last, *grads]


def twice(given: list[Tensor | None]) -> float:
    """How far second derivatives are from those of plain torch."""
    seconds = []
    for function in (lambda *x: launch.run(*x, plain), plain):
        leaves = [None if x is None else x.detach().requires_grad_() for x in given]
        first = torch.autograd.grad(function(*leaves)[0].square().sum(), leaves[:2], create_graph=True)
        seconds.append(torch.autograd.grad(sum(x.square().sum() for x in first), leaves[:4]))
    return sum(float((a - b).norm() / b.norm()) for a, b in zip(*seconds, strict=True))


def off_by_a_percent(keys: Any) -> Any:
    return lambda *x: tuple(1.01 * y for y in keys(*x))


def not_a_number(keys: Any) -> Any:
    return lambda *x: tuple(y * torch.nan for y in keys(*x))


def not_compiled(keys: Any) -> Any:
    def refuse(*_: Any) -> Any:
        raise RuntimeError("no C compiler")

    return refuse


def distrusted(broken: Any) -> float:
    """With broken kernels the check warns, and plain torch computes: how far the results are from its."""
    given, keys = drawn(CASES["one chunk"], 0), launch._keys
    launch._keys = broken(keys)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ours = results(lambda *x: launch.run(*x, plain), given, 0)
    finally:
        launch._keys = keys
        launch._agrees.clear()
    assert len(caught) == 1
    assert "plain torch computes instead" in str(caught[0].message)
    theirs = results(plain, given, 0)
    return sum(float((a - b).detach().norm()) for a, b in zip(ours, theirs, strict=True))


def main() -> None:
    triton_on_cpu.filled()
    launch.DEVICES.add("cpu")
    launch.SIZES = (1, 70, 1, 16, 16)
    errors = {
        broken.__name__: {"all": distrusted(broken)}
        for broken in (off_by_a_percent, not_a_number, not_compiled)
    }
    for seed, (name, case) in enumerate(CASES.items()):
        if len(sys.argv) > 1 and sys.argv[1] not in name:
            continue
        given = drawn(case, seed, MILD.get(name))
        assert launch.serves(*given)
        ours = results(lambda *x: launch.run(*x, plain), given, seed)
        theirs = results(plain, [None if x is None else x.double() for x in given], seed)
        named = zip(("y", "last", "r", "k", "v", "log_w", "state"), ours, theirs, strict=False)
        if seed < 2:
            errors[f"{name}, twice differentiated"] = {"all": twice(given)}
        errors[name] = {
            what: float((a.detach().double() - b.detach()).norm() / (b.detach().norm() + 1e-30))
            for what, a, b in named
        }
    assert all(launch._agrees.values())
    print(json.dumps(errors))


if __name__ == "__main__":
    main()
