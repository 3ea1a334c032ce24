"""``shard=full``: each process keeps its rows of every weight, gradient and optimizer state (FSDP2), and its files of a checkpoint.

A weight of n rows is divided as ``torch.chunk`` does. Blocks of a stack are gathered one after the other while they are computed; the
rest of the model, once per pass. Gradients are summed after every part of a batch: kept until the last, they would be whole.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from anaphora.errors import SettingsError
from anaphora.settings import TrainingSettings
from anaphora.training.distributed import Group, LossModule
from anaphora.training.recomputing import blocks_of

Rows = dict[str, list[int]]
"""Name → shape of the whole tensor."""


def refuse_shared_gpu(group: Group) -> None:
    """Raise SettingsError where several processes share a GPU: gloo, which they then use, crashes in FSDP2 (torch 2.11)."""
    if group.world > 1 and group.device.type == "cuda" and "cuda:nccl" not in str(dist.get_backend_config()):
        raise SettingsError(
            [
                f"shard=full divides weights among GPUs, and several of the {group.world} processes share one: start as many "
                "processes as there are GPUs, or leave out shard."
            ]
        )


class Sharded:
    """A model whose weights are divided among the processes of ``group``; ``loss`` is what to call.

    Of the model as it was, the first process keeps a copy in the host's memory, for evaluations.
    """

    def __init__(self, loss: LossModule, group: Group):
        # here, as they take more than a second to import
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        refuse_shared_gpu(group)
        self.group, self.model = group, loss.model
        self._whole = copy.deepcopy(loss.model).to("cpu") if group.main else None
        if not dist.is_initialized():  # one process, without torchrun
            backend = "nccl" if group.device.type == "cuda" else "gloo"
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
        mesh = init_device_mesh(group.device.type, (group.world,))
        # numbers that are no array cannot be divided: every process has them, and their gradients are summed here
        self.numbers = [p for p in loss.parameters() if p.ndim == 0]
        for block in blocks_of(loss.model):
            fully_shard(block, mesh=mesh, ignored_params=set(self.numbers))
        self.loss: Any = fully_shard(loss, mesh=mesh, ignored_params=set(self.numbers))
        loss.idle = self._touched

    def _touched(self) -> Tensor:
        """0, computed from all that is gathered, so that each process has a gradient for the same weights."""
        return sum(
            (0.0 * p.sum() for p in self.model.parameters() if not divided(p) and p.requires_grad),
            torch.zeros((), device=self.group.device),
        )

    def sum_numbers(self) -> None:
        """Average the gradients of what is not divided."""
        for p in self.numbers:
            if p.grad is not None:
                self.group.sum(p.grad).div_(self.group.world)

    def norm(self, gradients: Iterable[Tensor]) -> Tensor:
        """‖g‖₂ over the parts of all processes."""
        total = torch.zeros((), dtype=torch.float64, device=self.group.device)
        for gradient in gradients:
            mine = local(gradient).double().square().sum()
            total += mine if divided(gradient) else mine / self.group.world
        return self.group.sum(total).sqrt()

    def gathered(self) -> dict[str, Tensor]:
        """The weights as they are now, whole, in the first process; the others get none. All processes must call this."""
        tied = {name: id(p) for name, p in self.model.named_parameters(remove_duplicate=False)}
        found: dict[str, Tensor] = {}
        seen: dict[Any, Tensor] = {}
        for name, value in self.model.state_dict().items():
            key = tied.get(name, name)
            if key not in seen:
                one: Any = value
                whole = one.full_tensor() if divided(value) else value
                seen[key] = whole.detach().to("cpu", copy=True) if self.group.main else whole.new_zeros(())
            found[name] = seen[key]
        return found if self.group.main else {}

    def whole(self, weights: Mapping[str, Tensor]) -> nn.Module:
        """The model with ``weights``, undivided, on the device; `put_away` frees its memory there."""
        assert self._whole is not None
        self._whole.load_state_dict(dict(weights))
        return self._whole.to(self.group.device)

    def put_away(self) -> None:
        assert self._whole is not None
        self._whole.to("cpu")

    def reshard(self) -> None:
        """Free what a pass without gradients left gathered."""
        for module in self.loss.modules():
            if hasattr(module, "reshard"):
                module.reshard()


def check(settings: TrainingSettings) -> None:
    """A `SettingsError` for what cannot be combined with ``shard=full``."""
    if settings.save_in_background:
        raise SettingsError(
            ["save_in_background cannot be combined with shard = full; leave one of them out."]
        )
    if ":" in str(settings.optimizer):
        raise SettingsError(
            ["an optimizer of your own cannot be combined with shard = full; use adamw or sgd."]
        )


def divided(tensor: Tensor) -> bool:
    """Whether this process has a part of the tensor alone."""
    home = sys.modules.get("torch.distributed.tensor")
    return home is not None and isinstance(tensor, home.DTensor)


def local(tensor: Any) -> Tensor:
    """What this process has of a tensor."""
    part: Tensor = tensor.to_local() if divided(tensor) else tensor
    return part


def like(model: Any, whole: Tensor) -> Tensor:
    """``whole`` divided as ``model`` is: this process's rows of it. Nothing is sent."""
    if not divided(model) or whole.ndim == 0:
        return whole
    from torch.distributed.tensor import DTensor, Shard

    mesh = model.device_mesh
    rank, world = mesh.get_local_rank(), mesh.size()
    rows = whole.shape[0]
    each = -(-rows // world)
    mine = whole[min(rank * each, rows) : min((rank + 1) * each, rows)].to(local(model).device)
    return DTensor.from_local(
        mine.contiguous(), mesh, [Shard(0)], run_check=False, shape=whole.shape, stride=whole.stride()
    )


def parts(tensors: Mapping[str, Tensor], first: bool) -> tuple[dict[str, Tensor], Rows]:
    """What this process writes of ``tensors``, and the shapes of those that are divided; the ``first`` writes the others."""
    mine = {name: local(value) for name, value in tensors.items() if first or divided(value)}
    shapes = {name: list(value.shape) for name, value in tensors.items() if divided(value)}
    return mine, shapes


def joined(of_each: list[Mapping[str, Tensor]], shapes: Mapping[str, Any]) -> dict[str, Tensor]:
    """The whole tensors again, from what each process wrote; a ValueError where rows are missing."""
    found: dict[str, Tensor] = {}
    seen: dict[int, Tensor] = {}
    for name in of_each[0]:
        if name not in shapes:
            found[name] = of_each[0][name]
            continue
        pieces = [part[name] for part in of_each]
        key = id(pieces[0])  # tied ones stay tied
        if key not in seen:
            whole = torch.cat([piece.reshape(-1, *shapes[name][1:]) for piece in pieces])
            if list(whole.shape) != shapes[name]:
                raise ValueError(f"{name} has {len(whole)} rows instead of {shapes[name]}")
            seen[key] = whole
        found[name] = seen[key]
    return found
