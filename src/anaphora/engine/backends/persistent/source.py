"""The whole text of a kernel: CUDA C++ that runs all steps of a pass, from a program and its tiling.

Sizes come first as macros, then ``numbers.cu`` and ``prelude.cu``, written by hand, then the kernel: load this block's slice of
every matrix, and for each group of rows that the block serves read the first states, run the steps, write the last ones.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from anaphora.engine.backends.expressions import NUMBERS
from anaphora.engine.backends.persistent.body import Reads
from anaphora.engine.backends.persistent.columns import Program
from anaphora.engine.backends.persistent.stages import Stages
from anaphora.engine.backends.persistent.tiling import Tiling

PRELUDE = Path(__file__).with_name("prelude.cu")
KINDS = {"tf32": 0, "bf16": 1, "fp16": 2}
NAME = "all_steps"


class Kernel:
    """The text of a kernel, and what it has to be given: ``parameters`` in order, by name."""

    def __init__(
        self, program: Program, tiling: Tiling, kind: str, before: Kernel | None = None, sides: int = 1
    ):
        """``before``: the kernel of the forward pass, when this one reads what that has left; ``sides``: directions
        that one launch serves, the first half of its blocks one, the other half the other.
        """
        self.program, self.tiling, self.kind, self.sides = program, tiling, kind, sides
        self.before = before or self
        self.kept = record_size(len(self.before.program.keep), kind != "tf32")
        self.kept_rows = len(self.before.program.keep_rows)
        self.reads = Reads(program)
        self.stages = Stages(program, tiling, self.reads, self.kept, kind != "tf32")

    @property
    def reduction_width(self) -> int:
        """Numbers a strip of a row sends in a step, for reductions."""
        return self.stages.reductions.width

    @property
    def shared_width(self) -> int:
        """Numbers of a step of a row in the shared array."""
        return len(self.program.shared) * self.tiling.padded

    @property
    def polled(self) -> bool:
        """Whether blocks wait for what others write to the shared array."""
        return len(self.stages.near.products) < len(self.program.products)

    # ------------------------------------------------------------------ what it is given
    @cached_property
    def parameters(self) -> list[tuple[str, str]]:
        """(type, name) of every pointer of one direction."""
        program = self.program
        found = [("const elem*", f"M{k}") for k in range(len(program.products))]
        found += self.reads.pointers()
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
        return [*found, ("const int*", "LENGTHS")]

    # ------------------------------------------------------------------ text
    @cached_property
    def source(self) -> str:
        """The whole text. Written once: every number's statement is."""
        t = self.tiling
        sizes = {
            "KIND": KINDS[self.kind], "H_": t.hidden, "HP": t.padded, "HS": t.columns, "NT": t.tiles, "WARPS": t.warps,
            "NK": max(1, self.kept), "NR": max(1, self.kept_rows), "SW": self.shared_width,
            "OW": self.before.shared_width, "OP": self.before.tiling.padded, "PART": t.partial // 4, "NV": max(1, self.reduction_width), "SIDES": self.sides,
        }  # fmt: skip
        head = "".join(f"#define {name} {value}\n" for name, value in sizes.items())
        return f"{head}#define FAST 1\n{NUMBERS.read_text()}{PRELUDE.read_text()}{self._kernel()}"

    def _kernel(self) -> str:
        steps = self.stages.text()  # first, since it finds what has to be declared
        pointers, opening = self._sides()
        declared = "".join(f"float {name}[EPT];" for name in dict.fromkeys(self.stages.body.declared))
        return f"""
extern "C" __global__ void __launch_bounds__(NTH,1) {NAME}({pointers},int*aborted,int*reported,int T,int B,int reverse,int groups,int time_first){{
extern __shared__ char memory[];float*part=(float*)memory;uint4*spill=(uint4*)(memory+2*PART*4);
{opening}
const int tid=threadIdx.x,lane=tid&31,slice=block%NSL,j=tid%HS,jj=slice*HS+j,strip=jj/RW;
const bool col=jj<H_;const int jc=col?jj:0;Wait wait{{false,aborted,reported}};int turn=0;float*here=part;(void)here;(void)spill;(void)turn;(void)lane;(void)strip;
{self._matrices()}{self._cluster()}
{self.reads.vectors()}
{"".join(f"float sum{k}=0.f;" for k in range(len(self.program.sums)))}
for(int group=block/NSL;group<groups;group+=blocks/NSL){{
{_GROUP}int len[EPT],most;
UNROLL for(int i=0;i<EPT;i++){{int b=group*BM+(tid+i*NTH)/HS;len[i]=LENGTHS?LENGTHS[b<B?b:B-1]:T;}}
most=LENGTHS?LENGTHS[group*BM]:T;  // the longest of a group comes first
int prow[NT],plen[NT];
UNROLL for(int n=0;n<NT;n++){{int b=group*BM+n*8+(lane>>2);b=b<B?b:B-1;prow[n]=LENGTHS?LENGTHS[B+b]:b;plen[n]=LENGTHS?LENGTHS[b]:T;}}
(void)prow;(void)plen;
{declared}
{self._first()}
{self.reads.rows()}
bool live[EPT],up[EPT];int at[EPT],next[EPT],spot[EPT];
{self.reads.fetch()}
{steps}
{self._tail()}
{self._last()}
}}
{self._sums()}
{"meet();" if self.stages.near.size else ""}
{self._poison()}
}}
"""

    def _sides(self) -> tuple[str, str]:
        """The pointers a kernel is given, and how a block finds its own. The second direction runs the other way."""
        if self.sides == 1:
            pointers = [f"{kind}{name}" for kind, name in self.parameters]
            return ",".join(pointers), "const int block=blockIdx.x,blocks=gridDim.x;"
        pointers = [f"{kind}{name}_{side}" for side in range(2) for kind, name in self.parameters]
        mine = "".join(f"{kind}const {name}=second?{name}_1:{name}_0;" for kind, name in self.parameters)
        which = "const int blocks=gridDim.x/2;const bool second=blockIdx.x>=blocks;"
        return ",".join(
            pointers
        ), f"{which}const int block=blockIdx.x-(second?blocks:0);reverse^=second;\n{mine}"

    def _matrices(self) -> str:
        lines, at = [], 0
        for k, p in enumerate(self.tiling.products):
            held = max(1, p.in_registers * p.row_tiles * 8)
            spilled = p.spilled(self.tiling.warps) // 16
            lines.append(
                f"u32 m{k}[{held}];uint4*spill{k}=spill+{at},*stage{k}=spill+{at + spilled};(void)stage{k};"
                f"load_matrix<{p.depth},{p.out},{p.row_tiles},{p.depth_blocks},{p.in_registers},{p.split}>(M{k},slice,m{k},spill{k});"
            )
            at += spilled + p.staged(self.tiling.warps, self.tiling.tiles) // 16
        return "\n".join(lines) + "\n__syncthreads();"

    def _cluster(self) -> str:
        """The memory blocks of a cluster send to, and its barriers, set up before the first of them does."""
        near = self.stages.near
        if not near.size:
            return ""
        own = [
            f"for(int k=tid;k<2*BM;k+=NTH)expect(near+{n.barriers}+8*k,NRS*{4 * self.stages.reductions.sent(level)});"
            for level, n in near.reductions.items()
        ]
        for k, n in near.products.items():
            p = self.tiling.products[k]
            share = f"share_of<{p.depth},{p.depth_blocks}*KBLK>(k%WARPS)"
            own.append(f"for(int k=tid;k<2*WARPS;k+=NTH)expect(near+{n.barriers}+8*k,{share});")
        return (
            f"\nchar*near=memory+{self.tiling.shared_memory - near.size};int beat=0;\n"
            f"for(int k=tid;k<{near.barriers};k+=NTH)set_up(near+8*k);\n__syncthreads();\n{''.join(own)}\nmeet();"
        )

    def _first(self) -> str:
        """Registers carried from step to step."""
        lines = []
        for k in range(self.program.carried):
            lines.append(
                f"float s{k}[EPT];UNROLL for(int i=0;i<EPT;i++)s{k}[i]=FIRST{k}?tof(FIRST{k}[(L)row[i]*H_+jc]):0.f;"
            )
        return "\n".join(lines)

    # ------------------------------------------------------------------ after the steps
    def _tail(self) -> str:
        """Past the end of a group's longest row there is nothing; products over all steps read zeros there."""
        puts = "".join(f"put(SHARED+r*SW+{s}*HP+jj,0.f,on[i]);" for s in range(len(self.program.shared)))
        y = (
            ""
            if self.program.backward
            else "if(on[i]&&col)Y[(time_first?r:(L)row[i]*T+t)*(SIDES*H_)+jj]=toe(0.f);"
        )
        return f"for(int t=most;t<T;t++)EACH{{L r=(L)t*B+row[i];(void)r;{puts}{y}}}"

    def _last(self) -> str:
        stores = "".join(
            f"if(LAST{k})LAST{k}[(L)row[i]*H_+jj]=toe(s{k}[i]);" for k in range(self.program.carried)
        )
        return f"EACH{{if(on[i]&&col){{{stores}}}}}"

    def _poison(self) -> str:
        """NaN in place of all results, if the wait of any block of the GPU timed out: a cell may have made numbers of its NaN.

        The block that gives up sets ``aborted`` before it publishes anything wrong, so whatever block has read that
        sees the word here.
        """
        program = self.program
        steps = "".join(
            f"if(on[i])SHARED[r*SW+{s}*HP+jj]=toe(NOT_A_NUMBER);" for s in range(len(program.shared))
        )
        if not program.backward:
            steps += "if(on[i]&&col)Y[(time_first?r:(L)row[i]*T+t)*(SIDES*H_)+jj]=toe(NOT_A_NUMBER);"
        ends = "".join(
            f"if(on[i]&&col&&LAST{k})LAST{k}[(L)row[i]*H_+jj]=toe(NOT_A_NUMBER);"
            for k in range(program.carried)
        )
        return f"""if(is_set(aborted)){{
for(int group=block/NSL;group<groups;group+=blocks/NSL){{
{_GROUP}for(int t=0;t<T;t++)EACH{{const L r=(L)t*B+row[i];(void)r;{steps}}}
EACH{{{ends}}}
}}
{self._sums("NOT_A_NUMBER")}
}}"""

    def _sums(self, value: str = "") -> str:
        """Each thread's share of the sums over rows and steps: added up afterwards, in a fixed order."""
        count = len(self.program.sums)
        if not count:
            return ""
        at = "const L rows=(blocks/NSL)*(NTH/HS),mine=(block/NSL)*(NTH/HS)+tid/HS;"
        return at + "".join(f"SUMS[({k}*rows+mine)*HP+jj]={value or f'sum{k}'};" for k in range(count))


_GROUP = """int row[EPT];bool on[EPT];
UNROLL for(int i=0;i<EPT;i++){int e=tid+i*NTH,b=group*BM+e/HS;on[i]=e<CELLS&&b<B;b=b<B?b:B-1;row[i]=LENGTHS?LENGTHS[B+b]:b;}
"""


def record_size(count: int, half: bool) -> int:
    """Numbers of a record, filled up so that it can be read at once."""
    unit = 4 if half else 2
    return -(-count // unit) * unit if count > 1 else count
