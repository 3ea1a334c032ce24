"""How a program is divided over a GPU: columns of a block of threads, rows of a tile, where matrices lie; and what that costs.

A block of threads fills an SM. It owns ``columns`` columns of ``8·tiles`` rows, a *slice* of a *group* of rows: all blocks
with the same group exchange what they compute, and groups do not depend on each other. Few blocks share a row when
columns are many, so that an exchange has few partners; but then each holds more of the matrices, which should fit into
registers. :func:`choose` tries all shapes and takes the one that should take the least time (:class:`Costs`).
"""

from __future__ import annotations

from dataclasses import dataclass

from anaphora.engine.backends.persistent.columns import Program

SHARED_MEMORY = 227 * 1024  # bytes a block may have on compute capability 9.0
REGISTERS = 255  # that a thread may have
ALL_REGISTERS = 65536  # of an SM
OTHER_REGISTERS = (
    48  # of a thread, for addresses, counters and what the compiler needs besides what is counted
)
SUMS = 128  # registers of a thread for the sums of a product, at most
CROWDED = 8  # tiles of results (16 by 8) from which on the warps of a team divide them
AT_ONCE = 8  # blocks of the depth a warp fetches together; each is four registers and a tile of rows
AT_ONCE_NARROW = 12  # the same where 16-bit numbers of one tile of results leave room
CELLS = 8  # numbers of a value that a thread computes, at most
SMALL = 256  # units up to which four warps are enough for a forward pass


@dataclass(frozen=True)
class ProductTiling:
    """One product: ``out`` blocks of columns from a row ``depth`` long, in 16-row tiles and blocks of the depth."""

    depth: int
    out: int
    row_tiles: int  # of each warp
    depth_blocks: int  # the same
    in_registers: int  # of these
    at_once: int  # that are fetched together
    sums: int  # independent chains of additions
    split: int = 1  # warps of a team: they divide the rows, and what has to be fetched for them

    def spilled(self, warps: int) -> int:
        """Bytes of shared memory for what registers do not hold."""
        return warps * (self.depth_blocks - self.in_registers) * self.row_tiles * 64 * 16

    def partial(self, warps: int, tiles: int) -> int:
        """Bytes of shared memory for the warps' shares of the result."""
        return warps // self.split * 8 * tiles * (self.split * self.row_tiles * 16 + 4) * 4

    def staged(self, warps: int, tiles: int) -> int:
        """Bytes of shared memory for what the warps of a team hand to each other."""
        return warps // self.split * self.depth_blocks * tiles * 32 * 16 if self.split > 1 else 0


