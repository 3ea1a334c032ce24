"""Low-rank changes of weight matrices (LoRA, Hu et al. 2022): W + (α/r) B A, with W as it is and A, B learned.

adapt(model, ["encoder.stack.layers.0.attention.inward"], rank=8)
tensors = model.state_dict()                       # A and B of each, and what is not frozen
merged(frozen_weights, tensors, scale=2.0)         # the weights of a plain model
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn

A, B = "lora_a", "lora_b"


class Adapter:
    """What a module with a matrix ``weight`` becomes: reading ``weight`` gives W + s B A.

    Whatever reads the weight of such a module (a part of its rows, say, or to pack it) gets the changed one.
    """

    lora_base: Tensor
    lora_a: Tensor
    lora_b: Tensor
    lora_scale: float

    @property
    def weight(self) -> Tensor:
        with torch.autocast(self.lora_a.device.type, enabled=False):  # small changes vanish in half precision
            return torch.addmm(
                self.lora_base, self.lora_b.float(), self.lora_a.float(), alpha=self.lora_scale
            )


def adaptable(model: nn.Module) -> list[str]:
    """The names of the modules that `adapt` takes: linear maps."""
    return [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]


def adapt(
    model: nn.Module, names: Sequence[str], *, rank: int, scale: float, frozen: Collection[str] = ()
) -> None:
    """Give the linear maps ``names`` low-rank changes, A at random and B zero, so that the model computes what it did.

    Their matrices and the parameters ``frozen`` become buffers that ``state_dict`` leaves out.
    """
    for name in names:
        module = model.get_submodule(name)
        weight = module._parameters.pop("weight")
        assert weight is not None
        module.__class__ = _adapted(type(module))
        module.register_buffer("lora_base", weight.detach(), persistent=False)
        bound = 1 / math.sqrt(weight.shape[1])
        module.register_parameter(
            A, nn.Parameter(weight.new_empty(rank, weight.shape[1]).uniform_(-bound, bound))
        )
        module.register_parameter(B, nn.Parameter(weight.new_zeros(weight.shape[0], rank)))
        module.lora_scale = scale  # type: ignore[assignment]
    for path, module in model.named_modules():
        for key, parameter in list(module._parameters.items()):
            if parameter is not None and f"{path}.{key}".lstrip(".") in frozen:
                del module._parameters[key]
                module.register_buffer(key, parameter.detach(), persistent=False)


_classes: dict[type[nn.Module], type[nn.Module]] = {}


def _adapted(kind: type[nn.Module]) -> type[nn.Module]:
    if kind not in _classes:
        _classes[kind] = type(f"Adapted{kind.__name__}", (Adapter, kind), {})
    return _classes[kind]


def has_adapters(tensors: Mapping[str, Tensor]) -> bool:
    """Whether these are weights that `merged` makes whole."""
    return any(name.endswith(f".{A}") for name in tensors)


def merged(base: Mapping[str, Tensor], tensors: Mapping[str, Tensor], scale: float) -> dict[str, Tensor]:
    """The weights of the plain model: those of ``base`` with the changes in ``tensors`` added, and what else those hold."""
    found = {name: value for name, value in tensors.items() if not name.endswith((f".{A}", f".{B}"))}
    for name, value in base.items():
        path, _, key = name.rpartition(".")
        if key == "weight" and f"{path}.{A}" in tensors:
            low = tensors[f"{path}.{B}"].to(value.device), tensors[f"{path}.{A}"].to(value.device)
            value = torch.addmm(value, *low, alpha=scale)
        found[name] = value
    return found
