"""On which device and in which arithmetic to work."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Literal

import torch

from anaphora.errors import SettingsError

Precision = Literal["fp32", "bf16", "fp16"]


def choose_device(name: str = "auto") -> torch.device:
    """The device of that name; "auto" is a CUDA GPU, else Apple's, else the CPU."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    unknown = SettingsError([f'device = {name!r} is not a device; use "auto", "cpu", "cuda" or "cuda:1".'])
    try:
        device = torch.device(name)
    except RuntimeError:
        raise unknown from None
    if device.type not in ("cpu", "cuda", "mps"):  # torch knows more, such as "meta", which cannot compute
        raise unknown
    count = torch.cuda.device_count()
    if device.type == "cuda" and (count == 0 or (device.index or 0) >= count):
        raise SettingsError(
            [f'device = {name!r}: this machine has {count} CUDA devices; use "auto" or "cpu".']
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise SettingsError([f'device = {name!r} is not there on this machine; use "auto" or "cpu".'])
    return device


def choose_precision(name: str, device: torch.device) -> Precision:
    """ "auto" is bf16 on a GPU that computes in it, else fp32."""
    if name == "auto":
        good = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return "bf16" if good else "fp32"
    if name == "bf16":
        return "bf16"
    return "fp16" if name == "fp16" else "fp32"


def fallback(device: torch.device) -> Precision:
    """What a run goes on with when fp16 is too small for its numbers: bf16 on a GPU that computes in it, else fp32."""
    return choose_precision("auto", device)


def autocast(device: torch.device, precision: Precision) -> contextlib.AbstractContextManager[Any]:
    """Matrix products in half precision inside; sums, norms and softmax stay in float32."""
    if precision == "fp32":
        return contextlib.nullcontext()
    dtype = torch.bfloat16 if precision == "bf16" else torch.float16
    return torch.autocast(device.type, dtype=dtype)


@dataclass
class LossScale:
    """For fp16 the loss is multiplied by ``factor``, so that small gradients do not vanish (Micikevicius 2018).

    Doubled after 2000 good steps, halved when a gradient overflows (that step is then left out). Plain numbers
    rather than torch's GradScaler: the loop looks at the gradient's norm at every step anyway, and a
    checkpoint then holds two numbers.
    """

    enabled: bool = False
    factor: float = 2.0**16
    good: int = 0
    fallen: str = ""  # the precision that took fp16's place for the rest of the run

    @property
    def value(self) -> float:
        return self.factor if self.enabled else 1.0

    def stepped(self) -> None:
        self.good += 1
        if self.enabled and self.good % 2000 == 0:
            self.factor *= 2

    def overflowed(self) -> bool:
        """Whether an overflow is explained by the scale; then it is halved."""
        if not self.enabled or self.factor <= 1:
            return False
        self.factor /= 2
        self.good = 0
        return True

    def state(self) -> dict[str, Any]:
        return {"factor": self.factor, "good": self.good, "fallen": self.fallen}

    def restore(self, state: dict[str, Any]) -> None:
        self.factor, self.good = float(state["factor"]), int(state["good"])
        self.fallen = str(state.get("fallen", ""))
