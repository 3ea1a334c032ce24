"""The generated forward pass, with and without keeping what the backward pass needs."""

from __future__ import annotations

from anaphora.kernels.recurrence.backends.c.frame import Function, leaf_pointers, opening
from anaphora.kernels.recurrence.backends.c.step_code import StepCode
from anaphora.kernels.recurrence.backends.c.tables import Product, Store, Tables
from anaphora.kernels.recurrence.front.graph import Node, ancestors
from anaphora.kernels.recurrence.front.plan import Plan


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
            given[node.number] = f"S{node.index}"
    widths = [tables.size(("state", i), w) for i, w in enumerate(plan.state_widths)]
    for i, width in enumerate(widths):
        f.buffer(f"S{i}", f"s{i}", width)
        f.buffer(f"N{i}", f"n{i}", width)
        f.array(f"init{i}")
        f.array(f"last{i}")
        stores.append(Store(plan.outputs[i], f"N{i}"))
    f.everywhere("Y0", "y", widths[0])
    stores.append(Store(plan.outputs[0], "Y0"))
    if keep:
        total = tables.size("kept", kept_width)
        f.array("keep")
        for node in plan.keep:
            start = tables.size(("kept at", node.number), kept_at[node.number])
            f.pointers[f"KEEP{node.number}"] = f"keep+at*{total}+{start}"
            stores.append(Store(node, f"KEEP{node.number}"))
        for m, source in plan.operands:
            f.everywhere(f"OP{m}", f"op{m}", tables.size(("mi", m), source.width))
            stores.append(Store(source, f"OP{m}"))
    products = []
    for node in plan.products:
        m, source = node.index, node.args[0]
        f.array(f"m{m}")
        out = tables.size(("mo", m), node.width)
        if source.op == "step":
            hoisted.append(node)
            given[node.number] = f"H{m}"
            f.pointers[f"H{m}"] = f"h{m}+((t-t0)*C+i)*{out}"
            continue
        f.buffer(f"Q{m}", f"q{m}", out)
        place = given.get(source.number)
        if place is None:
            inner = tables.size(("mi", m), source.width)
            f.buffer(f"V{m}", f"u{m}", inner)
            stores.append(Store(source, f"V{m}"))
            place = f"V{m}"
        products.append(Product(node, place, f"Q{m}", m))
    code = StepCode(tables, given, {}, stores, products, f.pointers)
    body = code.generate()
    for n, node in code.temporaries.items():
        f.scratch.append((f"tmp{n}", code.width(node)))
    return f, _forward_text(plan, tables, f, hoisted, widths, body)


def _forward_text(
    plan: Plan, tables: Tables, f: Function, hoisted: list[Node], widths: list[str], body: str
) -> str:
    block_width = "+".join([tables.size(("mo", h.index), h.width) for h in hoisted]) or "0"
    sizes = "".join(f"+ROUND(C*{w})" for _, w in f.scratch)
    blocks = "".join(f"+ROUND(C*block*{tables.size(('mo', h.index), h.width)})" for h in hoisted)
    takes = "".join(f"TAKE({name},C*{w});" for name, w in f.scratch)
    takes += "".join(f"TAKE(h{h.index},C*block*{tables.size(('mo', h.index), h.width)});" for h in hoisted)
    ahead = ""
    for h in hoisted:
        m, i = h.index, h.args[0].index
        out, inner = tables.size(("mo", m), h.width), tables.size(("step", i), h.args[0].width)
        ahead += f"""{{L rows=0,live=na;for(L t=t0;t<t1;t++){{while(live>0&&LEN[live-1]<=t)live--;
for(L i=0;i<live;i++){{ab[rows]=step{i}+AT(i)*{inner};cb[rows]=h{m}+((t-t0)*C+i)*{out};rows++;}}}}
gemm(rows,ab,cb,{out},{inner},m{m},0);}}
"""
    start = "".join(
        f"memcpy(s{i}+i*{w},init{i}+ROW[i]*{w},{w}*sizeof(R));"
        f"if(!LEN[i])memcpy(last{i}+ROW[i]*{w},init{i}+ROW[i]*{w},{w}*sizeof(R));"
        for i, w in enumerate(widths)
    )
    end = "".join(f"memcpy(last{i}+ROW[i]*{w},n{i}+i*{w},{w}*sizeof(R));" for i, w in enumerate(widths))
    swap = "".join(f"{{R*x=s{i};s{i}=n{i};n{i}=x;}}" for i in range(len(widths)))
    past = [("y", widths[0])]
    if f.name == "forward_keep":
        past += [(f"op{m}", tables.size(("mi", m), source.width)) for m, source in plan.operands]
    clear = "".join(f"memset({a}+(ROW[i]*T+LEN[i])*{w},0,(T-LEN[i])*{w}*sizeof(R));" for a, w in past)
    return f"""{opening(tables, f)}
const L block_width={block_width};
L block=block_width?(L)(393216/sizeof(R))/(C*block_width):16;if(block<1)block=1;if(block>last_step)block=last_step?last_step:1;
void*memory;if(posix_memalign(&memory,64,(64{sizes}{blocks})*sizeof(R)))return 1;
R*at_hand=memory;{takes}
const R**ab=malloc(C*block*sizeof(R*));R**cb=malloc(C*block*sizeof(R*));
if(!ab||!cb){{free(memory);free(ab);free(cb);return 1;}}
for(L i=0;i<C;i++){{{start}{clear}}}
L na=C;
for(L t0=0;t0<last_step;t0+=block){{
const L t1=t0+block<last_step?t0+block:last_step;
{ahead}
for(L t=t0;t<t1;t++){{
while(na>0&&LEN[na-1]<=t)na--;
{body}
for(L i=0;i<na;i++)if(LEN[i]==t+1){{{end}}}
{swap}
}}}}
free(memory);free(ab);free(cb);return 0;
#undef AT
}}
int {f.name}(const L*n,void*const*p){{return run_all(n,p,n[3],{f.name}_part);}}
"""
