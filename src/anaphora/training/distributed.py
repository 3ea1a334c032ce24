"""Several processes, started by ``torchrun``: who am I, sums over all, and one gradient for all.

Outside torchrun there is one process and everything here does nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from anaphora.errors import AnaphoraError
from anaphora.training.objective import Objective
from anaphora.training.precision import choose_device

T = TypeVar("T")


@dataclass(frozen=True)
class Group:
    """The processes that train together."""

    rank: int
    world: int
    device: torch.device

    @property
    def main(self) -> bool:
        """Whether this process writes files and talks."""
        return self.rank == 0

    def barrier(self) -> None:
        """Wait for all."""
        self.share(None)

    def share(self, value: T) -> T:
        """Rank 0's value, in every process."""
        if self.world == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        return box[0]

    def on_main(self, work: Callable[[], T]) -> T:
        """Let rank 0 do something while the others wait; its result, or its error, arrives everywhere."""
        if self.world == 1:
            return work()
        result: T | None = None
        error: AnaphoraError | None = None
        if self.main:
            try:
                result = work()
            except AnaphoraError as problem:
                error = problem
        result, error = self.share((result, error))
        if error is not None:
            raise error
        return cast(T, result)

    def gather(self, value: T) -> list[T]:
        """Every process's value, in every process, by rank."""
        if self.world == 1:
            return [value]
        boxes: list[Any] = [None] * self.world
        dist.all_gather_object(boxes, value)
        return boxes

    def sum(self, values: Tensor) -> Tensor:
        """Elementwise sum over all processes."""
        if self.world > 1:
            dist.all_reduce(values)
        return values


def join(device: str = "auto") -> Group:
    """The group torchrun describes in the environment (gloo on CPU, NCCL on CUDA), or a group of one."""
    chosen = choose_device(device)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1 or "RANK" not in os.environ:
        return Group(0, 1, chosen)
    if chosen.type == "cuda":
        chosen = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(chosen)
    if not dist.is_initialized():
        # gloo besides NCCL for Python objects: the others wait for rank 0's evaluation without a busy GPU
        backend = "cpu:gloo,cuda:nccl" if chosen.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=datetime.timedelta(hours=6))
        atexit.register(leave)
    return Group(dist.get_rank(), dist.get_world_size(), chosen)


def leave() -> None:
    """End the group; does nothing where there is none."""
    if dist.is_initialized():
        dist.destroy_process_group()


class LossModule(nn.Module):
    """The objective's loss as a module's forward, which is what DDP (and FSDP) wrap."""

    def __init__(self, model: nn.Module, objective: Objective):
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(self, batch: Any) -> tuple[Tensor, Tensor | int]:
        loss = self.objective.loss(self.model, batch)
        return loss.total, loss.count


def wrap(loss: LossModule, group: Group) -> nn.Module:
    """``loss`` such that its gradients are averaged over the group. The one place that knows DDP."""
    if group.world == 1:
        return loss
    # A batch may leave parameters out (sampling, conditional parts); DDP would otherwise wait for them. Where none
    # is left out it says so on stderr, past Python's warnings and in every process: give it one that always is.
    loss.register_parameter("idle", nn.Parameter(torch.zeros((), device=group.device)))
    shared = DistributedDataParallel(loss, find_unused_parameters=True)
    shared.broadcast_buffers = False  # every process computes its own; as an argument torch 2.13 calls it old
    return shared


@contextlib.contextmanager
def local_gradients(loss: nn.Module, local: bool) -> Iterator[None]:
    """While ``local``, gradients are only added up in this process."""
    if local and isinstance(loss, DistributedDataParallel):
        with loss.no_sync():
            yield
    else:
        yield
