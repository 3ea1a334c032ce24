"""The statements of one column: what a thread reads (:class:`Reads`) and what it computes (:class:`Body`).

A statement is ``v12_0[i]=(v3_1[i]*s0[i]);``. The same text serves the GPU, where ``i`` counts the few columns of a thread,
and a C compiler, where it counts all columns of a row, which is how machines without a GPU test it.

Parameters and row inputs are read once. The inputs of a step are read a step before they are used, and brought into the
GPU's cache a step before that: its memory is further away than a step is long.
"""

from __future__ import annotations

from collections.abc import Iterable

from anaphora.engine.backends.expressions import constant, expression
from anaphora.engine.backends.persistent.clusters import Near, reduction_width
from anaphora.engine.backends.persistent.columns import Exchange, Key, Place, Program

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


# ----------------------------------------------------------------------
# Row reductions across blocks of threads: each strip sends what it has of a row, and all add up the same numbers.
#
# A strip is what one warp has of a row: a slice of at most 32 columns, or part of a wider one.
# A sum and a sum of squares about the mean travel together: strips send their own Σx and Σ(x − x̄ₛ)², and these merge
# exactly, Σ(x − x̄)² = Σₛ [Σ(x − x̄ₛ)² + nₛ (x̄ₛ − x̄)²] (Chan et al. 1979), without waiting for the mean.
class Reductions:
    """The statements that send and receive the reductions of each stage."""

    def __init__(self, program: Program, body: Body, near: Near):
        self.program, self.body, self.near = program, body, near
        self.levels: dict[int, list[Exchange]] = {}
        for e in program.exchanges:
            if not e.is_product:
                self.levels.setdefault(e.level, []).append(e)
        self.offsets: dict[int, int] = {}
        self.width = 0  # numbers of a strip of a row that leave a cluster, all stages together
        for level, found in sorted(self.levels.items()):
            self.offsets[level] = self.width
            self.width += 0 if level in near.reductions else reduction_width(len(found))

    def sent(self, level: int) -> int:
        """Numbers a strip of a row sends for a stage."""
        return reduction_width(len(self.levels[level]))

    def _moment(self, e: Exchange) -> Exchange | None:
        """The plain sum that goes with a sum of squares about the mean."""
        total = self.program.columns.centred(e.node)
        if total is None:
            return None
        return next((f for f in self.levels[e.level] if f.node is total), None)

    def send(self, level: int, at: str, beat: str) -> list[str]:
        """After stage ``level``: this strip's part of every reduction of the next one; ``at``, ``beat``: of which step."""
        found = self.levels.get(level + 1, [])
        if not found:
            return []
        lines = []
        z = [f"z{level}_{q}[i]" for q in range(len(found))]
        for q, e in enumerate(found):
            self.body.declared.append(f"z{level}_{q}")
            values = [self.body.name(k) for k in e.operands]
            moment = self._moment(e)
            if e.node.op == "maximum":
                top = values[0]
                for value in values[1:]:
                    top = f"r_max({top},{value})"
                lines.append(f"{z[q]}=row_max(col?{top}:-INFINITY);")
            elif moment is not None:
                # About the row's first number in this strip: near the mean, and there without a sum.
                squares = "+".join(f"({v}-near{q})*({v}-near{q})" for v in values)
                share = f"column_share(strip)*K({1 / len(values)!r})"
                count = f"{len(values)}*real_columns(strip)"
                lines.append(f"const float near{q}=first_of_row({values[0]});")
                lines.append(f"const float square{q}=row_sum(col?{squares}:0.f);")
                lines.append(f"const float away{q}={z[found.index(moment)]}*({share})-near{q};")
                lines.append(f"{z[q]}=r_max(square{q}-{count}*away{q}*away{q},0.f);")
            else:
                lines.append(f"{z[q]}=row_sum(col?{'+'.join(values)}:0.f);")
        # All rows of a thread are summed up before the first is sent, so that their chains run side by side.
        return [*lines, "}", "EACH{", *self._sent(level + 1, z, at, beat)]

    def _sent(self, level: int, numbers: list[str], at: str, beat: str) -> list[str]:
        """Send ``numbers`` for the reductions of stage ``level``."""
        width = self.sent(level)
        sent = [*numbers, *["0.f"] * (width - len(numbers))]
        fours = [(q, sent[q : q + 4]) for q in range(0, width, 4)]
        if level in self.near.reductions:
            words = "".join(
                f"hand4(to+{q},bar,s,make_uint4({','.join(f'word({v})' for v in four)}));"
                for q, four in fours
            )
            place = f"float*to={self._near(level, beat)}+strip*{width};char*bar={self._barrier(level, beat)};"
            return [
                f"{{{place}UNROLL for(int u=0;u<NSL;u+=RW){{const int s=u+j%RW;if(s<NSL&&!wait.over){{{words}}}}}}}"
            ]
        stores = "".join(f"store4(to+{q},{','.join(four)});" for q, four in fours)
        return [f"if(on[i]&&j%RW==0){{float*to={self._far(level, at)}+strip*{width};{stores}}}"]

    def _far(self, level: int, at: str) -> str:
        """Where all strips of a row send to in common memory."""
        return f"ROWS+((L){at}*NRS)*NV+{self.offsets[level]}*NRS"

    def _near(self, level: int, beat: str) -> str:
        """Where all strips of this row send to in a cluster."""
        row = f"(({beat}&1)*BM+(tid+i*NTH)/HS)*NRS*{self.sent(level)}"
        return f"(float*)(near+{self.near.reductions[level].offset})+{row}"

    def _barrier(self, level: int, beat: str) -> str:
        """That of this row."""
        return f"near+{self.near.reductions[level].barriers}+(({beat}&1)*BM+(tid+i*NTH)/HS)*8"

    def touch(self, at: str) -> list[str]:
        """Fetch what this strip will write at a step ahead of it: it was written long before."""
        places = [
            f"touch({self._far(level, at)}+strip*{self.sent(level)});"
            for level in self.levels
            if level not in self.near.reductions
        ]
        return [f"if(on[i]&&j%RW==0){{{''.join(places)}}}"] if places else []

    def receive(self, level: int) -> str:
        """At the beginning of stage ``level``: the reductions over the whole row."""
        found = self.levels.get(level, [])
        if not found:
            return ""
        width = self.sent(level)
        each = "UNROLL for(int u=0;u<TURNS;u++){const int s=j%SPAN+u*SPAN;if(s<NRS)"
        if level in self.near.reductions:
            # What lies there after a wait that failed is that of another step.
            read = "".join(
                f"got[i][u][{q}]=wait.over?NOT_A_NUMBER:all[s*{width}+{q}];" for q in range(len(found))
            )
            wait = (
                f"receive({self._barrier(level, 'beat')},beat,NRS*{width * 4},j==0,wait);\n"
                f"const float*all={self._near(level, 'beat')};{each}{{{read}}}}}"
            )
        else:
            wait = f"const float*all={self._far(level, 'at[i]')};{each}take<{width}>(all+s*{width},got[i][u],wait);}}"
        opening = f"{{float got[EPT][TURNS][{width}];\nEACH{{{wait}\n__syncwarp();}}\n"
        lines = []
        known: set[int] = set()
        for q, e in enumerate(found):
            moment = self._moment(e)
            if moment is not None:
                total = found.index(moment)
                lines += self._merged(q, total, len(e.operands), total not in known)
                known |= {q, total}
        for q, e in enumerate(found):
            if q not in known:
                most = e.node.op == "maximum"
                add = f"z{q}=r_max(z{q},got[i][u][{q}]);" if most else f"z{q}+=got[i][u][{q}];"
                lines.append(f"float z{q}={'-INFINITY' if most else '0.f'};")
                lines.append(f"UNROLL for(int u=0;u<TURNS;u++)if(j%SPAN+u*SPAN<NRS){{{add}}}")
                lines.append(f"z{q}={'strips_max' if most else 'strips_sum'}(z{q});")
        for q, e in enumerate(found):
            key = (e.node.number, 0)
            self.body.known(key)
            lines.append(f"{self.body.name(key)}=z{q};")
        return opening + "EACH{" + "\n".join(lines) + "}}\n"

    @staticmethod
    def _merged(q: int, total: int, blocks: int, first: bool) -> list[str]:
        """Σ and squares about the mean of all strips, from those about each strip's own: all about the first strip's."""
        share, count = f"column_share(s)*K({1 / blocks!r})", f"{blocks}*real_columns(s)"
        return [
            f"const float near{q}=first_of_row(got[i][0][{total}]*(column_share(0)*K({1 / blocks!r})));float apart{q}=0.f,both{q}=0.f;",
            f"UNROLL for(int u=0;u<TURNS;u++){{const int s=j%SPAN+u*SPAN;if(s<NRS){{const float n={count},d=got[i][u][{total}]*({share})-near{q};"
            f"apart{q}+=n*d;both{q}+=got[i][u][{q}]+n*d*d;}}}}",
            f"apart{q}=strips_sum(apart{q});both{q}=strips_sum(both{q});",
            f"const float z{total}=near{q}*({blocks}.f*H_)+apart{q};" if first else "",
            f"const float z{q}=r_max(both{q}-apart{q}*apart{q}*(1.f/({blocks}*H_)),0.f);",
        ]
