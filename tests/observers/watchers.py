"""The ways in which PyTorch's operations can be watched or changed, each as a function that runs a block under it.

A function gets the block, a fresh module, what runs it and its inputs, and returns what was seen: tensors and plain values, which must be
the same whether ``run`` is the fast path or PyTorch's own operations.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils import parametrize, prune, weight_norm
from torch.nn.utils.parametrizations import weight_norm as parametrized_weight_norm
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import FlopCounterMode
from watched_blocks import Block, Run

from anaphora.training.recomputing import BLOCKS as STACKED
from anaphora.training.recomputing import recompute

Seen = list[Any]
Watch = Callable[[Block, nn.Module, Run, tuple[Tensor, ...]], Seen]


@dataclass(frozen=True)
class Watcher:
    """``fits``: for which blocks. ``cold``: nothing runs before. ``apart``: in a process of its own, which may crash."""

    watch: Watch
    fits: Callable[[Block], bool] = lambda block: True
    cold: bool = False
    apart: bool = False


WATCHERS: dict[str, Watcher] = {}


def watcher(name: str, **more: Any) -> Callable[[Watch], Watch]:
    def listed(watch: Watch) -> Watch:
        WATCHERS[name] = Watcher(watch, **more)
        return watch

    return listed


def learns(block: Block) -> bool:
    return block.learns


@functools.lru_cache(64)
def example(block: Block) -> nn.Module:
    """A module of the block, to be looked at."""
    return block.make()


def weighted(block: Block) -> bool:
    return bool(_weights(example(block)))


def with_parts(block: Block) -> bool:
    return block.parts and bool(inner(example(block)))


def inner(module: nn.Module) -> dict[str, nn.Module]:
    """The parts that are called: not the module itself, and no lists."""
    listed = (nn.ModuleList, nn.ParameterList)
    return {name: part for name, part in module.named_modules() if name and not isinstance(part, listed)}


def leaves(module: nn.Module) -> dict[str, nn.Module]:
    return {
        name: part
        for name, part in inner(module).items()
        if not any(not isinstance(child, nn.ParameterList) for child in part.children())
    }


def _weights(module: nn.Module) -> list[tuple[nn.Module, str]]:
    """The weights of parts that are called, by the part that registered them, and those of the module itself."""
    return [
        (part, name)
        for part in module.modules()
        if not isinstance(part, nn.ParameterList | nn.Conv1d)
        for name, weight in part._parameters.items()
        if weight is not None and weight.dim() in (1, 2)
    ]


def gradients(module: nn.Module, run: Run, inputs: tuple[Tensor, ...], work: Any = None) -> Seen:
    """Outputs and the gradients of inputs and weights, with what ``work`` puts around the call."""
    given = [x.detach().clone().requires_grad_() for x in inputs]
    weights = [w for w in module.parameters() if w.requires_grad]
    with torch.enable_grad():
        y = run(module, *given)
        if work is not None:
            y = work(y)
        torch.manual_seed(5)
        loss = (y * torch.randn_like(y)).sum()
        found = torch.autograd.grad(loss, [*given, *weights], allow_unused=True)
    return [y, *(g if g is None else g + 0.0 for g in found)]


def results(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    """Without gradient, and with it."""
    with torch.no_grad():
        torch.manual_seed(3)
        found: Seen = [run(module, *inputs)]
    if block.learns:
        torch.manual_seed(3)
        found += gradients(module, run, inputs)
    return found


def tangents(inputs: Any) -> list[Tensor]:
    torch.manual_seed(4)
    return [torch.randn_like(x) for x in inputs]


# ---------------------------------------------------------------------- derivatives and transforms
@watcher("forward mode on inputs")
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    found: Seen = []
    for grad in (False, True):
        with torch.set_grad_enabled(grad), forward_ad.dual_level():
            given = [forward_ad.make_dual(x, t) for x, t in zip(inputs, tangents(inputs), strict=True)]
            found += forward_ad.unpack_dual(run(module, *given))
    return found


@watcher("forward mode on weights", fits=weighted)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    names, weights = zip(*module.named_parameters(), strict=True)
    with torch.no_grad(), forward_ad.dual_level():
        pairs = zip(weights, tangents(weights), strict=True)
        duals = {n: forward_ad.make_dual(w.detach(), t) for n, (w, t) in zip(names, pairs, strict=True)}
        with _reparametrize_module(module, duals):
            return list(forward_ad.unpack_dual(run(module, *inputs)))


@watcher("func.jvp")
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    with torch.no_grad():
        return list(torch.func.jvp(functools.partial(run, module), inputs, tuple(tangents(inputs))))


@watcher("func.vjp", fits=learns)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    y, back = torch.func.vjp(functools.partial(run, module), *inputs)
    return [y, *back(tangents([y])[0])]


@watcher("func.vmap", fits=lambda block: not block.fixed)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    with torch.no_grad():
        return [torch.func.vmap(functools.partial(run, module))(*(torch.stack((x, 2 * x)) for x in inputs))]


@watcher("func.grad of weights", fits=lambda block: block.learns and weighted(block))
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    def loss(weights: Mapping[str, Tensor]) -> Tensor:
        with _reparametrize_module(module, dict(weights)):
            return run(module, *inputs).square().sum()

    found = torch.func.grad(loss)({name: w.detach() for name, w in module.named_parameters()})
    return list(found.values())


@watcher("functional weights", fits=weighted)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    weights = {name: 1.5 * w.detach() for name, w in module.named_parameters()}
    with torch.no_grad(), _reparametrize_module(module, weights):
        return [run(module, *inputs)]


@watcher("gradient of gradient", fits=lambda block: block.learns and not block.once)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    given = [x.detach().clone().requires_grad_() for x in inputs]
    first = torch.autograd.grad(run(module, *given).square().sum(), given, create_graph=True)
    wanted = [*given, *module.parameters()]
    return list(torch.autograd.grad(sum(g.square().sum() for g in first), wanted, allow_unused=True))


# ---------------------------------------------------------------------- traces and modes
@watcher("jit.trace", fits=lambda block: not block.fixed)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module.requires_grad_(False)  # else a trace takes modules only
        program = torch.jit.trace(lambda *given: run(module, *given), inputs, check_trace=False)
        return [program(*(0.5 * x for x in inputs))]


@watcher("make_fx", fits=lambda block: not block.fixed)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    with torch.no_grad():
        program = make_fx(functools.partial(run, module))(*inputs)
        return [program(*(0.5 * x for x in inputs))]


@watcher("FLOPs")
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    found: Seen = []
    for grad in (False, block.learns):
        with torch.set_grad_enabled(grad), FlopCounterMode(display=False) as counter:
            y = run(module, *inputs)
        found += [y, counter.get_total_flops() > 0]
    return found


PRODUCTS = (
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "mul",
    "sum",
    "tanh",
    "sigmoid",
    "exp",
    "logsumexp",
    "_softmax",
    "relu",
)


class Listed(TorchDispatchMode):
    """Writes down which operations compute something."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2]
        self.seen |= {name} & set(PRODUCTS)
        return func(*args, **(kwargs or {}))


