"""Any n-gram model as a backoff automaton in arrays, and the questions one can ask of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from anaphora.data.symbols import BOS, PAD, SPELLINGS
from anaphora.errors import DataError
from anaphora.models.classical.ngram.counts import Level

# ----------------------------------------------------------------------------
# From counts to probabilities that are never zero.
#
# All three methods interpolate an order with the one below,
#
#     p(w | h) = α(h w) + γ(h) p(w | h′),        γ(h) = 1 − Σ_w α(h w),
#
# where h′ is h without its first word, and the lowest is uniform over the predicted symbols (all but <pad> and <s>).
# They differ in α alone. An n-gram that is pruned has α = 0, so that what it had goes into γ.

Array = np.ndarray[Any, Any]

FALLBACK = (0.5, 1.0, 1.5)
"""Discounts of an order whose counts of counts do not give three sound ones (tiny or artificial data)."""


@dataclass
class Estimate:
    """Of one order: p of each n-gram, and γ of each history (an n-gram of the order below)."""

    prob: Array
    gamma: Array


def discounts(counts: Array) -> tuple[float, float, float]:
    """D₁, D₂, D₃₊ of modified Kneser-Ney (Chen and Goodman 1998, eq. 26) from counts of counts.

        Y = t₁ / (t₁ + 2 t₂)      D_k = k − (k + 1) Y t_{k+1} / t_k

    where t_k is how many n-grams were counted k times. Unless 0 < D_k ≤ k for all three, `FALLBACK`.
    """
    t: Array = np.bincount(np.minimum(counts, 5), minlength=6)[:5].astype(np.float64)
    if not t[1:4].all():
        return FALLBACK
    y = t[1] / (t[1] + 2 * t[2])
    found = [float(k - (k + 1) * y * t[k + 1] / t[k]) for k in (1, 2, 3)]
    if any(not 0 < d <= k for k, d in enumerate(found, start=1)):
        return FALLBACK
    return found[0], found[1], found[2]


def continuation_counts(levels: list[Level]) -> list[Array]:
    """Kneser-Ney's counts: below the highest order, how many different words come before the n-gram.

    Nothing comes before <s>, so n-grams that open with it keep their plain count.
    """
    found = []
    for level, above in pairwise(levels):
        before = np.bincount(above.suffix, minlength=len(level))
        found.append(np.where(level.opens, level.count, before))
    return [*found, levels[-1].count]


def estimate(
    levels: list[Level], kept: list[Array], method: str, k: float
) -> tuple[list[Estimate], list[Any]]:
    """Probabilities and γ of every order, and the discounts used (Kneser-Ney)."""
    symbols = len(levels[0])
    predicted = np.ones(symbols)
    predicted[[PAD, BOS]] = 0
    lower = predicted / predicted.sum()  # p of the order below, by its place
    used: list[Any] = []
    results = []
    counts = continuation_counts(levels) if method == "kneser-ney" else [level.count for level in levels]
    for n, level in enumerate(levels, start=1):
        c = counts[n - 1].astype(np.float64)
        histories = 1 if n == 1 else len(levels[n - 2])
        if method == "kneser-ney":
            d = discounts(counts[n - 1])
            used.append(list(d))
            taken: Array = np.array([0.0, *d])[np.minimum(counts[n - 1], 3)]
            extra: Array = np.zeros(histories)
        elif method == "witten-bell":
            taken = np.zeros(len(c))
            extra = np.bincount(level.parent, weights=c > 0, minlength=histories)
        else:
            # Plain add-k looks at one length of history; n-grams below it give all to the uniform floor.
            looked_at = level.opens if n < len(levels) else np.ones(len(c), dtype=np.bool_)
            taken = np.where(looked_at, 0.0, c)
            extra = np.full(histories, 0.0)
            extra[level.parent[looked_at]] = k * predicted.sum()
        taken = np.where(kept[n - 1], taken, c)
        results.append(_interpolate(level, c, taken, extra, lower if n == 1 else lower[level.suffix]))
        lower = results[-1].prob
    return results, used


def _interpolate(level: Level, c: Array, taken: Array, extra: Array, lower: Array) -> Estimate:
    """α = (c − taken) / (Σc + extra) and γ = (Σ taken + extra) / (Σc + extra), sums over a history's words."""
    total = np.bincount(level.parent, weights=c, minlength=len(extra)) + extra
    left = np.bincount(level.parent, weights=taken, minlength=len(extra)) + extra
    empty = total == 0
    gamma = np.where(empty, 1.0, left / np.where(empty, 1.0, total))
    alpha = (c - taken) / np.where(empty, 1.0, total)[level.parent]
    return Estimate(alpha + gamma[level.parent] * lower, gamma)


