"""The C program of a plan: forward, forward that keeps what backward needs, and backward."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from anaphora.engine.backends.c.frame import (
    Function,
    Product,
    Store,
    Tables,
    copy,
    laid_out,
    leaf_pointers,
    opening,
)
from anaphora.engine.backends.c.source_backward import Gradient, gradient_arrays, write_backward
from anaphora.engine.backends.c.step_code import StepCode
from anaphora.engine.graph import Node, ancestors
from anaphora.engine.plan import Plan

_PRELUDE = Path(__file__).with_name("prelude.c")
# One step with packed weights. all: sizes, pointers, where in the pointers the rest of all belongs (how many, then the
# places), and that rest.
STEP = """
static int step_by(int(*work)(const L*,void*const*),void*const*all){
void**p=all[1];const L*places=all[2];
for(L i=0;i<places[0];i++)p[places[1+i]]=all[3+i];
return work(all[0],p);
}
int step(void*const*all){return step_by(forward,all);}
int step_row(void*const*all){return step_by(forward_row,all);}
"""


@dataclass
class Program:
    """C source and how to call it: sizes and constants for this plan, and the order of the pointers."""

    source: str
    sizes: list[int]
    constants: list[float]
    arrays: dict[str, list[str]]  # function name -> names of the arrays it takes, in order
    kept_width: int
    gradients: list[Gradient]
    gradient_widths: list[int]
    step_parts: set[int]  # step inputs whose gradient has a part that flows past their products


def prelude(double: bool) -> str:
    """What such programs begin with: the type ``R`` of their numbers, and products of matrices in it."""
    kind = "typedef double R;\n" if double else "#define SINGLE\ntypedef float R;\n"
    return kind + _PRELUDE.read_text()


def make_program(plan: Plan, double: bool) -> Program:
    """Write the whole program; equal structures give equal text, whatever their sizes."""
    tables = Tables()
    kept_at, kept_width = {}, 0
    for node in plan.keep:
        kept_at[node.number] = kept_width
        kept_width += node.width
    kept_width = (kept_width + 15) // 16 * 16
    gradients, widths, arrays_of = gradient_arrays(plan)
    forward, forward_text = write_forward(plan, tables, "forward", {}, 0)
    alone, alone_text = write_forward(plan, tables, "forward_row", {}, 0)
    alone_text = f"#define gemm gemm_row\n{alone_text}\n#undef gemm\n"
    keeping, keeping_text = write_forward(plan, tables, "forward_keep", kept_at, kept_width)
    backward, backward_text = write_backward(plan, tables, kept_at, kept_width, gradients, widths, arrays_of)
    text = prelude(double) + forward_text + alone_text + STEP + keeping_text + backward_text
    return Program(
        text,
        tables.sizes,
        tables.constants,
        {f.name: f.arrays for f in (forward, alone, keeping, backward)},
        kept_width,
        gradients,
        widths,
        set(plan.backward.steps),
    )


# ----------------------------------------------------------------------
# The generated forward pass, with and without keeping what the backward pass needs.
def write_forward(
    plan: Plan, tables: Tables, name: str, kept_at: dict[int, int], kept_width: int
) -> tuple[Function, str]:
    f = Function(name)
    keep = name == "forward_keep"
    given: dict[int, str] = {}
    stores: list[Store] = []
    hoisted: list[Node] = []
    leaf_pointers(tables, f, given, ancestors(plan.outputs))
    for node in ancestors(plan.outputs):
        if node.op == "state":
            given[node.number] = f"old{node.index}_row"
    widths = [tables.size(("state width", i), w) for i, w in enumerate(plan.state_widths)]
    for i, width in enumerate(widths):
        f.buffer(f"old{i}_row", f"old{i}", width)
        f.buffer(f"new{i}_row", f"new{i}", width)
        f.array(f"init{i}")
        f.array(f"last{i}")
        stores.append(Store(plan.outputs[i], f"new{i}_row"))
    f.everywhere("y_row", "y", widths[0])
    stores.append(Store(plan.outputs[0], "y_row"))
    if keep:
        total = tables.size(("kept width",), kept_width)
        f.array("keep")
        for node in plan.keep:
            start = tables.size(("kept start", node.number), kept_at[node.number])
            f.pointers[f"keep_{node.number}_row"] = f"keep + at*{total} + {start}"
            stores.append(Store(node, f"keep_{node.number}_row"))
        for m, source in plan.operands:
            f.everywhere(f"op{m}_row", f"op{m}", tables.size(("matrix in", m), source.width))
            stores.append(Store(source, f"op{m}_row"))
    products = []
    for node in plan.products:
        m, source = node.index, node.args[0]
        f.array(f"m{m}")
        out = tables.size(("matrix out", m), node.width)
        if source.op == "step":
            hoisted.append(node)
            given[node.number] = f"ahead{m}_row"
            f.pointers[f"ahead{m}_row"] = f"ahead{m} + ((t - t0)*C + i)*{out}"
            continue
        f.buffer(f"product{m}_row", f"product{m}", out)
        place = given.get(source.number)
        if place is None:
            inner = tables.size(("matrix in", m), source.width)
            place = f"input{m}_row"
            f.buffer(place, f"input{m}", inner)
            stores.append(Store(source, place))
        products.append(Product(node, place, f"product{m}_row", m))
    code = StepCode(tables, given, {}, stores, products, f.pointers)
    body = code.generate()
    f.scratch.extend(code.scratch.items())
    return f, _forward_text(plan, tables, f, hoisted, widths, body)


def _ahead(tables: Tables, node: Node) -> str:
    """A product with a step's input, for a block of steps at once."""
    m, i = node.index, node.args[0].index
    out, inner = (
        tables.size(("matrix out", m), node.width),
        tables.size(("step width", i), node.args[0].width),
    )
    return f"""{{
/* product with matrix {m} for all steps of the block: it waits for no state */
L rows = 0, live = na;
for (L t = t0; t < t1; t++) {{
while (live > 0 && LEN[live - 1] <= t) live--;
for (L i = 0; i < live; i++, rows++) {{
from[rows] = step{i} + AT(i)*{inner};
to[rows] = ahead{m} + ((t - t0)*C + i)*{out};
}}
}}
gemm(rows, from, to, {out}, {inner}, m{m}, 0);
}}
"""


