"""A plan seen by one thread: a value as wide as k states is k numbers, those of the thread's own column.

Every number is named by its key, the number of a node and which block of H columns is meant. Only two things reach
across columns: products and row reductions. They are the exchanges of a step, and their order divides it into stages.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from anaphora.engine.graph import REDUCTIONS, Graph, Node, until
from anaphora.engine.ops import POINTWISE
from anaphora.engine.plan import rebuild

Key = tuple[int, int]  # (number of the node, block of H columns); block 0 of a value one wide


class Unsuitable(Exception):  # noqa: N818 (says what happened)
    """The plan cannot run this way; the text says why."""


@dataclass(frozen=True)
class Place:
    """Where a number lies before a step: an array with a row per step, a parameter, a row input, or a register."""

    kind: str  # step, ahead, product, kept, row_kept, operand; vector, row; carried
    index: int = 0  # which of its kind
    block: int = 0


@dataclass(frozen=True)
class Exchange:
    """What all columns of a row have to be known for: a product or a reduction of ``operands``."""

    node: Node
    operands: tuple[Key, ...]
    level: int  # the stage that begins with its result

    @property
    def is_product(self) -> bool:
        return self.node.op == "product"

    @property
    def matrix(self) -> int:
        return self.node.index


class Columns:
    """Resolves nodes into keys and keys into places, arguments and stages.

    ``kept`` says where the numbers are that the forward pass has left for this one; ``views``: values that are
    columns of others.
    """

    def __init__(
        self,
        hidden: int,
        kept: Mapping[Key, Place] | None = None,
        views: Mapping[int, tuple[Node, int]] | None = None,
    ):
        self.hidden = hidden
        self.kept = dict(kept or {})
        self.views = dict(views or {})
        self.nodes: dict[int, Node] = {}
        self._levels: dict[Key, int] = {}
        self._loop: dict[int, bool] = {}

    # ------------------------------------------------------------------ names
    def blocks(self, node: Node) -> int:
        """How many numbers a value is for one column."""
        if node.width == 1:
            return 1
        if node.width % self.hidden:
            raise Unsuitable(f"a value is {node.width} wide, which is no multiple of {self.hidden} units")
        return node.width // self.hidden

    def keys(self, node: Node) -> list[Key]:
        return [self.key(node, block) for block in range(self.blocks(node))]

    def key(self, node: Node, block: int) -> Key:
        """The number that block ``block`` of a value is, behind slices and concatenations."""
        self.nodes[node.number] = node
        block = 0 if node.width == 1 else block
        if (node.number, block) in self.kept:
            return node.number, block
        if node.number in self.views:
            whole, start = self.views[node.number]
            if self.in_loop(whole):
                return self.key(whole, self._whole_blocks(start) + block)
        if node.op == "slice":
            if node.width == 1:
                raise Unsuitable("a single column is cut out of a value")
            return self.key(node.args[0], self._whole_blocks(node.index) + block)
        if node.op == "spread":
            return self.key(node.args[0], 0)
        if node.op == "cat":
            for part in node.args:
                if block < self.blocks(part):
                    return self.key(part, block)
                block -= self.blocks(part)
        return node.number, block

    def _whole_blocks(self, start: int) -> int:
        if start % self.hidden:
            raise Unsuitable(f"a value is cut at column {start}, which is no multiple of {self.hidden} units")
        return start // self.hidden

    # ------------------------------------------------------------------ what a number is
    def in_loop(self, node: Node) -> bool:
        """Whether a value depends on states or gradients."""
        found = self._loop.get(node.number)
        if found is None:
            found = node.op in ("state", "gradient") or any(self.in_loop(a) for a in node.args)
            self._loop[node.number] = found
        return found

    def place(self, key: Key) -> Place | None:
        """Where a number lies before the step; None when it has to be computed or exchanged."""
        if key in self.kept:
            return self.kept[key]
        node = self.nodes[key[0]]
        if node.op in ("step", "row", "vector"):
            return Place(node.op, node.index, key[1])
        if node.op in ("state", "gradient"):
            return Place("carried", node.index)
        if node.op == "product" and node.args[0].op == "step":
            return Place("product", node.number, key[1])
        if node.op in REDUCTIONS and not self.in_loop(node):
            return Place("ahead", node.number)
        return None

    def arguments(self, key: Key) -> list[Key]:
        """The numbers a computed number is made of."""
        node = self.nodes[key[0]]
        return [self.key(a, key[1]) for a in node.args]

    def exchanged(self, key: Key) -> bool:
        node = self.nodes[key[0]]
        return self.place(key) is None and (node.op == "product" or node.op in REDUCTIONS)

    def exchange(self, key: Key) -> Exchange:
        node = self.nodes[key[0]]
        moment = self.centred(node)
        operands = tuple(self.keys(node.args[0] if moment is None else moment.args[0]))
        return Exchange(node, operands, self.level(key))

    def level(self, key: Key) -> int:
        """The first stage in which a number can be computed."""
        found = self._levels.get(key)
        if found is None:
            node = self.nodes[key[0]]
            if self.place(key) is not None or not node.args:
                found = 0
            elif self.exchanged(key):
                moment = self.centred(node)
                source = node.args[0] if moment is None else moment.args[0]
                found = 1 + max(self.level(k) for k in self.keys(source))
            elif node.op in POINTWISE:
                found = max(self.level(k) for k in self.arguments(key))
            else:
                raise Unsuitable(f"there is no rule for {node.op} here")
            self._levels[key] = found
        return found

    def centred(self, node: Node) -> Node | None:
        """Σ x when ``node`` is Σ (x − x̄)²: both come out of one exchange, by merging what slices have."""
        inner = node.args[0] if node.op == "sum" else node
        if inner.op != "mul" or inner.args[0] is not inner.args[1] or not is_centred(inner.args[0]):
            return None
        return inner.args[0].args[1].args[0]

    def depends_on_steps(self, keys: Iterable[Key]) -> bool:
        """Whether some numbers are made of what differs from step to step besides the states."""
        return any(p.kind not in ("vector", "row", "carried") for p in self._made_of(keys))

    def only_inputs(self, key: Key) -> bool:
        """Whether a number has to be computed, but from inputs alone."""
        if self.place(key) is not None or self.level(key) or not self.nodes[key[0]].args:
            return False
        return all(p.kind != "carried" for p in self._made_of([key]))

    def _made_of(self, keys: Iterable[Key]) -> set[Place]:
        stack, seen, found = list(keys), set(), set()
        while stack:
            key = stack.pop()
            if key not in seen:
                seen.add(key)
                place = self.place(key)
                if place is not None:
                    found.add(place)
                elif self.nodes[key[0]].args:
                    stack.extend(self.arguments(key))
        return found


@dataclass
class Program:
    """One pass of a plan: what is carried from step to step, exchanged within one, and written at each.

    ``shared`` is the array that columns are published in, one block of columns per entry; every exchanged product
    reads neighbouring entries of it, and products over all steps read it after the pass.
    """

    columns: Columns
    backward: bool
    carried: int
    results: list[Key]
    shared: list[Key]
    keep: list[Key]  # left for the backward pass, per column
    keep_rows: list[Key]  # the same, one number per row
    sums: list[Key]  # gradients of vectors, summed over rows and steps

    @cached_property
    def wanted(self) -> list[Key]:
        return list(dict.fromkeys([*self.results, *self.shared, *self.keep, *self.keep_rows, *self.sums]))

    @cached_property
    def reached(self) -> list[Key]:
        """All numbers of the pass, arguments first."""
        found: dict[Key, None] = {}
        stack: list[tuple[Key, bool]] = [(k, False) for k in reversed(self.wanted)]
        c = self.columns
        while stack:
            key, ready = stack.pop()
            if key in found:
                continue
            if ready or c.place(key) is not None:
                found[key] = None
                continue
            stack.append((key, True))
            below = c.exchange(key).operands if c.exchanged(key) else c.arguments(key)
            stack.extend((k, False) for k in reversed(below))
        return list(found)

    @cached_property
    def exchanges(self) -> list[Exchange]:
        """In the order of their stages; a product once, whatever blocks of it are used."""
        found: dict[int, Exchange] = {}
        for key in self.reached:
            if self.columns.exchanged(key):
                found.setdefault(key[0], self.columns.exchange(key))
        return sorted(found.values(), key=lambda e: (e.level, e.node.number))

    @property
    def products(self) -> list[Exchange]:
        return [e for e in self.exchanges if e.is_product]

    @cached_property
    def stages(self) -> int:
        return 1 + max([e.level for e in self.exchanges], default=0)

    @cached_property
    def places(self) -> list[Place]:
        """Everything that is read, each once, in a fixed order."""
        found = {self.columns.place(key) for key in self.reached}
        return sorted((p for p in found if p is not None), key=lambda p: (p.kind, p.index, p.block))

    def start(self, exchange: Exchange) -> int:
        """The first entry of ``shared`` that a product reads."""
        at = find(self.shared, exchange.operands)
        assert at is not None
        return at


def find(shared: list[Key], wanted: Iterable[Key]) -> int | None:
    """Where ``wanted`` lie in a row, in any order."""
    keys = set(wanted)
    for at in range(len(shared) - len(keys) + 1):
        if set(shared[at : at + len(keys)]) == keys:
            return at
    return None


# ----------------------------------------------------------------------
# Sums over a row rearranged, so that few of them travel and few have to wait for one another.
#
# Σ (r·x + y) with r one number per row is r·Σx + Σy: what is summed no longer depends on r, which may itself be a sum.
# The backward pass of a normalisation, as it is derived, sums what contains a sum; taken apart it needs one exchange.
# What is left is put together again, r·Σx + r·Σy = r·Σ(x + y), so that four gates need one number and not four.
Term = tuple[tuple[Node, ...], Node]  # (factors one wide, what is summed)


def rearrange_sums(graph: Graph, roots: Sequence[Node], known: Collection[int]) -> list[Node]:
    """The same values by fewer sums; ``known`` values stay as they are."""
    new: dict[int, Node] = {}
    for node in until(roots, known):
        if node.number in known or not node.args:
            new[node.number] = node
            continue
        args = [new[a.number] for a in node.args]
        new[node.number] = _joined(
            graph, _sum(graph, args[0], known) if node.op == "sum" else _rebuilt(graph, node, args)
        )
    return [new[r.number] for r in roots]


def is_centred(value: Node) -> bool:
    """Whether a value is x − x̄, the mean being that of its row: its sum is zero."""
    if value.op != "sub" or value.args[1].op != "mul":
        return False
    total, share = value.args[1].args
    same = total.op == "sum" and total.args[0] is value.args[0] and share.op == "const"
    return same and abs(share.value * value.width - 1) < 1e-9


def _nothing(graph: Graph) -> Node:
    """A sum that is zero because its terms cancel. Unlike any other zero, it takes its products with it: the graph itself
    keeps 0 · x, which is NaN where x is."""
    return graph.node("const", (), 1, index=1, value=0.0)


def _without(graph: Graph, op: str, args: Sequence[Node]) -> Node | None:
    """An operation on something that is nothing: a product with it is nothing, and it adds nothing."""
    nothing = _nothing(graph)
    if not any(a is nothing for a in args) or op not in ("mul", "neg", "add", "sub"):
        return None
    if op in ("mul", "neg"):
        return nothing
    a, b = args
    if b is nothing:
        return a
    return b if op == "add" else graph.pointwise("neg", b)


def _rebuilt(graph: Graph, node: Node, args: list[Node]) -> Node:
    """The operation on other arguments."""
    simple = _without(graph, node.op, args)
    return rebuild(graph, node, args) if simple is None else graph.spread(simple, node.width)


def _narrow(graph: Graph, op: str, args: list[Node]) -> Node:
    """The operation on sums."""
    simple = _without(graph, op, args)
    return graph.pointwise(op, *args) if simple is None else simple


def _sum(graph: Graph, value: Node, known: Collection[int]) -> Node:
    """Σ over a row of ``value``."""
    if is_centred(value):
        return _nothing(graph)
    if value.number in known or value.width == 1:
        return graph.reduce("sum", value)
    if value.op == "cat":
        sums = [_sum(graph, part, known) for part in value.args]
        return graph.total([s for s in sums if s is not _nothing(graph)] or sums[:1])
    if value.op in ("add", "sub", "neg"):
        wide = [graph.spread(a, value.width) for a in value.args]
        return _narrow(graph, value.op, [_sum(graph, a, known) for a in wide])
    if value.op == "mul":
        a, b = value.args
        a, b = (b, a) if b.width == 1 else (a, b)
        if a.width == 1:
            return _narrow(graph, "mul", [a, _sum(graph, b, known)])
    return graph.reduce("sum", value)


def _joined(graph: Graph, node: Node) -> Node:
    """A sum of sums as sums of more; other values as they are."""
    if node.op not in ("add", "sub") or node.width != 1:
        return node
    terms = _terms(graph, node)
    if terms is None or len(terms) < 2:
        return node
    groups: dict[tuple[int, ...], list[Term]] = {}
    for factors, value in terms:
        groups.setdefault(tuple(sorted(f.number for f in factors)), []).append((factors, value))
    parts = []
    for group in groups.values():
        values = [v for _, value in group for v in (value.args if value.op == "cat" else (value,))]
        # Made by hand: the graph itself would take the sum of a concatenation apart.
        part = (
            graph.node("sum", (graph.node("cat", values, sum(v.width for v in values)),))
            if len(values) > 1
            else graph.reduce("sum", values[0])
        )
        for factor in group[0][0]:
            part = graph.pointwise("mul", factor, part)
        parts.append(part)
    return graph.total(parts)


def _terms(graph: Graph, node: Node) -> list[Term] | None:
    """A value one wide as factors times sums; None when it is not made of sums alone."""
    if node.op == "sum":
        return [((), node.args[0])]
    if node.op in ("add", "sub"):
        left, right = (_terms(graph, a) for a in node.args)
        if left is None or right is None:
            return None
        return left + (_negated(graph, right) if node.op == "sub" else right)
    if node.op == "neg":
        inner = _terms(graph, node.args[0])
        return None if inner is None else _negated(graph, inner)
    if node.op == "mul":
        for factor, rest in (node.args, node.args[::-1]):
            inner = _terms(graph, rest)
            if inner is not None and _terms(graph, factor) is None:
                return [((factor, *factors), value) for factors, value in inner]
    return None


def _negated(graph: Graph, terms: list[Term]) -> list[Term]:
    made = []
    for factors, value in terms:
        parts = value.args if value.op == "cat" else (value,)
        parts = tuple(graph.pointwise("neg", p) for p in parts)
        made.append((factors, graph.node("cat", parts, value.width) if len(parts) > 1 else parts[0]))
    return made