@watcher("dispatch mode")
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    found: Seen = []
    for grad in (False, block.learns):
        with torch.set_grad_enabled(grad), Listed() as mode:
            y = run(module, *inputs)
        found += [y, bool(mode.seen)]
    return found


@watcher("fake tensors", cold=True, apart=True, fits=lambda block: not block.fixed)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
        y = run(module, *(mode.from_tensor(x) for x in inputs))
    found = [isinstance(y, FakeTensor), tuple(y.shape), *results(block, module, run, inputs)]
    return [*found, all(type(one) is not FakeTensor for one in found)]


@watcher("inference mode, then training", cold=True)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    with torch.inference_mode():
        y = run(module, *inputs)
    return [y.clone(), y.is_inference(), *results(block, module, run, inputs)]


@watcher("saved tensors hooks", fits=learns)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    packed: list[int] = []

    def pack(x: Tensor) -> Tensor:
        packed.append(1)
        return x.clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        return [*gradients(module, run, inputs), bool(packed)]


def _kept(*_: Any, **__: Any) -> Any:
    return checkpoint.CheckpointPolicy.PREFER_RECOMPUTE


@watcher("checkpoint", fits=learns)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    found: Seen = []
    for more in (
        {},
        {"context_fn": functools.partial(checkpoint.create_selective_checkpoint_contexts, _kept)},
    ):

        def again(own: nn.Module, *given: Tensor, more: Any = more) -> Tensor:
            return checkpoint.checkpoint(run, own, *given, use_reentrant=False, **more)

        found += gradients(module, again, inputs)
    return found


