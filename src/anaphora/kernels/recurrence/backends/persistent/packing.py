"""Matrices in the order a kernel reads them, and gradients in the order the plan has them.

A kernel knows columns by their entry in its shared array, padded to whole slices; the plan knows them by their
place in a value. Entries usually follow the plan's order, and then nothing is moved.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from anaphora.kernels.recurrence.backends.persistent.columns import Key


def pack_depth(
    matrix: Tensor, wanted: Sequence[Key], entries: Sequence[Key], hidden: int, padded: int
) -> Tensor:
    """Rows of blocks, each block one column of the result: ``(blocks·H, blocks·H)`` to ``(blocks·P, entries·P)``.

    ``matrix`` multiplies values made of the numbers ``wanted``; the result multiplies the array's ``entries``.
    """
    if tuple(wanted) == tuple(entries) and padded == hidden:
        return matrix.contiguous()
    parts = []
    for entry in entries:
        found = [matrix[:, k * hidden : (k + 1) * hidden] for k, key in enumerate(wanted) if key == entry]
        block = found[0]
        for more in found[1:]:
            block = block + more
        parts.append(pad(block, (0, padded - hidden)) if padded > hidden else block)
    whole = parts[0] if len(parts) == 1 else torch.cat(parts, 1)
    if padded > hidden:
        rows = whole.shape[0] // hidden
        whole = pad(whole.reshape(rows, hidden, -1), (0, 0, 0, padded - hidden)).reshape(rows * padded, -1)
    return whole.contiguous()


def pack_rows(
    matrix: Tensor, wanted: Sequence[Key], entries: Sequence[Key], hidden: int, padded: int
) -> Tensor:
    """The same for rows: ``(wanted·H, n)`` to ``(entries·P, n)``, where n stays."""
    if tuple(wanted) == tuple(entries) and padded == hidden:
        return matrix
    parts = []
    for entry in entries:
        found = [matrix[k * hidden : (k + 1) * hidden] for k, key in enumerate(wanted) if key == entry]
        block = found[0]
        for more in found[1:]:
            block = block + more
        parts.append(pad(block, (0, 0, 0, padded - hidden)) if padded > hidden else block)
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def unpack_rows(
    gradient: Tensor, wanted: Sequence[Key], entries: Sequence[Key], hidden: int, padded: int
) -> Tensor:
    """The way back: ``(entries·P, n)`` to ``(wanted·H, n)``."""
    if tuple(wanted) == tuple(entries) and padded == hidden:
        return gradient
    starts = [list(entries).index(key) * padded for key in wanted]
    parts = [gradient[s : s + hidden] for s in starts]
    return parts[0] if len(parts) == 1 else torch.cat(parts)
