"""The statements of one column: what a thread reads (:class:`Reads`) and what it computes (:class:`Body`).

A statement is ``v12_0[i]=(v3_1[i]*s0[i]);``. The same text serves the GPU, where ``i`` counts the few columns of a thread,
and a C compiler, where it counts all columns of a row, which is how machines without a GPU test it.

Parameters and row inputs are read once. The inputs of a step are read a step before they are used, and brought into the
GPU's cache a step before that: its memory is further away than a step is long.
"""

from __future__ import annotations

from collections.abc import Iterable

from anaphora.engine.backends.expressions import constant, expression
from anaphora.engine.backends.persistent.columns import Key, Place, Program

_LETTERS = {
    "step": "t",
    "product": "x",
    "ahead": "a",
    "kept": "k",
    "row_kept": "w",
    "operand": "o",
    "row": "q",
}


_POINTERS = {"vector": "P", "row": "Q", "step": "S", "product": "X", "ahead": "A"}
_ONCE = ("vector", "row", "carried")
_EXACT = ("ahead", "row_kept")  # one number per row, always float32


def place_name(place: Place) -> str:
    """The variable that holds what lies at a place."""
    return f"{_LETTERS[place.kind]}{place.index}_{place.block}"


class Body:
    """Writes each number's statement once, where it is first needed."""

    def __init__(self, program: Program):
        self.program, self.columns = program, program.columns
        self.written: set[Key] = set()
        self.declared: list[str] = []

    def name(self, key: Key) -> str:
        """An expression for a number that has been computed or read."""
        node = self.columns.nodes[key[0]]
        place = self.columns.place(key)
        if place is None:
            return constant(node.value, repr) if node.op == "const" else f"v{key[0]}_{key[1]}[i]"
        if place.kind == "vector":
            return f"p{place.index}_{place.block}"
        if place.kind == "carried":
            # The gradient of the output at this step joins that of the first state.
            return "g0[i]" if self.program.backward and place.index == 0 else f"s{place.index}[i]"
        return f"{place_name(place)}[i]"

    def known(self, key: Key) -> None:
        """Say that an exchange has written this number."""
        self._declare(key)

    def _declare(self, key: Key) -> None:
        self.written.add(key)
        self.declared.append(f"v{key[0]}_{key[1]}")

    def statements(self, wanted: Iterable[Key]) -> list[str]:
        """What computes these numbers, arguments first; exchanged ones must be known already."""
        lines: list[str] = []
        stack = [(key, False) for key in reversed(list(wanted))]
        while stack:
            key, ready = stack.pop()
            node = self.columns.nodes[key[0]]
            if key in self.written or node.op == "const" or self.columns.place(key) is not None:
                continue
            if self.columns.exchanged(key):
                raise AssertionError(f"{node} is used before it was exchanged")
            arguments = self.columns.arguments(key)
            if ready:
                lines.append(f"{self.name(key)}={expression(node.op, [self.name(a) for a in arguments])};")
                self._declare(key)
            else:
                stack.append((key, True))
                stack.extend((a, False) for a in reversed(arguments))
        return lines


