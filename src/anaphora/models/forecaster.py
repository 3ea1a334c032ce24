"""A network that reads a window of the past and says the next H values of every target at once.

    ŷ_{t+1 … t+H} = W s_t + b,    s = reader(x_{t−W+1} … x_t)

All H steps come from one state (direct forecasts): no error is fed back, and a step far ahead is learned as such. Where
columns are known in advance the reader goes on over the steps to come, in which it sees those columns and a sign that
nothing else is known; each state then tells its own step, ŷ_{t+h} = W s_{t+h} + b. What the outputs mean is the
objective's business: values, logarithms of rates, or logits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from anaphora.nn import inside
from anaphora.nn.convolution import Convolution, DilatedStack
from anaphora.nn.linear import LinearStack
from anaphora.nn.nade import NADE
from anaphora.nn.neighbours import Neighbours
from anaphora.nn.positions import Learned, NoPositions, Sinusoidal
from anaphora.nn.recurrent import Recurrent
from anaphora.nn.transformer import TransformerEncoder


class Reader(nn.Module, ABC):
    """What a `Forecaster` reads with; ``width`` is that of its states."""

    width: int

    @abstractmethod
    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """x ``(batch, T, inputs)`` → states ``(batch, T, width)``; past a row's length anything may stand."""


class RecurrentReader(Reader):
    """h_t = cell(x_t, h_{t−1})."""

    def __init__(self, recurrent: Recurrent | LinearStack, *, dropout: float = 0.0):
        super().__init__()
        self.recurrent = recurrent
        self.dropout = nn.Dropout(dropout)
        self.width = recurrent.output_size

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        states: Tensor = self.recurrent(self.dropout(x), lengths)[0]
        return states


class WindowReader(Reader):
    """A feed-forward network on the last ``span`` steps, zeros before the first: no recurrence.

        h_t = tanh(W [x_{t−span+1}; …; x_t] + b),   further layers: h <- tanh(W h + b)

    Notes ``states``.
    """

    def __init__(self, inputs: int, width: int, span: int, layers: int = 1):
        super().__init__()
        self.first = Convolution(inputs, width, span, causal=True)
        self.more = nn.ModuleList(nn.Linear(width, width) for _ in range(layers - 1))
        self.width = width

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        # padding past a row's end cannot reach its steps: windows look back only
        states = torch.tanh(self.first(x))
        for layer in self.more:
            states = torch.tanh(layer(states))
        states = inside.changed(self, "states", states)
        inside.note(self, "states", states)
        return states


class DilatedReader(Reader):
    """A projection and causal convolutions with dilations 1, 2, 4, …"""

    def __init__(self, inputs: int, width: int, stack: DilatedStack):
        super().__init__()
        self.inward = nn.Linear(inputs, width)
        self.stack = stack
        self.width = width

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        # what stands past a row's end cannot reach its steps: the convolutions look back only
        states: Tensor = self.stack(self.inward(x))
        return states


