"""How exact a recurrence is on a GPU: random layers, their results in float64, and the error of any way to run them.

What is asked of a way is measured, not guessed: no tensor's error may be larger than a *peer's* in the same precision on the same
numbers, but for a tenth and one rounding.

- The peer is cuDNN where it has the cell, and otherwise the plain loop of torch operations in the same type. cuDNN makes use of the
  permission to shorten factors for some shapes only; who shortens cannot be closer than a loop that does, so where that is less exact
  than cuDNN it is the peer.
- One rounding is what exact results move by when every input and weight is rounded once. Errors of this size are accidents of
  which way numbers are rounded; a layer norm can enlarge them a hundredfold.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from anaphora import nn
from anaphora.engine.backends.base import BackendName, LayerRun, Result
from anaphora.engine.backends.reference import reverse_rows, run_reference
from anaphora.engine.dispatch import force
from anaphora.engine.precision import recurrent_precision
from anaphora.nn.recurrent_native import native_form
from anaphora.nn.recurrent_run import run_layer
from anaphora.nn.recurrent_step import LayerStep

CELLS: dict[str, Callable[[int, int], nn.Cell]] = {
    "elman": lambda i, h: nn.Elman(i, h),
    "elman relu": lambda i, h: nn.Elman(i, h, activation="relu"),
    "irnn": lambda i, h: nn.IRNN(i, h),
    "lstm": lambda i, h: nn.LSTM(i, h),
    "lstm no forget": lambda i, h: nn.LSTM(i, h, forget=False),
    "lstm coupled": lambda i, h: nn.LSTM(i, h, coupled=True),
    "lstm peephole": lambda i, h: nn.LSTM(i, h, peephole=True),
    "lstm layer norm": lambda i, h: nn.LSTM(i, h, layer_norm=True),
    "gru before": lambda i, h: nn.GRU(i, h),
    "gru after": lambda i, h: nn.GRU(i, h, reset="after"),
    "simple gru": lambda i, h: nn.SimpleGRU(i, h),
    "mgu": lambda i, h: nn.MGU(i, h),
    "shortcut": lambda i, h: nn.Shortcut(i, h, cell=nn.GRU, by=3),
}
Precision = Literal["bf16", "fp16", "tf32", "fp32"]
TYPES: dict[Precision, torch.dtype] = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "tf32": torch.float32,
    "fp32": torch.float32,
}
# Half the distance between neighbouring numbers of each precision, relative to them: what rounding once may cost.
UNIT: dict[Precision, float] = {"bf16": 2.0**-8, "fp16": 2.0**-11, "tf32": 2.0**-11, "fp32": 2.0**-24}
SLACK = 1.1
# In float32 nothing is shortened, so two loops differ by accidents alone, and these add up over the steps: the plain loop and
# the CPU's compiled kernels are off by up to four roundings. A digit lost would be ten.
ROUNDINGS: dict[Precision, int] = {"bf16": 1, "fp16": 1, "tf32": 1, "fp32": 8}


@dataclass(frozen=True)
class Drawn:
    """One configuration of a layer."""

    cell: str
    precision: Precision
    batch: int
    time: int
    inputs: int
    hidden: int
    ragged: bool = False
    reverse: bool = False
    masked: bool = False
    zoned: bool = False
    seed: int = 0

    @property
    def name(self) -> str:
        marks = [m for m in ("ragged", "reverse", "masked", "zoned") if getattr(self, m)]
        return f"{self.seed}: {self.cell} {self.precision} B{self.batch} T{self.time} H{self.hidden} {marks}"


def drawn_at_random(count: int) -> list[Drawn]:
    """The same configurations every time: each cell with each size in turn, all else at random."""
    choice = random.Random(9)
    kinds, sizes = list(CELLS), list(product((8, 136, 200, 320, 1000), (1, 7, 37)))
    return [
        Drawn(
            cell=kinds[k % len(kinds)],
            hidden=sizes[k // len(kinds) % len(sizes)][0],
            batch=sizes[k // len(kinds) % len(sizes)][1],
            precision=choice.choice(list(TYPES)),
            time=choice.choice((1, 2, 9, 17)),
            inputs=choice.choice((1, 24, 100)),
            ragged=choice.random() < 0.4,
            reverse=choice.random() < 0.4,
            masked=choice.random() < 0.2,
            zoned=choice.random() < 0.15,
            seed=k,
        )
        for k in range(count)
    ]


@contextmanager
def products_of(precision: Precision) -> Iterator[None]:
    """Recurrent layers in float32 with shortened factors, or with exact ones."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


