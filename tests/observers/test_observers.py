"""Whoever watches PyTorch's operations sees what PyTorch would do: every fast path, every way of watching."""

from __future__ import annotations

import faulthandler
import os
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from watched_blocks import BLOCKS, Block
from watchers import WATCHERS, Seen, Watcher

from anaphora.native import c as compiler

PAIRS = [
    pytest.param(block, watcher, marks=[pytest.mark.slow] * ((row + column) % 2))
    for row, block in enumerate(BLOCKS)
    for column, watcher in enumerate(WATCHERS)
    if WATCHERS[watcher].fits(BLOCKS[block])
]
"""Every block under every watcher; ``make test`` takes every other one, so that each meets half of the others."""


@pytest.fixture(scope="module", autouse=True)
def _compiled_quickly() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setattr(compiler, "FLAGS", tuple(flag for flag in compiler.FLAGS if flag != "-O3"))
    yield
    patch.undo()


def seen(block: Block, watcher: Watcher, fast: bool) -> Seen:
    """What is seen of a fresh module."""
    run = block.fast if fast else block.plain
    torch.manual_seed(1)
    module, inputs = block.make(), block.draw()
    with torch.no_grad():  # no weight is 0
        for weight in module.parameters():
            weight += 0.1 * torch.randn_like(weight)
    if not watcher.cold:
        for grad in (False, block.learns):
            with torch.set_grad_enabled(grad):
                run(module, *inputs)
    return watcher.watch(block, module, run, inputs)


def difference(found: Seen, wanted: Seen, slack: float = 1.0) -> str | None:
    """The first difference in words; ``slack``: a factor of what rounding may differ by."""
    if len(found) != len(wanted):
        return f"{len(found)} values, not {len(wanted)}"
    for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
        if isinstance(one, Tensor) and isinstance(other, Tensor):
            if one.shape != other.shape:
                return f"value {number} is {tuple(one.shape)}, not {tuple(other.shape)}"
            if type(one) is not type(other):
                return f"value {number} is a {type(one).__name__}, not a {type(other).__name__}"
            error, size = float((one - other).detach().abs().max()), float(other.detach().abs().max())
            if not error <= slack * (2e-5 + 1e-4 * size):
                return f"value {number} is off by {error:.2g} of {size:.2g}"
        elif isinstance(one, Tensor) or isinstance(other, Tensor) or one != other:
            return f"value {number} is {str(one)[:300]}, not {str(other)[:300]}"
    return None


def compared(block: Block, watcher: Watcher, slack: float = 1.0) -> str | None:
    try:
        wanted = seen(block, watcher, fast=False)
    except Exception as error:
        return f"PyTorch itself raises {type(error).__name__}: {str(error)[:200]}"
    try:
        found = seen(block, watcher, fast=True)
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return difference(found, wanted, slack)


def in_child(work: Callable[[], Any]) -> Any:
    """What ``work`` gives in a process of its own, or how that ended."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        faulthandler.disable()  # how it died is said below
        try:
            answer = work()
        except BaseException as error:
            answer = repr(error)
        os.write(write, pickle.dumps(answer))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return pickle.loads(said) if said else f"the process died of signal {os.WTERMSIG(status)}"


@pytest.mark.parametrize(("block", "watcher"), PAIRS)
def test_it_sees_what_pytorch_would_do(block: str, watcher: str) -> None:
    one, other = BLOCKS[block], WATCHERS[watcher]
    wrong = in_child(lambda: compared(one, other)) if other.apart else compared(one, other)
    assert wrong is None, wrong
