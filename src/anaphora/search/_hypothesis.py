"""What a search returns: hypotheses, and on request the tree they were chosen from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.settings.search import Normalisation

if TYPE_CHECKING:
    from torch import Tensor


Step = Callable[["Tensor", Any], "tuple[Tensor, Any]"]
"""step(symbols (rows,), state) -> (log_probs (rows, V), state)"""


@dataclass
class Hypothesis:
    """One output of a search.

        log_prob = Σₜ steps[t],    score = log_prob / len(steps)ᵅ  by default

    Args:
        tokens: its symbols without the start symbol and without EOS.
        score: what decides the order of hypotheses.
        log_prob: log p of the whole output.
        steps: log p of each symbol given those before it, and of EOS where the hypothesis is finished.
        finished: False if it was cut at the greatest length, or could not go on.
        sampled: from `sample` alone: log q of each symbol under the distribution that it was drawn from.

    CTC sums over paths and has no probability per symbol: there `steps` is empty and `score` is `log_prob`.

    >>> chain = torch.tensor([[0.0, 0.9, 0.1], [0.0, 0.2, 0.8], [0.0, 0.0, 1.0]]).log()         # p(next | last); 2 is EOS
    >>> best = an.search.greedy(lambda y, s: (chain[y], s), None, start=torch.tensor([0]), eos=2, max_length=5)[0][0]
    >>> best.tokens, best.finished, round(best.log_prob, 2)
    ([1], True, -0.33)
    """

    tokens: list[int]
    score: float
    log_prob: float
    steps: list[float]
    finished: bool
    sampled: list[float] | None = None


class NBest(list[Hypothesis]):
    """The hypotheses for one input: finished ones first, each group best first; samples as they were drawn.

    >>> chain = torch.tensor([[0.0, 0.9, 0.1], [0.0, 0.2, 0.8], [0.0, 0.0, 1.0]]).log()         # p(next | last); 2 is EOS
    >>> start = torch.tensor([0])
    >>> found = an.search.beam(lambda y, s: (chain[y], s), None, start=start, eos=2, max_length=5, n_best=2, keep_tree=True)
    >>> [one.tokens for one in found[0]], len(found[0].tree) > 0
    ([[1], [1, 1]], True)
    """

    tree: list[BeamStep] | None = None
    """One `BeamStep` per step of the search if requested with `keep_tree`."""


@dataclass(eq=False, slots=True)
class BeamNode:
    """A hypothesis at one step of the search: its last ``symbol`` and its ``parent``.

    ``step`` is log p of the symbol alone and ``log_prob`` of the whole hypothesis; ``score`` is what the beam sorts by after ``length``
    symbols. ``rank``: its place among the nodes kept at its step. ``progress``: how far constraints have come.

    >>> chain = torch.tensor([[0.0, 0.9, 0.1], [0.0, 0.2, 0.8], [0.0, 0.0, 1.0]]).log()         # p(next | last); 2 is EOS
    >>> start = torch.tensor([0])
    >>> found = an.search.beam(lambda y, s: (chain[y], s), None, start=start, eos=2, max_length=5, keep_tree=True)
    >>> [node.symbol for node in found[0].tree[1].finished[0].path()]
    [1, 2]
    """

    parent: BeamNode | None = field(repr=False)
    symbol: int
    step: float
    """log p of the symbol alone."""
    log_prob: float
    """log p of the whole hypothesis up to here."""
    score: float
    length: int
    rank: int = 0
    """Its place among the nodes kept at its step: the next step's nodes name their parent by it."""
    progress: tuple[int, ...] = ()
    """How far the required and forbidden phrases have come, see `Constraints`."""

    def path(self) -> Iterator[BeamNode]:
        """The nodes from the first symbol to this one."""
        node, nodes = self, []
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        return reversed(nodes)

    def hypothesis(self, *, finished: bool) -> Hypothesis:
        """The path as a result; a finished one ends in EOS, which is not among the tokens."""
        nodes = list(self.path())
        tokens = [node.symbol for node in nodes]
        return Hypothesis(
            tokens=tokens[:-1] if finished else tokens,
            score=self.score,
            log_prob=self.log_prob,
            steps=[node.step for node in nodes],
            finished=finished,
        )


