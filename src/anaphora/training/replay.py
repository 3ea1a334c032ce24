"""The loss of a batch and its gradient as two captured CUDA graphs, replayed at every step.

torch.compile's own graphs (``mode="reduce-overhead"``) look at every weight, saved tensor and gradient before each replay, which takes
the host about 2 ms with 12 layers, and a GPU that waits for it does nothing. Here a step is three copies and two launches.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from anaphora.kernels.recurrence.backends.cuda_graph.capture import can_capture, current_stream, graph_pool

Loss = Callable[..., Tensor]
MOST = 2  # shapes of batches that are captured; others are computed kernel by kernel


class Replayed:
    """``loss(model, *tensors)``, one number, where ``model`` is being trained: from the second time that a shape comes, it and its gradient
    are replayed.

    The gradients lie in memory of the graphs: the next step overwrites them. Where weights lie elsewhere than before, or other
    ones are trained, the step is captured again.
    """

    def __init__(self, loss: Loss, model: nn.Module):
        self._loss, self._model = loss, model
        self._weights = list(model.parameters())
        self._seen: set[Any] = set()
        self._graphs: dict[Any, _Graphs] = {}

    def __call__(self, model: nn.Module, *tensors: Tensor) -> Tensor:
        device = tensors[0].device
        here = model is self._model and model.training and torch.is_grad_enabled()
        if not here or device.type != "cuda" or not can_capture(device):
            return self._loss(model, *tensors)
        key = self._key(tensors)
        graphs = self._graphs.get(key)
        if graphs is None:
            if key not in self._seen or len(self._graphs) >= MOST:
                self._seen.add(key)
                return self._loss(model, *tensors)  # compiled here, and at its backward pass
            self._graphs = {k: g for k, g in self._graphs.items() if k[1:] == key[1:]}
            trained: list[Tensor] = [weight for weight in self._weights if weight.requires_grad]
            graphs = self._graphs[key] = _Graphs(self._loss, model, tensors, trained)
        found: Tensor = _Replay.apply(graphs, len(tensors), *tensors, *graphs.trained)  # type: ignore[no-untyped-call]
        return found

    def _key(self, tensors: tuple[Tensor, ...]) -> tuple[Any, ...]:
        weights = self._weights
        return (
            tuple((tensor.shape, tensor.dtype) for tensor in tensors),
            torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda"),
            current_stream(),
            tuple(weight.data_ptr() for weight in weights),
            tuple(weight.requires_grad for weight in weights),
        )


class _Graphs:
    """One shape of batches; ``generation`` counts forward passes."""

    def __init__(self, loss: Loss, model: nn.Module, tensors: tuple[Tensor, ...], trained: list[Tensor]):
        device = tensors[0].device
        gc.collect()  # a graph of an earlier step that still lives would tie the gradients to the stream it ran on
        drawn = torch.cuda.get_rng_state(device)  # a captured step has the random numbers of any other
        self.trained, self.generation = trained, 0
        self.inputs = [tensor.clone() for tensor in tensors]
        self.weight = torch.ones((), device=device)
        pool, beside = graph_pool(), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        beside.wait_stream(torch.cuda.current_stream())
        forward, backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        torch.cuda.empty_cache()  # what the step before needed, and later this one, is not kept beside the graphs' own memory
        with torch.cuda.stream(beside):
            self._gradient(
                loss(model, *self.inputs)
            )  # loads kernels and makes handles, which a capture may not do
            beside.synchronize()
            torch.cuda.empty_cache()
            with _captured(forward, pool):
                total = loss(model, *self.inputs)
            self.total = total.detach()
            with _captured(backward, pool):
                self.gradients = self._gradient(total)
            del total
        torch.cuda.current_stream().wait_stream(beside)
        torch.cuda.set_rng_state(drawn, device)
        self.forward, self.backward = forward.replay, backward.replay

    def _gradient(self, total: Tensor) -> tuple[Tensor | None, ...]:
        weight = self.weight.to(total.dtype)
        return torch.autograd.grad(total, self.trained, weight, allow_unused=True)


@contextmanager
def _captured(graph: Any, pool: Any) -> Iterator[None]:
    """Captures what is done inside. No graph may be collected meanwhile, which would end the capture."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            yield
        finally:
            graph.capture_end()
    finally:
        if collecting:
            gc.enable()


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, graphs: _Graphs, count: int, *given: Tensor) -> Tensor:
        for mine, theirs in zip(graphs.inputs, given[:count], strict=True):
            mine.copy_(theirs)
        graphs.forward()
        graphs.generation += 1
        ctx.graphs, ctx.count, ctx.generation = graphs, count, graphs.generation
        return graphs.total.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> Any:
        graphs: _Graphs = ctx.graphs
        if ctx.generation != graphs.generation:
            raise RuntimeError("a captured step went forward again before its backward pass")
        graphs.weight.copy_(grad)
        graphs.backward()
        found = (None if gradient is None else gradient.detach() for gradient in graphs.gradients)
        return (None, None, *(None,) * ctx.count, *found)
