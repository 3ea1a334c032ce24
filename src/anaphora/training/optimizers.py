"""Optimizers, and their state by parameter name."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from anaphora.ops.optimizer import AdamGroup
from anaphora.settings import TrainingSettings
from anaphora.settings.own import Part
from anaphora.training.muon import Muon, hidden_matrices
from anaphora.training.own import own_optimizer, packed, unpacked
from anaphora.training.sharding import like

# β₂ = 0.98 as in Vaswani et al. 2017: with the usual 0.999 a rare word's first gradient moves its vector by 3 lr.
BETAS = (0.9, 0.98)
EPSILON = 1e-9


def build_optimizer(
    model: nn.Module, settings: TrainingSettings, rates: Mapping[str, float] = MappingProxyType({})
) -> torch.optim.Optimizer:
    """Adam, AdamW, Muon, SGD or the user's own over all trainable parameters.

    Weight decay applies to matrices only: vectors (biases, gains and offsets of norms) are left alone, because
    pulling them to zero changes what a layer can express rather than how smooth it is. ``rates``: by the names of parameters,
    factors of the learning rate other than 1.
    """
    trainable = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    hidden = hidden_matrices(model) if settings.optimizer == "muon" else {}
    groups = _groups(trainable, settings, rates, hidden)
    if isinstance(settings.optimizer, Part):
        return own_optimizer(settings.optimizer, groups, settings)
    _leave_compiler_unloaded()
    fused = all(p.device.type in ("cpu", "cuda") and p.is_floating_point() for _, p in trainable)
    if settings.optimizer in ("sgd", "ntasgd"):
        return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum, fused=fused)
    kind: Any = _KINDS[str(settings.optimizer)]
    found: torch.optim.Optimizer = kind(groups, lr=settings.lr, betas=BETAS, eps=EPSILON, fused=fused)
    return found


_KINDS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "muon": Muon,
}


def _groups(
    trainable: list[tuple[str, nn.Parameter]],
    settings: TrainingSettings,
    rates: Mapping[str, float],
    hidden: Mapping[str, tuple[int, ...]],
) -> list[dict[str, Any]]:
    """Parameters with the same learning rate and weight decay together; the ``hidden`` matrices, which Muon moves, apart."""
    together: dict[tuple[float, bool, bool], list[tuple[str, nn.Parameter]]] = {}
    for name, parameter in sorted(trainable, key=lambda one: one[1].ndim < 2):
        shrinks = bool(settings.weight_decay) and parameter.ndim >= 2
        together.setdefault((rates.get(name, 1.0), shrinks, name in hidden), []).append((name, parameter))
    if not settings.weight_decay and not rates and not hidden:
        together = {(1.0, False, False): trainable}
    groups: list[dict[str, Any]] = []
    for (rate, shrinks, matrices), named in together.items():
        slower = {"lr": settings.lr * rate, "initial_lr": settings.lr * rate} if rate != 1 else {}
        blocks = {"blocks": [hidden[name] for name, _ in named], "fused": False} if matrices else {}
        decay = settings.weight_decay if shrinks else 0.0
        groups.append({"params": [one for _, one in named], "weight_decay": decay, **slower, **blocks})
    return groups


def plain_step(optimizer: torch.optim.Optimizer) -> None:
    """``optimizer.step()``, without loading torch's compiler where nothing has: torch loads it there only to pause it."""
    if "torch._dynamo" in sys.modules or type(optimizer) not in (*_ADAM, torch.optim.SGD):
        optimizer.step()
        return
    with torch.no_grad():
        inspect.unwrap(type(optimizer).step)(optimizer)


def _leave_compiler_unloaded() -> None:
    """Spare a training the second or two in which torch loads its compiler, to mark methods of optimizers as not for it.

    torch keeps the marked method where a plain one is put here; once the compiler is loaded, torch's marking goes on.
    """
    for method in (
        torch.optim.Optimizer.add_param_group,
        torch.optim.Optimizer.state_dict,
        torch.optim.Optimizer.load_state_dict,
    ):
        plain: Any = getattr(method, "__wrapped__", None)
        if plain is None or hasattr(plain, "__dynamo_disable") or "torch._dynamo" in sys.modules:
            continue

        def unmarked(*args: Any, _method: Any = method, _plain: Any = plain, **kwargs: Any) -> Any:
            if "torch._dynamo" not in sys.modules:
                return _plain(*args, **kwargs)
            del _plain.__dynamo_disable
            return _method(*args, **kwargs)

        plain.__dynamo_disable = unmarked


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float, peak: float) -> None:
    """``lr`` is that of the schedule, whose peak is ``peak``; groups of an own optimizer keep their share of it."""
    for group in optimizer.param_groups:
        first = group.get("initial_lr", peak)
        group["lr"] = lr if first == peak else first * (lr / peak)


