"""Learned numbers for distances, which are added to the scores of self-attention (T5; Raffel et al. 2020)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from anaphora.native.derived import table
from anaphora.nn.exporting import scanning

_FIRST_PLACES = 256


class Distances(nn.Module):
    """One number for each head and bucket of distances j − i from a query i to a key j.

    Near distances have a bucket each; farther ones share them, in steps that grow up to ``limit``, beyond which all have
    the last. ``both``: half of the buckets are for keys after the query; without it these have the bucket of distance 0.
    """

    _derived = ("_buckets",)

    def __init__(self, heads: int, *, buckets: int = 32, limit: int = 128, both: bool = True):
        super().__init__()
        exact = (buckets // 2 if both else buckets) // 2
        if exact < 1 or limit <= exact:
            raise ValueError(
                f"Distances needs at least {4 if both else 2} buckets and a limit above {max(exact, 1)}, not {buckets} and {limit}"
            )
        self.heads, self.limit, self.both = heads, limit, both
        self.weight = nn.Parameter(torch.empty(buckets, heads))
        self._buckets = torch.empty(0, dtype=torch.long)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.02)

    def bias(self, queries: int, keys: int, *, like: Tensor) -> Tensor:
        """``(heads, queries, keys)`` for queries that stand at the last places of the keys."""
        here = torch.arange(keys - queries, keys, device=like.device)
        distance = torch.arange(keys, device=like.device) - here[:, None]  # (queries, keys)
        if scanning():
            found = self.bucket(distance)
        else:
            known = self._table(keys, like.device)
            found = known[distance + len(known) // 2]
        return self.weight[found].permute(2, 0, 1).to(like.dtype)

    def bucket(self, distance: Tensor) -> Tensor:
        """The bucket of each distance, of any shape."""
        count = self.weight.shape[0]
        first = torch.zeros_like(distance)
        if self.both:
            count //= 2
            first = (distance > 0).long() * count
            far = distance.abs()
        else:
            far = -distance.clamp(max=0)
        exact = count // 2
        ratio = torch.log(far.clamp(min=1).float() / exact) / math.log(self.limit / exact)
        grown = exact + (ratio * (count - exact)).long()
        return first + torch.where(far < exact, far, grown.clamp(max=count - 1))

    def _table(self, keys: int, device: torch.device) -> Tensor:
        """The buckets of distances −n … n, for n ≥ ``keys``."""
        kept = self._buckets
        if len(kept) // 2 < keys or kept.device != device:
            far = max(keys, _FIRST_PLACES, len(kept))
            kept = table(
                self, "_buckets", self.weight, lambda: self.bucket(torch.arange(-far, far + 1, device=device))
            )
        return kept


class SharedDistances(nn.Module):
    """Those of another layer, which has the numbers."""

    def __init__(self, owner: Distances):
        super().__init__()
        self._owner = (owner,)  # in a tuple, so that it is not registered a second time

    def bias(self, queries: int, keys: int, *, like: Tensor) -> Tensor:
        """As `Distances.bias`."""
        return self._owner[0].bias(queries, keys, like=like)
