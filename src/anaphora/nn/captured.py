"""What a module makes of tensors on a GPU, captured as a CUDA graph for shapes that come again: one launch in the place of hundreds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from anaphora.engine.backends.cuda_graph import Captures
from anaphora.engine.precision import tf32_allowed
from anaphora.native.derived import derived
from anaphora.native.following import following, observed
from anaphora.native.graphs import can_capture, capture, current_stream, graph_pool
from anaphora.nn import inside
from anaphora.ops import invariant

Work = Callable[..., tuple[Tensor, ...]]
MOST_NUMBERS = 1 << 11
"""Of the tensors given: more of them keep a GPU busy while the host launches what follows, and what is between takes room in each graph."""


class _Owner:
    """The graphs of a module as it is live as long as this does. ``fits``: whether it may be captured."""

    def __init__(self, fits: bool):
        self.fits = fits


class _Capture:
    """``work`` captured for tensors of these shapes; its own tensors stay where they are."""

    def __init__(self, work: Work, tensors: Sequence[Tensor]):
        # Tensors made in inference mode could not be written to outside it.
        with torch.inference_mode(False), torch.no_grad():
            self.inputs = [tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors]
            self._replay, self.outputs = capture(lambda: work(*self.inputs), graph_pool())

    @property
    def nbytes(self) -> int:
        """Roughly what it holds: what is between takes about as much as the layers' inputs and outputs."""
        return 4 * sum(tensor.nbytes for tensor in (*self.inputs, *self.outputs))

    def run(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        with torch.no_grad():
            for mine, theirs in zip(self.inputs, tensors, strict=True):
                mine.copy_(theirs)
            self._replay()
            return tuple(tensor.clone() for tensor in self.outputs)


CAPTURES: Captures[_Capture] = Captures(limit=1 << 28)


def replayed(
    module: nn.Module, work: Work, *tensors: Tensor, fits: Callable[[], bool] = lambda: True
) -> tuple[Tensor, ...] | None:
    """What ``work(*tensors)``, which may depend on ``module`` alone beside them, returns; None where it has to be run.

    It is replayed on an NVIDIA GPU in evaluation mode without gradient, autocast, hooks or recorded values, from the second time that shapes
    come on. Parameters are read where they lie, so that new values count; a module that changed otherwise is captured again. ``fits``
    is asked once: whether all that the module reads are its parameters and buffers, and nothing in it depends on their values.
    """
    if not _plain(module, tensors):
        return None
    owner = derived(
        module,
        lambda: _Owner(fits() and observed(*module.children(), evaluation=True) is None),
        reads="place",
    )
    if not owner.fits:
        return None
    shapes = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
    place = (tensors[0].device, current_stream(), tf32_allowed(), invariant.active())
    taken = CAPTURES.take((shapes, *place), owner, lambda: _Capture(work, tensors))
    if taken is None:
        return None
    try:
        return taken.run(tensors)
    finally:
        CAPTURES.give_back(taken)


def _plain(module: nn.Module, tensors: Sequence[Tensor]) -> bool:
    if module.training or not all(tensor.is_cuda for tensor in tensors) or torch.is_grad_enabled():
        return False
    if torch.is_autocast_enabled("cuda") or inside.recording() or following(*tensors) is not None:
        return False
    small = 0 < sum(tensor.numel() for tensor in tensors) <= MOST_NUMBERS
    return small and can_capture(tensors[0].device)
