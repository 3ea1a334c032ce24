"""What layers with a linear recurrence have in common: states by row, rows of unequal length, and single steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.nn import inside
from anaphora.nn.attention import masks
from anaphora.nn.exporting import loop, scanning
from anaphora.ops.matrix_scan import matrix_scan, matrix_step

States = tuple[Tensor, ...]
EPSILON = 1e-5  # of every norm


class LinearLayer(nn.Module, ABC):
    """x ``(B, T, width)`` -> y ``(B, T, width)`` by a recurrence that is linear in its state.

    A layer of this kind says what its states are (`initial_state`) and how all steps are computed (`mix`). Time is read
    from left to right. Every state has the batch first, so that rows can be selected. Numbers past a row's length are
    not read: its states stay as they are and y is zero there.

    >>> layer = an.nn.linear.GLA(32, heads=2)
    >>> y, state = layer(torch.randn(4, 10, 32))
    >>> y_next, state = layer.step(torch.randn(4, 32), state)
    >>> y.shape, y_next.shape
    (torch.Size([4, 10, 32]), torch.Size([4, 32]))
    """

    def __init__(self, width: int, heads: int = 1):
        super().__init__()
        if width < 1 or heads < 1 or width % heads:
            raise ValueError(
                f"{type(self).__name__}: width {width} cannot be divided among {heads} heads; choose heads that divide it."
            )
        self.width, self.heads = width, heads

    @abstractmethod
    def initial_state(self, batch: int, like: Tensor) -> States:
        """The states before the first step, each ``(B, ·)``, on the device of ``like``."""

    @abstractmethod
    def mix(self, x: Tensor, state: States, lengths: Tensor | None) -> tuple[Tensor, States]:
        """All steps: x ``(B, T, width)`` after ``state``; y may be anything past a row's length."""

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, state: States | None = None
    ) -> tuple[Tensor, States]:
        """x ``(B, T, width)``, lengths ``(B,)``: y ``(B, T, width)`` and the states after each row's last step.

        Raises ValueError for another width, or lengths that do not fit.
        """
        name = type(self).__name__
        if x.dim() != 3 or x.shape[2] != self.width:
            raise ValueError(f"{name}: x must be (batch, time, {self.width}), got {tuple(x.shape)}.")
        if lengths is not None:
            if lengths.shape != x.shape[:1]:
                raise ValueError(f"{name}: lengths must be ({x.shape[0]},), got {tuple(lengths.shape)}.")
            lengths = lengths.to(x.device)
        state = self.initial_state(x.shape[0], x) if state is None else state
        if not x.shape[1]:
            return x, state
        if lengths is None:
            return self.mix(x, state, None)
        live = masks.padding(lengths, x.shape[1])[..., None]
        y, state = self.mix(torch.where(live, x, 0.0), state, lengths)
        return torch.where(live, y, 0.0), state

    def step(self, x: Tensor, state: States) -> tuple[Tensor, States]:
        """One step: x ``(B, width)``."""
        y, state = self(x[:, None], None, state)
        return y[:, 0], state

    def split(self, x: Tensor) -> Tensor:
        """``(B, T, N·D)`` as ``(B, T, N, D)``."""
        return x.reshape(*x.shape[:-1], self.heads, -1)

    def scan(
        self,
        r: Tensor,
        k: Tensor,
        v: Tensor,
        log_w: Tensor,
        lengths: Tensor | None,
        state: Tensor,
        a: Tensor | None = None,
        b: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """`matrix_scan` with rows that end: past its length a row's state neither decays nor is written to."""
        if lengths is not None:
            live = masks.padding(lengths, v.shape[1])[..., None, None]
            k, v = torch.where(live, k, 0.0), torch.where(live, v, 0.0)
            b = None if b is None else torch.where(live, b, 0.0)
            a = None if a is None else torch.where(live, a, 0.0)
            log_w = torch.where(live if log_w.dim() == 4 else live[..., 0], log_w, 0.0)
        if inside.recording():
            given = {"queries": r, "keys": k, "values": v, "log_decay": log_w, "removed": a, "put": b}
            for name, value in given.items():
                if value is not None:
                    inside.note(self, name, value)
        if scanning():
            if a is None or b is None:
                return _looped(_decayed, (r, k, v, log_w), state)
            return _looped(_corrected, (r, k, v, log_w, a, b), state)
        return matrix_scan(r, k, v, log_w, a, b, state)


Step = Callable[[States, States], tuple[States, Tensor]]


def _looped(step: Step, given: States, state: Tensor) -> tuple[Tensor, Tensor]:
    """One step after the other, as an exported graph has it: chunks would fix its length."""
    (last,), y = loop(step, (state,), tuple([x.to(state.dtype).transpose(0, 1) for x in given]))
    return y.transpose(0, 1).to(given[2].dtype), last


# Two functions: torch compiles each for one number of tensors.
def _decayed(states: States, here: States) -> tuple[States, Tensor]:
    r, k, v, log_w = here
    y, new = matrix_step(r, k, v, log_w, state=states[0])
    return (new,), y


def _corrected(states: States, here: States) -> tuple[States, Tensor]:
    r, k, v, log_w, a, b = here
    y, new = matrix_step(r, k, v, log_w, a, b, state=states[0])
    return (new,), y


class ShortConvolution(nn.Module):
    """y_t = swish(Σ_s c_s ∘ x_{t−s} + b) over the last ``size`` steps, each channel by itself (Mamba's first part).

    ``activated=False``: without the swish, as Griffin has it.

    ``width``: how many channels.

    >>> convolution = an.nn.linear.ShortConvolution(8, size=4)
    >>> sum(weight.numel() for weight in convolution.parameters())
    40
    """

    def __init__(self, width: int, size: int = 4, *, activated: bool = True):
        super().__init__()
        self.width, self.size, self.activated = width, size, activated
        self.weight = nn.Parameter(torch.empty(width, 1, size))
        self.bias = nn.Parameter(torch.empty(width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = self.size**-0.5
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.zeros_(self.bias)

    def initial_state(self, batch: int, like: Tensor) -> Tensor:
        """The steps before the first, ``(B, size − 1, width)``: zeros."""
        return like.new_zeros(batch, self.size - 1, self.width)

    def forward(self, x: Tensor, past: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x ``(B, T, width)``: y ``(B, T, width)`` and the last steps of each row."""
        joined = torch.cat((past.to(x.dtype), x), 1)
        y = F.conv1d(joined.transpose(1, 2), self.weight, self.bias, groups=self.width).transpose(1, 2)
        return F.silu(y) if self.activated else y, last_steps(joined, self.size - 1, lengths)


def last_steps(joined: Tensor, count: int, lengths: Tensor | None) -> Tensor:
    """The last ``count`` steps of ``(B, count + T, ·)`` up to each row's end, ``(B, count, ·)``."""
    if lengths is None:
        return joined[:, joined.shape[1] - count :]
    index = lengths.long()[:, None] + torch.arange(count, device=joined.device)
    return joined.gather(1, index[..., None].expand(-1, -1, joined.shape[2]))


def rms(x: Tensor, weight: Tensor | None = None) -> Tensor:
    """x / √(mean x² + ε), times a weight: ``(…, width)``."""
    return F.rms_norm(x, x.shape[-1:], weight, EPSILON)


def unit(x: Tensor) -> Tensor:
    """x / ‖x‖ over the last axis."""
    return F.normalize(x, dim=-1, eps=1e-6)