def step_of_gpu(optimizer: torch.optim.Optimizer, divisor: Tensor, bad: Tensor) -> None:
    """``optimizer.step()`` by fused kernels that divide gradients by ``divisor`` and do nothing where ``bad`` is 1.

    Adam's is called here without torch's preparations, which take longer than its kernels.
    """
    states = [[optimizer.state.get(p) for p in _moved(group)] for group in optimizer.param_groups]
    if not isinstance(optimizer, torch.optim.Adam) or not all(all(group) for group in states):
        fused: Any = optimizer
        fused.grad_scale, fused.found_inf = divisor, bad
        plain_step(optimizer)
        return
    decoupled = isinstance(optimizer, torch.optim.AdamW)
    kernel = torch._fused_adamw_ if decoupled else torch._fused_adam_
    own = _own.setdefault(optimizer, {})
    for number, (group, found) in enumerate(zip(optimizer.param_groups, states, strict=True)):
        parameters = _moved(group)
        if not parameters:  # those that do not move yet
            continue
        first, second, steps = ([state[name] for state in found if state] for name in _QUANTITIES)
        torch._foreach_add_(steps, 1)
        gradients = [p.grad for p in parameters if p.grad is not None]
        rates = {
            "lr": group["lr"],
            "betas": group["betas"],
            "eps": group["eps"],
            "decay": group["weight_decay"],
        }
        every = (parameters, first, second, steps)
        if own.setdefault(number, AdamGroup()).step(
            every, gradients, divisor, bad, **rates, decoupled=decoupled
        ):
            torch._foreach_sub_(steps, [bad] * len(steps))
            continue
        kernel(
            parameters,
            gradients,
            first,
            second,
            [],
            steps,
            amsgrad=False,
            lr=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
            grad_scale=divisor,
            found_inf=bad,
        )
        torch._foreach_sub_(steps, [bad] * len(steps))


_ADAM = (torch.optim.Adam, torch.optim.AdamW)
_own: WeakKeyDictionary[torch.optim.Optimizer, dict[int, AdamGroup]] = WeakKeyDictionary()
_QUANTITIES = ("exp_avg", "exp_avg_sq", "step")


def _moved(group: dict[str, Any]) -> list[Tensor]:
    return [p for p in group["params"] if p.grad is not None]


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as ``{"parameter name/quantity": tensor}``."""
    return {
        f"{name}/{quantity}{kept[0]}": kept[1]
        for name, parameter in model.named_parameters()
        for quantity, value in optimizer.state.get(parameter, {}).items()
        if (kept := packed(value)) is not None
    }


def restore_optimizer(
    model: nn.Module, optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]
) -> None:
    """Give the optimizer back what ``optimizer_tensors`` named."""
    parameters = dict(model.named_parameters())
    by_parameter: dict[str, dict[str, Any]] = {}
    for key, value in tensors.items():
        name, _, quantity = key.rpartition("/")
        quantity, kept = unpacked(quantity, value)
        by_parameter.setdefault(name, {})[quantity] = kept
    for name, state in by_parameter.items():  # a process has its rows alone, where weights are divided
        for quantity, kept in state.items():
            if isinstance(kept, Tensor) and name in parameters:
                state[quantity] = like(parameters[name], kept)
    names = {id(parameter): name for name, parameter in parameters.items()}
    ordered = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    numbered = {
        number: by_parameter[names[id(parameter)]]
        for number, parameter in enumerate(ordered)
        if names[id(parameter)] in by_parameter
    }
    optimizer.load_state_dict({"state": numbered, "param_groups": optimizer.state_dict()["param_groups"]})
