"""What a search returns: hypotheses, and on request the tree they were chosen from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

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
