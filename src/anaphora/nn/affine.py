"""The affine map of several inputs that every recurrent cell is made of."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anaphora.native.derived import Watched


class Affine(Watched):
    """``W₁ v₁ + W₂ v₂ + … + b``: ``Affine(in₁, in₂, …, out)``, called with as many inputs.

    ``widths`` are those of the inputs, then that of the result.

    In a cell the first input is ``x`` and the others are states: ``Affine(inputs, hidden, hidden)(x, h)``
    is W x + U h + b. This equals one product with the concatenation, [W|U][x; h] + b.

    Weights of inputs from ``recurrent`` on multiply states: they start orthogonal, the others Glorot uniform,
    the bias at zero. ``blocks`` says how many maps are stacked in the output (four gates of an LSTM): each
    block is initialised as a map of its own.

    Shapes: inputs ``(..., inᵢ)``, result ``(..., out)``; ``weights[i]`` ``(out, inᵢ)``, ``bias`` ``(out,)``.

    >>> an.nn.Affine(3, 4, 5)(torch.zeros(2, 3), torch.zeros(2, 4)).shape
    torch.Size([2, 5])
    """

    def __init__(self, *widths: int, bias: bool = True, recurrent: int = 1, blocks: int = 1):
        super().__init__()
        if len(widths) < 2 or min(widths) < 1:
            raise ValueError(f"Affine needs at least one input width and the output width, got {widths}.")
        *inputs, outputs = widths
        if outputs % blocks:
            raise ValueError(f"Affine cannot divide its {outputs} outputs into {blocks} blocks.")
        self.inputs, self.outputs = tuple(inputs), outputs
        self.recurrent, self.blocks = recurrent, blocks
        self.weights = nn.ParameterList([nn.Parameter(torch.empty(outputs, width)) for width in inputs])
        self.bias: nn.Parameter | None = nn.Parameter(torch.empty(outputs)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for i, weight in enumerate(self.weights):
            for block in weight.detach().chunk(self.blocks):
                if i >= self.recurrent:
                    nn.init.orthogonal_(block)
                else:
                    nn.init.xavier_uniform_(block)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, *inputs: Tensor) -> Tensor:
        if len(inputs) != len(self.inputs):
            raise ValueError(f"Affine of {len(self.inputs)} inputs was called with {len(inputs)}.")
        total = F.linear(inputs[0], self.weights[0], self.bias)
        for i in range(1, len(inputs)):
            total = total + F.linear(inputs[i], self.weights[i])
        return total

    def extra_repr(self) -> str:
        return ", ".join(map(str, (*self.inputs, self.outputs)))