# ----------------------------------------------------------------------------

LONGEST = 32
"""The highest order of a model."""
LEAST = -1000.0
"""No logarithm (base 10) of a probability above 0 is less: float64 ends at −324, and ARPA files write −99 for 0."""


@dataclass(eq=False)
class BackoffTable:
    """Node 0 is the empty history, 1 + w the unigram w, then order by order sorted by (parent, word).

    ``log_prob`` and ``backoff`` are log₁₀, as in ARPA files; ``suffix`` is the longest stored n-gram that a node
    ends with, itself apart. ``bounds[n]`` is where order n begins; ``bounds[order + 1]`` the number of nodes.
    """

    parent: Array
    word: Array
    suffix: Array
    log_prob: Array
    backoff: Array
    bounds: list[int]

    def checked(self) -> BackoffTable:
        """Itself, where the kernels can walk it; a ``ValueError`` names the array that is wrong.

        Compiled code follows these numbers without looking, so a table from a file must pass here first: what is out
        of range would read and write beyond the arrays.
        """
        bounds, nodes = self.bounds, len(self.word)
        if not (
            all(type(bound) is int for bound in bounds)
            and 3 <= len(bounds) <= LONGEST + 2
            and bounds[:2] == [0, 1]
            and bounds[-1] == nodes
        ):
            raise ValueError("bounds do not fit the table")
        if bounds[2] <= len(SPELLINGS) or any(high < low for low, high in pairwise(bounds)):
            raise ValueError("bounds do not rise")
        for name, kind in (
            ("parent", "i"),
            ("word", "i"),
            ("suffix", "i"),
            ("log_prob", "f"),
            ("backoff", "f"),
        ):
            values = getattr(self, name)
            if values.shape != (nodes,) or values.dtype.kind != kind:
                raise ValueError(f"{name} has the shape {values.shape} and the type {values.dtype}")
        for name, highest in (("log_prob", 1e-6), ("backoff", -LEAST)):
            values = getattr(self, name)
            if not ((values == -np.inf) | ((values >= LEAST) & (values <= highest))).all():
                raise ValueError(f"{name} holds what is no logarithm of a probability")
        if self.word.min() < 0 or self.word.max() >= self.symbols or (np.diff(self.parent[1:]) < 0).any():
            raise ValueError("word or parent is out of range")
        if self.word[1 : bounds[2]].tolist() != list(range(self.symbols)):
            raise ValueError("word does not begin with all symbols")
        if self.parent[0] or self.suffix[0]:
            raise ValueError("parent or suffix of the empty history is not itself")
        for order in range(1, self.order + 1):
            low, high = bounds[order], bounds[order + 1]
            parent, suffix = self.parent[low:high], self.suffix[low:high]
            if high > low and (parent.min() < bounds[order - 1] or parent.max() >= low):
                raise ValueError(f"parent of a {order}-gram is no {order - 1}-gram")
            if high > low and (suffix.min() < 0 or suffix.max() >= low):
                raise ValueError(f"suffix of a {order}-gram is not shorter")
        return self

    @property
    def order(self) -> int:
        return len(self.bounds) - 2

    @property
    def symbols(self) -> int:
        """Size of the vocabulary, special symbols included."""
        return self.bounds[2] - 1

    @cached_property
    def arcs(self) -> tuple[Array, Array, Array]:
        """What the kernels walk on: the hash table beyond the unigrams, the unigrams, the backoffs."""
        from anaphora.ops import ngram as kernels

        entries = self.bounds[-1] - self.bounds[2]
        slots = np.zeros(1 << max(3, (entries + entries // 2).bit_length()), dtype=kernels.SLOT)
        slots["key"] = -1
        columns = (self.parent, self.word, self.log_prob, self.after)
        kernels.fill_slots(slots, *columns, self.bounds[2], self.symbols)
        unigrams = np.zeros(self.symbols, dtype=kernels.SLOT)
        unigrams["log_prob"] = self.log_prob[1 : 1 + self.symbols]
        unigrams["after"] = self.after[1 : 1 + self.symbols]
        exits = np.zeros(len(self.word), dtype=kernels.EXIT)
        exits["backoff"], exits["suffix"] = self.backoff, self.suffix
        return slots, unigrams, exits

    @cached_property
    def children(self) -> Array:
        """``(nodes + 1,)``: the children of a node are the nodes from its value to the next one's."""
        nodes = np.arange(len(self.word) + 1)
        return np.searchsorted(self.parent[1:], nodes).astype(np.int64) + 1

    @cached_property
    def after(self) -> Array:
        """The history a node leaves: itself, or a suffix where a longer history could not matter."""
        matters = (np.diff(self.children) > 0) | (self.backoff != 0)
        matters[self.bounds[self.order] :] = False  # the longest are never a history
        matters[0] = True
        after = np.arange(len(self.word), dtype=np.int32)
        for low, high in zip(self.bounds[1:-1], self.bounds[2:], strict=True):
            dull = np.flatnonzero(~matters[low:high]) + low
            after[dull] = after[self.suffix[dull]]
        return after

    def walk(self, ids: Array) -> Array:
        """log₁₀ p of each of ``ids (tokens,)``; a sentence begins with <s>, which itself costs 0."""
        from anaphora.ops import ngram as kernels

        out = np.empty(len(ids))
        kernels.walk(*self.arcs, np.ascontiguousarray(ids, dtype=np.int32), BOS, out)
        return out

    def advance(self, nodes: Array, words: Array) -> Array:
        """The histories ``(rows,)`` after reading ``words (rows,)``."""
        from anaphora.ops import ngram as kernels

        nodes, words = (np.ascontiguousarray(a, dtype=np.int64) for a in (nodes, words))
        for values, bound in ((nodes, len(self.word)), (words, self.symbols)):
            if len(values) and not 0 <= values.min() <= values.max() < bound:
                raise DataError(
                    f"{values.max()} is not among the model's {bound}; give its own ids and states."
                )
        found: Array = kernels.advance(*self.arcs, nodes, words)
        return found

    def distributions(self, nodes: Array) -> Array:
        """log₁₀ p of every next symbol, ``(rows, V)``; −∞ for <pad> and <s>, which are never predicted."""
        from anaphora.ops import ngram as kernels

        out = np.empty((len(nodes), self.symbols))
        tables = (self.log_prob, self.backoff, self.suffix, self.word, self.children)
        kernels.spread(*tables, np.ascontiguousarray(nodes, dtype=np.int64), out)
        return out


def assemble(levels: list[Level], estimates: list[Estimate], kept: list[Array]) -> BackoffTable:
    """The table of the n-grams that are ``kept``; a suffix that is not leads on to the next shorter one."""
    parent, word, suffix = [np.zeros(1, np.int32)], [np.zeros(1, np.int32)], [np.zeros(1, np.int32)]
    probs, bounds = [np.ones(1)], [0, 1]
    place = np.zeros(1, dtype=np.int64)  # of each n-gram of the order below
    gammas: list[Array] = []
    for n, (level, estimated, keep) in enumerate(zip(levels, estimates, kept, strict=True)):
        gammas.append(estimated.gamma[kept[n - 1]] if n else estimated.gamma)
        parent.append(place[level.parent[keep]].astype(np.int32))
        word.append(level.word[keep].astype(np.int32))
        suffixes = place[level.suffix]
        suffix.append(suffixes[keep].astype(np.int32))
        probs.append(estimated.prob[keep])
        place = np.where(keep, np.cumsum(keep) - 1 + bounds[-1], suffixes)
        bounds.append(bounds[-1] + int(keep.sum()))
    gammas.append(np.ones(int(kept[-1].sum())))
    with np.errstate(divide="ignore"):
        log_prob, backoff = np.log10(np.concatenate(probs)), np.log10(np.concatenate(gammas))
    log_prob[0] = backoff[0] = 0.0  # nothing is below the empty history
    return BackoffTable(
        np.concatenate(parent), np.concatenate(word), np.concatenate(suffix), log_prob, backoff, bounds
    )
