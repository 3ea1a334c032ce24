"""Attention by one score for each query and key: the dot product, bilinear, additive; and what is attended to while decoding."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anaphora.nn import inside
from anaphora.nn.attention.masks import by_query
from anaphora.ops.attention import by_torch, fits, softmax_among


# ---------------------------------------------------------------------- what all attention with one score per query and key shares
def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the last dimension among the places where ``mask`` is True; exactly 0 elsewhere.

    ``scores`` ``(…, keys)``. A row without any such place is all zeros, with zero gradient, rather than NaN.

    >>> an.nn.attention.masked_softmax(torch.zeros(1, 3), torch.tensor([[True, True, False]]))
    tensor([[0.5000, 0.5000, 0.0000]])
    """
    return torch.softmax(scores, -1) if mask is None else by_torch(scores, mask)


class Attention(nn.Module):
    """Soft attention with a score to be written in `score`, and in `prepare` what depends on keys alone.

        α_ij = softmax_j score(s_i, h_j),    a_i = Σ_j α_ij v_j

    Notes ``scores`` and ``weights``, both ``(batch, queries, keys)``.

    >>> class Distance(an.nn.attention.Attention):                      # a score of your own
    ...     def score(self, query, prepared):
    ...         return -torch.cdist(query, prepared)
    >>> context, weights = Distance()(torch.zeros(2, 3, 4), torch.zeros(2, 5, 4))
    >>> context.shape, weights.shape
    (torch.Size([2, 3, 4]), torch.Size([2, 3, 5]))
    """

    def prepare(self, keys: Tensor) -> Tensor:
        """The part of the score that needs no query, ``(batch, keys, ·)``: a decoder computes it once."""
        return keys

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """``(batch, queries, Dq)``, what `prepare` gave -> scores ``(batch, queries, keys)``."""
        raise TypeError(f"{type(self).__name__} does not define score(query, prepared)")

    def forward(
        self,
        query: Tensor,
        keys: Tensor,
        mask: Tensor | None = None,
        values: Tensor | None = None,
        *,
        prepared: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attend from each query to the keys.

        query ``(batch, queries, Dq)``; keys ``(batch, keys, Dk)``; mask ``(batch, keys)`` or
        ``(batch, queries, keys)``, True where a key is real; values ``(batch, keys, Dv)``, by default the
        keys; prepared: what `prepare` gave for these keys, if it is known already.
        Returns context ``(batch, queries, Dv)`` and weights ``(batch, queries, keys)``.
        """
        scores = self.score(query, self.prepare(keys) if prepared is None else prepared)
        mask = None if mask is None else by_query(mask)
        if mask is not None and scores.requires_grad and not inside.recording() and fits(scores, mask):
            weights = softmax_among(scores, mask)  # in the type that the product below takes
        else:
            weights = masked_softmax(scores, mask)
        inside.note(self, "scores", scores)
        if mask is not None and inside.recording():
            inside.note(self, "seen", mask.expand(scores.shape))
        weights = inside.changed(self, "weights", weights)
        inside.note(self, "weights", weights)
        return torch.matmul(weights, keys if values is None else values), weights


# ----------------------------------------------------------------------
# Attention by one score for each query and key: the dot product, bilinear, additive.
class Dot(Attention):
    """score(s, h) = s · h: no parameters, and states and annotations must have the same width.

    >>> context, weights = an.nn.attention.Dot()(torch.zeros(1, 2, 4), torch.zeros(1, 5, 4))
    >>> context.shape, weights.shape
    (torch.Size([1, 2, 4]), torch.Size([1, 2, 5]))
    """

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        if query.shape[-1] != prepared.shape[-1]:
            raise ValueError(
                f"Dot attention compares vectors of one width, but queries have {query.shape[-1]} and keys "
                f"{prepared.shape[-1]}: use Bilinear or Additive"
            )
        return torch.matmul(query, prepared.transpose(-2, -1))


class Bilinear(Attention):
    """score(s, h) = sᵀ W h, with W ``(query_width, key_width)``; `prepare` gives W h
    (Luong et al. 2015, eq. 8, "general").

    >>> an.nn.attention.Bilinear(4, 6)(torch.zeros(1, 2, 4), torch.zeros(1, 5, 6))[1].shape
    torch.Size([1, 2, 5])
    """

    def __init__(self, query_width: int, key_width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(query_width, key_width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.weight)

    def prepare(self, keys: Tensor) -> Tensor:
        return nn.functional.linear(keys, self.weight)

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        return torch.matmul(query, prepared.transpose(-2, -1))


class Additive(Attention):
    """score(s, h) = vᵀ tanh(W s + U h + b), with ``hidden`` units; `prepare` gives U h
    (Bahdanau et al. 2015, appendix A.1.2).

    ``query_width`` and ``key_width`` are those of s and h.

    >>> an.nn.attention.Additive(4, 6, hidden=8)(torch.zeros(1, 2, 4), torch.zeros(1, 5, 6))[1].shape
    torch.Size([1, 2, 5])
    """

    def __init__(self, query_width: int, key_width: int, hidden: int):
        super().__init__()
        self.W = nn.Linear(query_width, hidden)
        self.U = nn.Linear(key_width, hidden, bias=False)
        self.v = nn.Linear(hidden, 1, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for part in (self.W, self.U, self.v):
            nn.init.xavier_uniform_(part.weight)
        nn.init.zeros_(self.W.bias)

    def prepare(self, keys: Tensor) -> Tensor:
        out: Tensor = self.U(keys)
        return out

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        hidden = torch.tanh(
            self.W(query).unsqueeze(-2) + prepared.unsqueeze(-3)
        )  # (batch, queries, keys, hidden)
        return self.v(hidden).squeeze(-1)  # type: ignore[no-any-return]


# ----------------------------------------------------------------------
# What is attended to while decoding: computed once, then only its rows are chosen.
@dataclass(frozen=True)
class Attended:
    """Tensors that stay the same from step to step, each ``(rows, …)``, and their mask ``(rows, keys)``.

    ``source`` ``(rows,)`` says to which item of the batch each row belongs.

    ``tensors`` are what a decoder attends to, such as the annotations and their projections.

    >>> kept = an.nn.attention.Attended.of((torch.arange(6.0).view(2, 3),), mask=None)
    >>> kept.select(torch.tensor([1, 1])).source.tolist()               # a beam that follows the second item twice
    [1, 1]
    """

    tensors: tuple[Tensor, ...]
    mask: Tensor | None
    source: Tensor

    @classmethod
    def of(cls, tensors: tuple[Tensor, ...], mask: Tensor | None) -> Attended:
        """One row per item, before a search has multiplied them."""
        first = tensors[0]
        return cls(tensors, mask, torch.arange(first.shape[0], device=first.device))

    def select(self, rows: Tensor) -> Attended:
        """The given rows, in their order; rows may repeat."""
        source = self.source.index_select(0, rows)
        # A search mostly moves rows within an item, and then nothing needs to be copied. To find that out
        # on a GPU would make the host wait for it, which costs more than the copy.
        if rows.device.type == "cpu" and torch.equal(source, self.source):
            return self
        mask = None if self.mask is None else self.mask.index_select(0, rows)
        return Attended(tuple(tensor.index_select(0, rows) for tensor in self.tensors), mask, source)
