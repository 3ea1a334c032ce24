"""The generated backward pass."""

from __future__ import annotations

from dataclasses import dataclass

from anaphora.kernels.recurrence.backends.c.frame import Function, leaf_pointers, opening
from anaphora.kernels.recurrence.backends.c.step_code import StepCode
from anaphora.kernels.recurrence.backends.c.tables import Product, Store, Tables
from anaphora.kernels.recurrence.front.graph import Node, ancestors
from anaphora.kernels.recurrence.front.plan import Plan, backward_roots


@dataclass(frozen=True)
class Gradient:
    """Where the gradient of product ``matrix`` lies: columns ``start …`` of gradient array ``array``."""

    matrix: int
    array: int
    start: int


def gradient_arrays(plan: Plan) -> tuple[list[Gradient], list[int], dict[int, tuple[int, int]]]:
    """One array per different gradient of a product; one that is a run of columns of another shares its array."""
    nodes: dict[int, Node] = {g.number: g for _, g in plan.backward.products}
    order = sorted(nodes.values(), key=lambda g: -g.width)
    held: list[Node] = []
    place: dict[int, tuple[int, int]] = {}
    for node in order:
        for a, whole in enumerate(held):
            start = _run_of(whole, node)
            if start is not None:
                place[node.number] = (a, start)
                break
        else:
            place[node.number] = (len(held), 0)
            held.append(node)
    gradients = [Gradient(p.index, *place[g.number]) for p, g in plan.backward.products]
    return gradients, [h.width for h in held], place


def _run_of(whole: Node, part: Node) -> int | None:
    """Where the parts of one concatenation lie next to each other inside another, if they do."""
    wholes = whole.args if whole.op == "cat" else (whole,)
    parts = part.args if part.op == "cat" else (part,)
    at = 0
    for k in range(len(wholes) - len(parts) + 1):
        if all(a is b for a, b in zip(wholes[k:], parts, strict=False)):
            return at
        at += wholes[k].width
    return None


def write_backward(
    plan: Plan,
    tables: Tables,
    kept_at: dict[int, int],
    kept_width: int,
    gradients: list[Gradient],
    gradient_widths: list[int],
    place: dict[int, tuple[int, int]],
) -> tuple[Function, str]:
    f = Function("backward")
    given: dict[int, str] = {}
    nodes = ancestors(backward_roots(plan.backward))
    leaf_pointers(tables, f, given, nodes)
    total = tables.size("kept", kept_width)
    f.array("keep")
    for node in plan.keep:
        where = tables.size(("kept at", node.number), kept_at[node.number])
        f.pointers[f"KEEP{node.number}"] = f"keep+at*{total}+{where}"
        given[node.number] = f"KEEP{node.number}"
    for m, source in plan.operands:
        f.everywhere(f"OP{m}", f"op{m}", tables.size(("mi", m), source.width))
        given.setdefault(source.number, f"OP{m}")
    widths = [tables.size(("state", i), w) for i, w in enumerate(plan.state_widths)]
    for i, width in enumerate(widths):
        f.buffer(f"D{i}", f"d_{i}", width)
        f.buffer(f"E{i}", f"e_{i}", width)
        f.array(f"dlast{i}")
        f.array(f"dinit{i}")
    for node in nodes:
        if node.op == "gradient":
            given[node.number] = f"D{node.index}"
    f.array("dy")
    stores: list[Store] = []
    products: list[Product] = []
    held: dict[int, Node] = {}
    for _, g in plan.backward.products:
        array, start = place[g.number]
        if start == 0 and g.width == gradient_widths[array]:
            held[array] = g
    for a, g in held.items():
        f.everywhere(f"G{a}", f"g{a}", tables.size(("gradient", a), g.width))
        stores.append(Store(g, f"G{a}"))
    _vector_stores(plan, tables, f, stores)
    for i, g in plan.backward.steps.items():
        f.everywhere(f"DSTEP{i}", f"dstep{i}", tables.size(("step", i), g.width))
        stores.append(Store(g, f"DSTEP{i}"))
    _state_stores(plan, tables, f, stores, products, place, gradient_widths)
    code = StepCode(tables, given, plan.views, stores, products, f.pointers)
    body = code.generate()
    for n, node in code.temporaries.items():
        f.scratch.append((f"tmp{n}", code.width(node)))
    f.array("dx")
    for product in plan.products:
        if product.args[0].op == "step":
            f.array(f"mt{product.index}")
    touched = _touched(plan, tables, kept_width, gradient_widths)
    return f, _backward_text(plan, tables, f, gradients, gradient_widths, widths, touched, body)