@watcher(
    "recomputed blocks", fits=lambda block: any(isinstance(m, STACKED) for m in example(block).modules())
)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    recompute(module)
    return results(block, module, run, inputs)


# ---------------------------------------------------------------------- hooks, and methods of one's own
def _hooked(kind: str, module: nn.Module, calls: Counter[str]) -> None:
    for name, part in inner(module).items():

        def count(*_: Any, name: str = name) -> None:
            calls[name] += 1

        getattr(part, f"register_{kind}_hook")(count)


def _hooks(kind: str) -> None:
    @watcher(f"{kind} hooks", fits=with_parts)
    def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
        calls: Counter[str] = Counter()
        _hooked(kind, module, calls)
        with torch.no_grad():
            found: Seen = [run(module, *inputs), dict(calls)]
        if block.learns:
            calls.clear()
            found += [*gradients(module, run, inputs), dict(calls)]
        return found


for _kind in ("forward", "forward_pre", "full_backward", "full_backward_pre"):
    _hooks(_kind)


@watcher("a hook that changes a value", fits=with_parts)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    found: Seen = []
    for parts in ([*leaves(module).values()], [*leaves(module).values()][-1:]):
        handles = [
            p.register_forward_hook(lambda _, given, y: 2 * y if isinstance(y, Tensor) else y) for p in parts
        ]
        found += results(block, module, run, inputs)
        for handle in handles:
            handle.remove()
    return [*found, *results(block, module, run, inputs)]


@watcher("a global hook", fits=with_parts)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    names, calls = {id(part): name for name, part in inner(module).items()}, Counter[str]()

    def count(part: nn.Module, *_: Any) -> None:
        if id(part) in names:
            calls[names[id(part)]] += 1

    handle = nn.modules.module.register_module_forward_hook(count)
    try:
        with torch.no_grad():
            return [run(module, *inputs), dict(calls)]
    finally:
        handle.remove()


@watcher("forward of one's own", fits=with_parts)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    for part in leaves(module).values():

        def twice(*given: Any, own: Any = part.forward, **named: Any) -> Any:
            y = own(*given, **named)
            return 2 * y if isinstance(y, Tensor) else y

        part.forward = twice  # type: ignore[method-assign]
    return results(block, module, run, inputs)


@watcher("a class of one's own", fits=with_parts)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    for part in leaves(module).values():
        kind: Any = type(part)

        def forward(self: Any, *given: Any, kind: Any = kind, **named: Any) -> Any:
            y = kind.forward(self, *given, **named)
            return 2 * y if isinstance(y, Tensor) else y

        part.__class__ = type(kind.__name__, (kind,), {"forward": forward})
    return results(block, module, run, inputs)


@watcher(
    "dropout of evaluation",
    fits=lambda block: any(isinstance(m, nn.Dropout) for m in example(block).modules()),
)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.5
            part.train()
    return [*results(block, module, run, inputs), *(part.training for part in module.modules())]


# ---------------------------------------------------------------------- weights that are not what they seem
@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _refresh(module: nn.Module) -> None:
    """What a call of the module itself does first: its hooks make the weight."""
    for hook in module._forward_pre_hooks.values():
        hook(module, ())


@watcher("weight_norm by hooks", fits=weighted)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    made = _weights(module)
    with _quiet():
        for part, name in made:
            weight_norm(part, name, dim=None)
    results(block, module, run, inputs)
    with torch.no_grad():
        for part, name in made:
            getattr(part, f"{name}_g").mul_(2)
    _refresh(module)
    return results(block, module, run, inputs)


