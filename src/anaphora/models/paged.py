"""A Transformer's past in pages: rows of any length step together, join and leave, and share what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from anaphora.errors import AnaphoraError
from anaphora.models.language import TransformerBody
from anaphora.native.following import following, observed
from anaphora.nn.attention.multihead import MultiHead
from anaphora.nn.positions import Alibi, Learned, Rotary, Sinusoidal
from anaphora.nn.transformer import EncoderLayer
from anaphora.nn.transformer.compiled import norm_kind, norm_of_module, packed_stack
from anaphora.ops import packed
from anaphora.ops.packed import Stack
from anaphora.ops.paged import attend_pages

PAGE = 16
"""Places of a page."""


class Page:
    """Some places of a past, free again when no row has it any more. ``filled``: places that were written to."""

    __slots__ = ("_free", "filled", "index")

    def __init__(self, index: int, free: list[int]):
        self.index, self._free, self.filled = index, free, 0

    def __del__(self) -> None:
        self._free.append(self.index)


class Pool:
    """Keys and values of all layers, ``(layers, pages, PAGE, 2 · kept width)``; grows up to ``most`` places (None: without end)."""

    def __init__(self, layers: int, width: int, like: Tensor, most: int | None = None):
        self.kept = like.new_empty(layers, 0, PAGE, width)
        self.most = None if most is None else -(-most // PAGE)
        self._free: list[int] = []

    @property
    def used(self) -> int:
        """Pages that rows have."""
        return self.kept.shape[1] - len(self._free)

    def page(self) -> Page:
        """A page that no row has. Raises AnaphoraError where there is none left."""
        if not self._free:
            self._grow()
        return Page(self._free.pop(), self._free)

    def copy(self, page: Page, places: int) -> Page:
        """A page of one's own with the first ``places`` of another."""
        new = self.page()
        self.kept[:, new.index, :places] = self.kept[:, page.index, :places]
        new.filled = places
        return new

    def _grow(self) -> None:
        pages = self.kept.shape[1]
        wanted = max(16, 2 * pages) if self.most is None else min(max(16, 2 * pages), self.most)
        if wanted <= pages:
            raise AnaphoraError(
                f"all {pages * PAGE} places of the past are in use; ask for fewer or shorter texts at a time."
            )
        layers, _, places, width = self.kept.shape
        grown = self.kept.new_empty(layers, wanted, places, width)
        grown[:, :pages] = self.kept
        self.kept = grown
        self._free.extend(range(wanted - 1, pages - 1, -1))  # the lowest is taken first


@dataclass(frozen=True, slots=True)
class PagedRow:
    """The past of one row: its symbols since the window began, and the pages that hold their keys and values."""

    symbols: tuple[int, ...] = ()
    pages: tuple[Page, ...] = ()


@dataclass(frozen=True)
class PagedState:
    """The pasts of rows, all in one pool. To choose or join rows moves no keys and values."""

    pool: Pool
    rows: tuple[PagedRow, ...]

    def select(self, rows: Tensor) -> PagedState:
        return PagedState(self.pool, tuple(self.rows[row] for row in rows.tolist()))

    def join(self, others: Sequence[PagedState]) -> PagedState:
        """These rows, and after them those of others, which must lie in the same pool."""
        return PagedState(self.pool, tuple(row for state in (self, *others) for row in state.rows))


@dataclass(frozen=True)
class _Places:
    """What one pass needs of each new place, all ``(places,)`` but ``table`` ``(places, 1 + pages)``; see `attend_pages`."""

    symbols: Tensor
    position: Tensor
    written: Tensor
    table: Tensor


def paged_stack(body: Any) -> Stack | None:
    """All layers of a body as one call on a CPU; None where they have to be computed one by one."""
    if not isinstance(body, TransformerBody) or body.project is not None:
        return None
    if observed(body, evaluation=True) is not None or following(*body.parameters()) is not None:
        return None
    if not packed.library.ready(*body.parameters()):
        return None
    plain = body.norm is None or type(body.norm) is nn.LayerNorm
    last = isinstance(body.stack.norm, nn.Identity) or norm_kind(body.stack.norm) is not None
    return packed_stack(body.stack.layers, body.context) if plain and last else None


