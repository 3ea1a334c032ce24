"""Who sees PyTorch's operations: a fast path may stand for them only where no one does.

A kernel replaces operations that something may follow: a compiler, a trace, a derivative, a mode, a hook, a subclass of tensors. Those
would silently get a wrong answer. Every fast path therefore asks two questions and takes PyTorch's operations where one of them
has an answer: :func:`following`, at every call, what is true of the context and of the tensors; :func:`observed`, whenever something is
derived from a module, what is true of its parts. Sizes, types of numbers and devices are a fast path's own business.
"""

from __future__ import annotations

from contextvars import ContextVar

import torch
from torch import Tensor, nn
from torch._C import _get_tracing_state, _len_torch_dispatch_stack
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad
from torch.compiler import is_compiling
from torch.nn.modules.module import _has_any_global_hook

exporting: ContextVar[bool] = ContextVar("anaphora_exporting", default=False)
"""Whether modules are being written as a graph of ONNX."""

COMPILED = "torch.compile or torch.export follows the operations"
TRACED = "torch.jit.trace follows the operations"
TORCH_FUNC = "a transform of torch.func follows the operations"
FORWARD_AD = "forward-mode derivatives follow the operations"
DISPATCH_MODE = "a TorchDispatchMode follows the operations"
GLOBAL_HOOK = "a hook for all modules is registered"
EXPORTED = "an export follows the operations"
SUBCLASS = "a tensor is of a subclass, which has operations of its own"

HOOKED = "a hook is registered on it or on a part of it"
REPLACED = "its forward, or that of a part of it, is replaced"
PARAMETRIZED = "a part of it is parametrized"
TRAINED = "a part of it is in training mode"
OWN_WEIGHTS = "a weight is of a subclass of tensors, which has operations of its own"

_PLAIN = (Tensor, nn.Parameter)
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def following(*tensors: Tensor | None) -> str | None:
    """Return who sees PyTorch's operations on these tensors here, in the words of ``explain``; None where a kernel may stand for them."""
    if is_compiling():  # first: torch.compile drops the rest
        return COMPILED
    if _get_tracing_state() is not None:
        return TRACED
    if peek_interpreter_stack() is not None:
        return TORCH_FUNC
    if forward_ad._current_level >= 0:
        return FORWARD_AD
    if _len_torch_dispatch_stack():  # not function modes: sums that do not depend on the batch are one
        return DISPATCH_MODE
    if _has_any_global_hook():  # type: ignore[no-untyped-call]
        return GLOBAL_HOOK
    if exporting.get():
        return EXPORTED
    for tensor in tensors:
        if tensor is not None and type(tensor) not in _PLAIN:
            return SUBCLASS
    return None


def transforming() -> str | None:
    """Return which transform of functions is at work, inside a program that is being compiled, too."""
    if peek_interpreter_stack() is not None:
        return TORCH_FUNC
    return FORWARD_AD if forward_ad._current_level >= 0 else None


def observed(*modules: nn.Module, evaluation: bool = False, traced: bool = False) -> str | None:
    """Return who sees or changes what these modules and their parts do, in the words of ``explain``; None where a kernel may stand for them.

    It walks through all parts: ask it when something is derived from a module, not at every call.

    Args:
        modules: what a kernel would stand for.
        evaluation: whether it stands for evaluation alone, so that no part may be in training mode.
        traced: whether it was made from a trace, which has followed parametrizations.
    """
    for module in modules:
        for part in module.modules():
            own = vars(part)
            if any(own.get(hooks) for hooks in _HOOKS):
                return HOOKED
            if "forward" in own or _overrides(type(part)):
                return REPLACED
            if not traced and "parametrizations" in part._modules:
                return PARAMETRIZED
            if evaluation and part.training:
                return TRAINED
            for tensors in (part._parameters, part._buffers):
                if any(one is not None and type(one) not in _PLAIN for one in tensors.values()):
                    return OWN_WEIGHTS
    return None


def _overrides(kind: type[nn.Module]) -> bool:
    """Return True if someone else's class does something else, when it is called, than the class of PyTorch or ours that it extends."""
    for name in ("__call__", "forward"):
        first, *rest = [base for base in kind.__mro__ if name in vars(base)]
        extended = any(_known(base) and base is not nn.Module for base in rest)
        if not _known(first) and (extended or name == "__call__"):
            return True
    return False


def _known(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in ("torch", "anaphora")


def needs_gradient(*tensors: Tensor | None) -> bool:
    """Return True if gradients of results with respect to some of these tensors are recorded here."""
    if torch.is_grad_enabled():
        for tensor in tensors:  # a loop: a generator costs as much as all of `following`
            if tensor is not None and tensor.requires_grad:
                return True
    return False
