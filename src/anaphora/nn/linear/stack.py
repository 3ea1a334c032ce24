"""Blocks around layers with a linear recurrence, one on the other."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anaphora.kernels.recurrence.backends.reference import reverse_rows
from anaphora.nn import inside
from anaphora.nn.attention import masks
from anaphora.nn.linear.layer import EPSILON, LinearLayer, States
from anaphora.nn.transformer.feedforward import SwiGLU
from anaphora.nn.transformer.stack import fresh_copies


class LinearBlock(nn.Module):
    """x + mixer(norm(x)), and where there is a feed-forward network, x + feedforward(norm(x)) after it."""

    def __init__(self, mixer: LinearLayer, *, feedforward: int = 0, dropout: float = 0.0):
        super().__init__()
        self.mixer, self.norm = mixer, nn.RMSNorm(mixer.width, EPSILON)
        self.feedforward = SwiGLU(mixer.width, feedforward) if feedforward else None
        self.norm_feedforward = nn.RMSNorm(mixer.width, EPSILON) if feedforward else None
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, lengths: Tensor | None, state: States | None) -> tuple[Tensor, States]:
        y, state = self.mixer(self.norm(x), lengths, state)
        x = x + self.dropout(y)
        if self.feedforward is not None and self.norm_feedforward is not None:
            x = x + self.dropout(self.feedforward(self.norm_feedforward(x)))
        return x, state


class LinearStack(nn.Module):
    """Layers with a linear recurrence in residual blocks, to be used where a `Recurrent` reads a sequence.

    x ``(B, T, inputs)`` is mapped to the width of the mixer where the two differ. Each state has the layers in front,
    ``(layers, B, ·)``. ``bidirectional``: a second stack reads each row from its end, and both outputs stand side by side.
    Notes ``states``: what each block gives.

    >>> stack = LinearStack(8, GLA(16, heads=2), layers=2, feedforward=32)
    >>> y, last = stack(torch.randn(4, 10, 8))
    """

    def __init__(
        self,
        inputs: int,
        mixer: LinearLayer,
        *,
        layers: int = 1,
        feedforward: int = 0,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ):
        super().__init__()
        self.inputs, self.width, self.bidirectional = inputs, mixer.width, bidirectional
        self.enter = None if inputs == mixer.width else nn.Linear(inputs, mixer.width, bias=False)
        block = LinearBlock(mixer, feedforward=feedforward, dropout=dropout)
        blocks = fresh_copies(block, layers * (1 + bidirectional))
        self.blocks = nn.ModuleList(blocks[:layers])
        self.backward_blocks = nn.ModuleList(blocks[layers:])
        self.output_size: int = mixer.width * (1 + bidirectional)
        self.norm = nn.RMSNorm(self.output_size, EPSILON)

    @property
    def layers(self) -> int:
        return len(self.blocks)

    def initial_state(self, batch: int, like: Tensor) -> States:
        """The states before the first step, each ``(layers, B, ·)``."""
        each = [block.mixer.initial_state(batch, like) for block in self.blocks]  # type: ignore[union-attr, operator]
        return tuple(torch.stack(states) for states in zip(*each, strict=True))

    def forward(
        self, x: Tensor, lengths: Tensor | None = None, initial: States | None = None
    ) -> tuple[Tensor, States]:
        """x ``(B, T, inputs)``: y ``(B, T, output_size)`` and the last states (of the forward direction).

        Raises ValueError where a state is given to a stack that reads both ways.
        """
        if initial is not None and self.bidirectional:
            raise ValueError("LinearStack: a stack that reads both ways cannot go on from a state.")
        x = x if self.enter is None else self.enter(x)
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
        before = (
            [None] * len(blocks) if initial is None else zip(*(s.unbind(0) for s in initial), strict=True)
        )
        after = []
        for block, state in zip(blocks, before, strict=True):
            x, state = block(x, lengths, state)
            inside.note(block, "states", x)
            after.append(state)
        return x, tuple(torch.stack(states) for states in zip(*after, strict=True))
