"""A matrix-valued state whose update is known, over all steps: what is written to it, and reads of it.

Axes: B batch, T time, N heads, D and E the sides of a state.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import torch
from torch import Tensor

from anaphora.engine.backends.base import LayerRun, Params, States
from anaphora.engine.matrices import Factor, NotAffine, Pair, Update
from anaphora.ops.matrix_scan.products import outer
from anaphora.ops.matrix_scan.scan import signed_scan

Sizes = tuple[int, int]  # B, T


@dataclass
class Elements:
    """A state each of whose numbers is a recurrence of its own, stored at all steps."""

    new: Tensor  # (B, T, numbers)
    last: Tensor  # (B, numbers)
    form: str


class Written:
    """A state that is only ever written to and read by vectors, and stored nowhere but at the end.

    S_t = diag(w_t) S_{t−1} + b_t (a_tᵀ S_{t−1}) + Σ k_t v_tᵀ; ``writes``: the k ``(B, T, N, D)`` and v ``(B, T, N, E)``.
    """

    def __init__(
        self,
        w: Tensor,
        writes: list[Pair],
        reads: Pair | None,
        first: Tensor,
        shape: tuple[int, ...],
        form: str,
    ):
        self.w, self.writes, self.reads = w, writes, reads
        self.first, self.shape, self.form = first, shape, form
        self._last: Tensor | None = None

    @property
    def last(self) -> Tensor:
        """The state after the last step, ``(B, numbers)``."""
        if self._last is None:
            self._scan(torch.zeros_like(self.writes[0][0]))
        assert self._last is not None
        return self._last

    def read(self, q: Tensor) -> Tensor:
        """S_tᵀ q_t for q ``(B·T, …, D)``: ``(B·T, …, E)``."""
        return self._flat(self._scan(self._by_step(q)))

    def read_before(self, a: Tensor) -> Tensor:
        """S_{t−1}ᵀ a_t for a ``(B·T, …, D)``: ``(B·T, …, E)``."""
        a = self._by_step(a)
        # The state before a step is the one after the step before it.
        later = torch.cat((a[:, 1:], torch.zeros_like(a[:, :1])), 1)
        y = self._scan(later)
        now = (a[:, 0, :, None].to(self.first.dtype) @ self.first).squeeze(2)  # (B, N, E)
        return self._flat(torch.cat((now[:, None].to(y.dtype), y[:, :-1]), 1))

    def _scan(self, r: Tensor) -> Tensor:
        count = len(self.writes)
        if count == 1:
            (k, v), w = self.writes[0], self.w
            b, a = self.reads or (None, None)
        else:  # the writes of a step become steps of their own; only the first decays and reads
            k, v = (self._woven([pair[side] for pair in self.writes]) for side in (0, 1))
            w = self._woven([self.w, *[torch.ones_like(self.w)] * (count - 1)])
            b, a = ((None if x is None else self._first_of(x)) for x in self.reads or (None, None))
            r = self._woven([*[torch.zeros_like(r)] * (count - 1), r])
        y, last = signed_scan(r, k, v, w, a, b, self.first)
        self._last = last.flatten(1)
        return y[:, count - 1 :: count]

    @cached_property
    def _sizes(self) -> Sizes:
        return self.w.shape[0], self.w.shape[1]

    def _woven(self, parts: list[Tensor]) -> Tensor:
        return torch.stack(parts, 2).flatten(1, 2)

    def _first_of(self, x: Tensor) -> Tensor:
        return self._woven([x, *[torch.zeros_like(x)] * (len(self.writes) - 1)])

    def _by_step(self, x: Tensor) -> Tensor:
        return _steps(x, self.shape[:-1], self._sizes)

    def _flat(self, y: Tensor) -> Tensor:
        """``(B, T, N, E)`` as the step has it."""
        return y.reshape(-1, *self.shape[:-2], self.shape[-1])


def solved(
    update: Update, state: int, shape: tuple[int, ...], sizes: Sizes, run: LayerRun, live: Tensor | None
) -> Written | Elements:
    """A state with this update; raises NotAffine where there is no scan for it."""
    by_column = isinstance(update.scale, Tensor) and update.scale.dim() > 0 and update.scale.shape[-1] != 1
    idle = not update.writes and not update.reads
    if len(shape) < 2 or by_column or update.rest is not None or idle:
        return _elements(update, state, shape, sizes, run)
    reads = _one_pair(update.reads)
    if reads is None and update.reads:
        raise NotAffine(f"{{{state}}} is read in {len(update.reads)} directions by its own update")
    tall, wide = shape[:-1], (*shape[:-2], shape[-1])
    nothing = run.initial[state].new_zeros(1)
    pairs = _merged(update.writes) or [(nothing, nothing)]
    writes = [(_steps(k, tall, sizes), _steps(v, wide, sizes)) for k, v in pairs]
    both = None if reads is None else (_steps(reads[0], tall, sizes), _steps(reads[1], tall, sizes))
    scale = _numbers(update.scale, writes[0][0])
    by_head = scale.dim() < 2 or scale.shape[-2] == 1
    if by_head:
        heads = shape[:-2]
        scale = scale.reshape(1) if scale.dim() < 2 else scale[..., 0, 0]
        w = scale.expand(sizes[0] * sizes[1], *heads).reshape(*sizes, prod(heads))
    else:
        w = _steps(scale[..., 0], tall, sizes)
    if live is not None:  # past a row's end its state neither decays nor is written to
        w = torch.where(live if by_head else live[..., None], w, w.new_ones(()))
        writes = [(_while(live, k), _while(live, v)) for k, v in writes]
        both = None if both is None else (_while(live, both[0]), _while(live, both[1]))
    first = run.initial[state].reshape(sizes[0], -1, *shape[-2:])
    form = "matrix" if both is None else "matrix, delta rule"
    if update.scale is None or isinstance(update.scale, Tensor) or update.scale != 1:
        form += ", decay by head" if by_head else ", decay by key channel"
    return Written(w, writes, both, first, shape, form)


def _steps(x: Tensor, shape: tuple[int, ...], sizes: Sizes) -> Tensor:
    """``(B·T, …, n)``, or what is broadcast to it, as ``(B, T, N, n)``."""
    return x.expand(sizes[0] * sizes[1], *shape).reshape(*sizes, prod(shape[:-1]), shape[-1])


def _numbers(value: Factor | None, like: Tensor) -> Tensor:
    """A factor as a tensor; zero for none."""
    return torch.as_tensor(0 if value is None else value, dtype=like.dtype, device=like.device)


def _while(live: Tensor, x: Tensor) -> Tensor:
    return torch.where(live[..., None], x, x.new_zeros(()))


def _merged(pairs: list[Pair]) -> list[Pair]:
    """Pairs that share a factor as one."""
    found: list[Pair] = []
    for one, other in pairs:
        for at, (left, right) in enumerate(found):
            if left is one or right is other:
                found[at] = (left, right + other) if left is one else (left + one, right)
                break
        else:
            found.append((one, other))
    return found


def _one_pair(pairs: list[Pair]) -> Pair | None:
    merged = _merged(pairs)
    return merged[0] if len(merged) == 1 else None


# ---------------------------------------------------------------------- number by number
def _elements(update: Update, state: int, shape: tuple[int, ...], sizes: Sizes, run: LayerRun) -> Elements:
    """s_t = w_t ∘ s_{t−1} + u_t for every number of a state."""
    if update.reads:
        raise NotAffine(
            f"{{{state}}} decays by column, or is added to as a whole, while its update reads it; use outer"
        )
    like, count = run.initial[state], prod(shape)
    w, u = _numbers(update.scale, like), _numbers(update.rest, like)
    for k, v in update.writes:
        u = u + outer(k, v)
    rows = sizes[0] * sizes[1]
    parts = [x.expand(rows, *shape).reshape(*sizes, count) for x in (w, u)]
    new, last = _diagonal(torch.cat(parts, -1), like, run.lengths)
    return Elements(new, last, "diagonal")


def _affine(params: Params, steps: States, rows: States, states: States) -> States:
    w, u = steps[0].chunk(2, -1)
    return (w * states[0] + u,)


_engines: list[Any] = []  # one, with the programs compiled so far


def _diagonal(both: Tensor, first: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """w and u ``(B, T, 2·numbers)``: the states ``(B, T, numbers)`` and the last, by the engine's own scan."""
    from anaphora.engine import dispatch  # which chooses among backends, this one too
    from anaphora.engine.prepare import Engine

    if not _engines:
        _engines.append(Engine(_affine, "affine"))
    run = LayerRun(_affine, {}, (both,), (), (first,), lengths)
    new, (last,) = dispatch.run_layer(_engines[0], run)
    return new, last
