"""Multi-head attention (Vaswani et al. 2017, section 3.2.2), with caches for decoding."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.nn import inside
from anaphora.nn.attention import masks
from anaphora.nn.attention.scaled_dot import local_scaled_dot, scaled_dot
from anaphora.nn.distances import Distances, SharedDistances
from anaphora.nn.exporting import scanning
from anaphora.nn.positions import Alibi, Rotary

_EPS = 1e-6


@dataclass(frozen=True)
class KeyValues:
    """Projected ``keys`` and ``values``, each ``(rows, kv_heads, keys, width/heads)``: what decoding need not repeat.

    >>> kv = an.nn.attention.MultiHead(8, heads=2).project(torch.zeros(3, 5, 8))
    >>> kv.keys.shape, kv.select(torch.tensor([0, 0])).values.shape
    (torch.Size([3, 2, 5, 4]), torch.Size([2, 2, 5, 4]))
    """

    keys: Tensor
    values: Tensor

    def grow(self, new: KeyValues) -> KeyValues:
        """These, followed in time by ``new``."""
        return KeyValues(torch.cat((self.keys, new.keys), 2), torch.cat((self.values, new.values), 2))

    def last(self, places: int) -> KeyValues | None:
        """Those of the last so many places; None for 0."""
        first = max(0, self.keys.shape[2] - places)
        return KeyValues(self.keys[:, :, first:], self.values[:, :, first:]) if places else None

    def select(self, rows: Tensor) -> KeyValues:
        """Those of the given rows, in their order; rows may repeat."""
        return KeyValues(self.keys.index_select(0, rows), self.values.index_select(0, rows))


class MultiHead(nn.Module):
    """h attentions side by side, each on its own projections of width d = width/h, then joined.

        head_i = softmax(Q W_i^Q (K W_i^K)ᵀ / √d) V W_i^V,    out = [head_1; …; head_h] W^O

    ``positions`` (`Rotary`, `Alibi` or `Distances`) lets the scores of self-attention know how far apart two places are;
    with ``window`` a place sees only so many places on either side of it, and time and memory grow with the
    window instead of the length. Both are for self-attention only.
    With fewer ``kv_heads`` each head of keys and values serves a group of query heads (Ainslie et al. 2023; 1 is
    multi-query, Shazeer 2019): smaller caches for decoding. ``bias`` is that of Q, K and V, ``outward_bias`` that of W^O.
    ``head_width`` is d where it is not width/h, and ``scaled`` whether scores are divided by √d (T5: not).
    Notes ``weights`` ``(batch, heads, queries, keys)``; while they are neither recorded nor requested, PyTorch's
    fused kernel computes the same result without them.

    ``dropout`` is on the weights. Raises a `ValueError` where ``heads`` does not divide ``width``, nor ``kv_heads`` the heads.

    >>> out, weights = an.nn.attention.MultiHead(8, heads=2)(torch.zeros(3, 5, 8), causal=True, weights=True)
    >>> out.shape, weights.shape
    (torch.Size([3, 5, 8]), torch.Size([3, 2, 5, 5]))
    """

    def __init__(
        self,
        width: int,
        heads: int,
        dropout: float = 0.0,
        *,
        positions: Rotary | Alibi | Distances | SharedDistances | None = None,
        window: int | None = None,
        kv_heads: int | None = None,
        bias: bool = True,
        outward_bias: bool = True,
        head_width: int | None = None,
        scaled: bool = True,
    ):
        super().__init__()
        if heads < 1 or (width % heads and head_width is None):
            raise ValueError(
                f"MultiHead splits the width among its heads, but {heads} does not divide {width}"
            )
        if window is not None and window < 0:
            raise ValueError(f"MultiHead: window is a number of places on either side, not {window}")
        if isinstance(positions, Alibi) and len(positions.slopes) != heads:
            raise ValueError(
                f"MultiHead has {heads} heads, but its Alibi has {len(positions.slopes)}: make it Alibi({heads})"
            )
        self.kv_heads = heads if kv_heads is None else kv_heads
        if self.kv_heads < 1 or heads % self.kv_heads:
            raise ValueError(f"MultiHead: kv_heads must divide the {heads} heads, but is {kv_heads}")
        self.width, self.heads, self.dropout = width, heads, dropout
        self.each = head_width or width // heads
        self.scale = None if scaled else 1.0
        self.inner, self.kv_width = self.each * heads, self.each * self.kv_heads
        self.inward = nn.Linear(
            width, self.inner + 2 * self.kv_width, bias
        )  # W^Q, W^K, W^V of all heads, in this order
        self.outward = nn.Linear(self.inner, width, outward_bias)  # W^O
        self.positions = positions
        self.window = window
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.inward.weight)
        nn.init.xavier_uniform_(self.outward.weight)
        for part in (self.inward, self.outward):
            if part.bias is not None:
                nn.init.zeros_(part.bias)

    def forward(
        self,
        query: Tensor,
        keys: Tensor | None = None,
        mask: Tensor | None = None,
        values: Tensor | None = None,
        *,
        causal: bool = False,
        weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from ``query`` ``(batch, queries, width)`` to ``keys`` ``(batch, keys, width)``.

        Without keys the queries attend to each other (self-attention). mask: True where a key may be seen,
        ``(batch, keys)`` or ``(batch, queries, keys)``; ``causal`` hides what comes after each query.
        Returns ``(batch, queries, width)``, and the weights ``(batch, heads, queries, keys)`` with ``weights=True``, else None.
        """
        if keys is None:
            q, kv = self._project_self(query, 0)
            if self.window is not None and query.shape[1]:
                return self._attend_near(q, kv, mask, self.window, causal, weights)
        else:
            q, kv = self.project_query(query), self.project(keys, values)
        return self.attend(q, kv, mask, causal=causal, weights=weights)

    def step(self, x: Tensor, past: KeyValues | None) -> tuple[Tensor, KeyValues]:
        """Causal self-attention of the next place: x ``(rows, 1, width)`` attends to the past and itself."""
        q, kv = self._project_self(x, 0 if past is None else past.keys.shape[2])
        if past is not None:
            kv = past.grow(kv)
        near = kv
        if self.window is not None:
            near = KeyValues(kv.keys[:, :, -self.window - 1 :], kv.values[:, :, -self.window - 1 :])
        return self.attend(q, near)[0], kv

    def further(self, x: Tensor, past: KeyValues | None) -> tuple[Tensor, KeyValues]:
        """Self-attention of the next places x ``(rows, n, width)``, which see each other and all of the past: what they say, and keys
        and values of all. The keys are those before positions turn them: only distances matter, so places may be counted from the
        first that is still kept."""
        q, k, v = map(self._split, self.inward(x).split((self.inner, self.kv_width, self.kv_width), -1))
        q, k = self.normalised(q, k)
        kv = KeyValues(k, v) if past is None else past.grow(KeyValues(k, v))
        near = kv
        if isinstance(self.positions, Rotary):
            q = self.positions(q, 0 if past is None else past.keys.shape[2])
            near = KeyValues(self.positions(kv.keys), kv.values)
        return self.attend(q, near)[0], kv

    def project(self, keys: Tensor, values: Tensor | None = None) -> KeyValues:
        """Keys (and values, by default the same) of another sequence: ``(batch, keys, width)`` each."""
        if self.positions is not None or self.window is not None:
            raise ValueError(
                "MultiHead with positions or a window attends to its own sequence only: give it no keys"
            )
        w = self.inner
        if values is None:
            k, v = self._part(keys, slice(w, None)).chunk(2, -1)
            return KeyValues(self._split(k), self._split(v))
        end = w + self.kv_width
        k, v = self._part(keys, slice(w, end)), self._part(values, slice(end, None))
        return KeyValues(self._split(k), self._split(v))

    def project_query(self, query: Tensor) -> Tensor:
        """``(batch, queries, width)`` -> ``(batch, heads, queries, d)``."""
        return self._split(self._part(query, slice(self.inner)))

    def _part(self, x: Tensor, rows: slice) -> Tensor:
        """Some rows of W^Q, W^K, W^V: ``(batch, time, width)`` -> ``(batch, time, rows)``."""
        bias = self.inward.bias
        return F.linear(x, self.inward.weight[rows], None if bias is None else bias[rows])

    @contextmanager
    def silenced(self, head: int) -> Iterator[None]:
        """Without head ``head`` (from 0) inside the ``with`` block: what it says does not reach W^O."""
        if not 0 <= head < self.heads:
            raise ValueError(f"MultiHead has heads 0 to {self.heads - 1}, not {head}")
        columns = self.outward.weight.detach()[:, head * self.each : (head + 1) * self.each]
        kept = columns.clone()
        columns.zero_()
        try:
            yield
        finally:
            columns.copy_(kept)

    def attend(
        self,
        q: Tensor,
        kv: KeyValues,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
        weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """The attention itself, from projected queries to projected keys and values."""
        bias = None
        kv = self._for_every_head(kv)
        if isinstance(self.positions, Alibi | Distances | SharedDistances):
            bias = self.positions.bias(q.shape[2], kv.keys.shape[2], like=q)
        seen = None if mask is None else masks.by_query(mask).unsqueeze(1)
        if inside.recording():
            self._note_scores(q, kv.keys, bias, seen, causal)
        context, alpha = scaled_dot(
            q,
            kv.keys,
            kv.values,
            seen,
            bias=bias,
            causal=causal,
            dropout=self._rate(),
            weights=weights or inside.recording(),
            scale=self.scale,
        )
        if alpha is not None:
            if inside.intervened() and (other := inside.changed(self, "weights", alpha)) is not alpha:
                alpha, context = other, torch.matmul(other, kv.values)
            inside.note(self, "weights", alpha)
        return self._join(context), alpha if weights else None

    def _note_scores(
        self, q: Tensor, keys: Tensor, bias: Tensor | None, seen: Tensor | None, causal: bool
    ) -> None:
        """Note what the scores are computed from: q, k, what is added to q · k, and which keys each query may see."""
        if causal:
            below = torch.ones(q.shape[2], keys.shape[2], dtype=torch.bool, device=q.device).tril()
            seen = below if seen is None else seen & below
        every = (*q.shape[:3], keys.shape[2])
        for name, value in (("queries", q), ("keys", keys), ("bias", bias), ("seen", seen)):
            if value is not None:
                inside.note(self, name, value.expand(every) if name in ("bias", "seen") else value)

    def _attend_near(
        self, q: Tensor, kv: KeyValues, mask: Tensor | None, window: int, causal: bool, weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Self-attention within the window: block by block, or as a mask where that cannot be."""
        if (
            weights
            or inside.recording()
            or scanning()
            or isinstance(self.positions, Alibi | Distances | SharedDistances)
            or self.scale is not None
            or (mask is not None and mask.dim() == 3)
        ):
            near = masks.window(q.shape[2], window, 0 if causal else window, device=q.device)
            return self.attend(q, kv, masks.join(mask, near), weights=weights)
        kv = self._for_every_head(kv)
        context = local_scaled_dot(q, kv.keys, kv.values, window, mask, causal=causal, dropout=self._rate())
        return self._join(context), None

    def _rate(self) -> float:
        return self.dropout if self.training else 0.0

    def _join(self, context: Tensor) -> Tensor:
        """``(batch, heads, time, d)`` -> ``(batch, time, width)``, through W^O."""
        out: Tensor = self.outward(context.transpose(1, 2).flatten(2))
        return out

    def _project_self(self, x: Tensor, offset: int) -> tuple[Tensor, KeyValues]:
        q, k, v = map(self._split, self.inward(x).split((self.inner, self.kv_width, self.kv_width), -1))
        q, k = self.normalised(q, k)
        if isinstance(self.positions, Rotary):
            q, k = self.positions(q, offset), self.positions(k, offset)
        return q, KeyValues(k, v)

    def normalised(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys ``(…, d)`` of self-attention as they are compared, before positions turn them."""
        return q, k

    def rotated_at(self, x: Tensor, place: int) -> Tensor:
        """Queries or keys of one place, ``(rows, heads · d)``, as rotary positions rotate them there."""
        assert isinstance(self.positions, Rotary)
        cos, sin = self.positions.angles(place + 1, self.each, x)
        each = x.view(len(x), -1, self.each)  # (rows, heads, d)
        return self.positions.turn(each, cos[place], sin[place]).flatten(1)

    def _for_every_head(self, kv: KeyValues) -> KeyValues:
        """``(rows, kv_heads, keys, d)`` -> ``(rows, heads, keys, d)``: neighbouring heads share."""
        if self.kv_heads == self.heads:
            return kv
        group = self.heads // self.kv_heads
        return KeyValues(kv.keys.repeat_interleave(group, 1), kv.values.repeat_interleave(group, 1))

    def _split(self, x: Tensor) -> Tensor:
        """``(batch, time, heads · d)`` -> ``(batch, heads, time, d)``; of keys and values so many heads as they have."""
        return x.view(*x.shape[:-1], x.shape[-1] // self.each, self.each).transpose(1, 2)


class NormedMultiHead(MultiHead):
    """`MultiHead` whose queries and keys have a root mean square of 1, times learned gains (QK-norm, Henry et al. 2020).

        q̂ = g_q ∘ q/rms(q),    k̂ = g_k ∘ k/rms(k),    rms over the d features of each head

    Scores then cannot grow with the weights, so that attention does not collapse to single places where lr is high
    (Dehghani et al. 2023). For self-attention ``(batch, time, width)`` only.

    ``sizes`` and ``options`` are those of `MultiHead`.

    >>> an.nn.attention.NormedMultiHead(8, 2)(torch.zeros(3, 5, 8))[0].shape
    torch.Size([3, 5, 8])
    """

    def __init__(self, *sizes: Any, **options: Any):
        super().__init__(*sizes, **options)
        self.query_norm, self.key_norm = nn.RMSNorm(self.each, eps=_EPS), nn.RMSNorm(self.each, eps=_EPS)

    def normalised(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self.query_norm(q).to(q.dtype), self.key_norm(k).to(k.dtype)

    def project(self, keys: Tensor, values: Tensor | None = None) -> KeyValues:
        raise ValueError("NormedMultiHead attends to its own sequence only: give it no keys")