@dataclass(frozen=True)
class Tiling:
    """A program's place on the GPU."""

    hidden: int
    columns: int
    tiles: int
    warps: int
    products: tuple[ProductTiling, ...]
    partial: int  # bytes of one set of partial results
    shared_memory: int
    registers: int  # that a thread was counted to need
    cluster: int = 0  # blocks that reach into each other's shared memory; 0: they do not
    near: int = 0  # stages of a step that begin with what came that way alone

    @property
    def padded(self) -> int:
        """The state's width with the columns that only fill it up."""
        return -(-self.hidden // self.columns) * self.columns

    @property
    def slices(self) -> int:
        return self.padded // self.columns

    def groups(self, batch: int) -> int:
        """Tiles of rows, which do not depend on each other."""
        return -(-batch // (8 * self.tiles))

    def grid(self, batch: int, sms: int) -> int:
        """Blocks that run at once; they take the groups one after another when there are more."""
        return self.slices * min(self.groups(batch), sms // self.slices)


def choose(program: Program, hidden: int, batch: int, half: bool, sms: int) -> Tiling | None:
    """The tiling that should take the least time per step; None when no tiling fits."""
    best: tuple[float, Tiling] | None = None
    reduces = any(not e.is_product for e in program.exchanges)
    for columns in (8, 16, 32, 64):
        if (columns > 32 and reduces) or (columns > 8 and columns >= 2 * hidden):
            continue
        for tiles in (1, 2):
            if tiles > 1 and batch <= 8:
                continue
            for warps in (4, 8):
                tiling = tile(program, hidden, columns, tiles, warps, half)
                if tiling is None or tiling.slices > sms:
                    continue
                needed = cost(program, tiling, batch, half, sms)
                if best is None or needed < best[0]:
                    best = (needed, tiling)
    return best[1] if best else None


def tile(program: Program, hidden: int, columns: int, tiles: int, warps: int, half: bool) -> Tiling | None:
    """The tiling with these sizes; None when it does not fit on the chip."""
    padded = -(-hidden // columns) * columns
    vector = 8 if half else 4
    each = -(-8 * tiles * columns // (32 * warps))  # numbers of a value per thread
    shapes = []
    for exchange in program.products:
        depth, out = len(set(exchange.operands)) * padded, program.columns.blocks(exchange.node)
        row_tiles = -(-out * columns // 16)
        # Many results of a warp leave little room for weights: several warps then take a part of them each.
        crowded = row_tiles * tiles > CROWDED
        split = 4 if crowded and row_tiles % 4 == 0 else 2 if crowded and row_tiles % 2 == 0 else 1
        row_tiles //= split
        depth_blocks = -(-depth // (warps * 4 * vector)) * split
        sums = 1 if tiles > split else max(1, min(4, 2 * depth_blocks, CROWDED // (row_tiles * tiles)))
        wide = depth_blocks <= AT_ONCE_NARROW and row_tiles * tiles == 1 and half
        at_once = depth_blocks // split if split > 1 or wide else min(depth_blocks, AT_ONCE)
        shapes.append((depth, out, row_tiles, depth_blocks, at_once, sums, split))
    if any(r * tiles * s * 4 > SUMS for _, _, r, _, _, s, _ in shapes):
        return None
    reads = sum(p.kind not in ("vector", "carried") for p in program.places)
    vectors = sum(p.kind == "vector" for p in program.places)
    working = max((r * tiles * s * 4 + a * tiles * 4 for _, _, r, _, a, s, _ in shapes), default=0)
    needed = OTHER_REGISTERS + working + len(program.sums) + vectors
    needed += each * (program.carried + (reads // 2 if half else reads))
    room = min(REGISTERS, ALL_REGISTERS // (32 * warps)) - needed
    products = []
    for depth, out, row_tiles, depth_blocks, at_once, sums, split in shapes:
        held = max(0, min(depth_blocks, room // (row_tiles * 8)))
        room -= held * row_tiles * 8
        products.append(ProductTiling(depth, out, row_tiles, depth_blocks, held, at_once, sums, split))
    partial = max(
        (
            sum(
                p.partial(warps, tiles)
                for p, e in zip(products, program.products, strict=True)
                if e.level == level
            )
            for level in range(program.stages)
        ),
        default=0,
    )
    memory = 2 * partial + sum(p.spilled(warps) + p.staged(warps, tiles) for p in products)
    if memory > SHARED_MEMORY or each > CELLS:
        return None
    return Tiling(hidden, columns, tiles, warps, tuple(products), partial, memory, REGISTERS - room)


@dataclass(frozen=True)
class Costs:
    """What the parts of a step cost, in microseconds each.

    Fitted to kernels measured on an NVIDIA H200 (132 SMs). ``python benchmarks/persistent_costs.py`` measures them again
    on the GPU at hand and prints them beside these.
    """

    step: float = 2.0  # a step with one exchange: publish, poll through the GPU's memory, multiply, add up
    second_tile: float = 2.0 * 0.27  # eight more rows in every block
    exchange: float = 1.5  # each exchange after the first
    near: float = -0.5  # an exchange that stays in its cluster
    column: float = 0.0025  # a column of a block, for each value a product has there, forward
    column_backward: float = 0.0025 * 1.5  # the same in the backward pass
    slice: float = 0.006  # a block that shares the row: each polls what all publish
    spilled: float = 1 / 400_000  # a byte of weights that lies in shared memory and is read at every step
    padding: float = (
        0.25  # a product's whole depth, where that much is multiplied only because warps share it evenly
    )
    narrow: float = 0.6  # eight warps that publish 16-bit gradients in less than a memory sector each
    warps: float = 0.1  # a number of warps other than the usual one: 4 for small forward passes, 8 otherwise


H200_COSTS = Costs()


def cost(
    program: Program, tiling: Tiling, batch: int, half: bool, sms: int, costs: Costs = H200_COSTS
) -> float:
    """Microseconds per step, about."""
    rounds = -(-tiling.groups(batch) // (sms // tiling.slices))
    parts = counts(program, tiling, half).items()
    total: float = sum(getattr(costs, name) * count for name, count in parts)
    return round(rounds * total, 9)  # so that equal costs are equal


def counts(program: Program, tiling: Tiling, half: bool) -> dict[str, float]:
    """How many of each part of :class:`Costs` a step has, when all rows are computed in one round."""
    values = sum(p.out for p in tiling.products)  # of each column, that products compute
    small = not program.backward and (tiling.hidden <= SMALL or values <= len(tiling.products))
    usual = 4 if small and not tiling.cluster else 8
    padding = 0.0
    for p in tiling.products:
        multiplied = p.depth_blocks // p.split * tiling.warps * (32 if half else 16)
        padding += max(0.0, multiplied / p.depth - 1)
    return {
        "step": 1,
        "second_tile": tiling.tiles - 1,
        "exchange": max(0, program.stages - 2),
        "near": tiling.near,
        "column_backward" if program.backward else "column": tiling.columns * values,
        "slice": tiling.slices,
        "spilled": sum(p.spilled(tiling.warps) for p in tiling.products),
        "padding": padding,
        "narrow": half and program.backward and tiling.columns < 32 and tiling.warps > 4,
        "warps": tiling.warps != usual,
    }
