"""The generated backward pass."""

from __future__ import annotations

from dataclasses import dataclass

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
from anaphora.engine.backends.c.step_code import StepCode
from anaphora.engine.graph import Node, ancestors
from anaphora.engine.plan import Plan, backward_roots


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
    total = tables.size(("kept width",), kept_width)
    f.array("keep")
    for node in plan.keep:
        where = tables.size(("kept start", node.number), kept_at[node.number])
        f.pointers[f"keep_{node.number}_row"] = f"keep + at*{total} + {where}"
        given[node.number] = f"keep_{node.number}_row"
    for m, source in plan.operands:
        f.everywhere(f"op{m}_row", f"op{m}", tables.size(("matrix in", m), source.width))
        given.setdefault(source.number, f"op{m}_row")
    widths = [tables.size(("state width", i), w) for i, w in enumerate(plan.state_widths)]
    for i, width in enumerate(widths):
        f.buffer(f"dnew{i}_row", f"dnew{i}", width)
        f.buffer(f"dold{i}_row", f"dold{i}", width)
        f.array(f"dlast{i}")
        f.array(f"dinit{i}")
    for node in nodes:
        if node.op == "gradient":
            given[node.number] = f"dnew{node.index}_row"
    f.array("dy")
    stores: list[Store] = []
    products: list[Product] = []
    held: dict[int, Node] = {}
    for _, g in plan.backward.products:
        array, start = place[g.number]
        if start == 0 and g.width == gradient_widths[array]:
            held[array] = g
    for a, g in held.items():
        f.everywhere(f"g{a}_row", f"g{a}", tables.size(("gradient width", a), g.width))
        stores.append(Store(g, f"g{a}_row"))
    _vector_stores(plan, tables, f, stores)
    for i, g in plan.backward.steps.items():
        f.everywhere(f"dstep{i}_row", f"dstep{i}", tables.size(("step width", i), g.width))
        stores.append(Store(g, f"dstep{i}_row"))
    _state_stores(plan, tables, f, stores, products, place, gradient_widths)
    code = StepCode(tables, given, plan.views, stores, products, f.pointers)
    body = code.generate()
    f.scratch.extend(code.scratch.items())
    f.array("dx")
    for product in plan.products:
        if product.args[0].op == "step":
            f.array(f"mt{product.index}")
    touched = _touched(plan, tables, kept_width, gradient_widths)
    return f, _backward_text(plan, tables, f, gradients, gradient_widths, widths, touched, body)


def _vector_stores(plan: Plan, tables: Tables, f: Function, stores: list[Store]) -> None:
    """Gradients of vector parameters are summed over steps and over the rows of a group."""
    f.array("dvector")
    all_of_them = tables.size(("vectors width",), sum(plan.vector_widths))
    at = 0
    for i, width in enumerate(plan.vector_widths):
        if i in plan.backward.vectors:
            start = tables.size(("vector start", i), at)
            f.pointers[f"dvector{i}_row"] = f"dvector + GRP[i]*{all_of_them} + {start}"
            stores.append(Store(plan.backward.vectors[i], f"dvector{i}_row", add=True))
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
        # Only a sum with no other use can be collected in place.
        terms = _terms(root, uses) if uses[root.number] == 1 else [root]
        summed = [t for t in terms if t.op == "product" and t.index < 0 and uses[t.number] == 1]
        others = [t for t in terms if t not in summed]
        rest = plan.graph.total(others)
        first = min((probe.level(t.args[0])[0] for t in summed), default=0)
        if not summed or probe.level(rest)[0] > first:
            stores.append(Store(plan.graph.spread(root, plan.state_widths[i]), f"dold{i}_row"))
            continue
        if others:
            stores.append(Store(plan.graph.spread(rest, plan.state_widths[i]), f"dold{i}_row"))
        for k, t in enumerate(sorted(summed, key=lambda t: (probe.level(t.args[0])[0], t.number))):
            direct[t.number] = (i, bool(others) or k > 0)
    ordered = [n for n in nodes if n.op == "product" and n.index < 0]
    for node in ordered:
        m, source = -1 - node.index, node.args[0]
        f.array(f"mt{m}")
        array, start = place[source.number]
        name = f"dproduct{m}_row"
        width = tables.size(("gradient width", array), gradient_widths[array])
        offset = f" + {tables.size(('gradient start', m), start)}" if start else ""
        f.pointers[name] = f"g{array} + at*{width}{offset}"
        if node.number in direct:
            state, add = direct[node.number]
            products.append(Product(node, name, f"dold{state}_row", node.index, add))
        else:
            f.buffer(f"back{m}_row", f"back{m}", tables.size(("matrix in", m), node.width))
            products.append(Product(node, name, f"back{m}_row", node.index))
    products.sort(key=lambda p: p.add)


def _terms(node: Node, uses: dict[int, int]) -> list[Node]:
    if node.op == "add":
        terms = []
        for a in node.args:
            terms += _terms(a, uses) if a.op == "add" and uses[a.number] == 1 else [a]
        return terms
    return [node]