@watcher("pruned weights", fits=weighted)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    for part, name in _weights(module):
        prune.random_unstructured(part, name, 0.5)
    results(block, module, run, inputs)
    with torch.no_grad():
        for weight in module.parameters():
            weight.mul_(2)
    _refresh(module)
    return results(block, module, run, inputs)


class Halved(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight / 2


@watcher("parametrized weights", fits=weighted)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    for part, name in _weights(module):
        parametrize.register_parametrization(part, name, Halved())
    results(block, module, run, inputs)
    with torch.no_grad():
        for weight in module.parameters():
            weight.mul_(2)
    found = results(block, module, run, inputs)
    parametrized_weight_norm(*_weights(block.make())[0])
    return found


class Wrapped(Tensor):
    """A tensor without memory of its own that holds another one."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> Wrapped:
        made = Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), dtype=held.dtype, requires_grad=held.requires_grad
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        own = [
            tree_map(lambda x: x.held if isinstance(x, Wrapped) else x, given)
            for given in (args, kwargs or {})
        ]
        y = func(*own[0], **own[1])
        made = tree_map(lambda x: Wrapped(x) if isinstance(x, Tensor) else x, y)
        return return_and_correct_aliasing(func, args, kwargs or {}, made)

    def __repr__(self) -> str:  # type: ignore[override]
        return "Wrapped"


def _unwrapped(found: Seen) -> Seen:
    return [one.held if isinstance(one, Wrapped) else one for one in found]


@watcher("wrapped weights", fits=weighted, apart=True)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    for part in module.modules():
        for name, weight in list(part._parameters.items()):
            if weight is not None:
                part._parameters[name] = nn.Parameter(Wrapped(weight.detach()))
    with torch.no_grad():
        return _unwrapped([run(module, *inputs)])


@watcher("wrapped inputs", apart=True, fits=lambda block: not block.fixed)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    with torch.no_grad():
        y = run(module, *(Wrapped(x) for x in inputs))
    return [type(y).__name__, *_unwrapped([y])]


class Tagged(Tensor):
    """A subclass that only carries its name on."""


@watcher("inputs of a subclass")
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    with torch.no_grad():
        y = run(module, *(x.as_subclass(Tagged) for x in inputs))
    return [type(y).__name__, y.as_subclass(Tensor)]


@watcher("everything on meta", apart=True, fits=lambda block: not block.fixed)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    with torch.no_grad():
        y = run(module.to("meta"), *(x.to("meta") for x in inputs))
    return [tuple(y.shape), y.device.type]


@watcher("a part on meta", fits=weighted, apart=True)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    for part, name in _weights(module):
        own = part._parameters[name]
        part._parameters[name] = nn.Parameter(own.detach().to("meta"))  # type: ignore[union-attr]
        with (
            torch.no_grad(),
            contextlib.suppress(Exception),
        ):  # PyTorch raises for some of them, and so may we
            run(module, *inputs)
        part._parameters[name] = own
    return results(block, module, run, inputs)


@watcher("writes behind PyTorch's back", fits=weighted)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    found: Seen = []
    for weight in module.parameters():
        weight.data.neg_()
    found += results(block, module, run, inputs)
    for weight in module.parameters():
        weight.detach().numpy()[:] *= 0.5
    found += results(block, module, run, inputs)
    for weight in module.parameters():
        weight.data = torch.full_like(weight, 0.1)
    return [*found, *results(block, module, run, inputs)]


@watcher("fused optimizers", fits=weighted)
def _(block: Block, module: nn.Module, run: Run, inputs: tuple[Tensor, ...]) -> Seen:
    found: Seen = []
    for kind, rate in ((torch.optim.SGD, 0.5), (torch.optim.AdamW, 0.1)):
        for weight in module.parameters():
            weight.grad = torch.ones_like(weight)
        kind(module.parameters(), lr=rate, fused=True).step()
        found += results(block, module, run, inputs)
    return found
