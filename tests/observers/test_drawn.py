"""Blocks and watchers in combinations drawn at random: types of numbers, gradient modes, threads, weights and inputs.

Each pair of `test_observers` comes three times, 2 300 cases in all, and each block thirty times without a watcher. Whether a kernel of our own
was at work is told by what only kernels ask for, the address of a tensor.
"""

from __future__ import annotations

import random
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from test_observers import compared, difference, in_child
from torch import Tensor, nn
from watched_blocks import BLOCKS, Block
from watchers import WATCHERS, Seen, gradients

from anaphora.native import c as compiler

DRAWS, UNWATCHED = 3, 30
SLACK = 10.0  # weights and inputs are drawn: some are large
WITHOUT = ("attention", "positions", "mixture", "rows in blocks")  # fast paths of PyTorch's operations
ADDRESSES = (Tensor.data_ptr, compiler.memory_of)


def drawn(block: Block, draw: random.Random) -> Block:
    """The block with weights, inputs and a type of numbers of its own."""
    seed, dtype = (
        draw.randrange(1 << 30),
        draw.choice((torch.float32, torch.float32, torch.float32, torch.float64)),
    )

    def make() -> nn.Module:
        torch.manual_seed(seed)
        return block.make().to(dtype)

    def inputs() -> tuple[Tensor, ...]:
        torch.manual_seed(seed + 1)
        return tuple(x.to(dtype) if x.is_floating_point() else x for x in block.draw())

    return replace(block, make=make, draw=inputs)


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def addresses() -> Iterator[list[str]]:
    """The functions that asked for the address of a tensor inside, or for the memory of an array of one."""
    found: list[str] = []

    def see(frame: types.FrameType, event: str, called: Any) -> None:
        if event == "c_call" and (
            called in ADDRESSES or getattr(called, "__name__", "") in ("data_ptr", "numpy")
        ):
            found.append(frame.f_code.co_name)

    sys.setprofile(see)
    try:
        yield found
    finally:
        sys.setprofile(None)


@pytest.mark.slow
@pytest.mark.parametrize("name", BLOCKS)
def test_whoever_watches_sees_what_pytorch_would_do(name: str) -> None:
    draw, wrong = random.Random(name), []
    for watcher, watch in WATCHERS.items():
        if not watch.fits(BLOCKS[name]):
            continue
        for turn in range(DRAWS):
            block = drawn(BLOCKS[name], draw)
            grad = watcher == "gradient of gradient" or draw.random() < 0.5
            with torch.set_grad_enabled(grad), threads(1 if watch.apart else draw.choice((1, 2, 3))):
                work = partial(compared, block, watch, SLACK)
                said = in_child(work) if watch.apart else work()
            if said is not None:
                wrong.append(f"{watcher}, draw {turn}: {said}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
@pytest.mark.skipif(compiler.compiler() is None, reason="needs a C compiler")
@pytest.mark.parametrize("name", BLOCKS)
def test_where_no_one_watches_kernels_are_at_work(name: str) -> None:
    draw, quick, wrong = random.Random(name), 0, []
    for turn in range(UNWATCHED):
        block = drawn(BLOCKS[name], draw)
        mode, number = draw.choice(("none", "none", "inference", "gradient")), draw.choice((1, 2, 3))
        found: list[Seen] = []
        for run in (block.fast, block.plain):
            module, inputs = block.make(), block.draw()
            with threads(number):
                if mode == "gradient" and block.learns:
                    with addresses() as asked:
                        found.append(gradients(module, run, inputs))
                else:
                    with torch.inference_mode(mode == "inference"), torch.no_grad(), addresses() as asked:
                        found.append([run(module, *inputs)])
            quick += bool(asked) and run is block.fast
        if (said := difference(*found, SLACK)) is not None:
            wrong.append(f"{mode}, draw {turn}: {said}")
    assert not wrong, "\n".join(wrong)
    assert name in WITHOUT or quick >= 0.3 * UNWATCHED, f"{quick} of {UNWATCHED} by a kernel"
