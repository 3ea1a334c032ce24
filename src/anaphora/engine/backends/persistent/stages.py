"""The loop over steps of a kernel, stage by stage: publish what others wait for, wait for what they publish, store the rest.

The order decides the speed. A step is mostly waiting for exchanges, so what other blocks wait for is computed and
published first, and whatever can be computed meanwhile is; what is stored for later comes last.
"""

from __future__ import annotations

from anaphora.engine.backends.persistent.body import Body, Reads, Reductions
from anaphora.engine.backends.persistent.clusters import NOTHING_NEAR, nearby
from anaphora.engine.backends.persistent.columns import Exchange, Key, Program
from anaphora.engine.backends.persistent.tiling import ProductTiling, Tiling

# Registers up to which all that can be computed before an exchange is, since the time until it arrives is spent
# waiting; beyond them numbers are computed when they are used. Numbers of 16 bits wait for their use in half the room.
ROOMY = {True: 240, False: 232}
FULL = 250  # from here on nothing more may be held at once


class Stages:
    """The statements of the loop over steps."""

    def __init__(self, program: Program, tiling: Tiling, reads: Reads, record: int, half: bool):
        """``record``: how many numbers a record of what is kept has room for; ``half``: numbers have 16 bits."""
        self.program, self.tiling, self.reads, self.record, self.half = program, tiling, reads, record, half
        self.columns, self.body = program.columns, Body(program)
        self.near = nearby(program, tiling, half) if tiling.cluster else NOTHING_NEAR
        self.reductions = Reductions(program, self.body, self.near)
        # Where a step begins by publishing states, it does so as soon as they are known, before the step
        # that made them stores anything.
        self.early = not program.backward and not self.columns.depends_on_steps(
            k for e in program.exchanges if e.level == 1 for k in e.operands
        )

    def text(self) -> str:
        program = self.program
        count = "for(int t=most-1;t>=0;t--)" if program.backward else "for(int t=0;t<most;t++)"
        first, following = ("most-1", "t-1") if program.backward else ("0", "t+1")
        more = "t>0" if program.backward else "t+1<most"
        # What the inputs alone decide comes first: it can be computed ahead of its step.
        roomy = program.backward and self.tiling.registers < FULL and not self.reductions.levels
        ready = [k for k in program.reached if self.columns.only_inputs(k)] if roomy else []
        prepared = "".join([*self.reads.converted(), *self.body.statements(ready)])
        following_step, this_step = (
            ("up[i]", "next[i]", "(beat+1)"),
            ("live[i]", "at[i]", "beat"),
        )
        opening = self._publish(0, *(following_step if self.early else this_step))
        stages = [self._rest(0)]
        for level in range(1, program.stages - 1):
            stages += self._receive(level)
            published = self._publish(level, *this_step)
            stages.append(f"EACH{{{published}\n{self._rest_lines(level)}}}")
        waiting, received = self._receive(program.stages - 1) if program.stages > 1 else ("", "")
        final = self._finish(f"if({more})open();" if self.early else "")
        names = [*self.reads.names(), *(self.body.name(k).removesuffix("[i]") for k in ready)]
        # Between the last product of a step and the barrier after it most warps wait for the slowest.
        ahead = roomy and waiting and not any(f"{n}[i]" in received + final for n in names)
        return f"""auto look=[&](int t){{UNROLL for(int i=0;i<EPT;i++){{up[i]=t<len[i];spot[i]=place(t,len[i],reverse);next[i]=spot[i]*B+row[i];}}}};
auto prepare=[&](){{EACH{{{prepared}}}}};
auto open=[&](){{EACH{{{opening}}}}};
if(most){{look({first});fetch();{"prepare();" if ahead else ""}{"open();" if self.early else ""}}}
{count}{{{"beat++;" if self.near.size else ""}
UNROLL for(int i=0;i<EPT;i++){{live[i]=up[i];at[i]=next[i];}}
{"" if ahead else "prepare();"}
{"EACH{g0[i]=s0[i]+dy[i];}" if program.backward else ""}
{"" if self.early else "open();"}
look({following});
if({more}){{fetch();{self._touch()}}}
{self._touch_inputs()}
{chr(10).join(stages)}
{waiting}
{f"if({more})prepare();" if ahead else ""}
{received}
{final}
}}"""

    def _touch_inputs(self) -> str:
        """What is fetched at the next step, for the step after it, should be close by then.

        A forward step of several exchanges is long enough to fetch its few inputs from afar.
        """
        text = self.reads.touch()
        if not text or (not self.program.backward and self.program.stages > 2):
            return ""
        later, there = ("t-2", "t>1") if self.program.backward else ("t+2", "t+2<most")
        row = f"const int late=place({later},len[i],reverse);const L r=(L)late*B+row[i];"
        return f"if({there})EACH{{{row}if(on[i]){{{text}}}}}"

    def _touch(self) -> str:
        """Bring what will be published at the next step, and is polled, close: it was written long before."""
        far = [e for k, e in enumerate(self.program.products) if k not in self.near.products]
        slots = sorted(
            {
                s
                for e in far
                for s in range(self.program.start(e), self.program.start(e) + len(set(e.operands)))
            }
        )
        lines = self.reductions.touch("next[i]")
        if slots:
            puts = "".join(f"touch(SHARED+(L)next[i]*SW+jj+{s}*HP);" for s in slots)
            lines.append(f"if(on[i]&&j*sizeof(elem)%32==0){{{puts}}}")
        return f"EACH{{{''.join(lines)}}}" if lines else ""

    def _publish(self, level: int, live: str, at: str, beat: str) -> str:
        """Compute and publish what the exchanges after this stage read; the rest says of which step."""
        shared = self.program.shared
        urgent = {k for e in self.program.exchanges if e.level == level + 1 for k in e.operands}
        products = {k for e in self.program.products if e.level == level + 1 for k in e.operands}
        lines = self.body.statements(
            k for k in self.program.reached if k in urgent and not self.columns.exchanged(k)
        )
        slots = [(s, k) for s, k in enumerate(shared) if k in products and self.columns.level(k) == level]
        lines += self._hands(level, live, beat) + self.reductions.send(level, at, beat)
        return "\n".join([*lines, *self._puts(slots, live, at)])

    def _hands(self, level: int, live: str, beat: str) -> list[str]:
        """Send to the blocks of the cluster."""
        lines = []
        for k, e in enumerate(self.program.products):
            if e.level == level + 1 and k in self.near.products:
                start, near = self.program.start(e), self.near.products[k]
                for q, key in enumerate(self.program.shared[start : start + len(set(e.operands))]):
                    value = f"{live}&&col?{self.body.name(key)}:0.f"
                    places = f"{self._place(k, beat)},{self._barriers(k, beat)},{q}*HP"
                    lines.append(f"hand<{near.row},{self._deep(k)}>({places},{value},slice,i,wait.over);")
        return lines

    def _deep(self, product: int) -> str:
        """The numbers of a row that one team of warps multiplies."""
        return f"{self.tiling.products[product].depth_blocks}*KBLK"

    def _barriers(self, product: int, beat: str) -> str:
        return f"near+{self.near.products[product].barriers}+({beat}&1)*WARPS*8"

    def _place(self, product: int, beat: str) -> str:
        """Where the rows of a product's operands lie in shared memory, at a step."""
        near = self.near.products[product]
        return f"(elem*)(near+{near.offset})+({beat}&1)*BM*{near.row}"

    def _puts(self, slots: list[tuple[int, Key]], live: str, at: str) -> list[str]:
        lines = []
        for k in range(0, len(slots), 2):
            places = [f"SHARED+(L){at}*SW+jj+{s}*HP" for s, _ in slots[k : k + 2]]
            values = [f"({live}&&col?{self.body.name(key)}:0.f)" for _, key in slots[k : k + 2]]
            name = "put2" if len(places) == 2 else "put"
            lines.append(f"{name}({','.join([*places, *values])},on[i]);")
        return lines

    def _receive(self, level: int) -> tuple[str, str]:
        """Wait for the exchanges a stage begins with; then, behind a barrier, what they have brought."""
        lines, sums, at = [], [], 0
        for k, (e, p) in enumerate(zip(self.program.products, self.tiling.products, strict=True)):
            if e.level != level:
                continue
            start = self.program.start(e)
            wait = ""
            if k in self.near.products:
                team = f"(tid>>5)/{p.split}"
                share = f"share_of<{p.depth},{self._deep(k)}>({team})"
                wait = (
                    f"receive({self._barriers(k, 'beat')}+{team}*8,beat,{share},tid%{32 * p.split}==0,wait);"
                )
                row = f"{self._place(k, 'beat')}+(n*8+(lane>>2))*{self.near.products[k].row}"
            else:
                row = f"SHARED+((L)place(t,plen[n],reverse)*B+prow[n])*SW+{start}*HP"
            lines.append(
                f"{{{wait}const elem*from[NT];UNROLL for(int n=0;n<NT;n++)from[n]={row}+(tid>>5)/{p.split}*{p.depth_blocks}*KBLK+(lane&3)*VEC;\n"
                f"product<{p.depth},{p.row_tiles},{p.depth_blocks},{p.in_registers},{p.at_once},{p.sums},{p.split},"
                f"{str(k in self.near.products).lower()}>(m{k},spill{k},stage{k},from,here+{at},wait);}}"
            )
            sums += self._totals(e, p, at)
            at += p.partial(self.tiling.warps, self.tiling.tiles) // 4
        after = self.reductions.receive(level)
        if not lines:
            return "", after
        waiting = "here=part+(turn&1)*PART;turn++;\n" + "\n".join(lines)
        line = "const int line=(tid+i*NTH)/HS;"
        return waiting, f"__syncthreads();\nEACH{{{line}{''.join(sums)}}}\n{after}"

    def _totals(self, e: Exchange, p: ProductTiling, at: int) -> list[str]:
        lines = []
        for block in range(self.columns.blocks(e.node)):
            key = (e.node.number, block)
            if key in self.program.reached:
                self.body.known(key)
                lines.append(
                    f"{self.body.name(key)}=total<{p.row_tiles},{p.split}>(here+{at},line,{block}*HS+j);"
                )
        return lines

    def _rest(self, level: int) -> str:
        lines = self._rest_lines(level) if self.program.stages > 1 else ""
        return f"EACH{{{lines}}}" if lines else ""

    def _rest_lines(self, level: int) -> str:
        """What no other block waits for: computed and stored while the exchange is under way."""
        program, columns = self.program, self.columns
        sent = {k for e in program.products if e.level == level + 1 for k in e.operands}
        done = {k for e in program.products if e.level <= level for k in e.operands}
        slots = [
            (s, k) for s, k in enumerate(program.shared) if columns.level(k) == level and k not in sent | done
        ]
        sums = [(q, k) for q, k in enumerate(program.sums) if columns.level(k) == level]
        ready = [k for k in program.reached if columns.level(k) == level and not columns.exchanged(k)]
        whole = all(p.in_registers == p.depth_blocks for p in self.tiling.products)
        if self.tiling.registers > ROOMY[self.half] or not whole:
            results = [k for k in program.results if columns.level(k) == level and not columns.exchanged(k)]
            ready = [*(k for _, k in slots), *(k for _, k in sums), *results]
        lines = self.body.statements(ready)
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
            [f"record[i].v[{q}]=toe(0.f);" for q in range(len(program.keep), self.record)]
            if program.keep
            else []
        )
        rows = [f"rows[i][{q}]={name(k)};" for q, k in enumerate(program.keep_rows)]
        new = [f"const float n{k}={name(key)};" for k, key in enumerate(program.results)]
        new += [f"s{k}[i]=live[i]?n{k}:s{k}[i];" for k in range(program.carried)]
        stores = []
        if not program.backward:
            new.append("y[i]=live[i]?n0:0.f;")
            # The batch comes first, as it is handed out, or the time, as another layer reads it.
            place = "(time_first?(L)at[i]:(L)row[i]*T+place(t,len[i],reverse))*(SIDES*H_)+jj"
            stores.append(f"if(on[i]&&col)Y[{place}]=toe(y[i]);")
        if program.keep:
            stores.append("if(on[i]&&col)*(Record<NK>*)(KEEP+((L)at[i]*H_+jj)*NK)=record[i];")
        if program.keep_rows:
            stores.append(
                "if(on[i]&&jj==0){"
                + "".join(f"KROW[(L)at[i]*NR+{q}]=rows[i][{q}];" for q in range(len(rows)))
                + "}"
            )
        declared = "float y[EPT];" if not program.backward else ""
        declared += "Record<NK> record[EPT];" if program.keep else ""
        declared += "float rows[EPT][NR];" if rows else ""
        text = "\n".join([*lines, rest, *fill, *rows, *new])
        return f"{declared}\nEACH{{{text}}}\n{follow}\nEACH{{{''.join(stores)}}}"
