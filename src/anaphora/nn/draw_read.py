"""Looking at a picture through a grid of Gaussian filters that can be moved, zoomed and learned by gradients alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anaphora.nn import inside
from anaphora.nn.cells.lstm import LSTM
from anaphora.nn.windows import Looks, filtered, gaussians


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
