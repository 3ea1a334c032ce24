"""What each kind of layer costs beside what theory says; the ratio is measured over theory.

Run: python benchmarks/cost_table.py [--json] [--times N]

For a sequence of n vectors of width d (kernel k, r places on either side; Vaswani et al. 2017, table 1):

    self-attention             O(n² d)    1 step      path 1
    recurrent                  O(n d²)    n steps     path n
    convolution                O(k n d²)  1 step      path log_k n
    restricted self-attention  O(r n d)   1 step      path n/r

- cost, counted: the multiplications of every product that our blocks run; the exponent of a size is the slope of
  log cost over log size. Of attention that is QKᵀ and αV alone, as in the table: `MultiHead`'s four projections
  would add 4nd².
- cost, timed: the same slope of seconds; one thread, the least of N times. What grows more slowly (softmax, copies)
  and caches bend it, so no goal is set on it.
- steps: the longest chain of products that wait for one another, over the same for n = 1.
- path: how many layers it takes until the gradient of output n−1 by input 0 is not zero; of a recurrence, for which
  one layer is enough, the products on the shortest way between the two.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from anaphora.nn import Convolution, Elman, Recurrent, inside
from anaphora.nn.attention import MultiHead, scaled_dot
from anaphora.nn.attention.scaled_dot import local_scaled_dot
from rows import row, show

KERNEL, WINDOW = 4, 4
LENGTHS = (64, 256)  # powers of both, at which steps and paths are measured
_FUSED = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


class Products(TorchDispatchMode):
    """Watches every operation: the multiplications of all products, and the longest chain of dependent ones."""

    def __init__(self) -> None:
        super().__init__()
        self.multiplications = 0
        self.chain = 0
        self._depth: dict[int, tuple[Tensor, int]] = {}  # the tensor too, so that its id is not used again

    def __torch_dispatch__(
        self, operation: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out = operation(*args, **kwargs)
        count = self._count(operation, args, kwargs, out)
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        depth = max((self._depth[id(t)][1] for t in given if id(t) in self._depth), default=0) + (count > 0)
        for made in tree_leaves(out):
            if isinstance(made, Tensor):
                self._depth[id(made)] = (made, depth)
        self.multiplications += count
        self.chain = max(self.chain, depth)
        return out

    @staticmethod
    def _count(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> int:
        packet = operation.overloadpacket
        if packet is _FUSED:  # torch counts the attention kernels of GPUs only
            return int(sdpa_flop_count(*(t.shape for t in args[:3]))) // 2
        if packet in flop_registry:
            return (
                int(flop_registry[packet](*args, **kwargs, out_val=out)) // 2
            )  # a product's additions aside
        return 0


@dataclass(frozen=True)
class Kind:
    """A kind of layer: its theory, and our block for it."""

    name: str
    cost: str
    exponents: dict[str, int]
    steps: Callable[[int], float]
    path: Callable[[int], float]
    operation: Callable[
        [int, int, int], Callable[[], object]
    ]  # (n, d, size) -> the operation whose cost counts
    layer: Callable[[int, int], nn.Module]  # (d, depth) -> one layer of a stack
    timed: dict[str, tuple[dict[str, int], Sequence[int]]]  # exponent -> (sizes held, sizes varied)


def attend(n: int, d: int, size: int) -> Callable[[], object]:
    q, k, v = torch.randn(3, 1, 1, n, d)
    return lambda: scaled_dot(q, k, v)


def attend_near(n: int, d: int, size: int) -> Callable[[], object]:
    q, k, v = torch.randn(3, 1, 1, n, d)
    return lambda: local_scaled_dot(q, k, v, size)


def recur(n: int, d: int, size: int) -> Callable[[], object]:
    layer, x = Recurrent(Elman(d, d)), torch.randn(1, n, d)
    return lambda: layer(x)


def convolve(n: int, d: int, size: int) -> Callable[[], object]:
    layer, x = Convolution(d, d, size, causal=True), torch.randn(1, n, d)
    return lambda: layer(x)


KINDS = (
    Kind(
        "self-attention",
        "n² d",
        {"n": 2, "d": 1},
        lambda n: 1,
        lambda n: 1,
        attend,
        lambda d, depth: MultiHead(d, 1),
        {"n": ({"d": 64}, (512, 1024, 2048)), "d": ({"n": 512}, (256, 512, 1024))},
    ),
    Kind(
        "recurrent",
        "n d²",
        {"n": 1, "d": 2},
        lambda n: n,
        lambda n: n,
        recur,
        lambda d, depth: Recurrent(Elman(d, d)),
        {"n": ({"d": 256}, (256, 512, 1024)), "d": ({"n": 128}, (256, 512, 1024))},
    ),
    Kind(
        "convolution",
        "k n d²",
        {"n": 1, "d": 2, "k": 1},
        lambda n: 1,
        lambda n: math.log(n, KERNEL),
        convolve,
        lambda d, depth: Convolution(d, d, KERNEL, dilation=KERNEL**depth, causal=True),
        {
            "n": ({"d": 128, "size": 4}, (512, 1024, 2048)),
            "d": ({"n": 512, "size": 4}, (128, 256, 512)),
            "k": ({"n": 512, "d": 128}, (4, 8, 16)),
        },
    ),
    Kind(
        "restricted self-attention",
        "r n d",
        {"n": 1, "d": 1, "r": 1},
        lambda n: 1,
        lambda n: n / WINDOW,
        attend_near,
        lambda d, depth: MultiHead(d, 1, window=WINDOW),
        {
            "n": ({"d": 64, "size": 64}, (1024, 2048, 4096)),
            "d": ({"n": 1024, "size": 64}, (256, 512, 1024)),
            "r": ({"n": 4096, "d": 64}, (64, 128, 256)),
        },
    ),
)


def slope(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """The exponent a of cost ∝ sizeᵃ: the least-squares slope of the logarithms."""
    x, y = ([math.log(value) for value in values] for values in (sizes, costs))
    middle = sum(x) / len(x)
    return sum((a - middle) * b for a, b in zip(x, y, strict=True)) / sum((a - middle) ** 2 for a in x)


@torch.no_grad()
def multiplications(kind: Kind, n: int, d: int, size: int) -> int:
    """How many the operation runs. Recurrent layers are recorded, so that every step is a torch operation."""
    run = kind.operation(n, d, size)
    with Products() as products, inside.record():
        run()
    return products.multiplications


@torch.no_grad()
def seconds(runs: Sequence[Callable[[], object]], times: int) -> list[float]:
    """Of the fastest run of each, run in turn."""
    best = [math.inf] * len(runs)
    for _ in range(times + 1):
        for i, run in enumerate(runs):
            begin = time.perf_counter()
            run()
            best[i] = min(best[i], time.perf_counter() - begin)
    return best


def counted_exponent(kind: Kind, size: str) -> float:
    """Of "n", "d", "k" or "r", by the count of multiplications."""
    sizes = (32, 64, 128) if size in "nd" else (2, 4, 8)
    held = {"n": 64, "d": 16, "size": WINDOW}
    counts = [multiplications(kind, **{**held, _argument(size): value}) for value in sizes]
    return slope(sizes, counts)


def timed_exponent(kind: Kind, size: str, times: int) -> float:
    held, sizes = kind.timed[size]
    runs = [kind.operation(**{"size": 0, **held, _argument(size): value}) for value in sizes]
    return slope(sizes, seconds(runs, times))


def _argument(size: str) -> str:
    return size if size in "nd" else "size"


@torch.no_grad()
def sequential_steps(kind: Kind, n: int, d: int = 8) -> float:
    """The longest chain of dependent products in one layer, in units of the chain for one place."""

    def chain(length: int) -> int:
        layer, x = kind.layer(d, 0), torch.randn(1, length, d)
        with Products() as products, inside.record():
            layer(x)
        return products.chain

    return chain(n) / chain(1)


def path_length(kind: Kind, n: int, d: int = 4) -> int:
    """Layers, or steps of a recurrence, between input 0 and output n−1: the fewest on any way."""
    x = torch.randn(1, n, d, dtype=torch.float64)
    first = x[:, :1].clone().requires_grad_()
    y = torch.cat((first, x[:, 1:]), 1)
    for depth in range(n):
        layer = kind.layer(d, depth).double().requires_grad_(False)
        if isinstance(layer, Recurrent):
            return _steps_through(layer, [first[:, 0], *x[:, 1:].unbind(1)], first)
        out = layer(y)
        y = out[0] if isinstance(out, tuple) else out
        (gradient,) = torch.autograd.grad(y[:, -1].sum(), first, retain_graph=True)
        if gradient.any():
            return depth + 1
    raise RuntimeError(f"{kind.name}: output {n - 1} never depends on input 0")


def _steps_through(layer: Recurrent, inputs: Sequence[Tensor], first: Tensor) -> int:
    state = layer.initial_state(1, inputs[0])
    for x in inputs:
        y, state = layer.step(x, state)
    (gradient,) = torch.autograd.grad(y.sum(), first, retain_graph=True)
    if not gradient.any():
        raise RuntimeError("the last output of the recurrence does not depend on its first input")
    return _products_between(y, first)


def _products_between(output: Tensor, start: Tensor) -> int:
    """The fewest products on a way back through the graph of gradients; a step of an Elman network has one."""
    near, products = [output.grad_fn], 0
    seen: set[Any] = set()
    while near:
        far = []
        while near:
            node = near.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            if getattr(node, "variable", None) is start:
                return products
            behind = [before for before, _ in node.next_functions]
            (far if node.name() in ("AddmmBackward0", "MmBackward0") else near).extend(behind)
        near, products = far, products + 1
    raise RuntimeError("there is no way between the two")


def measure(times: int) -> list[dict[str, Any]]:
    rows = []
    for kind in KINDS:
        for size, theory in kind.exponents.items():
            name = f"{kind.name}, cost ∝ {kind.cost}: exponent of {size}"
            counted, timed = counted_exponent(kind, size), timed_exponent(kind, size, times)
            rows.append(row(f"{name}, counted", "theory", counted, theory, "", goal=1.0, more_is_better=True))
            rows.append(row(f"{name}, timed", "theory", timed, theory, "", goal=None, more_is_better=True))
        for n in LENGTHS:
            for what, found, theory in (
                ("sequential steps", sequential_steps(kind, n), kind.steps(n)),
                ("path length", path_length(kind, n), kind.path(n)),
            ):
                name = f"{kind.name}: {what}, n = {n}"
                rows.append(row(name, "theory", found, theory, "", goal=1.0, more_is_better=True))
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The table of the module's first lines, each entry measured (and what theory says)."""
    found = {r["row"]: r for r in rows}

    def powers(kind: Kind, how: str) -> str:
        name = f"{kind.name}, cost ∝ {kind.cost}: exponent of"
        return " ".join(f"{s}^{found[f'{name} {s}, {how}']['ours']:.2f}" for s in kind.exponents)

    def lengths(kind: Kind, what: str) -> str:
        both = (found[f"{kind.name}: {what}, n = {n}"] for n in LENGTHS)
        return ", ".join(f"{r['ours']:g} ({r['theirs']:g})" for r in both)

    head = ("layer", "theory", "counted", "timed", "sequential steps", "path length")
    lines = [head] + [
        (
            kind.name,
            kind.cost,
            powers(kind, "counted"),
            powers(kind, "timed"),
            lengths(kind, "sequential steps"),
            lengths(kind, "path length"),
        )
        for kind in KINDS
    ]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    said = ["  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines]
    where = " and ".join(map(str, LENGTHS))
    return "\n".join(
        [
            *said,
            "",
            f"Steps and paths for n = {where} with k = {KERNEL}, r = {WINDOW}; in brackets the theory.",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--times", type=int, default=20, help="runs of each size (default 20)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = measure(options.times)
    if options.json:
        show(rows, as_json=True)
    else:
        print(table(rows))


if __name__ == "__main__":
    main()
