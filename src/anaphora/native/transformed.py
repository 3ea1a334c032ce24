"""Whether something follows the operations of torch, which a kernel of ours would hide from it."""

from __future__ import annotations

from torch._C import _get_tracing_state
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad
from torch.compiler import is_compiling


def transformed() -> bool:
    """Whether torch.compile, torch.func, forward-mode derivatives, a trace or an export are at work, which only plain torch serves."""
    return (
        is_compiling()
        or _get_tracing_state() is not None
        or peek_interpreter_stack() is not None
        or forward_ad._current_level >= 0
    )
