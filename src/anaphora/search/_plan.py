"""The beam of one input: what is alive, what is finished, and when to stop."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from typing import Protocol, get_args

from anaphora.errors import AnaphoraError
from anaphora.search._hypothesis import BeamNode, BeamStep, NBest, normalised
from anaphora.settings.search import Normalisation, SearchSettings, Stopping

# ----------------------------------------------------------------------------
# A search that a person steers: symbols that are forced, beginnings that are banned, and a lexicon that outputs keep to.

Beginning = tuple[int, ...]


class Speller(Protocol):
    """Says which symbols may follow a beginning, such as `Spelled` of a lexicon."""

    def following(self, beginning: Beginning) -> frozenset[int]:
        """The symbols that may follow, EOS (or for CTC -1) among them where an output may end."""
        ...


@dataclass(frozen=True)
class Steering:
    """What the output of one input must and must not begin with. Places count from 0.

    ``force``: the symbol of each place that is decided. ``ban``: beginnings that no output may have; a banned beginning bans
    all that follow it. ``ban_at``: symbols that may not stand at a place, whatever comes before. ``speller``: only what it
    allows may follow. Probabilities are not changed by any of these: a forced symbol keeps its log p, so that the scores of
    a steered search can be compared with those of a free one.
    """

    force: Mapping[int, int] = field(default_factory=dict)
    ban: frozenset[Beginning] = frozenset()
    ban_at: Mapping[int, frozenset[int]] = field(default_factory=dict)
    speller: Speller | None = None

    @property
    def greatest(self) -> int:
        """The greatest symbol that is named; −1 without any."""
        named = [*self.force.values(), *(s for path in self.ban for s in path)]
        return max((*named, *(s for group in self.ban_at.values() for s in group)), default=-1)

    def only(self, beginning: Beginning) -> frozenset[int] | None:
        """The symbols that may follow where not all may, before what is banned is taken away."""
        forced = self.force.get(len(beginning))
        allowed = None if self.speller is None else self.speller.following(beginning)
        if forced is None:
            return allowed
        return frozenset({forced}) if allowed is None else allowed & {forced}

    def banned(self, beginning: Beginning) -> set[int]:
        """The symbols that may not follow."""
        n = len(beginning)
        own = {path[-1] for path in self.ban if len(path) == n + 1 and path[:-1] == beginning}
        return own | self.ban_at.get(n, frozenset())

    def met(self, output: Sequence[int]) -> bool:
        """Whether all forced places are in an output."""
        return all(place < len(output) and output[place] == symbol for place, symbol in self.force.items())

    def broken_at(self, output: Sequence[int], end: int) -> int | None:
        """Return the first place at which an output breaks a rule; its ``end`` is a place as well. None where it breaks none."""
        whole = (*output, end)
        for place, symbol in enumerate(whole):
            only = self.only(whole[:place])
            if (only is not None and symbol not in only) or symbol in self.banned(whole[:place]):
                return place
        return None if max(self.force, default=-1) < len(whole) else len(output)

    def check(self, eos: int | None, limit: int | None = None) -> None:
        """A sentence where what is asked contradicts itself; ``limit``: the most symbols of an output."""
        last = max(self.force, default=-1)
        ends = [place for place, symbol in self.force.items() if symbol == eos]
        if any(place < last for place in ends):
            raise AnaphoraError(
                f"The end is forced at place {min(ends) + 1}, but place {last + 1} is forced as well; force one of them."
            )
        if limit is not None and last >= limit:
            raise AnaphoraError(
                f"Place {last + 1} is forced, but an output has at most {limit} symbols here; raise max_length."
            )
        path: list[int] = []
        while len(path) in self.force:
            path.append(self.force[len(path)])
            if tuple(path) in self.ban:
                raise AnaphoraError(
                    f"The first {len(path)} symbols are forced and banned at once; take one of the two back."
                )
        for place, symbol in self.force.items():
            if symbol in self.ban_at.get(place, ()):
                raise AnaphoraError(
                    f"The symbol of place {place + 1} is forced and banned at once; take one of the two back."
                )


def no_way_on(beginnings: Iterable[str]) -> AnaphoraError:
    """The sentence for a search that has nowhere to go: ``beginnings`` are those it was left with."""
    shown = ", ".join(f"“{text}”" if text else "the start" for text in list(beginnings)[:3])
    return AnaphoraError(
        f"Nothing is left to search: all that may follow {shown} is banned or has no probability; take a ban back."
    )


# ----------------------------------------------------------------------------
# What an output must and must not contain: a forced beginning, required and forbidden phrases, no repeats.

Phrases = Sequence[Sequence[int]]


class Constraints:
    """The rules for one input, read as a machine that every hypothesis carries along.

    A hypothesis knows, for each phrase, how many of its first symbols stand at the hypothesis's end
    (`BeamNode.progress`). A forbidden phrase may not take its last symbol; a required one stays complete
    once it was, and EOS has to wait for all of them. Inside the forced beginning nothing else counts.
    """

    def __init__(
        self,
        eos: int,
        prefix: Sequence[int],
        forbid: Phrases,
        require: Phrases,
        no_repeat: int,
        steering: Steering | None = None,
    ) -> None:
        _check(prefix, *require, *forbid, empty=not all(map(len, (*require, *forbid))))
        if any(eos in phrase for phrase in (prefix, *require)):
            raise AnaphoraError(f"EOS = {eos} cannot stand in a prefix or in a required phrase.")
        self.eos, self.prefix, self.no_repeat = eos, list(prefix), no_repeat
        self.forbidden_phrases = [_Phrase(phrase) for phrase in forbid]
        self.required = [_Phrase(phrase) for phrase in require]
        self.start = (0,) * (len(self.required) + len(self.forbidden_phrases))
        self.steering = steering
        self.greatest = max((max(p, default=0) for p in (prefix, *forbid, *require)), default=0)
        self.greatest = max(self.greatest, steering.greatest if steering else 0)

    def after(self, progress: tuple[int, ...], symbol: int) -> tuple[int, ...]:
        """The progress of all phrases, required ones first, when `symbol` follows."""
        count = len(self.required)
        required = zip(self.required, progress[:count], strict=True)
        forbidden = zip(self.forbidden_phrases, progress[count:], strict=True)
        return (
            *(n if n == len(phrase) else phrase.after(n, symbol) for phrase, n in required),
            *(phrase.after(n, symbol) for phrase, n in forbidden),
        )

    def only(self, node: BeamNode) -> frozenset[int] | None:
        """The symbols of which one must follow; None where any may."""
        if node.length < len(self.prefix):
            return frozenset({self.prefix[node.length]})
        return self.steering.only(_symbols(node)) if self.steering else None

    def forbidden(self, node: BeamNode) -> set[int]:
        """The symbols that may not follow."""
        if node.length < len(self.prefix):
            return set()
        steered = self.steering.banned(_symbols(node)) if self.steering else set()
        count = len(self.required)
        phrases = zip(self.forbidden_phrases, node.progress[count:], strict=True)
        symbols = {phrase.symbols[-1] for phrase, n in phrases if phrase.one_missing(n)}
        if self.wanted(node) or (self.steering and node.length < max(self.steering.force, default=0)):
            symbols.add(self.eos)  # what is forced or required has to come first
        return symbols | steered | self._repeats(node)

    def wanted(self, node: BeamNode) -> set[int]:
        """The symbols that bring a required phrase forward: the search must look at them however improbable."""
        if node.length < len(self.prefix):
            return set()
        required = zip(self.required, node.progress, strict=False)
        return {phrase.symbols[n] for phrase, n in required if n < len(phrase)}

    def met(self, node: BeamNode) -> int:
        """Symbols of required phrases that are in place: complete phrases and the longest one begun.

        Going on with the longest one begun always adds to it, so the hypothesis that leads cannot stand still.
        """
        required = list(zip(self.required, node.progress, strict=False))
        begun = max((n for phrase, n in required if n < len(phrase)), default=0)
        return begun + sum(n for phrase, n in required if n == len(phrase))

    def _repeats(self, node: BeamNode) -> set[int]:
        """Symbols that would make the last `no_repeat` symbols equal to some earlier ones."""
        n = self.no_repeat
        if not n or node.length < n:
            return set()
        tokens = [earlier.symbol for earlier in node.path()]
        last = tokens[len(tokens) - n + 1 :]
        return {tokens[i + n - 1] for i in range(len(tokens) - n + 1) if tokens[i : i + n - 1] == last}


def _symbols(node: BeamNode) -> tuple[int, ...]:
    return tuple(earlier.symbol for earlier in node.path())


class _Phrase:
    """Finds its symbols in a stream (Knuth, Morris & Pratt 1977)."""

    def __init__(self, symbols: Sequence[int]):
        self.symbols = list(symbols)
        self._shorter = [0]  # at n − 1: the longest proper beginning that also ends the first n symbols
        for n in range(1, len(symbols)):
            self._shorter.append(self.after(self._shorter[-1], self.symbols[n]))

    def __len__(self) -> int:
        return len(self.symbols)

    def after(self, n: int, symbol: int) -> int:
        """How many first symbols are matched after `symbol`, if it was n before."""
        while n and (n == len(self.symbols) or self.symbols[n] != symbol):
            n = self._shorter[n - 1]
        return n + 1 if self.symbols[n] == symbol else 0

    def one_missing(self, n: int) -> bool:
        """Whether its last symbol would complete it; a complete one may be about to come again."""
        return (self._shorter[-1] if n == len(self.symbols) else n) == len(self.symbols) - 1


def _check(*phrases: Sequence[int], empty: bool) -> None:
    if empty:
        raise AnaphoraError("A required or forbidden phrase is empty; give at least one symbol.")
    for phrase in phrases:
        if any(symbol < 0 for symbol in phrase):
            raise AnaphoraError(f"The phrase {list(phrase)} has a negative symbol; symbols count from 0.")


# ----------------------------------------------------------------------------

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

    def per_row(self, active: Sequence[Item]) -> int:
        """Return how many symbols of each row may find a place."""
        repeats = 0  # symbols that a penalty may push back: at most those an output has
        if self.options.repeat_penalty:
            repeats = max((node.length for item in active for node in item.live), default=0)
        return self.width + self.options.refill + repeats

    @property
    def single(self) -> bool:
        """Whether one path is all there is to keep: the best symbol at each step."""
        asked = self.options
        return self.width == self.n_best == 1 and not (
            asked.refill or self.keep_tree or asked.coverage or asked.repeat_penalty
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
        if not 0 <= asked.repeat_penalty < float("inf"):
            raise AnaphoraError(f"repeat_penalty must be a number from 0 on, but is {asked.repeat_penalty}.")
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
        self.plan, self.options, self.max_length, self.rules = plan, plan.options, max_length, rules
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
        penalty = self.options.diversity
        ranked = [
            (penalty * taken[symbol] - (parent.log_prob + p), parent.rank, symbol, p, parent)
            for parent in self.live
            for p, symbol in best[parent.rank]
        ]
        if self.options.repeat_penalty:
            ranked = [
                (cost + self._repeats(parent, symbol), rank, symbol, p, parent)
                for cost, rank, symbol, p, parent in ranked
            ]
        ranked.sort()
        if not ranked:  # every continuation is forbidden: what is alive is the best there is
            self.done = self.stuck = True
            return None
        if not (self.rules and self.rules.required):  # then it is known which of them will have a place
            room = 2 * self.width if self.options.refill else self.width
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
        if self.options.refill and not longest:
            self.live = [node for node in nodes if node.symbol != self.plan.eos][: self.width]
        elif self.options.refill:  # what is cut counts like what has ended
            ended, self.live = chosen, []
        kept_finished = max(self.n_best, self.width) if self.options.refill else self.n_best
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
        paid = log_prob - self._repeats(parent, symbol) if self.options.repeat_penalty else log_prob
        score = self.plan.score(paid, length, covered)
        return BeamNode(parent, symbol, p, log_prob, score, length, 0, progress)

    def _repeats(self, node: BeamNode, symbol: int | None = None) -> float:
        """Return what repeats cost an output, with ``symbol`` after it: λ Σₛ nₛ (nₛ − 1) / 2 where it has symbol s nₛ times."""
        times = Counter(at.symbol for at in node.path())
        if symbol is not None:
            times[symbol] += 1
        return self.options.repeat_penalty * sum(n * (n - 1) for n in times.values()) / 2

    def _nothing_to_win(self) -> bool:
        if self.options.stopping == "first" and self.ended >= self.width:
            return True
        if self.options.stopping == "likely":
            full = len(self.finished) >= self.width
            return not self.live or (full and self.live[0].score <= self.finished[self.width - 1].score)
        return not any(map(self._can_win, self.live))

    def _can_win(self, node: BeamNode) -> bool:
        paid = node.log_prob - self._repeats(node) if self.options.repeat_penalty else node.log_prob
        bound = self.plan.score(paid, self.max_length)
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