class Reads:
    """The statements that read a program's places."""

    def __init__(self, program: Program):
        self.program, self.columns = program, program.columns

    def pointers(self) -> list[tuple[str, str]]:
        """(type, name) of the arrays of parameters and inputs."""
        names = {f"{_POINTERS[p.kind]}{p.index}": p.kind for p in self.program.places if p.kind in _POINTERS}
        return [("const float*" if kind in _EXACT else "const elem*", name) for name, kind in names.items()]

    def vectors(self) -> str:
        lines = []
        for p in self.program.places:
            if p.kind == "vector":
                _, at = self._row_width(p)
                lines.append(f"const float p{p.index}_{p.block}=tof(P{p.index}[{at}]);")
        return "".join(lines)

    def rows(self) -> str:
        """What belongs to a row for all steps."""
        lines = []
        for p in self.program.places:
            if p.kind == "row":
                (width, at), name = self._row_width(p), place_name(p)
                value = f"tof(Q{p.index}[(L)row[i]*{width}+{at}])"
                lines.append(f"float {name}[EPT];UNROLL for(int i=0;i<EPT;i++){name}[i]={value};")
        return "\n".join(lines)

    def _row_width(self, place: Place) -> tuple[str, str]:
        """How long the rows of an input are, and where this number lies in one."""
        node = next(n for n in self.columns.nodes.values() if n.op == place.kind and n.index == place.index)
        if node.width == 1:
            return "1", "0"
        return f"({self.columns.blocks(node)}*H_)", f"{place.block}*H_+jc"

    def fetch(self) -> str:
        """Read a step's inputs ahead of time: raw, so that they take little room until they are wanted."""
        declared, lines, numbers = [], [], []
        for p in self.program.places:
            if p.kind in _ONCE:
                continue
            name = place_name(p)
            numbers.append(f"float {name}[EPT];")
            if p.kind == "kept":
                continue
            kind = "float" if p.kind in _EXACT else "elem"
            declared.append(f"{kind} raw_{name}[EPT];")
            lines.append(f"raw_{name}[i]={self._address(p)};")
        if any(p.kind == "kept" for p in self.program.places):
            declared.append("Record<NK> raw_keep[EPT];")
            lines.append("raw_keep[i]=*(const Record<NK>*)(KEEP+(r*H_+jc)*NK);")
        if self.program.backward:
            declared.append("elem raw_dy[EPT];float dy[EPT],g0[EPT];")
            lines.append("raw_dy[i]=DY?DY[(time_first?r:(L)row[i]*T+spot[i])*(SIDES*H_)+jc]:toe(0.f);")
        body = "const L r=next[i];(void)r;" + "".join(lines)
        return f"{''.join(declared)}{''.join(numbers)}\nauto fetch=[&](){{EACH{{{body}}}}};"

    def touch(self) -> str:
        """Bring a later step's inputs, those of row ``r`` of all steps, close: memory is further away than a step is long."""
        lines = [f"touch(&{self._address(p)});" for p in self.program.places if self._wide(p)]
        if self.program.backward:
            lines.append("if(DY)touch(DY+(time_first?r:(L)row[i]*T+late)*(SIDES*H_)+jc);")
        text = f"if(j*sizeof(elem)%32==0){{{''.join(lines)}}}" if lines else ""
        single = [
            f"touch(&{self._address(p)});" for p in self.program.places if p.kind in _EXACT and p.block == 0
        ]
        text += f"if(j==0){{{''.join(single)}}}" if single else ""
        if any(p.kind == "kept" for p in self.program.places):
            text += "touch(KEEP+(r*H_+jc)*NK);"
        return text

    def _wide(self, p: Place) -> bool:
        """Whether a place is a column of an array of this precision with a row per step."""
        if p.kind in (*_ONCE, *_EXACT, "kept"):
            return False
        return p.kind == "operand" or "jc" in self._address(p)

    def converted(self) -> list[str]:
        """What was read, as numbers to compute with."""
        lines = []
        for p in self.program.places:
            if p.kind == "kept":
                lines.append(f"{place_name(p)}[i]=tof(raw_keep[i].v[{p.block}]);")
            elif p.kind in _EXACT:
                lines.append(f"{place_name(p)}[i]=raw_{place_name(p)}[i];")
            elif p.kind not in _ONCE:
                lines.append(f"{place_name(p)}[i]=tof(raw_{place_name(p)}[i]);")
        return [*lines, "dy[i]=tof(raw_dy[i]);"] if self.program.backward else lines

    def names(self) -> list[str]:
        """The variables these are."""
        return [place_name(p) for p in self.program.places if p.kind not in _ONCE]

    def _address(self, p: Place) -> str:
        if p.kind == "ahead":
            return f"A{p.index}[r]"
        if p.kind == "row_kept":
            return f"KROW[r*NR+{p.block}]"
        if p.kind == "operand":
            return f"OPERAND[r*OW+{p.block}*OP+jc]"
        if p.kind == "product":
            node = self.columns.nodes[p.index]
            width = "1" if node.width == 1 else f"({self.columns.blocks(node)}*H_)"
            return f"X{p.index}[r*{width}+{'0' if node.width == 1 else f'{p.block}*H_+jc'}]"
        width, at = self._row_width(p)
        return f"S{p.index}[r*{width}+{at}]"
