"""C for one step: pointwise loops fused as far as row reductions and products allow."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anaphora.engine.backends.c.frame import Product, Store, Tables
from anaphora.engine.backends.expressions import expression, name_of, reductions
from anaphora.engine.graph import REDUCTIONS, Node, parts_of
from anaphora.engine.ops import COSTLY


@dataclass
class _Loop:
    """Statements of one loop over the columns of a row."""

    stage: int
    order: int
    lines: list[str] = field(default_factory=list)
    known: dict[int, str] = field(default_factory=dict)


class StepCode:
    """Generates the body of one step from what must be stored.

    ``given`` maps a node's number to the name of the pointer to its row. ``pointers`` says how each pointer is
    computed for row ``i``. Products come between stages; a row reduction starts a new pass inside a stage.
    """

    def __init__(
        self,
        tables: Tables,
        given: Mapping[int, str],
        views: Mapping[int, tuple[Node, int]],
        stores: Sequence[Store],
        products: Sequence[Product],
        pointers: Mapping[str, str],
    ):
        self.tables, self.given, self.views = tables, dict(given), views
        self.stores, self.products = list(stores), list(products)
        self.pointers = dict(pointers)
        for p in self.products:
            self.given.setdefault(p.node.number, p.target)
        self.outputs_of = {p.node.number: p for p in self.products}
        self.levels: dict[int, tuple[int, int]] = {}
        self.temporaries: dict[int, Node] = {}
        self.scratch: dict[str, str] = {}  # arrays this code needs besides those it is given, and their sizes

    # ------------------------------------------------------------------ levels
    def level(self, node: Node) -> tuple[int, int]:
        """(stage, pass): when a value can be computed at the earliest."""
        found = self.levels.get(node.number)
        if found is None:
            product = self.outputs_of.get(node.number)
            if product is not None:
                found = (self.level(node.args[0])[0] + 1, 0)
            elif node.number in self.given or node.number in self.views or not node.args:
                found = (0, 0)
            elif node.op in REDUCTIONS:
                stage, order = self.level(node.args[0])
                found = (stage, order + 1)
            else:
                found = max(self.level(a) for a in node.args)
            self.levels[node.number] = found
        return found

    # ------------------------------------------------------------------ generation
    def generate(self) -> str:
        """The statements of one step; reads ``na``, the number of rows at work."""
        self._generate()  # a first run finds what has to be kept from one loop to another
        stored = {s.node.number for s in self.stores if not s.add}
        self.temporaries = {
            n: node
            for n, (node, loops, stages) in self.uses.items()
            if (node.op in COSTLY and len(loops) > 1 and node.width > 1 and n not in stored)
            or (node.op in REDUCTIONS and len(stages) > 1)
        }
        for n, node in self.temporaries.items():
            self.scratch[f"temporary_{n}"] = f"C * {self.width(node)}"
            self.pointers[f"temporary_{n}_row"] = f"temporary_{n} + i*{self.width(node)}"
        return self._generate()

    def _generate(self) -> str:
        self.uses: dict[int, tuple[Node, set[tuple[int, ...]], set[int]]] = {}
        self.stored: dict[int, str] = {}
        self.reductions = self._reductions()
        work: dict[tuple[int, int], list[tuple[Node, str, Store | None, int]]] = {}
        for store in self.stores:
            for part, start in parts_of(store.node):
                work.setdefault(self.level(part), []).append((part, f"o{start}", store, start))
        for node in self.reductions:
            work.setdefault(self.level(node.args[0]), []).append((node, "", None, 0))
        last = max([p[0] for p in work] + [self.level(p.node)[0] for p in self.products], default=0)
        text = []
        for stage in range(last + 1):
            body = self._rows(stage, {order: items for (s, order), items in work.items() if s == stage})
            if body:
                after = (
                    "what needs no product of this step"
                    if stage == 0
                    else "what waits for the products above"
                )
                text.append(f"/* {after} */\n{body}")
            text.extend(self._product(p) for p in self.products if self.level(p.node.args[0])[0] == stage)
        return "\n".join(text)

    def _reductions(self) -> list[Node]:
        found: dict[int, Node] = {}
        stack = [s.node for s in self.stores]
        seen: set[int] = set()
        while stack:
            node = stack.pop()
            if node.number in seen:
                continue
            seen.add(node.number)
            if node.number in self.given and node.number not in self.outputs_of:
                continue
            if node.number in self.views:
                continue
            if node.op in REDUCTIONS:
                found[node.number] = node
            stack.extend(node.args)
        return [found[n] for n in sorted(found)]

    def _product(self, p: Product) -> str:
        out, inner = self.size_of_product(p)
        packed = f"m{p.matrix}" if p.matrix >= 0 else f"mt{-1 - p.matrix}"
        named = f"matrix {p.matrix}" if p.matrix >= 0 else f"matrix {-1 - p.matrix}, transposed"
        return f"""/* product with {named} */