class PagedBody:
    """Computes what the given body does step by step, each row with its own past, in pages.

    There is no gradient. Every place is computed by itself, so that it does not matter which others are computed with it: those of other rows,
    or those before it in the same row. When a row's window is full, it goes on with the last half of its symbols, as
    `TransformerBody` does.
    """

    def __init__(self, body: TransformerBody):
        self.body, self.context, self.width = body, body.context, body.width
        self.layers = [cast(EncoderLayer, layer) for layer in body.stack.layers]
        self.like = next(body.parameters())
        self.whole = paged_stack(body)
        """All layers as one call, with the weights they have now; None where they are computed one by one."""

    def pool(self, most: int | None = None) -> Pool:
        """Room for the pasts of rows, for ``most`` places at most."""
        return Pool(len(self.layers), 2 * self.layers[0].attention.kv_width, self.like, most)

    def start(self, rows: int, pool: Pool | None = None) -> PagedState:
        """Rows without a past, in a pool of their own or the one given."""
        return PagedState(self.pool() if pool is None else pool, (PagedRow(),) * rows)

    def step(self, symbols: Tensor, state: PagedState) -> tuple[Tensor, PagedState]:
        """One more symbol of each row, ``(rows,)``: y ``(rows, width)``."""
        new = [(symbol,) for symbol in symbols.tolist()]
        pieces = [self._turned(row, piece) for row, piece in zip(state.rows, new, strict=True)]
        y, rows = self._advance(state.pool, pieces)
        if len(y) > len(pieces):  # a window has started again: its last place is needed
            ends = np.cumsum([len(piece) for _, piece in pieces]) - 1
            y = y[torch.from_numpy(ends).to(y.device)]
        return y, PagedState(state.pool, rows)

    def extend(self, pieces: Sequence[Sequence[int]], state: PagedState) -> tuple[list[Tensor], PagedState]:
        """Several more symbols of each row: y ``(symbols of the row, width)`` of each."""
        left, rows = [tuple(piece) for piece in pieces], list(state.rows)
        found: list[list[Tensor]] = [[] for _ in rows]
        while any(left):
            now = [number for number, piece in enumerate(left) if piece]
            asked, work = [], []
            for number in now:
                row, again = self._room(rows[number])
                take = self.context - len(row.symbols) - len(again)
                work.append((row, (*again, *left[number][:take])))
                asked.append((number, len(again)))
                left[number] = left[number][take:]
            y, after = self._advance(state.pool, work)
            parts = torch.split(y, [len(piece) for _, piece in work])
            for (number, known), part, row in zip(asked, parts, after, strict=True):
                found[number].append(part[known:])
                rows[number] = row
        none = self.like.new_empty(0, self.width)
        return [torch.cat(parts) if parts else none for parts in found], PagedState(state.pool, tuple(rows))

    def _room(self, row: PagedRow) -> tuple[PagedRow, tuple[int, ...]]:
        """The row with room for one more, and the symbols that have to be read again for it."""
        if len(row.symbols) < self.context:
            return row, ()
        return PagedRow(), row.symbols[-(self.context // 2) :]

    def _turned(self, row: PagedRow, new: tuple[int, ...]) -> tuple[PagedRow, tuple[int, ...]]:
        row, again = self._room(row)
        return row, (*again, *new)

    def _advance(
        self, pool: Pool, work: Sequence[tuple[PagedRow, tuple[int, ...]]]
    ) -> tuple[Tensor, tuple[PagedRow, ...]]:
        """y ``(places, width)`` of the new symbols of each row, one row after the other, and the longer rows."""
        rows, written, positions = [], [], []
        for row, new in work:
            pages = list(row.pages)
            for place in range(len(row.symbols), len(row.symbols) + len(new)):
                offset = place % PAGE
                if not offset:
                    pages.append(pool.page())
                elif pages[-1].filled != offset:  # another row that began as this one has gone on
                    pages[-1] = pool.copy(pages[-1], offset)
                pages[-1].filled = offset + 1
                written.append(pages[-1].index * PAGE + offset)
                positions.append(place)
            rows.append(PagedRow((*row.symbols, *new), tuple(pages)))
        places = self._places(work, rows, positions, written)
        return self._read(pool, places), tuple(rows)

    def _places(
        self,
        work: Sequence[tuple[PagedRow, tuple[int, ...]]],
        rows: Sequence[PagedRow],
        positions: list[int],
        written: list[int],
    ) -> _Places:
        table = np.zeros((len(positions), 1 + max(len(row.pages) for row in rows)), dtype=np.int64)
        table[:, 0] = np.asarray(positions) + 1
        begin = 0
        for (_, new), row in zip(work, rows, strict=True):
            table[begin : begin + len(new), 1 : 1 + len(row.pages)] = [page.index for page in row.pages]
            begin += len(new)
        numbers = np.array([[symbol for _, new in work for symbol in new], positions, written])
        device = self.like.device
        symbols, position, into = torch.from_numpy(numbers).to(device).unbind(0)
        return _Places(symbols, position, into, torch.from_numpy(table).to(device))

    @torch.no_grad()
    def _read(self, pool: Pool, at: _Places) -> Tensor:
        x = self.body.placed(self._positioned(self.body.vectors(at.symbols), at))
        if self.whole is not None and following(x) is None:
            return self._read_whole(x.contiguous(), pool, at)
        for layer, kept in zip(self.layers, pool.kept, strict=True):

            def look_back(y: Tensor, own: MultiHead = layer.attention, kept: Tensor = kept) -> Tensor:
                return self._attend(y, own, kept, at)

            x = layer.sublayers(x, look_back)
        found: Tensor = self.body.stack.norm(x)
        return found

    def _read_whole(self, x: Tensor, pool: Pool, at: _Places) -> Tensor:
        assert self.whole is not None
        self.whole.paged(x, pool.kept, at.table, at.position.contiguous(), at.written.contiguous())
        last = self.body.stack.norm
        return x if isinstance(last, nn.Identity) else self.whole.normalised(x, norm_of_module(last))

    def _positioned(self, x: Tensor, at: _Places) -> Tensor:
        positions: Any = self.body.positions
        if (
            observed(positions) is not None or following(x) is not None
        ):  # a hook sees the places one by one, as in any step
            found = torch.empty_like(x)
            for place in sorted(set(at.position.tolist())):
                rows = at.position == place
                found[rows] = positions(x[rows].unsqueeze(1), place).squeeze(1)
            return found
        if isinstance(positions, Sinusoidal):
            return x + positions.table(self.context, x)[at.position]
        return x + positions.weight[positions.first + at.position] if isinstance(positions, Learned) else x

    def _attend(self, y: Tensor, own: MultiHead, kept: Tensor, at: _Places) -> Tensor:
        """``(places, width)``; keys and values of the new places are written first, so that they see each other."""
        q, k, v = own.inward(y).split((own.width, own.kv_width, own.kv_width), -1)
        slopes, each = None, own.width // own.heads
        apart = own.normalised(*(t.view(*t.shape[:-1], -1, each) for t in (q, k)))
        q, k = (t.flatten(-2) for t in apart)
        if isinstance(own.positions, Rotary):
            cos, sin = (t[at.position, None] for t in own.positions.angles(self.context, each, y))
            q, k = (own.positions.turn(t.view(*t.shape[:-1], -1, each), cos, sin).flatten(-2) for t in (q, k))
        elif isinstance(own.positions, Alibi):
            slopes = torch.tensor(own.positions.slopes, device=y.device, dtype=y.dtype)
        kept.view(-1, kept.shape[-1])[at.written] = torch.cat((k, v), -1).to(kept.dtype)
        reach = None if own.window is None else own.window + 1
        seen = attend_pages(q, kept, at.table, heads=own.heads, slopes=slopes, reach=reach)
        out: Tensor = own.outward(seen)
        return out