@dataclass(eq=False, slots=True)
class BeamStep:
    """What happened to one input at one step of the search: the nodes ``kept``, ``finished`` and ``pruned``, each best first.

    >>> chain = torch.tensor([[0.0, 0.9, 0.1], [0.0, 0.2, 0.8], [0.0, 0.0, 1.0]]).log()         # p(next | last); 2 is EOS
    >>> start = torch.tensor([0])
    >>> found = an.search.beam(lambda y, s: (chain[y], s), None, start=start, eos=2, max_length=5, keep_tree=True)
    >>> [node.symbol for node in found[0].tree[0].kept]
    [1]
    """

    kept: list[BeamNode]
    finished: list[BeamNode]
    """Ended in EOS at this step; set aside, no longer extended."""
    pruned: list[BeamNode]
    """The best few that found no place in the beam."""


def normalised(
    log_prob: float, length: int, length_penalty: float, normalisation: Normalisation = "power"
) -> float:
    """The score of log p with α = length_penalty; a hypothesis without symbols keeps its log p.

        "power"   log p / lengthᵅ
        "gnmt"    log p / ((5 + length) / 6)ᵅ      (Wu et al. 2016)
        "reward"  log p + α · length               (He et al. 2016)

    With α ≥ 0 each of them grows with the length, which the exact stopping rule relies on.
    """
    if normalisation == "reward":
        return log_prob + length_penalty * length
    base = max(length, 1) if normalisation == "power" else (5 + max(length, 1)) / 6
    return log_prob / math.pow(base, length_penalty)


def lengths_of(max_length: int | Tensor, items: int, min_length: int) -> list[int]:
    """The greatest length of each item, from one number for all or one for each."""
    limits = [max_length] * items if isinstance(max_length, int) else [int(n) for n in max_length.tolist()]
    if len(limits) != items:
        raise AnaphoraError(f"max_length names {len(limits)} lengths for {items} items; give one for each.")
    if limits and min(limits) < max(1, min_length):
        raise AnaphoraError(
            f"max_length must be at least 1 and not below min_length = {min_length}, but is {min(limits)}."
        )
    return limits


@dataclass
class WordHypothesis(Hypothesis):
    """Words, and the symbols that spell them.

    `log_prob` is the model's own log p of the symbols; `score` also has the language model's and the bonuses, and
    decides the order. `finished` is False where the symbols end inside a word because no complete output was found.
    ``words``: in order; ``times``: from CTC on request, the first frame of each word and the one after its last. The rest is as of
    `Hypothesis`.

    >>> lexicon = an.search.Lexicon(["ab", "b"], "_ab")
    >>> log_probs = torch.tensor([[[0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]]).log()                    # blank is 0
    >>> best = an.search.ctc_beam(log_probs, lexicon=lexicon)[0][0]
    >>> best.words, best.tokens
    (['ab'], [1, 2])
    """

    words: list[str] = field(default_factory=list)
    times: list[tuple[int, int]] | None = None


# ----------------------------------------------------------------------------
# Hypotheses that read the same become one: symbols that differ only in a last space, or in pieces, are the same text.

WIDER, MOST = (1, 2, 4, 8), 2048
"""So many times as wide a search may become, and hypotheses it then keeps at most, to find as many different texts as n_best."""


