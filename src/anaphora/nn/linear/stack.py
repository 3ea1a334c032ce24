"""Blocks around layers with a linear recurrence, one on the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.engine.backends.reference import reverse_rows
from anaphora.nn import inside
from anaphora.nn.attention import masks
from anaphora.nn.linear.layer import EPSILON, LinearLayer, States
from anaphora.nn.recurrent_step import dropout_mask
from anaphora.nn.transformer.layers import SwiGLU
from anaphora.nn.transformer.stack import fresh_copies


class LinearBlock(nn.Module):
    """x + mixer(norm(x)), and where there is a feed-forward network, x + feedforward(norm(x)) after it.

    ``feedforward``: the width inside that network, a `SwiGLU` with this ``activation``; 0 = none. ``dropout``: on what the
    two give and inside the network; ``row_dropout``: on what they read, the same values at every step of a row.

    ``mixer``: the layer that reads along time. x and the result are ``(batch, time, width)``.

    >>> block = an.nn.linear.LinearBlock(an.nn.linear.RetNet(8, heads=2), feedforward=16)
    >>> y, state = block(torch.zeros(2, 5, 8), None, None)
    >>> y.shape
    torch.Size([2, 5, 8])
    """

    norms: type[nn.RMSNorm] | type[nn.LayerNorm] = nn.RMSNorm
    """Of a block, and of what a stack of such blocks gives."""
    norms_inputs = False
    """Whether a stack of such blocks has a norm before the first one."""

    def __init__(
        self,
        mixer: LinearLayer,
        *,
        feedforward: int = 0,
        activation: Callable[[Tensor], Tensor] = F.silu,
        dropout: float = 0.0,
        row_dropout: float = 0.0,
    ):
        super().__init__()
        self.mixer, self.norm = mixer, self.norms(mixer.width, EPSILON)
        self.feedforward = (
            SwiGLU(mixer.width, feedforward, activation=activation, dropout=dropout) if feedforward else None
        )
        self.norm_feedforward = self.norms(mixer.width, EPSILON) if feedforward else None
        self.dropout, self.row_dropout = nn.Dropout(dropout), row_dropout

    def initial_state(self, batch: int, like: Tensor) -> States:
        """The states before the first step, each ``(B, ·)``."""
        return self.mixer.initial_state(batch, like)

    def forward(self, x: Tensor, lengths: Tensor | None, state: States | None) -> tuple[Tensor, States]:
        y, state = self.mixer(self._read(self.norm(x)), lengths, state)
        x = x + self.dropout(y)
        if self.feedforward is not None and self.norm_feedforward is not None:
            x = x + self.dropout(self.feedforward(self._read(self.norm_feedforward(x))))
        return x, state

    def _read(self, x: Tensor) -> Tensor:
        """x ``(B, T, width)`` with the same values of a row dropped at all its steps."""
        if not (self.training and self.row_dropout):
            return x
        return x * dropout_mask(x, (x.shape[0], 1, x.shape[2]), self.row_dropout)


class LinearStack(nn.Module):
    """Layers with a linear recurrence in residual blocks, to be used where a `Recurrent` reads a sequence.

    ``mixer`` is one layer, which every block has a copy of, or a sequence of blocks that is repeated until there are
    ``layers`` (Griffin: two recurrent blocks, one that attends); ``feedforward`` and ``dropout`` are for the first case.
    x ``(B, T, inputs)`` is mapped to the width of the mixer where the two differ. States come kind by kind, each with the
    layers of its kind in front, ``(layers, B, ·)``. ``bidirectional``: a second stack reads each row from its end, and both
    outputs stand side by side. Notes ``states``: what each block gives.

    >>> stack = LinearStack(8, an.nn.linear.GLA(16, heads=2), layers=2, feedforward=32)
    >>> y, last = stack(torch.randn(4, 10, 8))
    >>> y.shape
    torch.Size([4, 10, 16])
    """

    def __init__(
        self,
        inputs: int,
        mixer: LinearLayer | Sequence[LinearBlock],
        *,
        layers: int = 1,
        feedforward: int = 0,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ):
        super().__init__()
        pattern = (
            [LinearBlock(mixer, feedforward=feedforward, dropout=dropout)]
            if isinstance(mixer, LinearLayer)
            else list(mixer)
        )
        width = pattern[0].mixer.width
        self.inputs, self.width, self.bidirectional = inputs, width, bidirectional
        self.enter = None if inputs == width else nn.Linear(inputs, width, bias=False)
        self.norm_inputs = pattern[0].norms(width, EPSILON) if pattern[0].norms_inputs else None
        uses = -(-layers // len(pattern)) * (1 + bidirectional)
        copies = [fresh_copies(block, uses) for block in pattern]
        blocks = [
            block for group in zip(*copies, strict=True) for block in group
        ]  # the pattern, again and again
        self.blocks = nn.ModuleList(blocks[:layers])
        self.backward_blocks = nn.ModuleList(blocks[len(blocks) // 2 :][:layers] if bidirectional else [])
        self.output_size: int = width * (1 + bidirectional)
        self.norm = pattern[0].norms(self.output_size, EPSILON)

    @property
    def layers(self) -> int:
        """How many blocks there are."""
        return len(self.blocks)

    def initial_state(self, batch: int, like: Tensor) -> States:
        """The states before the first step, each ``(layers of its kind, B, ·)``."""
        return self._packed([block.initial_state(batch, like) for block in self.blocks])  # type: ignore[operator]

    def _kinds(self) -> list[list[int]]:
        """The numbers of the blocks of each kind."""
        kinds: dict[type, list[int]] = {}
        for number, block in enumerate(self.blocks):
            kinds.setdefault(type(block.mixer), []).append(number)
        return list(kinds.values())

    def _packed(self, each: list[States]) -> States:
        """The states of every block, stacked kind by kind."""
        kinds = (zip(*(each[number] for number in numbers), strict=True) for numbers in self._kinds())
        return tuple(torch.stack(states) for kind in kinds for states in kind)

    def _unpacked(self, states: States) -> list[States]:
        """The states of every block, from what `_packed` gives."""
        each: list[States] = [()] * len(self.blocks)
        given = iter(states)
        for numbers in self._kinds():
            count = len(self.blocks[numbers[0]].initial_state(0, self.norm.weight))  # type: ignore[operator]
            parts = [next(given).unbind(0) for _ in range(count)]
            for number, one in zip(numbers, zip(*parts, strict=True), strict=True):
                each[number] = one
        return each

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, initial: States | None = None
    ) -> tuple[Tensor, States]:
        """x ``(B, T, inputs)``: y ``(B, T, output_size)`` and the last states (of the forward direction).

        Raises ValueError where a state is given to a stack that reads both ways.
        """
        if initial is not None and self.bidirectional:
            raise ValueError("LinearStack: a stack that reads both ways cannot go on from a state.")
        x = x if self.enter is None else self.enter(x)
        x = x if self.norm_inputs is None else self.norm_inputs(x)
        y, last = self._read(self.blocks, x, lengths, initial)
        if self.bidirectional:
            back, _ = self._read(self.backward_blocks, reverse_rows(x, lengths), lengths, None)
            y = torch.cat((y, reverse_rows(back, lengths)), -1)
        y = self.norm(y)
        if lengths is not None:
            y = torch.where(masks.padding(lengths.to(y.device), y.shape[1])[..., None], y, 0.0)
        return y, last

    def step(self, x: Tensor, state: States) -> tuple[Tensor, States]:
        """One step: x ``(B, inputs)``, y ``(B, output_size)``; memory does not grow."""
        y, state = self(x[:, None], None, state)
        return y[:, 0], state

    def _read(
        self, blocks: nn.ModuleList, x: Tensor, lengths: Tensor | None, initial: States | None
    ) -> tuple[Tensor, States]:
        before = [None] * len(blocks) if initial is None else self._unpacked(initial)
        after = []
        for block, state in zip(blocks, before, strict=True):
            x, state = block(x, lengths, state)
            x = inside.changed(block, "states", x)
            inside.note(block, "states", x)
            after.append(state)
        return x, self._packed(after)
