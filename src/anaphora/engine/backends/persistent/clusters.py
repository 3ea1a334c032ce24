"""Exchanges inside a cluster: blocks of threads that reach into each other's shared memory.

All blocks that share a group of rows can be one cluster when they are few. What is small then goes straight into the
memory of each of them, which takes a fraction of the way through the GPU's common memory; what is large goes that way
still, where it is written once and not once for each reader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import torch

from anaphora.engine.backends.persistent.columns import Program
from anaphora.engine.backends.persistent.tiling import SHARED_MEMORY, Tiling, cost, tile
from anaphora.native.cuda import Loaded, machine_code

MOST_BLOCKS = 16  # of a cluster, on Hopper (above 8 only with the driver's leave)
# Bytes of a product's rows that every block is sent at a step, at most: every block writes its part to all the others,
# so more goes faster through the GPU's memory, where it is written once. The gradients of four gates of 512 units (32 KiB
# of eight rows) were faster there on an H200; the states of 512 units (8 KiB) were faster in the cluster.
MOST_RECEIVED = 8 * 1024
BANKS = 128  # bytes that the banks of shared memory deliver at once


@dataclass(frozen=True)
class NearProduct:
    """Rows of a product's operands in shared memory: where, and how far apart, in numbers; and its barriers."""

    offset: int  # bytes
    row: int
    barriers: int  # bytes


@dataclass(frozen=True)
class NearSums:
    """What all strips of a row send for the reductions of a stage; and its barriers."""

    offset: int  # bytes
    barriers: int


@dataclass(frozen=True)
class Near:
    """The places of a kernel's exchanges that stay in a cluster, each twice for steps that follow one another."""

    products: dict[int, NearProduct]  # by their place among the program's products
    reductions: dict[int, NearSums]  # by level
    size: int
    barriers: int  # how many, from the beginning


NOTHING_NEAR = Near({}, {}, 0, 0)


def reduction_width(count: int) -> int:
    """Numbers a strip of a row sends for ``count`` reductions, filled up to whole loads of four."""
    return -(-count // 4) * 4


def nearby(program: Program, tiling: Tiling, half: bool) -> Near:
    """What of a program's exchanges stays in the clusters of a tiling: all reductions, and what is small of products."""
    rows, wide = 8 * tiling.tiles, 2 if half else 4
    strips = tiling.padded // min(32, tiling.columns)
    levels = {e.level: 0 for e in program.exchanges if not e.is_product}
    for e in program.exchanges:
        if e.level in levels and not e.is_product:
            levels[e.level] += 1
    count = 2 * (rows * len(levels) + tiling.warps * len(tiling.products))  # barriers, all there may be
    free, size = SHARED_MEMORY - own_memory(tiling), 8 * count
    reductions: dict[int, NearSums] = {}
    products: dict[int, NearProduct] = {}
    for q, level in enumerate(sorted(levels)):
        reductions[level] = NearSums(size, 16 * rows * q)
        size += 2 * rows * strips * reduction_width(levels[level]) * 4
    if size > free:
        return NOTHING_NEAR
    for k, p in enumerate(tiling.products):
        # Rows half a line of banks apart: eight lanes that read two rows then read eight different banks.
        row = p.depth * wide + (BANKS // 2 - p.depth * wide) % BANKS
        if rows * p.depth * wide <= MOST_RECEIVED and size + 2 * rows * row <= free:
            products[k] = NearProduct(size, row // wide, 16 * (rows * len(levels) + tiling.warps * k))
            size += 2 * rows * row
    return Near(products, reductions, size, count) if products or reductions else NOTHING_NEAR


def own_memory(tiling: Tiling) -> int:
    """Bytes of shared memory a block has for itself."""
    held = sum(p.spilled(tiling.warps) + p.staged(tiling.warps, tiling.tiles) for p in tiling.products)
    return 2 * tiling.partial + held


def clustered(program: Program, tiling: Tiling, half: bool) -> Tiling:
    """The same tiling in clusters; as it was where no exchange gains. One block is no cluster: it cannot send to itself."""
    if not 2 <= tiling.slices <= MOST_BLOCKS:
        return tiling
    near = nearby(program, tiling, half)
    if not near.size:
        return tiling
    far = {e.level for k, e in enumerate(program.products) if k not in near.products}
    stages = program.stages - 1 - len(far)
    return replace(tiling, cluster=tiling.slices, shared_memory=own_memory(tiling) + near.size, near=stages)


def closer(
    program: Program, far: Tiling, batch: int, half: bool, sms: int, at_once: Callable[[int], int]
) -> Tiling:
    """``far``, or a tiling in clusters that should take less time; ``at_once``: clusters of some blocks that fit.

    Fewer, wider blocks pay when nothing has to leave their cluster, and all weights stay in registers or rows are
    summed up.
    """
    best = (cost(program, far, batch, half, sms), far)
    given = (far.columns, far.tiles, far.warps)
    reduces = any(not e.is_product for e in program.exchanges)
    for shape in dict.fromkeys([given, *((c, 1, w) for c in (16, 32, 64) for w in (8, 4))]):
        tiling = tile(program, far.hidden, *shape, half)
        tiling = clustered(program, tiling, half) if tiling is not None else far
        whole = all(p.in_registers == p.depth_blocks for p in tiling.products)
        pays = tiling.near == program.stages - 1 and (whole or reduces)
        if not tiling.cluster or (shape != given and not pays):
            continue
        room = min(sms, at_once(tiling.cluster) * tiling.slices)
        if room:
            needed = cost(program, tiling, batch, half, room)
            best = min(best, (needed, tiling), key=lambda one: one[0])
    return best[1]


@cache
def clusters_at_once(blocks: int, architecture: str, device: torch.device) -> int:
    """How many clusters of ``blocks`` blocks a GPU holds when a block fills an SM.

    Its SMs come in groups of unequal size, and a cluster lies within one of them.
    """
    code = machine_code('extern "C" __global__ void nothing(){}', architecture, "nothing")
    with torch.cuda.device(device):
        return Loaded(code, "nothing", SHARED_MEMORY, 32, blocks).clusters_at_once()