def distinct(nbest: Sequence[Hypothesis], text: Callable[[Hypothesis], str]) -> NBest:
    """The hypotheses whose ``text`` differs, in their order. Of those that read the same the first stays with its score, and its
    ``log_prob`` becomes that of the text,

        log p(text | x) = log Σ_{y reads as text} p(y | x),

    each y counted once.
    """
    kept: dict[str, Hypothesis] = {}
    masses: dict[str, dict[tuple[int, ...], float]] = {}
    for h in nbest:
        read = text(h)
        kept.setdefault(read, h)
        masses.setdefault(read, {}).setdefault(tuple(h.tokens), h.log_prob)
    return NBest(
        replace(h, log_prob=_total(list(masses[read].values()))) if len(masses[read]) > 1 else h
        for read, h in kept.items()
    )


Searched = Callable[[list[int], int], Sequence[Sequence[Hypothesis]]]
"""searched(rows, wide): up to ``wide`` hypotheses of each of these rows."""


def different(
    searched: Searched, rows: int, n_best: int, wide: Iterable[int], text: Callable[[Hypothesis], str]
) -> list[NBest]:
    """The best hypotheses of each of so many rows, ``n_best`` with different texts where there are as many: rows with too few are searched
    again with the next width of ``wide``, as long as the last search found all the hypotheses that it could hold."""
    found: dict[int, NBest] = {}
    lacking = list(range(rows))
    for width in wide:
        again = []
        for row, nbest in zip(lacking, searched(lacking, width), strict=True):
            found[row] = distinct(nbest, text)
            if len(found[row]) < n_best and len(nbest) >= width:
                again.append(row)
        lacking = again
        if not lacking:
            break
    return [NBest(found[row][:n_best]) for row in range(rows)]


def widths(width: int) -> Iterator[int]:
    """The widths of a search that begins with ``width``, for `different`."""
    last = 0
    for times in WIDER:
        wide = max(width, min(times * width, MOST))
        if wide > last:
            yield wide
        last = wide


def _total(logs: Sequence[float]) -> float:
    """log Σ eˣ."""
    top = max(logs)
    return top if top == -math.inf else top + math.log(sum(math.exp(x - top) for x in logs))


# ----------------------------------------------------------------------------
# Minimum Bayes risk: of many samples, the one that agrees best with all of them.

Utility = Callable[[Sequence[int], Sequence[int]], float]
"""utility(tokens of a candidate, tokens of a reference) -> how good the candidate is, greater is better"""


def mbr(hypotheses: Sequence[Hypothesis], utility: Utility | None = None) -> NBest:
    """The distinct outputs among `hypotheses`, best expected utility first; their `score` is that utility.

        score(y) = 1/N Σₙ utility(y, yₙ)

    over all N hypotheses as stand-ins for the unknown reference, each output as often as it was drawn: with
    samples from p this estimates the mean of utility(y, y') over y' ~ p (Eikema & Aziz 2020). The utility is
    asked once for each pair of distinct outputs; it is `ngram_f` if none is given. Outputs of equal utility
    stay in the order of the list.

    Args:
        hypotheses: the outputs, such as those of `sample`; the same output may come several times.
        utility: utility(symbols of a candidate, symbols of a reference) gives a number, greater is better.

    Raises an `AnaphoraError` without hypotheses.

    >>> drawn = [an.search.Hypothesis(tokens, 0.0, 0.0, [], True) for tokens in ([1, 2, 3], [1, 2, 4], [7, 8])]
    >>> an.search.mbr(drawn)[0].tokens                                  # agrees most with the others
    [1, 2, 3]
    """
    if not hypotheses:
        raise AnaphoraError("mbr needs at least one hypothesis; draw some with sample first.")
    first: dict[tuple[int, ...], Hypothesis] = {}
    for hypothesis in hypotheses:
        first.setdefault(tuple(hypothesis.tokens), hypothesis)
    times = Counter(tuple(hypothesis.tokens) for hypothesis in hypotheses)
    ranked = NBest()
    outputs = list(first)
    if utility is None:
        worth = _agreement(outputs)
    else:
        worth = np.array([[utility(y, other) for other in outputs] for y in outputs])
    often = np.array([times[y] for y in outputs])
    for hypothesis, total in zip(first.values(), (worth @ often).tolist(), strict=True):
        ranked.append(replace(hypothesis, score=total / len(hypotheses)))
    ranked.sort(key=lambda hypothesis: -hypothesis.score)
    return ranked