def by_reference(run: LayerRun) -> Result:
    return run_reference(run.step, run.params or {}, *run[2:7])


class Layer:
    """A drawn configuration with random numbers in it, on the GPU."""

    def __init__(self, drawn: Drawn):
        torch.manual_seed(drawn.seed)
        self.drawn, self.dtype = drawn, TYPES[drawn.precision]
        cell = CELLS[drawn.cell](drawn.inputs, drawn.hidden).to("cuda")
        with torch.no_grad():
            for p in cell.parameters():
                if p.dim() == 1:  # none stays zero or one
                    p.add_(0.1 * torch.randn_like(p))
        self.cell = cell.to(self.dtype)
        batch, time, hidden = drawn.batch, drawn.time, drawn.hidden
        self.x = self._random(batch, time, drawn.inputs)
        self.initial = [self._random(batch, hidden) for _ in cell.state]
        self.weights = [self._random(batch, time, hidden), *(self._random(batch, hidden) for _ in cell.state)]
        self.rows: list[Tensor] = []
        self.extra: list[Tensor] = []
        if drawn.masked:
            self.rows = [torch.rand(batch, hidden, device="cuda").gt(0.3).to(self.dtype) / 0.7]
        if drawn.zoned:
            kept = [torch.rand(batch, time, hidden, device="cuda").lt(0.2) for _ in cell.state]
            self.extra = [k.to(self.dtype) for k in kept]
        self.lengths = torch.randint(0, time + 1, (batch,), device="cuda") if drawn.ragged else None
        self.step = LayerStep(cell, masked=drawn.masked, zoneout="sample" if drawn.zoned else "")

    def _random(self, *shape: int) -> Tensor:
        return torch.randn(*shape, device="cuda").to(self.dtype)

    def results(self, run: Any, dtype: torch.dtype, params: dict[str, Tensor] | None = None) -> list[Tensor]:
        """Outputs, last states and the gradients of everything; ``params`` stand for the cell's own."""

        def leaves(values: Any) -> tuple[Tensor, ...]:
            return tuple(v.detach().to(dtype).requires_grad_() for v in values)

        (x,), start = leaves([self.x]), leaves(self.initial)
        own = params or dict(self.cell.named_parameters())
        params = dict(zip(own, leaves(own.values()), strict=True))
        steps = (x, *(e.to(dtype) for e in self.extra))
        rows = tuple(r.to(dtype) for r in self.rows)
        y, last = run(LayerRun(self.step, params, steps, rows, start, self.lengths, self.drawn.reverse))
        wanted = [x, *start, *params.values()]
        weights = [w.to(dtype) for w in self.weights]
        grads = torch.autograd.grad([y, *last], wanted, weights, allow_unused=True)
        pairs = zip(wanted, grads, strict=True)
        found = [y, *last, *(torch.zeros_like(v) if g is None else g for v, g in pairs)]
        return [t.detach() for t in found]

    @cached_property
    def names(self) -> list[str]:
        """What ``results`` holds."""
        states = [*self.cell.state]
        leaves = ["x", *(f"initial {s}" for s in states), *dict(self.cell.named_parameters())]
        return ["y", *(f"last {s}" for s in states), *(f"gradient of {name}" for name in leaves)]

    def exact(self, y: Tensor, params: dict[str, Tensor] | None = None) -> list[Tensor]:
        """The results in float64, for a run that gave the outputs ``y``.

        Where the input of a ReLU is nearer to zero than rounding, either slope is right, and one slope can decide most of a
        gradient: the slopes are those of the run.
        """
        if getattr(self.cell, "activation", "") != "relu":
            return self.results(by_reference, torch.float64, params) if params else self._smooth
        slopes = reverse_rows(y, self.lengths) if self.drawn.reverse else y
        with _Slopes(slopes.gt(0).unbind(1)):
            return self.results(by_reference, torch.float64, params)

    @cached_property
    def _smooth(self) -> list[Tensor]:
        return self.results(by_reference, torch.float64)

    @staticmethod
    def relative(found: list[Tensor], exact: list[Tensor]) -> list[float]:
        """How far each tensor is off. One that is zero, or nearly, but for rounding is compared with what made it."""
        least = max(float(e.norm()) for e in exact) * 1e-3
        pairs = zip(found, exact, strict=True)
        return [float((a.double() - b).norm() / b.norm().clamp(min=least)) for a, b in pairs]

    def errors(self, found: list[Tensor]) -> list[float]:
        """The relative error of each tensor."""
        return self.relative(found, self.exact(found[0]))

    def ours(self, way: BackendName | None = None) -> list[float]:
        with products_of(self.drawn.precision), force(way):
            return self.errors(self.results(run_layer, self.dtype))

    @cached_property
    def peer(self) -> list[float]:
        """The errors of the peer."""
        plain = not (self.drawn.masked or self.drawn.zoned)
        native = self.ours("cudnn") if plain and native_form(self.cell) is not None else None
        if native is not None and self.drawn.precision != "tf32":
            return native
        loop = self.loop()
        return loop if native is None else [max(pair) for pair in zip(native, loop, strict=True)]

    def loop(self) -> list[float]:
        """The errors of the plain loop."""
        shorter = _Shortened() if self.drawn.precision == "tf32" else nullcontext()
        with products_of("fp32"), recurrent_precision(), shorter:
            found = self.results(by_reference, self.dtype)
        return self.errors(found)

    @cached_property
    def one_rounding(self) -> list[float]:
        """What rounding every input and weight once does to exact results, relative to them; no less than rounding these."""
        unit, times = UNIT[self.drawn.precision], 4
        kept = (self.x, self.initial, {k: p.data for k, p in self.cell.named_parameters()})
        slopes = self._smooth[0]
        exact = self.exact(slopes)
        total = [0.0 for _ in exact]

        def shaken(value: Tensor) -> Tensor:
            exactly = value.double()
            return exactly * (1 + unit * (2 * torch.rand_like(exactly) - 1))

        for _ in range(times):
            self.x, self.initial = shaken(kept[0]), [shaken(s) for s in kept[1]]
            params = {k: shaken(p) for k, p in kept[2].items()}
            moved = self.relative(self.exact(slopes, params), exact)
            total = [t + m * m / times for t, m in zip(total, moved, strict=True)]
        self.x, self.initial = kept[:2]
        return [max(t**0.5, unit) for t in total]

    def less_exact(self, way: BackendName | None = None) -> list[str]:
        """What is less exact than the peer's, in words; torch's operations recorded as a graph have the loop for a peer."""
        times = ROUNDINGS[self.drawn.precision]
        peer = self.loop() if way == "cuda_graph" else self.peer
        compared = zip(self.names, self.ours(way), peer, self.one_rounding, strict=True)
        return [
            f"{self.drawn.name}: {name} is off by {a:.2e}, the peer's by {b:.2e}, one rounding is {one:.2e}"
            for name, a, b, one in compared
            if not a <= SLACK * b + times * one
        ]


class _Slopes(TorchFunctionMode):
    """Every ReLU of a loop with the slopes given, step by step; both passes."""

    def __init__(self, slopes: Sequence[Tensor]):
        super().__init__()
        self.slopes = iter(slopes)

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.relu:
            return args[0] * next(self.slopes)
        return function(*args, **(kwargs or {}))


class _ShortProduct(torch.autograd.Function):
    """a Wᵀ, and both products of its gradient, with factors of ten bits of fraction."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, w: Tensor) -> Tensor:
        a, w = _short(a), _short(w)
        ctx.save_for_backward(a, w)
        return a @ w.t()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (a, w), grad = ctx.saved_tensors, _short(grad)
        return grad @ w, grad.t() @ a


def _short(value: Tensor) -> Tensor:
    """To ten bits of fraction, the nearest."""
    return ((value.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


class _Shortened(TorchFunctionMode):
    """Every product of a loop in float32 with shortened factors, whatever its shape; both passes."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is not F.linear:
            return function(*args, **(kwargs or {}))
        product = _ShortProduct.apply(*args[:2])  # type: ignore[no-untyped-call]
        return product if len(args) < 3 or args[2] is None else product + args[2]