def _forward_text(
    plan: Plan, tables: Tables, f: Function, hoisted: list[Node], widths: list[str], body: str
) -> str:
    outs = {h.index: tables.size(("matrix out", h.index), h.width) for h in hoisted}
    memory = [*f.scratch]
    memory += [(f"ahead{m}", f"C * block * {w}") for m, w in outs.items()]
    size = "".join(f" + ROUND({count})" for _, count in memory)
    takes = "\n".join(f"TAKE({name}, {count});" for name, count in memory)
    start = end = swap = ""
    for i, w in enumerate(widths):
        start += copy(f"old{i} + i*{w}", f"init{i} + ROW[i]*{w}", w)
        start += f"if (!LEN[i]) {copy(f'last{i} + ROW[i]*{w}', f'init{i} + ROW[i]*{w}', w)}"
        end += copy(f"last{i} + ROW[i]*{w}", f"new{i} + i*{w}", w)
        swap += f"R *const state{i} = old{i};\nold{i} = new{i};\nnew{i} = state{i};\n"
    past = [("y", widths[0])]
    if f.name == "forward_keep":
        past += [(f"op{m}", tables.size(("matrix in", m), source.width)) for m, source in plan.operands]
    clear = "".join(
        f"memset({a} + (ROW[i]*T + LEN[i])*{w}, 0, (T - LEN[i])*{w} * sizeof(R));\n" for a, w in past
    )
    text = f"""
/* as many steps at a time as fit into the cache with their products */
const L block_width = {" + ".join(outs.values()) or "0"};
L block = block_width ? (L)(393216 / sizeof(R)) / (C * block_width) : 16;
if (block < 1) block = 1;
if (block > last_step) block = last_step ? last_step : 1;
void *memory;
if (posix_memalign(&memory, 64, (64{size}) * sizeof(R))) return 1;
R *at_hand = memory;
{takes}
/* rows that a product reads and writes */
const R **from = malloc(C * block * sizeof(R *));
R **to = malloc(C * block * sizeof(R *));
if (!from || !to) {{
free(memory);
free(from);
free(to);
return 1;
}}
/* the states to start from; past a row's end everything is zero */
for (L i = 0; i < C; i++) {{
{start}{clear}}}
L na = C; /* rows that have not ended */
for (L t0 = 0; t0 < last_step; t0 += block) {{
const L t1 = t0 + block < last_step ? t0 + block : last_step;
{"".join(_ahead(tables, h) for h in hoisted)}
for (L t = t0; t < t1; t++) {{
while (na > 0 && LEN[na - 1] <= t) na--;
{body}
/* the last states of rows that end with this step */
for (L i = 0; i < na; i++)
if (LEN[i] == t + 1) {{
{end}}}
{swap}}}
}}
free(memory);
free(from);
free(to);
return 0;
#undef AT
}}
int {f.name}(const L *n, void *const *p) {{ return run_all(n, p, n[3], {f.name}_part); }}
"""
    return laid_out(opening(tables, f, text) + text)
