"""Linear maps whose weights were laid out for the CPU once, for models that only compute."""

from __future__ import annotations

import copy
from typing import TypeVar, cast

from torch import Tensor, nn

from anaphora.kernels.packed import native
from anaphora.nn.attention import Attention
from anaphora.nn.embedding import Output
from anaphora.nn.recurrent import Recurrent

Module = TypeVar("Module", bound=nn.Module)


class PackedLinear(nn.Module):
    """y = W x + b, ``(…, width)`` -> ``(…, outputs)``, without gradient; what W and b were when it was made.

    Each row is computed by itself: it does not depend on the rows beside it, to the last bit. With ``int8`` the rows
    of W and each x are rounded to 127 steps on either side of 0:

        y_o = s_o s Σ_i q_oi u_i + b_o,   W_oi ≈ s_o q_oi,  s_o = max_i |W_oi| / 127,   x_i ≈ s u_i,  s = max_i |x_i| / 127
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, int8: bool = False):
        super().__init__()
        self.width = weight.shape[1]
        self.packed = native.pack(weight, bias, int8=int8)
        # For modules that take a part of a map, in a tuple, so that they are not registered. A view is a part itself, and
        # one more reference to a parameter's memory: see `Snapshot`.
        self._unpacked = None if weight._is_view() else (weight, bias)

    @property
    def weight(self) -> Tensor:
        assert self._unpacked is not None
        return self._unpacked[0]

    @property
    def bias(self) -> Tensor | None:
        assert self._unpacked is not None
        return self._unpacked[1]

    def forward(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """``out``, if given, is ``(rows, outputs)`` and takes the result."""
        y = native.linear(x.reshape(-1, self.width), self.packed, out)
        return y.view(*x.shape[:-1], self.packed.outputs)


def pack_linear(module: Module, *, int8: bool = False) -> Module:
    """The module with each `nn.Linear` and `Output` in it packed; it shares everything else with the original.

    Recurrent layers stay as they are, since their kernels pack their weights themselves, and so do attentions with
    one score per query and key, whose maps are small.
    """
    if isinstance(module, nn.Linear):
        return cast(Module, PackedLinear(module.weight, module.bias, int8=int8))
    if isinstance(module, Output):
        return cast(Module, PackedLinear(module.matrix, module.bias, int8=int8))
    if isinstance(module, Recurrent | Attention):
        return module
    parts = {
        name: None if part is None else pack_linear(part, int8=int8) for name, part in module._modules.items()
    }
    if all(part is module._modules[name] for name, part in parts.items()):
        return module
    twin = copy.copy(module)
    twin._modules = parts
    return twin
