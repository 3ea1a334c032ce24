"""The loss of a batch and its gradient as two captured CUDA graphs, replayed at every step.

torch.compile's own graphs (``mode="reduce-overhead"``) look at every weight, saved tensor and gradient before each replay, which takes
the host about 2 ms with 12 layers, and a GPU that waits for it does nothing. Here a step is three copies and two launches, and autograd
sees one tensor in the place of all weights.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from anaphora.native.graphs import can_capture, capturing, current_stream, graph_pool

Loss = Callable[..., Tensor]


class Replayed:
    """``loss(model, *tensors)``, one number, where ``model`` is being trained: the first shape of batches that comes a second time is
    captured, and from then on replayed with its gradient.

    All else is computed kernel by kernel: other shapes, weights that lie elsewhere than when they were captured, others that are trained,
    and a batch whose gradient is added to one that is there already. The gradients lie in memory of the graphs: the next step overwrites them.
    """

    def __init__(self, loss: Loss, model: nn.Module):
        self._loss, self._model = loss, model
        self._weights = list(model.parameters())
        self._places = [
            weight.data_ptr for weight in self._weights
        ]  # looked up once: a GPU waits for the host here
        self._seen: set[Any] = set()
        self._captured: tuple[Any, _Graphs] | None = None

    def __call__(self, model: nn.Module, *tensors: Tensor) -> Tensor:
        graphs = self._graphs(model, tensors)
        if graphs is None:
            return self._loss(
                model, *tensors
            )  # compiled at the first time, and its gradient at its backward pass
        found: Tensor = _Replay.apply(graphs, graphs.anchor, *tensors)  # type: ignore[no-untyped-call]
        return found

    def _graphs(self, model: nn.Module, tensors: tuple[Tensor, ...]) -> _Graphs | None:
        """Those that give what ``tensors`` would, captured now where it is time."""
        device = tensors[0].device
        here = model is self._model and model.training and torch.is_grad_enabled()
        if not here or device.type != "cuda" or not can_capture(device):
            return None
        if any(weight.grad is not None for weight in self._weights):
            return None
        key = self._key(tensors)
        if self._captured is not None:
            known, graphs = self._captured
            return graphs if known == key else None
        if key not in self._seen:
            self._seen.add(key)
            return None
        trained: list[Tensor] = [weight for weight in self._weights if weight.requires_grad]
        graphs = _Graphs(self._loss, model, tensors, trained)
        self._captured = key, graphs
        return graphs

    def _key(self, tensors: tuple[Tensor, ...]) -> tuple[Any, ...]:
        weights = self._weights
        return (
            tuple((tensor.shape, tensor.dtype) for tensor in tensors),
            torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda"),
            current_stream(),
            tuple([place() for place in self._places]),
            tuple([weight.requires_grad for weight in weights]),
        )


class _Graphs:
    """One shape of batches; ``generation`` counts forward passes."""

    def __init__(self, loss: Loss, model: nn.Module, tensors: tuple[Tensor, ...], trained: list[Tensor]):
        device = tensors[0].device
        gc.collect()  # a graph of an earlier step that still lives would tie the gradients to the stream it ran on
        drawn = torch.cuda.get_rng_state(device)  # a captured step has the random numbers of any other
        self.trained, self.generation = trained, 0
        self.anchor = torch.zeros((), device=device, requires_grad=True)
        self.inputs = [tensor.clone() for tensor in tensors]
        self.weight = torch.ones((), device=device)
        pool, beside = graph_pool(), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        beside.wait_stream(torch.cuda.current_stream())
        torch.cuda.empty_cache()  # what the step before needed, and later this one, is not kept beside the graphs' own memory
        with torch.cuda.stream(beside), _casting_anew():
            # once without capturing, which loads kernels and makes handles: a capture may not
            self._gradient(loss(model, *self.inputs))
            beside.synchronize()
            torch.cuda.empty_cache()
            with capturing(pool) as self.forward:
                total = loss(model, *self.inputs)
            self.total = total.detach()
            with capturing(pool) as self.backward:
                self.gradients = self._gradient(total)
            del total
        torch.cuda.current_stream().wait_stream(beside)
        torch.cuda.set_rng_state(drawn, device)

    def _gradient(self, total: Tensor) -> tuple[Tensor | None, ...]:
        weight = self.weight.to(total.dtype)
        return torch.autograd.grad(total, self.trained, weight, allow_unused=True)


@contextmanager
def _casting_anew() -> Iterator[None]:
    """Inside, autocast casts a weight whenever it is used: a cast that was kept from before would never be repeated by a graph."""
    kept = torch.is_autocast_cache_enabled()
    torch.clear_autocast_cache()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(kept)


class _Replay(torch.autograd.Function):
    """Autograd follows one ``anchor`` in the place of all weights, which took it as long as a small kernel each while the GPU waited; their
    gradients are put where it would put them."""

    @staticmethod
    def forward(ctx: Any, graphs: _Graphs, anchor: Tensor, *given: Tensor) -> Tensor:
        for mine, theirs in zip(graphs.inputs, given, strict=True):
            mine.copy_(theirs)
        graphs.forward()
        graphs.generation += 1
        ctx.graphs, ctx.generation, ctx.count = graphs, graphs.generation, len(given)
        return graphs.total.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> Any:
        graphs: _Graphs = ctx.graphs
        if ctx.generation != graphs.generation:
            raise RuntimeError("a captured step went forward again before its backward pass")
        graphs.weight.copy_(grad)
        graphs.backward()
        for weight, gradient in zip(graphs.trained, graphs.gradients, strict=True):
            if gradient is not None:
                weight.grad = gradient.detach() if weight.grad is None else weight.grad + gradient
        return (None, None, *(None,) * ctx.count)