for (L i = 0; i < na; i++) {{
const L at = AT(i);
(void)at;
from[i] = {self.pointers[p.source]};
to[i] = {self.pointers[p.target]};
}}
gemm(na, from, to, {out}, {inner}, {packed}, {int(p.add)});"""

    def size_of_product(self, p: Product) -> tuple[str, str]:
        m = p.matrix if p.matrix >= 0 else -1 - p.matrix
        wide, narrow = ("matrix out", m), ("matrix in", m)
        out = self.tables.size(wide if p.matrix >= 0 else narrow, p.node.width)
        inner = self.tables.size(narrow if p.matrix >= 0 else wide, p.node.args[0].width)
        return out, inner

    # ------------------------------------------------------------------ one stage
    def _rows(self, stage: int, passes: dict[int, list[tuple[Node, str, Store | None, int]]]) -> str:
        lines: list[str] = []
        self.scalars: dict[int, str] = {}
        for order in sorted(passes):
            by_width: dict[int, list[tuple[Node, str, Store | None, int]]] = {}
            for item in passes[order]:
                node = item[0].args[0] if item[2] is None else item[0]
                by_width.setdefault(node.width, []).append(item)
            for width in sorted(by_width, reverse=True):
                lines.extend(self._loop(stage, order, width, by_width[width]))
        if not lines:
            return ""
        body = "\n".join(lines)
        used = sorted(set(re.findall(r"\w+", body)) & set(self.pointers))
        pointers = "\n".join(f"R *const {name} = {self.pointers[name]};" for name in used)
        return f"for (L i = 0; i < na; i++) {{\nconst L at = AT(i);\n(void)at;\n{pointers}\n{body}\n}}"

    def _loop(
        self, stage: int, order: int, width: int, items: list[tuple[Node, str, Store | None, int]]
    ) -> list[str]:
        loop = _Loop(stage, order)
        self.row_lines: list[str] = []
        self.here = (stage, order, width)
        now_stored: dict[int, str] = {}
        reduced: list[tuple[Node, str]] = []
        bound = self.width(items[0][0].args[0] if items[0][2] is None else items[0][0])
        for node, _, store, start in items:
            if store is None:
                reduced.append((node, self._terms(node, loop)))
                continue
            value = self.value(node, loop)
            at = self._index(store, node, start)
            loop.lines.append(f"{store.target}[{at}] {'+=' if store.add else '='} {value};")
            if not store.add and store.node is node:
                now_stored[node.number] = store.target
        lines = [*self.row_lines]
        if width == 1:
            lines += loop.lines
        elif loop.lines:
            lines += ['_Pragma("omp simd")', f"for (L j = 0; j < {bound}; j++) {{", *loop.lines, "}"]
        lines += reductions(reduced, bound)
        for node, _ in reduced:
            if node.number in self.temporaries:
                lines.append(f"temporary_{node.number}_row[0] = {name_of(node)};")
        self.stored.update(now_stored)
        return lines

    def _terms(self, reduction: Node, loop: _Loop) -> str:
        """Where the terms of a row's reduction lie. They are written first and reduced in a fixed order afterwards, which
        no vectorised loop would promise."""
        value = reduction.args[0]
        place = self._place(value)
        if place is not None:
            self._count(value)
            return f"{place[0]} + {place[1]}0" if place[1] else place[0]
        name = f"terms_{reduction.number}"
        # One row, used again for each: rows of many such arrays would fall into the same lines of the cache.
        self.scratch[f"{name}_array"] = self.width(value)
        self.pointers[name] = f"{name}_array"
        loop.lines.append(f"{name}[j] = {self.value(value, loop)};")
        return name

    def _index(self, store: Store, node: Node, start: int) -> str:
        j = "j" if node.width > 1 else "0"
        if start == 0:
            return j
        return f"{self.tables.size(('part start', store.node.number, start), start)}+{j}"

    # ------------------------------------------------------------------ values
    def value(self, node: Node, loop: _Loop) -> str:
        """A C expression for a value at column ``j`` (or of the row, when one wide)."""
        if node.op == "const":
            return self.tables.constant(node)
        self._count(node)
        j = "j" if node.width > 1 else "0"
        place = self._place(node)
        if place is not None:
            here = f"{place[0]}[{place[1]}{j}]"
            return self._once(node, here) if node.width == 1 and self.here[2] > 1 else here
        if node.op == "spread":
            return self.value(node.args[0], loop)
        if node.width == 1:
            return self._scalar(node, loop)
        if node.number in loop.known:
            return loop.known[node.number]
        args = [self.value(a, loop) for a in node.args]
        name = name_of(node)
        loop.known[node.number] = name
        loop.lines.append(f"const R {name} = {expression(node.op, args)};")
        if node.number in self.temporaries:
            loop.lines.append(f"temporary_{node.number}_row[j] = {name};")
            self.given_later(node)
        return name

    def _once(self, node: Node, place: str) -> str:
        """Read a value one wide before the loop: the compiler cannot know that the loop leaves it alone."""
        if node.number not in self.scalars:
            self.scalars[node.number] = f"{name_of(node)}_read"
            self.row_lines.append(f"const R {name_of(node)}_read = {place};")
        return self.scalars[node.number]

    def given_later(self, node: Node) -> None:
        """From the next loop on the value is read from its array."""
        self.stored.setdefault(node.number, f"temporary_{node.number}_row@{self.here}")

    def _count(self, node: Node) -> None:
        entry = self.uses.setdefault(node.number, (node, set(), set()))
        entry[1].add(self.here)
        entry[2].add(self.here[0])
        if node.op in REDUCTIONS:
            entry[2].add(self.level(node.args[0])[0])

    def _place(self, node: Node) -> tuple[str, str] | None:
        """Where a value lies already: pointer and offset."""
        if node.number in self.views:
            whole, start = self.views[node.number]
            offset = f"{self.tables.size(('view start', node.number), start)}+" if start else ""
            return self.given[whole.number], offset
        if node.number in self.given:
            return self.given[node.number], ""
        stored = self.stored.get(node.number)
        if stored is not None:
            name, _, where = stored.partition("@")
            if where != str(self.here):
                return name, ""
        if node.op == "slice" and node.args[0].number in self.given:
            offset = f"{self.tables.size(('slice start', node.number), node.index)}+" if node.index else ""
            return self.given[node.args[0].number], offset
        return None

    def _scalar(self, node: Node, loop: _Loop) -> str:
        if node.op in REDUCTIONS:
            if node.number in self.temporaries and self.level(node.args[0])[0] != loop.stage:
                return f"temporary_{node.number}_row[0]"
            return name_of(node)
        if node.number not in self.scalars:
            args = [self.value(a, loop) for a in node.args]
            self.scalars[node.number] = name_of(node)
            line = f"const R {name_of(node)} = {expression(node.op, args)};"
            # With one column the loop's own lines are the row's lines, in order.
            (loop.lines if self.here[2] == 1 else self.row_lines).append(line)
        return self.scalars[node.number]

    def width(self, node: Node) -> str:
        return self.tables.size(("width", node.number), node.width)
