"""Many 0s and 1s of one step together: each depends on those before it."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class NADE(nn.Module):
    """A neural autoregressive distribution over v in {0, 1}ⁿ (Larochelle & Murray 2011), shifted by a state.

        a_i = c + Σ_{j<i} v_j W_j
        p(v_i = 1 | v_1 … v_{i−1}) = σ(b_i + V_i · relu(a_i)),    i = 1 … n
        log p(v) = Σ_i log p(v_i | v_1 … v_{i−1})

    The biases b ``(…, n)`` and c ``(…, units)`` come from outside, one of each for every step: those of an RNN-NADE
    (Boulanger-Lewandowski et al. 2012). Without W the targets are independent.

    a_i changes only after a 1, so that a step with k ones has k + 1 different hidden layers; all are computed in one
    product, whatever n is. Notes of a piano roll are few among 88.

    Args:
        targets: n, how many 0s and 1s there are.
        units: how many hidden units carry what the targets so far say to the next.

    >>> nade = an.nn.NADE(targets=3, units=5)
    >>> nade(torch.zeros(2, 3), torch.zeros(2, 5), torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])).shape
    torch.Size([2, 3])
    """

    def __init__(self, targets: int, units: int):
        super().__init__()
        if targets < 1 or units < 1:
            raise ValueError(f"NADE: targets and units must be at least 1, but are {targets} and {units}")
        self.inward = nn.Parameter(torch.empty(targets, units))  # W
        self.outward = nn.Parameter(torch.empty(targets, units))  # V
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.uniform_(self.inward, -0.5, 0.5)  # few of the rows are added up
        bound = 1 / math.sqrt(self.outward.shape[1])
        nn.init.uniform_(self.outward, -bound, bound)

    def forward(self, bias: Tensor, shift: Tensor, values: Tensor) -> Tensor:
        """bias b ``(…, n)``, shift c ``(…, units)``, values v ``(…, n)`` of 0 and 1 → logits ``(…, n)`` of p(v_i | v_<i)."""
        so_far = values.cumsum(-1)
        most = int(so_far[..., -1].max()) if values.numel() else 0
        ranks = torch.arange(most + 1, device=values.device).unsqueeze(-1)
        first = values.unsqueeze(-2) * (
            so_far.unsqueeze(-2) <= ranks
        )  # (…, k + 1, n): the first 0, 1 … k ones
        hidden = torch.relu(shift.unsqueeze(-2) + first @ self.inward)
        each = hidden @ self.outward.t()  # (…, k + 1, n)
        before = (so_far - values).long().unsqueeze(-2)
        return bias + each.gather(-2, before).squeeze(-2)
