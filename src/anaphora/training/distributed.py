"""Several processes, started by ``torchrun``: who am I, sums over all, and one gradient for all.

Outside torchrun there is one process and everything here does nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from anaphora.errors import AnaphoraError, TrainingError
from anaphora.training.objective import Objective
from anaphora.training.precision import choose_device
from anaphora.training.pulse import Pulse, timeout
from anaphora.training.roll_call import roll_call

T = TypeVar("T")
START = datetime.timedelta(minutes=30)  # for all processes to start


@dataclass(frozen=True)
class Group:
    """The processes that train together."""

    rank: int
    world: int
    device: torch.device
    pulse: Pulse | None = field(default=None, repr=False, compare=False)

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
        with self.guarded():
            if self.pulse:
                self.pulse.meet()
            box = [value]
            dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
        return box[0]

    def on_main(self, work: Callable[[], T]) -> T:
        """Let rank 0 do something while the others wait; its result, or its error, arrives everywhere."""
        if self.world == 1:
            return work()
        result: T | None = None
        own: Exception | None = None
        if self.main:
            try:
                result = work()
            except Exception as problem:
                own = problem
        error = own
        if own is not None and not isinstance(own, AnaphoraError):
            error = TrainingError(f"rank 0 failed ({type(own).__name__}: {own}); see its own output.")
        result, error = self.share((result, error))
        if error is not None:
            raise own or error
        return cast(T, result)

    def gather(self, value: T) -> list[T]:
        """Every process's value, in every process, by rank."""
        if self.world == 1:
            return [value]
        boxes: list[Any] = [None] * self.world
        with self.guarded():
            if self.pulse:
                self.pulse.meet()
            dist.all_gather_object(boxes, value)
        return boxes

    def sum(self, values: Tensor) -> Tensor:
        """Elementwise sum over all processes."""
        if self.world > 1:
            with self.guarded():
                dist.all_reduce(values)
        return values

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Inside, a process that stops answering ends this one with a sentence that names it; and when this one fails
        unexpectedly, the others hear of it."""
        if self.pulse is None:
            yield
            return
        if self.pulse.lost >= 0:
            raise self.pulse.error()
        self.pulse.inside += 1
        try:
            yield
        except AnaphoraError:  # a mistake that all processes find, or that `on_main` shared
            raise
        except BaseException as error:
            if isinstance(error, RuntimeError) and _of_a_connection(error):
                raise self.pulse.error() from error
            self.pulse.fail()
            raise
        finally:
            self.pulse.inside -= 1


def _of_a_connection(error: RuntimeError) -> bool:
    """Whether a collective operation failed because of another process; gloo has no error class of its own."""
    return isinstance(error, dist.DistError) or re.search(_CONNECTION, str(error)) is not None


_CONNECTION = r"gloo|NCCL|pair closure|Connection (closed|reset) by peer|Timed out waiting"
_joined: Group | None = None


def join(device: str = "auto") -> Group:
    """The group torchrun describes in the environment (gloo on CPU, NCCL on CUDA), or a group of one."""
    chosen = choose_device(device)
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1 or "RANK" not in os.environ:
        return Group(0, 1, chosen)
    if chosen.type == "cuda":
        local, there = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        chosen = torch.device("cuda", local % there)
        torch.cuda.set_device(chosen)
    global _joined
    if _joined is None:
        if not dist.is_initialized():
            # gloo in addition to NCCL, for Python objects: waiting for them keeps no GPU busy. NCCL has no two
            # processes on one GPU.
            shared = chosen.type == "cuda" and int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > there
            on_gpu = "cpu:gloo,cuda:gloo" if shared else "cpu:gloo,cuda:nccl"
            _start(on_gpu if chosen.type == "cuda" else "gloo")
        rank, world = dist.get_rank(), dist.get_world_size()
        pulse = Pulse(rank, world, Group(rank, world, chosen).share, exits=chosen.type == "cuda")
        _joined = Group(rank, world, chosen, pulse)
    return replace(_joined, device=chosen)


def _start(backend: str) -> None:
    """Form the group. Processes may start minutes apart; once all are there, collectives have a shorter time-out."""
    store, rank, world = next(rendezvous("env://", timeout=START))
    store = roll_call(store, rank, world, START.total_seconds())
    limit = datetime.timedelta(seconds=timeout())
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=limit)
    atexit.register(leave)


def leave() -> None:
    """End the group; does nothing where there is none."""
    global _joined
    _joined = None
    if dist.is_initialized():
        dist.destroy_process_group()


class LossModule(nn.Module):
    """The objective's loss as a module's forward, which is what DDP (and FSDP) wrap."""

    def __init__(self, model: nn.Module, objective: Objective):
        super().__init__()
        self.model = model
        self.objective = objective
        self.idle: Callable[[], Tensor] | None = None

    def forward(self, batch: Any) -> tuple[Tensor, Tensor | int]:
        loss = self.objective.loss(self.model, batch)
        return loss.total if self.idle is None else loss.total + self.idle(), loss.count


def wrap(loss: LossModule, group: Group) -> nn.Module:
    """``loss`` such that its gradients are averaged over the group. The one place that knows DDP."""
    if group.world == 1:
        return loss
    # A batch may leave parameters out (sampling, conditional parts); DDP would otherwise wait for them. Where none
    # is left out it warns on stderr, past Python's warnings and in every process: give it one that always is.
    loss.register_parameter("unused", nn.Parameter(torch.zeros((), device=group.device)))
    with group.guarded():
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
