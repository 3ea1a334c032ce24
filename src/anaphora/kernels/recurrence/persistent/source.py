"""A program and its tiling as CUDA C++: one kernel that runs all steps of a pass.

The order inside a step is the order of urgency: publish what others wait for, then store what only a later pass reads.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from anaphora.kernels.recurrence.persistent.body import Body, place_name
from anaphora.kernels.recurrence.persistent.columns import Exchange, Key, Place, Program
from anaphora.kernels.recurrence.persistent.reductions import Reductions
from anaphora.kernels.recurrence.persistent.tiling import Tiling

PRELUDE = Path(__file__).with_name("prelude.cu")
KINDS = {"tf32": 0, "bf16": 1, "fp16": 2}
NAME = "all_steps"
_ONCE = ("vector", "row", "carried")


class Kernel:
    """The text of a kernel, and what it has to be given: ``parameters`` in order, by name."""

    def __init__(self, program: Program, tiling: Tiling, kind: str, before: Kernel | None = None):
        """``before``: the kernel of the forward pass, when this one reads what that has left."""
        self.program, self.tiling, self.kind = program, tiling, kind
        self.body = Body(program)
        self.columns = program.columns
        self.before = before or self
        self.kept = record_size(len(self.before.program.keep), kind != "tf32")
        self.kept_rows = len(self.before.program.keep_rows)
        self.reductions = Reductions(program, self.body)
        self.rotated = not program.backward and not self.columns.depends_on_steps(
            k for e in program.exchanges if e.level == 1 for k in e.operands
        )

    @property
    def shared_width(self) -> int:
        """Numbers of a step of a row in the shared array."""
        return len(self.program.shared) * self.tiling.padded

    # ------------------------------------------------------------------ what it is given
    @cached_property
    def parameters(self) -> list[tuple[str, str]]:
        """(type, name) of every pointer."""
        program = self.program
        found = [("const elem*", f"M{k}") for k in range(len(program.products))]
        names: dict[str, str] = {}
        for p in program.places:
            letter = {"vector": "P", "row": "Q", "step": "S", "product": "X", "ahead": "A"}.get(p.kind)
            if letter:
                names[f"{letter}{p.index}"] = "const float*" if letter == "A" else "const elem*"
        found += [(t, n) for n, t in names.items()]
        if program.backward:
            found += [
                ("const elem*", "KEEP"),
                ("const float*", "KROW"),
                ("const elem*", "OPERAND"),
                ("const elem*", "DY"),
            ]
            found += [("float*", "SUMS")]
        else:
            found += [("elem*", "KEEP"), ("float*", "KROW"), ("elem*", "Y")]
        found += [("elem*", "SHARED"), ("float*", "ROWS")]
        found += [("const elem*", f"FIRST{k}") for k in range(program.carried)]
        found += [("elem*", f"LAST{k}") for k in range(program.carried)]
        return [*found, ("const int*", "LENGTHS"), ("int*", "REPORT")]

    # ------------------------------------------------------------------ text
    @cached_property
    def source(self) -> str:
        """The whole text. Written once: every number's statement is."""
        t = self.tiling
        sizes = {
            "KIND": KINDS[self.kind], "H_": t.hidden, "HP": t.padded, "HS": t.columns, "NT": t.tiles, "WARPS": t.warps,
            "NK": max(1, self.kept), "NR": max(1, self.kept_rows), "SW": self.shared_width,
            "OW": self.before.shared_width, "OP": self.before.tiling.padded, "PART": t.partial // 4, "NV": max(1, self.reductions.width),
        }  # fmt: skip
        head = "".join(f"#define {name} {value}\n" for name, value in sizes.items())
        return head + PRELUDE.read_text() + self._kernel()

    def _kernel(self) -> str:
        steps = self._steps()  # first, since it finds what has to be declared
        pointers = ",".join(f"{kind}{name}" for kind, name in self.parameters)
        declared = "".join(f"float {name}[EPT];" for name in dict.fromkeys(self.body.declared))
        return f"""
extern "C" __global__ void __launch_bounds__(NTH,1) {NAME}({pointers},int T,int B,int reverse,int groups){{
extern __shared__ char memory[];float*part=(float*)memory;uint4*spill=(uint4*)(memory+2*PART*4);
const int tid=threadIdx.x,lane=tid&31,slice=blockIdx.x%NSL,j=tid%HS,jj=slice*HS+j;
const bool col=jj<H_;const int jc=col?jj:0;bool dead=false;int turn=0;(void)part;(void)spill;(void)turn;(void)lane;
{self._matrices()}
{self._vectors()}
{"".join(f"float sum{k}=0.f;" for k in range(len(self.program.sums)))}
for(int group=blockIdx.x/NSL;group<groups;group+=gridDim.x/NSL){{
int len[EPT];L row[EPT];bool on[EPT];int most=0;
UNROLL for(int i=0;i<EPT;i++){{int e=tid+i*NTH,b=group*BM+e/HS;on[i]=e<CELLS&&b<B;b=b<B?b:B-1;row[i]=(L)b*T;len[i]=LENGTHS?LENGTHS[b]:T;}}
for(int r=0;r<BM;r++){{int b=group*BM+r;int n=b<B?(LENGTHS?LENGTHS[b]:T):0;most=n>most?n:most;}}
L prow[NT];int plen[NT];
UNROLL for(int n=0;n<NT;n++){{int b=group*BM+n*8+(lane>>2);b=b<B?b:B-1;prow[n]=(L)b*T;plen[n]=LENGTHS?LENGTHS[b]:T;}}
(void)prow;(void)plen;
{declared}
{self._first()}
{self._fetch()}
{steps}
{self._tail()}
{self._last()}
}}
{self._sums()}
if(dead){{*(volatile int*)REPORT=1;__threadfence_system();}}
}}
"""

    def _matrices(self) -> str:
        lines, at = [], 0
        for k, p in enumerate(self.tiling.products):
            held = max(1, p.in_registers * p.row_tiles * 8)
            lines.append(
                f"u32 m{k}[{held}];uint4*spill{k}=spill+{at};"
                f"load_matrix<{p.depth},{p.out},{p.row_tiles},{p.depth_blocks},{p.in_registers}>(M{k},slice,m{k},spill{k});"
            )
            at += p.spilled(self.tiling.warps) // 16
        return "\n".join(lines) + "\n__syncthreads();"

    def _vectors(self) -> str:
        return "".join(
            f"const float p{p.index}_{p.block}=tof(P{p.index}[{_block(self.columns, self.program, p)}]);"
            for p in self.program.places
            if p.kind == "vector"
        )

    def _first(self) -> str:
        """Registers carried from step to step, and what belongs to a row for all steps."""
        lines = []
        for k in range(self.program.carried):
            lines.append(
                f"float s{k}[EPT];UNROLL for(int i=0;i<EPT;i++)s{k}[i]=FIRST{k}?tof(FIRST{k}[row[i]/T*H_+jc]):0.f;"
            )
        for p in self.program.places:
            if p.kind == "row":
                width, at = self._row_width(p)
                lines.append(
                    f"float {place_name(p)}[EPT];UNROLL for(int i=0;i<EPT;i++){place_name(p)}[i]=tof(Q{p.index}[row[i]/T*{width}+{at}]);"
                )
        return "\n".join(lines)

    def _row_width(self, place: Place) -> tuple[str, str]:
        """How long the rows of an input are, and where this number lies in one."""
        node = next(n for n in self.columns.nodes.values() if n.op == place.kind and n.index == place.index)
        if node.width == 1:
            return "1", "0"
        return f"({self.columns.blocks(node)}*H_)", f"{place.block}*H_+jc"

    def _fetch(self) -> str:
        """Read a step's inputs ahead of time: raw, so that they take little room until they are wanted."""
        declared, lines, turned = [], [], []
        for p in self.program.places:
            if p.kind in _ONCE:
                continue
            name = place_name(p)
            turned.append(f"float {name}[EPT];")
            if p.kind == "kept":
                continue
            kind = "float" if p.kind in ("ahead", "row_kept") else "elem"
            declared.append(f"{kind} raw_{name}[EPT];")
            lines.append(f"raw_{name}[i]={self._address(p)};")
        if any(p.kind == "kept" for p in self.program.places):
            declared.append("Record<NK> raw_keep[EPT];")
            lines.append("raw_keep[i]=*(const Record<NK>*)(KEEP+(r*H_+jc)*NK);")
        if self.program.backward:
            declared.append("elem raw_dy[EPT];float g0[EPT];")
            lines.append("raw_dy[i]=DY?DY[r*H_+jc]:toe(0.f);")
        body = "L r=row[i]+place(t,len[i],reverse);(void)r;" + "".join(lines)
        return f"{''.join(declared)}{''.join(turned)}\nauto fetch=[&](int t){{EACH{{{body}}}}};"

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

    # ------------------------------------------------------------------ steps
    def _steps(self) -> str:
        program = self.program
        count = "for(int t=most-1;t>=0;t--)" if program.backward else "for(int t=0;t<most;t++)"
        first, following = ("most-1", "t-1") if program.backward else ("0", "t+1")
        more = "t>0" if program.backward else "t+1<most"
        opening = self._publish(0, "up", "r")
        top = f"auto open=[&](int t){{EACH{{const bool up=t<len[i];L r=row[i]+place(t,len[i],reverse);(void)up;(void)r;\n{opening}}}}};"
        before = f"if(most){{fetch({first});{f'open({first});' if self.rotated else ''}}}"
        stages = [self._rest(0)]
        for level in range(1, program.stages):
            stages.append(self._receive(level))
            if level < program.stages - 1:
                stages.append(
                    f"EACH{{{self._publish(level, 'live[i]', 'at[i]')}\n{self._rest_lines(level)}}}"
                )
        final = self._finish(f"if({more})open({following});" if self.rotated else "")
        turned = self._turned()
        return f"""{top}
{before}
{count}{{
bool live[EPT];L at[EPT];
UNROLL for(int i=0;i<EPT;i++){{live[i]=t<len[i];at[i]=row[i]+place(t,len[i],reverse);}}
{turned}
{"" if self.rotated else "open(t);"}
if({more})fetch({following});
{chr(10).join(stages)}
{final}
}}"""

    def _turned(self) -> str:
        lines = []
        for p in self.program.places:
            if p.kind == "kept":
                lines.append(f"{place_name(p)}[i]=tof(raw_keep[i].v[{p.block}]);")
            elif p.kind in ("ahead", "row_kept"):
                lines.append(f"{place_name(p)}[i]=raw_{place_name(p)}[i];")
            elif p.kind not in _ONCE:
                lines.append(f"{place_name(p)}[i]=tof(raw_{place_name(p)}[i]);")
        if self.program.backward:
            lines.append("g0[i]=s0[i]+tof(raw_dy[i]);")
        return f"EACH{{{''.join(lines)}}}"

    def _publish(self, level: int, live: str, at: str) -> str:
        """Compute and publish what the exchanges after this stage read."""
        shared = self.program.shared
        urgent = {k for e in self.program.exchanges if e.level == level + 1 for k in e.operands}
        products = {k for e in self.program.products if e.level == level + 1 for k in e.operands}
        lines = self.body.statements(
            k for k in self.program.reached if k in urgent and not self.columns.exchanged(k)
        )
        slots = [(s, k) for s, k in enumerate(shared) if k in products]
        return "\n".join([*lines, *self._puts(slots, live, at), *self.reductions.send(level, live, at)])

    def _puts(self, slots: list[tuple[int, Key]], live: str, at: str) -> list[str]:
        lines = []
        for k in range(0, len(slots), 2):
            places = [f"SHARED+{at}*SW+{s}*HP+jj" for s, _ in slots[k : k + 2]]
            values = [f"({live}&&col?{self.body.name(key)}:0.f)" for _, key in slots[k : k + 2]]
            name = "put2" if len(places) == 2 else "put"
            lines.append(f"{name}({','.join([*places, *values])},on[i]);")
        return lines

    def _receive(self, level: int) -> str:
        """Wait for the exchanges this stage begins with."""
        lines, sums, at = [], [], 0
        for k, (e, p) in enumerate(zip(self.program.products, self.tiling.products, strict=True)):
            if e.level != level:
                continue
            start = self.program.start(e)
            lines.append(
                f"{{const elem*from[NT];UNROLL for(int n=0;n<NT;n++)from[n]=SHARED+(prow[n]+place(t,plen[n],reverse))*SW"
                f"+{start}*HP+(tid>>5)*{p.depth_blocks}*KBLK+(lane&3)*VEC;\n"
                f"product<{p.depth},{p.row_tiles},{p.depth_blocks},{p.in_registers},{p.at_once},{p.sums}>(m{k},spill{k},from,here+{at},dead);}}"
            )
            sums += self._totals(e, p.row_tiles, at)
            at += p.partial(self.tiling.warps, self.tiling.tiles) // 4
        text = ""
        if lines:
            text = (
                "{float*here=part+(turn&1)*PART;turn++;\n" + "\n".join(lines) + "\n__syncthreads();\n"
                "EACH{const int line=(tid+i*NTH)/HS;" + "".join(sums) + "}}\n"
            )
        return text + self.reductions.receive(level)

    def _totals(self, e: Exchange, row_tiles: int, at: int) -> list[str]:
        lines = []
        for block in range(self.columns.blocks(e.node)):
            key = (e.node.number, block)
            if key in self.program.reached:
                self.body.known(key)
                lines.append(f"{self.body.name(key)}=total<{row_tiles}>(here+{at},line,{block}*HS+j);")
        return lines

    def _rest(self, level: int) -> str:
        lines = self._rest_lines(level) if self.program.stages > 1 else ""
        return f"EACH{{{lines}}}" if lines else ""

    def _rest_lines(self, level: int) -> str:
        """What nobody waits for."""
        program, columns = self.program, self.columns
        sent = {k for e in program.products if e.level == level + 1 for k in e.operands}
        done = {k for e in program.products if e.level <= level for k in e.operands}
        slots = [
            (s, k) for s, k in enumerate(program.shared) if columns.level(k) == level and k not in sent | done
        ]
        sums = [(q, k) for q, k in enumerate(program.sums) if columns.level(k) == level]
        lines = self.body.statements([*(k for _, k in slots), *(k for _, k in sums)])
        lines += self._puts(slots, "live[i]", "at[i]")
        for q, key in sums:
            one = "&&jj==0" if columns.nodes[key[0]].width == 1 else ""
            lines.append(f"sum{q}+=live[i]&&on[i]&&col{one}?{self.body.name(key)}:0.f;")
        return "\n".join(lines)

    def _finish(self, follow: str) -> str:
        """The last stage: new states first, and what the next step waits for; then what is stored."""
        program, name = self.program, self.body.name
        level = program.stages - 1
        lines = self.body.statements([*program.results, *program.keep, *program.keep_rows])
        rest = self._rest_lines(level)
        fill = [f"record[i].v[{q}]=toe({name(k)});" for q, k in enumerate(program.keep)]
        fill += (
            [f"record[i].v[{q}]=toe(0.f);" for q in range(len(program.keep), self.kept)]
            if program.keep
            else []
        )
        rows = [f"rows[i][{q}]={name(k)};" for q, k in enumerate(program.keep_rows)]
        new = [f"const float n{k}={name(key)};" for k, key in enumerate(program.results)]
        new += [f"s{k}[i]=live[i]?n{k}:s{k}[i];" for k in range(program.carried)]
        stores = []
        if not program.backward:
            new.append("y[i]=live[i]?n0:0.f;")
            stores.append("if(on[i]&&col)Y[at[i]*H_+jj]=toe(y[i]);")
        if program.keep:
            stores.append("if(on[i]&&col)*(Record<NK>*)(KEEP+(at[i]*H_+jj)*NK)=record[i];")
        if program.keep_rows:
            stores.append(
                "if(on[i]&&jj==0){"
                + "".join(f"KROW[at[i]*NR+{q}]=rows[i][{q}];" for q in range(len(rows)))
                + "}"
            )
        declared = "float y[EPT];" if not program.backward else ""
        declared += "Record<NK> record[EPT];" if program.keep else ""
        declared += "float rows[EPT][NR];" if rows else ""
        text = "\n".join([*lines, rest, *fill, *rows, *new])
        return f"{declared}\nEACH{{{text}}}\n{follow}\nEACH{{{''.join(stores)}}}"

    # ------------------------------------------------------------------ after the steps
    def _tail(self) -> str:
        """Past the end of a group's longest row there is nothing; products over all steps read zeros there."""
        puts = "".join(f"put(SHARED+r*SW+{s}*HP+jj,0.f,on[i]);" for s in range(len(self.program.shared)))
        y = "" if self.program.backward else "if(on[i]&&col)Y[r*H_+jj]=toe(0.f);"
        return f"for(int t=most;t<T;t++)EACH{{L r=row[i]+t;(void)r;{puts}{y}}}"

    def _last(self) -> str:
        stores = "".join(
            f"if(LAST{k})LAST{k}[row[i]/T*H_+jj]=toe(s{k}[i]);" for k in range(self.program.carried)
        )
        return f"EACH{{if(on[i]&&col){{{stores}}}}}"

    def _sums(self) -> str:
        """Each thread's share of the sums over rows and steps: added up afterwards, in a fixed order."""
        count = len(self.program.sums)
        if not count:
            return ""
        at = "const L rows=(gridDim.x/NSL)*(NTH/HS),mine=(blockIdx.x/NSL)*(NTH/HS)+tid/HS;"
        return at + "".join(f"SUMS[({k}*rows+mine)*HP+jj]=sum{k};" for k in range(count))


def record_size(count: int, half: bool) -> int:
    """Numbers of a record, filled up so that it can be read at once."""
    unit = 4 if half else 2
    return -(-count // unit) * unit if count > 1 else count


def _block(columns: object, program: Program, place: Place) -> str:
    node = next(n for n in program.columns.nodes.values() if n.op == "vector" and n.index == place.index)
    return "0" if node.width == 1 else f"{place.block}*H_+jc"