def ngram_f(
    candidate: Sequence[Hashable], reference: Sequence[Hashable], *, order: int = 4, beta: float = 1.0
) -> float:
    """How much two sequences overlap in runs of 1 to `order` symbols, from 0 to 1.

        P = mean over n of  matches_n / runs_n(candidate)       R = mean over n of  matches_n / runs_n(reference)
        F = (1 + β²) P R / (β² P + R)

    A run counts as often as both have it. Lengths n for which neither has a run are left out; two empty
    sequences are equal, F = 1. On text, `order=6, beta=2` is chrF (Popović 2015) with spaces counted.

    >>> round(an.search.ngram_f("a b c".split(), "a b d".split()), 3)
    0.389
    """
    precision = recall = lengths = 0.0
    for n in range(1, order + 1):
        ours, theirs = _runs(candidate, n), _runs(reference, n)
        if not ours and not theirs:
            break
        matches = (ours & theirs).total()
        precision += matches / max(ours.total(), 1)
        recall += matches / max(theirs.total(), 1)
        lengths += 1
    if not lengths:
        return 1.0
    if not precision:
        return 0.0
    return (1 + beta**2) * precision * recall / (beta**2 * precision + recall) / lengths


def _agreement(outputs: Sequence[Sequence[int]], order: int = 4) -> NDArray[np.float64]:
    """`ngram_f` of every output with every other, ``(N, N)``: Σ min(a, b) over the runs' counts a, b is
    Σ_m #{runs that both have m times or more}, a product of matrices of zeros and ones for each m."""
    lengths = np.array([len(y) for y in outputs])
    precision = np.zeros((len(outputs), len(outputs)))
    for n in range(1, min(order, int(lengths.max(initial=0))) + 1):
        counted = [_runs(y, n) for y in outputs]
        number = {run: k for k, run in enumerate(set().union(*counted))}
        counts = np.zeros((len(outputs), len(number)), np.int64)
        for row, runs in enumerate(counted):
            counts[row, [number[run] for run in runs]] = list(runs.values())
        matches = np.zeros_like(precision)
        for m in range(1, int(counts.max()) + 1):
            often = (counts >= m).astype(np.float32)
            matches += often @ often.T
        precision += matches / np.maximum(lengths - n + 1, 1)[:, None]
    both = precision + precision.T  # recall is the other's precision
    f = 2 * precision * precision.T / np.where(both > 0, both, 1.0)
    longest = np.minimum(np.maximum.outer(lengths, lengths), order)
    return np.where(longest > 0, f / np.maximum(longest, 1), 1.0)


def _runs(sequence: Sequence[Hashable], n: int) -> Counter[tuple[Hashable, ...]]:
    return Counter(tuple(sequence[i : i + n]) for i in range(len(sequence) - n + 1))


# ----------------------------------------------------------------------------
# Log-probabilities that are none: NaN, or above 0. Imports no torch.

_ROUNDING = 1e-3  # a log-softmax in low precision may end up this far above 0


class NotANumberError(AnaphoraError):
    """A model's numbers overflow for one of the rows of a search."""


def check_greatest(greatest: float) -> None:
    """The greatest number of a row (NaN if there is one) must be a log-probability."""
    if math.isnan(greatest):
        raise NotANumberError(
            "step returned NaN as a log-probability; look for overflow or damaged weights in the model."
        )
    if greatest > _ROUNDING:
        raise AnaphoraError(
            f"step returned {greatest:.4g} as a log-probability, which must not be above 0; "
            "apply log_softmax to the logits first."
        )