class AttentiveReader(Reader):
    """A projection, positions, and self-attention to the steps so far."""

    def __init__(
        self,
        inputs: int,
        stack: TransformerEncoder,
        *,
        positions: Sinusoidal | Learned | None,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.inward = nn.Linear(inputs, stack.width)
        self.positions = NoPositions() if positions is None else positions
        self.stack = stack
        self.dropout = nn.Dropout(dropout)
        self.width = stack.width

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        states: Tensor = self.stack(self.dropout(self.positions(self.inward(x))), causal=True)
        return states


LEVELS = 101
"""Quantiles kept of |error|: 0, 0.01 … 1."""
Normalize = Literal["none", "last", "window"]
_TINY = 1e-5


class Normalization(nn.Module):
    """Takes the level of the targets out of a window and puts it back into the forecasts.

    ``last``: z = y − y_T, the forecasts are changes from now on (Zeng et al. 2023); ``window``: z = (y − mean)/deviation
    of the window itself (Kim et al. 2022, without learned weights).
    """

    def __init__(self, kind: Normalize):
        super().__init__()
        self.kind = kind

    def level(self, own: Tensor) -> tuple[Tensor, Tensor]:
        """Level and spread ``(batch, 1, targets)`` of windows ``(batch, T, targets)``."""
        if self.kind == "none":
            return own.new_zeros(1), own.new_ones(1)
        if self.kind == "last":
            return own[:, -1:], own.new_ones(1)
        return own.mean(1, keepdim=True), own.var(1, keepdim=True, unbiased=False).add(_TINY).sqrt()


class Forecaster(nn.Module):
    """Reader and head. ``targets`` of the features come first in x (none if aligned), other columns follow.

    ``known`` are the places among the features of the columns known in advance; the reader then takes one feature
    more, 1 in the steps to come. ``apart``: one network, used for each target by itself with the other columns beside it
    (channel independence: Nie et al. 2023), instead of one state for all. ``patch`` steps make one place of the reader.
    ``neighbours``: `Neighbours` of this reach also predict each target from the last values of the targets around it. ``nade``: targets
    are 0s and 1s that depend on each other within a step, through so many units of a `NADE`.
    The buffer ``errors`` ``(101, H, targets)`` holds the quantiles of |error| that intervals are made of, in the units of the targets.
    """

    errors: Tensor

    def __init__(
        self,
        reader: Reader,
        *,
        targets: int,
        horizon: int,
        known: Sequence[int] = (),
        normalize: Normalize = "none",
        apart: bool = False,
        patch: int = 1,
        dropout: float = 0.0,
        nade: int = 0,
        neighbours: int = 0,
    ):
        super().__init__()
        if known and horizon % patch:
            raise ValueError(f"Forecaster: patches of {patch} do not make a horizon of {horizon}")
        if (nade or neighbours) and (apart or normalize != "none"):
            raise ValueError("Forecaster: nade and neighbours exclude apart and normalize")
        self.reader = reader
        self.targets, self.horizon, self.apart, self.patch = targets, horizon, apart, patch
        self.known = list(known)
        self.normalization = Normalization(normalize)
        self.dropout = nn.Dropout(dropout)
        self.width_out = 1 if apart else targets
        told = patch if known else horizon
        self.head = nn.Linear(reader.width, told * self.width_out)
        self.near = Neighbours(reader.width, targets, neighbours, steps=told) if neighbours else None
        self.shift = nn.Linear(reader.width, told * nade) if nade else None
        self.nade = NADE(targets, nade) if nade else None
        self.register_buffer("errors", torch.zeros(LEVELS, horizon, targets))

    def forward(
        self, x: Tensor, future: Tensor, lengths: Tensor | None = None, values: Tensor | None = None
    ) -> Tensor:
        """x ``(batch, T, features)``, future ``(batch, P, H, known)`` → ``(batch, P, H, targets)``.

        P = 1: outputs after the last step of each row, all rows T long. P = T: outputs after every step. With ``nade`` each
        output is a logit given the targets before it in the same step of ``values`` ``(batch, P, H, targets)``; without
        ``values`` given that these are 0.
        """
        out, shift = self.parts(x, future, lengths)
        if self.nade is None or shift is None:
            return out
        logits: Tensor = self.nade(out, shift, torch.zeros_like(out) if values is None else values)
        return logits

    def parts(self, x: Tensor, future: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """What `forward` gives without ``nade``, and with it the biases b and c ``(batch, P, H, nade)`` of its `NADE`."""
        places = future.shape[1]
        own = x[..., : self.targets]
        level, spread = self.normalization.level(own)
        if self.normalization.kind != "none":
            x = torch.cat([(own - level) / spread, x[..., self.targets :]], -1)
        if self.known:
            x = self._going_on(x, future.squeeze(1))
        if self.apart:
            x = _parted(x, self.targets)
        if self.patch > 1:
            x = x.reshape(x.shape[0], x.shape[1] // self.patch, -1)
        states: Tensor = self.dropout(self.reader(x, lengths))
        if self.known:
            states = states[:, -(self.horizon // self.patch) :]
        elif places == 1:
            states = states[:, -1:]
        out = self._steps(self.head(states), self.width_out)
        if self.near is not None:
            last = own if places > 1 else own[:, -1:].expand(-1, states.shape[1], -1)
            out = out + self._steps(self.near(states, last).flatten(2), self.width_out)
        if self.apart:
            out = out.reshape(-1, self.targets, *out.shape[1:3]).permute(0, 2, 3, 1)
        if self.normalization.kind != "none":
            out = out * spread.unsqueeze(-2) + level.unsqueeze(1)
        if self.nade is None or self.shift is None:
            return out, None
        return out, self._steps(self.shift(states), self.nade.inward.shape[1])

    def _steps(self, heads: Tensor, width: int) -> Tensor:
        """Outputs of a linear map of the states → ``(rows, P, H, width)``."""
        if self.known:
            heads = heads.flatten(1).unsqueeze(1)
        return heads.reshape(*heads.shape[:2], self.horizon, width)

    def _going_on(self, x: Tensor, future: Tensor) -> Tensor:
        """The window and the steps to come: the last step repeated, but for the known columns."""
        ahead = x[:, -1:].repeat(1, self.horizon, 1)
        ahead[..., self.known] = future
        sign = x.new_zeros(x.shape[0], x.shape[1] + self.horizon, 1)
        sign[:, x.shape[1] :] = 1.0
        return torch.cat([torch.cat([x, ahead], 1), sign], -1)


class WindowMap(nn.Module):
    """The linear map of a window: ŷ_{t+h} = b_h + Σ_j W_hj y_{t−j}, one W for all targets (Zeng et al. 2023).

    With other or known columns their whole window and future are mapped too, to each target by itself.
    """

    errors: Tensor

    def __init__(
        self,
        *,
        targets: int,
        others: int,
        known: int,
        window: int,
        horizon: int,
        normalize: Normalize = "none",
    ):
        super().__init__()
        self.targets, self.horizon = targets, horizon
        self.normalization = Normalization(normalize)
        self.own = nn.Linear(window, horizon)
        nn.init.constant_(self.own.weight, 1 / window)  # begins as the mean of the window
        nn.init.zeros_(self.own.bias)
        beside = others * window + known * horizon
        self.beside = nn.Linear(beside, horizon * targets, bias=False) if beside else None
        if self.beside is not None:
            nn.init.zeros_(self.beside.weight)
        self.register_buffer("errors", torch.zeros(LEVELS, horizon, targets))

    def forward(self, x: Tensor, future: Tensor, lengths: Tensor | None = None) -> Tensor:
        """As `Forecaster.forward`, with P = 1."""
        own, rest = x[..., : self.targets], x[..., self.targets :]
        level, spread = self.normalization.level(own)
        out = self.own(((own - level) / spread).transpose(1, 2)).transpose(1, 2)
        if self.beside is not None:
            more = self.beside(torch.cat([rest.flatten(1), future.flatten(1)], -1))
            out = out + more.unflatten(-1, (self.horizon, self.targets))
        result: Tensor = (out * spread + level).unsqueeze(1)
        return result


def _parted(x: Tensor, targets: int) -> Tensor:
    """``(batch, T, targets + rest)`` → ``(batch·targets, T, 1 + rest)``: each target with all that is no target."""
    batch, steps, _ = x.shape
    own = x[..., :targets].permute(0, 2, 1).reshape(batch * targets, steps, 1)
    rest = x[..., targets:].repeat_interleave(targets, 0)
    return torch.cat([own, rest], -1)