def _input_gradients(
    plan: Plan, tables: Tables, gradients: list[Gradient], gradient_widths: list[int]
) -> str:
    """The gradient of x through its products, for all steps of row i after the loop over time."""
    text = ""
    first = 0 not in plan.backward.steps
    x_width = tables.size(("step width", 0), plan.step_widths[0])
    for product, where in zip((p for p, _ in plan.backward.products), gradients, strict=True):
        if product.args[0].op != "step" or product.args[0].index != 0:
            continue
        m = product.index
        out = tables.size(("matrix out", m), product.width)
        width = tables.size(("gradient width", where.array), gradient_widths[where.array])
        offset = f" + {tables.size(('gradient start', m), where.start)}" if where.start else ""
        text += f"""for (L t = 0; t < LEN[i]; t += 64) {{
const L rows = LEN[i] - t < 64 ? LEN[i] - t : 64;
for (L r = 0; r < rows; r++) {{
const L at = ROW[i]*T + t + r;
from[r] = g{where.array} + at*{width}{offset};
to[r] = dx + at*{x_width};
}}
gemm(rows, from, to, {x_width}, {out}, mt{m}, {int(not first)});
}}
"""
        first = False
    if text or 0 in plan.backward.steps:
        text += f"memset(dx + (ROW[i]*T + LEN[i])*{x_width}, 0, (T - LEN[i])*{x_width} * sizeof(R));\n"
    return text


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
    wake = finish = swap = ""
    for i, w in enumerate(widths):
        wake += f"if (dlast{i}) {copy(f'dnew{i} + i*{w}', f'dlast{i} + ROW[i]*{w}', w)}"
        wake += f"else memset(dnew{i} + i*{w}, 0, {w} * sizeof(R));\n"
        finish += copy(f"dinit{i} + ROW[i]*{w}", f"dnew{i} + i*{w}", w)
        swap += f"R *const gradient{i} = dnew{i};\ndnew{i} = dold{i};\ndold{i} = gradient{i};\n"
    held = [(a, tables.size(("gradient width", a), v)) for a, v in enumerate(gradient_widths)]
    clear = "".join(
        f"memset(g{a} + (ROW[i]*T + LEN[i])*{w}, 0, (T - LEN[i])*{w} * sizeof(R));\n" for a, w in held
    )
    outs = [tables.size(("matrix out", m), matrix.out) for m, matrix in enumerate(plan.matrices)]
    fetch = "".join(f"if ({a}) want(&ahead, {a} + at*{w}, {w});\n" for a, w in touched)
    text = f"""
{_allocated(f, touched, outs)}#define gemm(...) gemm_ahead(__VA_ARGS__, &ahead)
L na = 0; /* rows that reach step t */
for (L t = last_step - 1; t >= 0; t--) {{
while (na < C && LEN[na] > t) {{
const L i = na++;
{wake}}}
if (dy)
for (L i = 0; i < na; i++) {{
R *a = dnew0 + i*{widths[0]};
const R *b = dy + AT(i)*{widths[0]};
for (L j = 0; j < {widths[0]}; j++) a[j] += b[j];
}}
ahead.count = ahead.next = 0;
if (t) {{
const L now = t, t = now - 1;
for (L i = 0; i < na; i++) {{
const L at = AT(i);
{fetch}}}
}}
{body}
{swap}}}
#undef gemm
/* rows without a step pass on what they are given */
while (na < C) {{
const L i = na++;
{wake}}}
for (L i = 0; i < C; i++) {{
{finish}{clear}}}
if (dx)
for (L i = 0; i < C; i++) {{
{_input_gradients(plan, tables, gradients, gradient_widths)}}}
free(memory);
free(from);
free(to);
free(ahead.line);
return 0;
#undef AT
}}
int backward(const L *n, void *const *p) {{ return run_all(n, p, n[3], backward_part); }}
"""
    return laid_out(opening(tables, f, text) + text)


def _allocated(f: Function, touched: list[tuple[str, str]], outs: list[str]) -> str:
    """The buffers of a part of the rows, or 1 for lack of memory."""
    size = "".join(f" + ROUND({count})" for _, count in f.scratch)
    takes = "\n".join(f"TAKE({name}, {count});" for name, count in f.scratch)
    lines = " + ".join(f"{w} * (L)sizeof(R) / 64 + 2" for _, w in touched)
    return f"""void *memory;
if (posix_memalign(&memory, 64, (64{size}) * sizeof(R))) return 1;
R *at_hand = memory;
{takes}
/* rows that a product reads and writes, and lines of memory that it fetches for the step after it */
const R **from = malloc((C + 64) * sizeof(R *));
R **to = malloc((C + 64) * sizeof(R *));
Ahead ahead = {{malloc((C * ({lines}) + {" + ".join(["1", *outs])}) * sizeof(char *))}};
if (!from || !to || !ahead.line) {{
free(memory);
free(from);
free(to);
free(ahead.line);
return 1;
}}
"""


def _touched(
    plan: Plan, tables: Tables, kept_width: int, gradient_widths: list[int]
) -> list[tuple[str, str]]:
    """The arrays of which a step of the backward pass reads or writes a row, and their widths."""
    kept = ("keep", tables.size(("kept width",), kept_width))
    dy = ("dy", tables.size(("state width", 0), plan.state_widths[0]))
    operands = [(f"op{m}", tables.size(("matrix in", m), source.width)) for m, source in plan.operands]
    gradients = [(f"g{a}", tables.size(("gradient width", a), w)) for a, w in enumerate(gradient_widths)]
    return [kept, dy, *operands, *gradients]
