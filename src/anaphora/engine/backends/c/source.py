"""The C program of a plan: forward, forward that keeps what backward needs, and backward."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from anaphora.engine.backends.c.source_backward import Gradient, gradient_arrays, write_backward
from anaphora.engine.backends.c.source_forward import write_forward
from anaphora.engine.backends.c.tables import Tables
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
