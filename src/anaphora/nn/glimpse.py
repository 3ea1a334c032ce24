"""Looks at a picture through windows that move: glimpses (Mnih et al. 2014) and the grid of DRAW (Gregor et al. 2015)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.nn import inside
from anaphora.nn.cells.gated import LSTM


# ----------------------------------------------------------------------
# Small windows onto a picture: two banks of filters, one along the rows and one along the columns, read a patch.
@dataclass(frozen=True)
class Looks:
    """What was seen of a picture in T looks, one after the other.

    states ``(batch, T, hidden)`` after each; windows ``(batch, T, 3)``: x and y of the centre and the side of what was
    looked at, in pixels from the left upper corner. Of places that were drawn, log_prob ``(batch, T)`` and baseline
    ``(batch, T)``, the cost that was expected before drawing (both 0 for a look that was not drawn); None where no
    place is drawn at all.
    """

    states: Tensor
    windows: Tensor
    log_prob: Tensor | None = None
    baseline: Tensor | None = None


def filtered(picture: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """F_y X F_xᵀ for every channel: picture ``(batch, rows, columns, channels)``, down ``(batch, n, rows)`` and across
    ``(batch, m, columns)`` -> patch ``(batch, n, m, channels)``."""
    rows = torch.bmm(down, picture.flatten(2)).view(*down.shape[:2], *picture.shape[2:])
    return torch.matmul(across.unsqueeze(1), rows)


def tents(centre: Tensor, count: int, spacing: int, size: int) -> Tensor:
    """Filters ``(batch, count, size)`` that interpolate, or average where they lie further than a pixel apart:

        F[i, a] = max(0, 1 − |a − μ_i|/s)/s,    μ_i = centre + (i − (count − 1)/2)·s

    for pixels a = 0 … size − 1 and a centre ``(batch,)`` counted like them. They sum to one, less where they reach past an edge.
    """
    places = torch.arange(count, device=centre.device, dtype=centre.dtype) - (count - 1) / 2
    means = centre[:, None] + places * spacing
    pixels = torch.arange(size, device=centre.device, dtype=centre.dtype)
    return (1 - (pixels - means[..., None]).abs() / spacing).clamp(min=0) / spacing


def gaussians(centre: Tensor, count: int, stride: Tensor, variance: Tensor, size: int) -> Tensor:
    """Filters ``(batch, count, size)`` of normal shape (Gregor et al. 2015, equations 19, 20, 25, 26):

        F[i, a] = exp(−(a − μ_i)²/2σ²)/Z_i,    μ_i = centre + (i − (count − 1)/2)·δ

    centre, stride δ and variance σ² ``(batch,)`` in pixels. Each sums to one over the pixels there are, however far
    outside the picture its mean lies.
    """
    places = torch.arange(count, device=centre.device, dtype=centre.dtype) - (count - 1) / 2
    means = centre[:, None] + places * stride[:, None]
    pixels = torch.arange(size, device=centre.device, dtype=centre.dtype)
    exponents = -((pixels - means[..., None]) ** 2) / (2 * variance[:, None, None])
    return torch.softmax(exponents, -1)


# ----------------------------------------------------------------------
# Looking at a picture as a sequence of glimpses (Mnih et al. 2014; Ba, Mnih & Kavukcuoglu 2015).
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


# ----------------------------------------------------------------------
# Looking at a picture through a grid of Gaussian filters that can be moved, zoomed and learned by gradients alone.
class GaussianRead(nn.Module):
    """DRAW's read (Gregor et al. 2015, section 3.2): N × N filters on a picture of B rows and A columns.

        (g̃_x, g̃_y, log σ̃², log δ̃, log γ) = W h + b
        g_x = (A + 1)/2 (g̃_x + 1) − 1,   g_y = (B + 1)/2 (g̃_y + 1) − 1,   δ = (max(A, B) − 1)/(N − 1) δ̃
        read = γ F_y x F_xᵀ

    with F as in `windows.gaussians`, g counted from the middle of the first pixel (the paper counts pixels from 1) and
    σ² = (δ₁/2)² σ̃², δ₁ the stride of a grid over the whole picture: so the first reads cover it all, smoothly, whatever
    its size, where every part of it has a gradient.

    Args:
        states: the width of h.
        patch: N, filters on each side.

    >>> patch, window = an.nn.GaussianRead(states=6, patch=3)(torch.zeros(2, 8, 8, 1), torch.zeros(2, 6))
    >>> patch.shape, window[0].tolist()                                 # the centre is that of the picture
    (torch.Size([2, 3, 3, 1]), [4.0, 4.0, 10.5])
    """

    def __init__(self, states: int, patch: int):
        super().__init__()
        self.patch = patch
        self.window = nn.Linear(states, 5)
        nn.init.normal_(self.window.weight, std=0.1 * states**-0.5)
        nn.init.zeros_(self.window.bias)

    def forward(self, picture: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """picture ``(batch, rows, columns, channels)``, h ``(batch, states)`` -> patch ``(batch, N, N, channels)``, and
        x, y of its centre (from the left upper corner) and its side in pixels, ``(batch, 3)``."""
        down, across, strength, window = self.filters(h.to(picture.dtype), *picture.shape[1:3])
        return filtered(picture, down, across) * strength[:, None, None, None], window

    def filters(self, h: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """F_y ``(batch, N, rows)``, F_x ``(batch, N, columns)``, γ ``(batch,)`` and the window ``(batch, 3)`` of states h."""
        x, y, log_variance, log_stride, log_strength = self.window(h).to(h.dtype).unbind(-1)
        x, y = (columns + 1) / 2 * (x + 1) - 1, (rows + 1) / 2 * (y + 1) - 1
        whole = max(max(rows, columns) - 1, 1) / max(self.patch - 1, 1)
        stride = whole * log_stride.exp()
        variance = (whole / 2) ** 2 * log_variance.exp() + 1e-4  # narrower than this only one pixel is left
        down = gaussians(y, self.patch, stride, variance, rows)
        across = gaussians(x, self.patch, stride, variance, columns)
        return down, across, log_strength.exp(), torch.stack((x + 0.5, y + 0.5, stride * self.patch), -1)


class GaussianWrite(GaussianRead):
    """DRAW's write: the same filters, transposed, put an N × N patch onto a canvas.

    w = W_w h + b_w,    write = F_yᵀ w F_x / γ
    """

    def __init__(self, states: int, patch: int, channels: int):
        super().__init__(states, patch)
        self.ink = nn.Linear(states, patch * patch * channels)

    def write(self, h: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor]:
        """h ``(batch, states)`` -> what is added to a canvas ``(batch, rows, columns, channels)``, and where ``(batch, 3)``."""
        down, across, strength, window = self.filters(h, rows, columns)
        patch = self.ink(h).view(h.shape[0], self.patch, self.patch, -1) / strength[:, None, None, None]
        return filtered(patch, down.transpose(1, 2), across.transpose(1, 2)), window


class DrawReader(nn.Module):
    """An LSTM that reads a picture in several looks, each placed by the state before it:

        r_t = read(x, h_{t−1}),    h_t = LSTM(r_t, h_{t−1})

    Everything is differentiable, so where to look is learned from the answer like all else.
    Notes ``windows`` ``(batch, looks, 3)``, and the gates of its LSTM.

    Args:
        read: the filters; their ``states`` is ``hidden``.
        channels: of the picture.
        hidden: the width of the LSTM's state.
        looks: how many.

    >>> reader = an.nn.DrawReader(an.nn.GaussianRead(6, patch=3), channels=1, hidden=6, looks=4)
    >>> reader(torch.zeros(2, 8, 8, 1)).states.shape
    torch.Size([2, 4, 6])
    """

    def __init__(self, read: GaussianRead, channels: int, hidden: int, *, looks: int):
        super().__init__()
        self.read, self.hidden, self.looks = read, hidden, looks
        self.core = LSTM(read.patch**2 * channels, hidden)

    def forward(self, picture: Tensor) -> Looks:
        """picture ``(batch, rows, columns, channels)``."""
        h, c = (picture.new_zeros(picture.shape[0], self.hidden) for _ in range(2))
        states, windows = [], []
        for _ in range(self.looks):
            patch, window = self.read(picture, h)
            h, c = self.core(patch.flatten(1), h, c)
            states.append(h)
            windows.append(window)
        seen = torch.stack(windows, 1)
        inside.note(self, "windows", seen)
        return Looks(torch.stack(states, 1), seen)
