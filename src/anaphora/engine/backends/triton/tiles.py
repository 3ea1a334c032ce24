"""How much of a step one program of a kernel computes."""

from __future__ import annotations

from typing import NamedTuple


class Tile(NamedTuple):
    """Rows, columns and warps."""

    rows: int
    columns: int
    warps: int

    def grid(self, batch: int, hidden: int) -> tuple[int, int]:
        return -(-hidden // self.columns), -(-batch // self.rows)


def power(least: int) -> int:
    """The power of two not below ``least``."""
    return 1 << max(0, least - 1).bit_length()


def tile(batch: int, hidden: int) -> Tile:
    """Kernels that compute columns: about a thousand values a program."""
    columns = min(power(hidden), 256)
    return Tile(max(1, min(1024 // columns, power(batch))), columns, 4)


def row_tile(hidden: int) -> Tile:
    """Kernels that sum over whole rows."""
    columns = power(hidden)
    return Tile(max(1, 512 // columns), columns, 8 if columns > 2048 else 4)


SMS = 132  # of the GPUs this was measured on


def shares(batch: int, depth: int, width: int) -> int:
    """Into how many a product ``(batch, depth) · (depth, width)`` is cut along its depth.

    Few results keep few SMs busy, so the library would cut it anyway and add the shares up in another kernel;
    what reads the product can do that for nothing.
    """
    blocks = -(-batch // 128) * -(-width // 64)
    found = 1
    while found < 4 and 2 * found * blocks <= SMS and depth % (2 * found) == 0 and depth >= 2048 * found:
        found *= 2
    return found