def _vector_stores(plan: Plan, tables: Tables, f: Function, stores: list[Store]) -> None:
    """Gradients of vector parameters are summed over steps and over the rows of a group."""
    f.array("dvector")
    all_of_them = tables.size("vectors", sum(plan.vector_widths))
    at = 0
    for i, width in enumerate(plan.vector_widths):
        if i in plan.backward.vectors:
            start = tables.size(("vector at", i), at)
            f.pointers[f"DVEC{i}"] = f"dvector+GRP[i]*{all_of_them}+{start}"
            stores.append(Store(plan.backward.vectors[i], f"DVEC{i}", add=True))
        at += width


def _state_stores(
    plan: Plan,
    tables: Tables,
    f: Function,
    stores: list[Store],
    products: list[Product],
    place: dict[int, tuple[int, int]],
    gradient_widths: list[int],
) -> None:
    """Gradients of the states; a product that only adds to one of them adds to its array directly."""
    nodes = ancestors(backward_roots(plan.backward))
    uses: dict[int, int] = {}
    for used in (backward_roots(plan.backward), *(node.args for node in nodes)):
        for a in used:
            uses[a.number] = uses.get(a.number, 0) + 1
    direct: dict[int, tuple[int, bool]] = {}  # product -> (state, whether it adds)
    probe = StepCode(tables, {n.number: "" for n in nodes if not n.args}, plan.views, [], [], {})
    probe.outputs_of = {n.number: n for n in nodes if n.op == "product" and n.index < 0}  # type: ignore[misc]
    for node in plan.keep:
        probe.given[node.number] = ""
    for i, root in enumerate(plan.backward.states):
        # Only a sum that nobody else wants can be collected in place.
        terms = _terms(root, uses) if uses[root.number] == 1 else [root]
        summed = [t for t in terms if t.op == "product" and t.index < 0 and uses[t.number] == 1]
        rest = plan.graph.const(0)
        for t in terms:
            if t not in summed:
                rest = plan.graph.pointwise("add", rest, t)
        first = min((probe.level(t.args[0])[0] for t in summed), default=0)
        if not summed or probe.level(rest)[0] > first:
            stores.append(Store(plan.graph.spread(root, plan.state_widths[i]), f"E{i}"))
            continue
        empty = rest.op == "const" and rest.value == 0
        if not empty:
            stores.append(Store(plan.graph.spread(rest, plan.state_widths[i]), f"E{i}"))
        for k, t in enumerate(sorted(summed, key=lambda t: (probe.level(t.args[0])[0], t.number))):
            direct[t.number] = (i, not empty or k > 0)
    ordered = [n for n in nodes if n.op == "product" and n.index < 0]
    for node in ordered:
        m, source = -1 - node.index, node.args[0]
        f.array(f"mt{m}")
        array, start = place[source.number]
        name = f"GS{m}"
        offset = f"+{tables.size(('gradient at', m), start)}" if start else ""
        f.pointers[name] = f"g{array}+at*{tables.size(('gradient', array), gradient_widths[array])}{offset}"
        if node.number in direct:
            state, add = direct[node.number]
            products.append(Product(node, name, f"E{state}", node.index, add))
        else:
            f.buffer(f"Q{m}", f"q{m}", tables.size(("mi", m), node.width))
            products.append(Product(node, name, f"Q{m}", node.index))
    products.sort(key=lambda p: p.add)


def _terms(node: Node, uses: dict[int, int]) -> list[Node]:
    if node.op == "add":
        terms = []
        for a in node.args:
            terms += _terms(a, uses) if a.op == "add" and uses[a.number] == 1 else [a]
        return terms
    return [node]


