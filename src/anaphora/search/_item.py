"""The beam of one input: what is alive, what is finished, and when to stop."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import get_args

from anaphora.errors import AnaphoraError
from anaphora.search._constraints import Constraints
from anaphora.search._hypothesis import BeamNode, BeamStep, NBest, normalised
from anaphora.settings.search import Normalisation, SearchSettings, Stopping

Candidates = list[list[tuple[float, int]]]
"""For each row of an input the best next (log p, symbol)."""

PRUNED_SHOWN = 3
"""How many of the pruned candidates of a step the tree keeps."""


@dataclass(frozen=True)
class Plan:
    """What is asked of a beam; the same for all inputs. ``width``: hypotheses kept at each step, at least ``options.beam``."""

    options: SearchSettings
    eos: int
    width: int
    n_best: int
    keep_tree: bool = False

    @property
    def per_row(self) -> int:
        """How many symbols of each row may find a place."""
        return self.width + self.options.refill

    @property
    def single(self) -> bool:
        """Whether one path is all there is to keep: the best symbol at each step."""
        return self.width == self.n_best == 1 and not (
            self.options.refill or self.keep_tree or self.options.coverage
        )

    def __post_init__(self) -> None:
        asked = self.options
        if self.width < 1 or self.n_best < 1:
            raise AnaphoraError(
                f"width and n_best must be at least 1, but are {self.width} and {self.n_best}."
            )
        if not 0 <= asked.length_penalty <= 10:
            raise AnaphoraError(f"length_penalty must lie between 0 and 10, but is {asked.length_penalty}.")
        if asked.groups < 1 or self.width % asked.groups:
            raise AnaphoraError(
                f"groups must share width = {self.width} equally, but there are {asked.groups} of them."
            )
        if not 0 <= asked.diversity < float("inf"):
            raise AnaphoraError(f"diversity must be a number from 0 on, but is {asked.diversity}.")
        if not 0 <= asked.coverage < float("inf"):
            raise AnaphoraError(f"coverage must be a number from 0 on, but is {asked.coverage}.")
        _check_name("normalisation", asked.normalisation, get_args(Normalisation))
        _check_name("stopping", asked.stopping, get_args(Stopping))

    def score(self, log_prob: float, length: int, covered: float = 0.0) -> float:
        """`covered` ≤ 0 says how far the source is from being covered, see `Coverage`; 0 bounds what may follow."""
        asked = self.options
        return (
            normalised(log_prob, length, asked.length_penalty, asked.normalisation) + asked.coverage * covered
        )


class Item:
    """The groups of one input, which move in turn: each sees the symbols that those before it have taken."""

    def __init__(self, plan: Plan, max_length: int, rules: Constraints | None):
        root = BeamNode(None, -1, 0.0, 0.0, 0.0, 0, progress=rules.start if rules else ())
        self.plan, self.limit, self.rules = plan, max_length, rules
        self.groups = [_Group(plan, max_length, rules, root) for _ in range(plan.options.groups)]
        self.live = [root]
        self.tree: list[BeamStep] | None = [] if plan.keep_tree else None
        self.done = False

    @property
    def stuck(self) -> bool:
        """Whether a group had nothing that could follow."""
        return any(group.stuck for group in self.groups)

    def extend(self, best: Candidates, covered: Sequence[float] | None = None) -> None:
        """One step of every group; a live hypothesis finds its candidates, and what it has covered, at its rank."""
        taken: Counter[int] = Counter()
        active = [group for group in self.groups if not group.done]
        steps = [step for group in active if (step := group.extend(best, taken, covered))]
        self.live = [node for group in active if not group.done for node in group.live]
        self.done = all(group.done for group in active)
        kept = self.live + [node for group in active if group.done for node in group.live]
        for rank, node in enumerate(kept):
            node.rank = rank
        if self.tree is not None and steps:
            finished = sorted((n for step in steps for n in step.finished), key=lambda n: -n.log_prob)
            pruned = sorted((n for step in steps for n in step.pruned), key=lambda n: -n.log_prob)
            self.tree.append(BeamStep(kept, finished, pruned[:PRUNED_SHOWN]))

    def result(self) -> NBest:
        finished = _distinct(node for group in self.groups for node in group.finished)
        found = NBest(
            node.hypothesis(finished=node.symbol == self.plan.eos) for node in finished[: self.plan.n_best]
        )
        cut = _distinct(node for group in self.groups for node in group.live)
        room = self.plan.n_best - len(found)
        found.extend(node.hypothesis(finished=False) for node in cut[:room])
        found.tree = self.tree
        return found


class _Group:
    """A beam of its own: the hypotheses alive and finished, and the rule when to stop."""

    def __init__(self, plan: Plan, max_length: int, rules: Constraints | None, root: BeamNode):
        self.plan, self.max_length, self.rules = plan, max_length, rules
        self.width = plan.width // plan.options.groups
        self.n_best = -(-plan.n_best // plan.options.groups)
        self.live = [root]
        self.finished: list[BeamNode] = []
        self.ended = 0
        self.done = self.stuck = False

    def extend(
        self, best: Candidates, taken: Counter[int], covered: Sequence[float] | None
    ) -> BeamStep | None:
        """One step; `taken` counts the symbols that other groups took, and those taken here are added."""
        penalty = self.plan.options.diversity
        ranked = sorted(
            (penalty * taken[symbol] - (parent.log_prob + p), parent.rank, symbol, p, parent)
            for parent in self.live
            for p, symbol in best[parent.rank]
        )
        if not ranked:  # every continuation is forbidden: what is alive is the best there is
            self.done = self.stuck = True
            return None
        if not (self.rules and self.rules.required):  # then it is known which of them will have a place
            room = 2 * self.width if self.plan.options.refill else self.width
            del ranked[room + (PRUNED_SHOWN if self.plan.keep_tree else 0) :]
        nodes = [
            self._node(parent, symbol, p, covered[rank] if covered else 0.0)
            for _, rank, symbol, p, parent in ranked
        ]
        chosen = self._choose(nodes)
        taken.update(node.symbol for node in chosen)
        longest = chosen[0].length == self.max_length
        ended = [node for node in chosen if node.symbol == self.plan.eos]
        self.live = [node for node in chosen if node.symbol != self.plan.eos]
        if self.plan.options.refill and not longest:
            self.live = [node for node in nodes if node.symbol != self.plan.eos][: self.width]
        elif self.plan.options.refill:  # what is cut counts like what has ended
            ended, self.live = chosen, []
        kept_finished = max(self.n_best, self.width) if self.plan.options.refill else self.n_best
        self.finished = sorted(self.finished + ended, key=lambda node: -node.score)[:kept_finished]
        self.ended += len(ended)
        self.done = longest or self._nothing_to_win()
        kept = {*chosen, *self.live}
        pruned = (node for node in nodes if node not in kept)
        return BeamStep(self.live, ended, list(islice(pruned, PRUNED_SHOWN)))

    def _choose(self, nodes: list[BeamNode]) -> list[BeamNode]:
        """The first `width`; with required phrases, as many from each stage of meeting them.

        Without these shares, hypotheses that put the phrases off would crowd out all others
        (Hokamp & Liu 2017; Post & Vilar 2018). The furthest stage comes first in every round.
        """
        if self.rules is None or not self.rules.required:
            return nodes[: self.width]
        stages: dict[int, list[tuple[int, BeamNode]]] = defaultdict(list)
        for place, node in enumerate(nodes):
            stages[self.rules.met(node)].append((place, node))
        rounds = zip_longest(*(stages[met] for met in sorted(stages, reverse=True)))
        in_turn = [pair for turn in rounds for pair in turn if pair is not None]
        return [nodes[place] for place in sorted(place for place, _ in in_turn[: self.width])]

    def _node(self, parent: BeamNode, symbol: int, p: float, covered: float) -> BeamNode:
        log_prob, length = parent.log_prob + p, parent.length + 1
        progress = self.rules.after(parent.progress, symbol) if self.rules else ()
        score = self.plan.score(log_prob, length, covered)
        return BeamNode(parent, symbol, p, log_prob, score, length, 0, progress)

    def _nothing_to_win(self) -> bool:
        if self.plan.options.stopping == "first" and self.ended >= self.width:
            return True
        if self.plan.options.stopping == "likely":
            full = len(self.finished) >= self.width
            return not self.live or (full and self.live[0].score <= self.finished[self.width - 1].score)
        return not any(map(self._can_win, self.live))

    def _can_win(self, node: BeamNode) -> bool:
        bound = self.plan.score(node.log_prob, self.max_length)
        return len(self.finished) < self.n_best or bound > self.finished[self.n_best - 1].score


def _distinct(nodes: Iterable[BeamNode]) -> list[BeamNode]:
    """Best score first; of equal outputs, which different groups may find, only one."""
    by_output = {tuple(n.symbol for n in node.path()): node for node in sorted(nodes, key=lambda n: -n.score)}
    return list(by_output.values())


def _check_name(option: str, name: str, names: tuple[str, ...]) -> None:
    if name not in names:
        raise AnaphoraError(f"{option} must be one of {', '.join(names)}, but is {name!r}.")


def extend_all(active: Sequence[Item], best: Candidates, covered: list[float] | None) -> list[int]:
    """Every item takes its continuations; the rows, of all before, from which the hypotheses of those not done go on."""
    rows: list[int] = []
    row = 0
    for item in active:
        before = len(item.live)
        item.extend(best[row : row + before], covered[row : row + before] if covered else None)
        if not item.done:
            rows += [row + node.parent.rank for node in item.live if node.parent]
        row += before
    return rows
