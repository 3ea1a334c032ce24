"""Which of NVIDIA's libraries computes the gradient of a weight: sums over many rows, for a weight of few tiles.

cuBLAS divides the sum of a weight of 3 072 × 768 in two, so that all multiprocessors have something to do, and adds the parts up
afterwards. cublasLt computes it by 128 smaller tiles, undivided, which nearly fill the 132 multiprocessors of an H200: 119 and 123 µs
where cuBLAS takes 124 and 131, for 16 384 rows on a GPU that is busy all the time. Where tiles do not come out even, as for 2 304 × 768,
cublasLt is slower.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

TILE = (192, 96)
ROWS = 8192  # of which a sum is divided
FULL = 0.95  # share of the multiprocessors that have a tile


def fills(height: int, width: int, processors: int) -> bool:
    """Whether a weight of ``height`` × ``width`` has a whole tile for nearly every multiprocessor, and none too many."""
    for long, short in (TILE, TILE[::-1]):
        tiles = height // long * (width // short)
        if height % long or width % short or not FULL * processors <= tiles <= processors:
            return False
    return True


@contextmanager
def undivided(rows: int, height: int, width: int, device: torch.device) -> Iterator[None]:
    """Inside the block products are cublasLt's where a weight of this size is better off with it, else as they were."""
    if rows < ROWS or not fills(height, width, _processors(device)):
        yield
        return
    choose: Any = torch.backends.cuda.preferred_blas_library
    before = choose()
    choose("cublaslt")
    try:
        yield
    finally:
        choose(before)


@cache
def _processors(device: torch.device) -> int:
    """Of a GPU of Hopper's generation; 0 for others, of which nothing was measured."""
    facts = torch.cuda.get_device_properties(device)
    return facts.multi_processor_count if facts.major == 9 and not torch.version.hip else 0


def warned(device: torch.device) -> None:
    """Let torch say, unheard, that the choice is experimental: it does so once, and otherwise in the middle of a training."""
    if device.type == "cuda" and _processors(device):
        _warned()


@cache
def _warned() -> None:
    with warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore")
        start = torch.zeros((), requires_grad=True)
        _Chosen.apply(start).backward()  # type: ignore[no-untyped-call]


class _Chosen(torch.autograd.Function):
    """Chooses cublasLt and takes it back in a backward pass, whose warnings torch hands on to Python; elsewhere it prints this one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        choose: Any = torch.backends.cuda.preferred_blas_library
        before = choose()
        choose("cublaslt")
        choose(before)
        return grad