def _backward_text(
    plan: Plan,
    tables: Tables,
    f: Function,
    gradients: list[Gradient],
    gradient_widths: list[int],
    widths: list[str],
    touched: list[tuple[str, str]],
    body: str,
) -> str:
    sizes = "".join(f"+ROUND(C*{w})" for _, w in f.scratch)
    takes = "".join(f"TAKE({name},C*{w});" for name, w in f.scratch)
    wake = "".join(
        f"if(dlast{i})memcpy(d_{i}+i*{w},dlast{i}+ROW[i]*{w},{w}*sizeof(R));"
        f"else memset(d_{i}+i*{w},0,{w}*sizeof(R));"
        for i, w in enumerate(widths)
    )
    finish = "".join(f"memcpy(dinit{i}+ROW[i]*{w},d_{i}+i*{w},{w}*sizeof(R));" for i, w in enumerate(widths))
    swap = "".join(f"{{R*x=d_{i};d_{i}=e_{i};e_{i}=x;}}" for i in range(len(widths)))
    clear = "".join(
        f"memset(g{a}+(ROW[i]*T+LEN[i])*{w},0,(T-LEN[i])*{w}*sizeof(R));"
        for a, w in ((a, tables.size(("gradient", a), v)) for a, v in enumerate(gradient_widths))
    )
    inputs = ""
    first = 0 not in plan.backward.steps
    for product, where in zip((p for p, _ in plan.backward.products), gradients, strict=True):
        if product.args[0].op != "step" or product.args[0].index != 0:
            continue
        m = product.index
        inner = tables.size(("step", 0), product.args[0].width)
        out = tables.size(("mo", m), product.width)
        width = tables.size(("gradient", where.array), gradient_widths[where.array])
        offset = f"+{tables.size(('gradient at', m), where.start)}" if where.start else ""
        inputs += f"""for(L t=0;t<LEN[i];t+=64){{L rows=LEN[i]-t<64?LEN[i]-t:64;
for(L r=0;r<rows;r++){{L at=ROW[i]*T+t+r;ab[r]=g{where.array}+at*{width}{offset};cb[r]=dx+at*{inner};}}
gemm(rows,ab,cb,{inner},{out},mt{m},{int(not first)});}}
"""
        first = False
    if inputs or 0 in plan.backward.steps:
        inner = tables.size(("step", 0), plan.step_widths[0])
        inputs += f"memset(dx+(ROW[i]*T+LEN[i])*{inner},0,(T-LEN[i])*{inner}*sizeof(R));"
    lines = "+".join(f"{w}*(L)sizeof(R)/64+2" for _, w in touched)
    deepest = "+".join(["1", *(tables.size(("mo", m), matrix.out) for m, matrix in enumerate(plan.matrices))])
    fetch = "".join(f"if({a})want(&ahead,{a}+at*{w},{w});" for a, w in touched)
    return f"""{opening(tables, f)}
void*memory;if(posix_memalign(&memory,64,(64{sizes})*sizeof(R)))return 1;
R*at_hand=memory;{takes}
const R**ab=malloc((C+64)*sizeof(R*));R**cb=malloc((C+64)*sizeof(R*));
Ahead ahead={{malloc((C*({lines})+{deepest})*sizeof(char*))}};
if(!ab||!cb||!ahead.line){{free(memory);free(ab);free(cb);free(ahead.line);return 1;}}
#define gemm(...) gemm_ahead(__VA_ARGS__,&ahead)
L na=0;
for(L t=last_step-1;t>=0;t--){{
while(na<C&&LEN[na]>t){{L i=na++;{wake}}}
if(dy)for(L i=0;i<na;i++){{R*a=d_0+i*{widths[0]};const R*b=dy+AT(i)*{widths[0]};for(L j=0;j<{widths[0]};j++)a[j]+=b[j];}}
ahead.count=ahead.next=0;
if(t){{const L now=t,t=now-1;for(L i=0;i<na;i++){{L at=AT(i);{fetch}}}}}
{body}
{swap}
}}
#undef gemm
for(;na<C;){{L i=na++;{wake}}}
for(L i=0;i<C;i++){{{finish}{clear}}}
if(dx)for(L i=0;i<C;i++){{{inputs}}}
free(memory);free(ab);free(cb);free(ahead.line);return 0;
#undef AT
}}
int backward(const L*n,void*const*p){{return run_all(n,p,n[3],backward_part);}}
"""


def _touched(
    plan: Plan, tables: Tables, kept_width: int, gradient_widths: list[int]
) -> list[tuple[str, str]]:
    """The arrays of which a step of the backward pass reads or writes a row, and their widths."""
    kept = ("keep", tables.size("kept", kept_width))
    dy = ("dy", tables.size(("state", 0), plan.state_widths[0]))
    operands = [(f"op{m}", tables.size(("mi", m), source.width)) for m, source in plan.operands]
    gradients = [(f"g{a}", tables.size(("gradient", a), w)) for a, w in enumerate(gradient_widths)]
    return [kept, dy, *operands, *gradients]
