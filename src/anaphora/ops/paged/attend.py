"""One query of each row to the row's own past, in pages: C on a CPU, Triton on a GPU, torch where neither is."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import torch
from torch import Tensor

from anaphora.native.following import following
from anaphora.ops import packed


def attend_pages(
    query: Tensor,
    pages: Tensor,
    table: Tensor,
    *,
    heads: int,
    slopes: Tensor | None = None,
    reach: int | None = None,
) -> Tensor:
    """softmax(q kᵀ / √d − slope · distance) v of each row by itself: ``(rows, width)`` -> ``(rows, width)``.

    ``pages`` ``(there are, places, 2 · kept width)`` hold keys and values side by side; fewer heads of these are shared by
    neighbouring heads of the query. ``table`` ``(rows, 1 + most)``, int64: how many places the past of a row has, and its pages
    in order. ``slopes`` ``(heads,)`` are those of `Alibi`; ``reach``: how many of the last places are seen, None for all.
    A row's result depends on its own past alone, to the last bit.
    """
    followed = following(query, pages) is not None
    if not followed and packed.library.ready(query, pages):
        return packed.attend_pages(query, pages, table, heads=heads, slopes=slopes, reach=reach)
    if not followed and query.is_cuda and find_spec("triton") is not None:
        programs = import_module("anaphora.ops.paged.programs")
        found: Tensor = programs.attend_pages(query, pages, table, heads, slopes, reach)
        return found
    lengths = table[:, 0].tolist()
    rows = [
        _row(query[row], pages, table[row, 1:], length, heads, slopes, reach)
        for row, length in enumerate(lengths)
    ]
    return torch.stack(rows)


def _row(
    query: Tensor,
    pages: Tensor,
    table: Tensor,
    length: int,
    heads: int,
    slopes: Tensor | None,
    reach: int | None,
) -> Tensor:
    """The same written out for one row, ``(width,)``."""
    size, d = pages.shape[1], query.shape[0] // heads
    first = max(0, length - reach) if reach else 0
    place = torch.arange(first, length, device=query.device)
    past = pages[table[place // size], place % size]  # (places, 2 · kept width)
    keys, values = past.view(len(place), 2, -1, d).unbind(1)  # each (places, kept heads, d)
    group = heads // keys.shape[1]
    keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
    scores = (keys * query.view(heads, d)).sum(-1) * d**-0.5  # (places, heads)
    if slopes is not None:
        scores = scores - slopes * (length - 1 - place)[:, None]
    weights = scores.softmax(0)
    found: Tensor = (weights[..., None] * values).sum(0).flatten()
    return found
