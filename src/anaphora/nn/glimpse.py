"""Looking at a picture as a sequence of glimpses (Mnih et al. 2014; Ba, Mnih & Kavukcuoglu 2015)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.nn import inside
from anaphora.nn.cells.lstm import LSTM
from anaphora.nn.windows import Looks, filtered, tents


class Retina(nn.Module):
    """What is seen of a picture around a place: sharp in the middle, coarser around it.

    ``scales`` windows with the same centre, of ``patch``, 2·patch, 4·patch … pixels a side, each averaged down to
    patch × patch values. Outside the picture there are zeros.

    Args:
        patch: pixels on each side of the smallest window.
        scales: how many windows.
        channels: of the picture.

    >>> retina = an.nn.Retina(patch=4, scales=2, channels=1)
    >>> retina(torch.zeros(3, 16, 16, 1), torch.zeros(3, 2)).shape      # 2 scales of 4 × 4 values
    torch.Size([3, 32])
    """

    def __init__(self, patch: int, scales: int, channels: int):
        super().__init__()
        self.patch, self.scales = patch, scales
        self.width = scales * patch * patch * channels

    def forward(self, picture: Tensor, place: Tensor) -> Tensor:
        """picture ``(batch, rows, columns, channels)``; place ``(batch, 2)``, x and y from −1 (left, upper edge) to 1
        -> ``(batch, width)``."""
        x, y = (in_pixels(picture, place) - 0.5).unbind(-1)  # a pixel's number is that of its middle
        seen = []
        for scale in range(self.scales):
            down = tents(y, self.patch, 2**scale, picture.shape[1])
            across = tents(x, self.patch, 2**scale, picture.shape[2])
            seen.append(filtered(picture, down, across).flatten(1))
        return torch.cat(seen, -1)


class Glimpses(nn.Module):
    """A network that sees little at a time and decides where to look next.

        g_t = relu(W_g relu(W_ρ ρ(x, l_t)) + V_g relu(W_l l_t))        what is seen (ρ: the retina), and where
        h_t = LSTM(g_t, h_{t−1})
        l_{t+1} ~ N(tanh(W_h h_t), σ²)                                 in eval mode the mean itself

    The first look is at the middle. A drawn place has no gradient: it is learned by the score function (REINFORCE), from
    log p(l) and the cost of the answer less a baseline b_t = w h_t + v, which is what the cost is expected to be. Both
    leave the states alone, which learn from the answer only.

    Notes ``windows`` ``(batch, looks, 3)``, and the gates of its LSTM.

    Args:
        retina: what is seen around a place.
        hidden: the width of the LSTM's state.
        looks: how many.
        wander: σ, how far a drawn place is from its mean.

    >>> glimpses = an.nn.Glimpses(an.nn.Retina(4, scales=2, channels=1), hidden=8, looks=3, wander=0.1)
    >>> glimpses(torch.zeros(2, 16, 16, 1)).states.shape
    torch.Size([2, 3, 8])
    """

    def __init__(self, retina: Retina, hidden: int, *, looks: int, wander: float):
        super().__init__()
        self.retina, self.hidden, self.looks, self.wander = retina, hidden, looks, wander
        self.see = nn.Linear(retina.width, hidden)
        self.locate = nn.Linear(2, hidden)
        self.what = nn.Linear(hidden, hidden)
        self.where = nn.Linear(hidden, hidden)
        self.core = LSTM(hidden, hidden)
        self.next = nn.Linear(hidden, 2)
        self.expect = nn.Linear(hidden, 1)
        nn.init.normal_(self.next.weight, std=0.1 * hidden**-0.5)
        nn.init.zeros_(self.next.bias)

    def forward(self, picture: Tensor) -> Looks:
        """picture ``(batch, rows, columns, channels)``."""
        batch, dtype = picture.shape[0], picture.dtype
        h, c = (picture.new_zeros(batch, self.hidden) for _ in range(2))
        place = picture.new_zeros(batch, 2)
        log_prob = baseline = picture.new_zeros(batch)
        found = []
        for look in range(self.looks):
            if look:
                place, log_prob = self._draw(h.detach())
                baseline = self.expect(h.detach()).squeeze(-1)
            h, c = self.core(self._glimpse(picture, place), h, c)
            found.append((place, log_prob, baseline, h))
        places, log_probs, baselines, states = (
            torch.stack(each, 1).to(dtype) for each in zip(*found, strict=True)
        )
        side = places.new_full((batch, self.looks, 1), self.retina.patch)
        windows = torch.cat((in_pixels(picture, places), side), -1)
        inside.note(self, "windows", windows)
        return Looks(states, windows, log_probs, baselines)

    def _glimpse(self, picture: Tensor, place: Tensor) -> Tensor:
        seen = F.relu(self.see(self.retina(picture, place)))
        return F.relu(self.what(seen) + self.where(F.relu(self.locate(place))))

    def _draw(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """The next place ``(batch, 2)`` and log p of it ``(batch,)``."""
        mean = torch.tanh(self.next(state).to(state.dtype))  # places need more than half precision
        drawn = mean.detach()
        if self.training:
            drawn = drawn + self.wander * torch.randn_like(mean)
        distance = ((drawn - mean) / self.wander).square().sum(-1)
        log_prob = -0.5 * distance - 2 * math.log(self.wander) - math.log(2 * math.pi)
        return drawn.clamp(-1, 1), log_prob  # what lies beyond the edge is looked at from the edge


def in_pixels(picture: Tensor, place: Tensor) -> Tensor:
    """Places ``(batch, …, 2)``, x and y from −1 to 1, in pixels from the left upper corner."""
    rows, columns = picture.shape[1:3]
    return (place + 1) / 2 * place.new_tensor((columns, rows))
