"""Linear maps and attention with weights that were laid out for the CPU once, for models that only compute."""

from __future__ import annotations

import copy
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.native.following import following, observed
from anaphora.nn import inside
from anaphora.nn.attention import Attention, MultiHead
from anaphora.nn.embedding import Output
from anaphora.nn.positions import Rotary
from anaphora.nn.recurrent import Recurrent
from anaphora.ops import packed

Module = TypeVar("Module", bound=nn.Module)


class PackedLinear(nn.Module):
    """y = W x + b, ``(…, width)`` -> ``(…, outputs)``, without gradient; what W and b were when it was made.

    Each row is computed by itself: it does not depend on the rows beside it, to the last bit. With ``int8`` the rows
    of W and each x are rounded to 127 steps on either side of 0:

        y_o = s_o s Σ_i q_oi u_i + b_o,   W_oi ≈ s_o q_oi,  s_o = max_i |W_oi| / 127,   x_i ≈ s u_i,  s = max_i |x_i| / 127

    ``rows``: which outputs, all by default. Where someone follows the operations they are PyTorch's, with the weights unrounded.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, rows: slice = slice(None), int8: bool = False):
        super().__init__()
        self.width, self.rows, self.training = weight.shape[1], rows, False
        self.packed = packed.pack(weight[rows], None if bias is None else bias[rows], int8=int8)
        # In a tuple, so that they are not registered, and whole: a view would be one more reference to a parameter's memory, see
        # `Snapshot`.
        self._unpacked = (weight, bias)

    @property
    def weight(self) -> Tensor:
        weight = self._unpacked[0]
        return weight if self.rows == slice(None) else weight[self.rows]

    @property
    def bias(self) -> Tensor | None:
        bias = self._unpacked[1]
        return bias if bias is None or self.rows == slice(None) else bias[self.rows]

    def forward(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """``out``, if given, is ``(rows, outputs)`` and takes the result."""
        if following(x) is not None:
            y = F.linear(x, self.weight, self.bias)
            return y if out is None else out.copy_(y.reshape(out.shape))
        y = packed.linear(x.reshape(-1, self.width), self.packed, out)
        return y.view(*x.shape[:-1], self.packed.outputs)


class PackedMultiHead(MultiHead):
    """Self-attention that computes each row by itself: padding beside it changes no bit, as it would in PyTorch's kernels.

    That matters with ``int8``: a last bit decides which way a number is rounded.
    """

    @classmethod
    def of(cls, module: MultiHead, parts: dict[str, nn.Module | None]) -> PackedMultiHead:
        """What ``module`` is, with these parts."""
        twin = cls.__new__(cls)
        twin.__dict__.update(module.__dict__, _modules=parts)
        return twin

    def _by_row(self, query: Tensor, mask: Tensor | None) -> bool:
        """Return True if the kernel knows what is wanted of self-attention, which may be causal for it alone."""
        plain = self.positions is None or type(self.positions) is Rotary
        maps = (self.inward, self.outward)
        return (
            plain
            and self.scale is None
            and self.inner == self.width
            and self.window is None
            and self.kv_heads == self.heads
            and not self.training
            and all(isinstance(part, PackedLinear) for part in maps)
            and (mask is None or mask.dim() == 2)
            and following(query, mask) is None
        )

    def forward(
        self,
        query: Tensor,
        keys: Tensor | None = None,
        mask: Tensor | None = None,
        values: Tensor | None = None,
        *,
        causal: bool = False,
        weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        more = keys is not None or causal or weights or inside.recording()
        if more or not self._by_row(query, mask):
            return super().forward(query, keys, mask, values, causal=causal, weights=weights)
        batch, time, width = query.shape
        mask = torch.ones(batch, time, dtype=torch.bool) if mask is None else mask.contiguous()
        q, kv = self.inward(query).split((width, 2 * width), -1)
        if self.positions is not None:
            q, k = (self._merged(self.positions(self._split(x))) for x in (q, kv[..., :width]))
            kv = torch.cat((k, kv[..., width:]), -1)
        item = torch.arange(batch).repeat_interleave(
            time
        )  # (batch · time,): whose keys and values a row sees
        found, _ = packed.attend_memory(q.reshape(-1, width), self.heads, kv.contiguous(), item, mask)
        return self.outward(found.view(batch, time, width)), None

    @staticmethod
    def _merged(x: Tensor) -> Tensor:
        """``(batch, heads, time, d)`` -> ``(batch, time, heads · d)``."""
        return x.transpose(1, 2).flatten(2)


def pack_linear(module: Module, *, int8: bool = False) -> Module:
    """Return the module with each `nn.Linear`, `Output` and `MultiHead` in it packed; it shares the rest with the original.

    Recurrent layers stay as they are, since their kernels pack their weights themselves, and so do attentions with
    one score per query and key, whose maps are small; and maps of another class, with hooks, with weights that are computed,
    or whose numbers the kernels do not take.
    """
    if type(module) in (nn.Linear, Output):
        linear = cast("nn.Linear | Output", module)
        weight = linear.matrix if isinstance(linear, Output) else linear.weight
        weights = [weight] if linear.bias is None else [weight, linear.bias]
        if (
            observed(linear) is not None
            or following(*weights) is not None
            or not packed.library.ready(*weights)
        ):
            return module
        known = all(isinstance(one, nn.Parameter) for one in weights)
        return cast(Module, PackedLinear(weight, linear.bias, int8=int8)) if known else module
    if isinstance(module, Recurrent | Attention):
        return module
    parts = {
        name: None if part is None else pack_linear(part, int8=int8) for name, part in module._modules.items()
    }
    if all(part is module._modules[name] for name, part in parts.items()):
        return module
    if type(module) is MultiHead:
        return cast(Module, PackedMultiHead.of(cast(MultiHead, module), parts))
    twin = copy.copy(module)
    twin._modules = parts
    return twin
