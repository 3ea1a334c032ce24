"""DRAW, a generator of pictures (Gregor et al. 2015): a canvas that is drawn in several strokes, each placed by attention."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.nn import LSTM
from anaphora.nn.glimpse import GaussianRead, GaussianWrite


@dataclass(frozen=True)
class Drawing:
    """``canvases`` ``(batch, strokes, rows, columns, channels)`` from 0 to 1 after each stroke, ``windows`` ``(batch, strokes,
    3)`` where each was put (x, y of its centre and its side, in pixels), ``logits`` of the last canvas, and ``divergence``
    ``(batch,)``, Σ_t KL(q(z_t | x) ‖ N(0, 1)) in nats; 0 where nothing was read."""

    canvases: Tensor
    windows: Tensor
    logits: Tensor
    divergence: Tensor


class Draw(nn.Module):
    """A recurrent variational autoencoder with attention, ``strokes`` steps t:

        r_t = read([x, x − σ(c_{t−1})], h^dec_{t−1})
        h^enc_t = LSTM([r_t, h^dec_{t−1}]),   z_t ~ N(μ(h^enc_t), σ(h^enc_t)²)
        h^dec_t = LSTM(z_t),   c_t = c_{t−1} + write(h^dec_t)

    c_0 is learned. A pixel is ink with probability σ(c_T). Without a picture z_t ~ N(0, 1), and the decoder draws one of its own.
    """

    def __init__(self, size: tuple[int, int, int], *, hidden: int, latent: int, strokes: int, patch: int):
        super().__init__()
        self.size, self.hidden, self.latent, self.strokes = size, hidden, latent, strokes
        channels = size[2]
        self.read = GaussianRead(hidden, patch)
        self.encoder = LSTM(2 * patch * patch * channels + hidden, hidden)
        self.code = nn.Linear(hidden, 2 * latent)
        self.decoder = LSTM(latent, hidden)
        self.writer = GaussianWrite(hidden, patch, channels)
        self.start = nn.Parameter(torch.zeros(size))

    def forward(self, picture: Tensor) -> Drawing:
        """Draw ``picture`` ``(batch, rows, columns, channels)`` again, stroke by stroke."""
        return self._drawn(len(picture), picture)

    @torch.no_grad()
    def sample(self, count: int) -> Drawing:
        """``count`` new pictures, by torch's generator of random numbers."""
        return self._drawn(count, None)

    def loss(self, picture: Tensor) -> Tensor:
        """``(batch,)``: −log p(x | z) + Σ_t KL, an upper bound of −log p(x), in nats."""
        drawing: Drawing = self(picture)
        pixels = F.binary_cross_entropy_with_logits(drawing.logits, picture, reduction="none")
        return pixels.flatten(1).sum(1) + drawing.divergence

    def _drawn(self, count: int, picture: Tensor | None) -> Drawing:
        zeros = self.code.weight.new_zeros(count, self.hidden)
        h, c, eh, ec = zeros, zeros, zeros, zeros
        canvas = self.start.expand(count, *self.size)
        divergence = zeros.new_zeros(count)
        canvases, windows = [], []
        for _ in range(self.strokes):
            z = torch.randn(count, self.latent, device=zeros.device, dtype=zeros.dtype)
            if picture is not None:
                both = torch.cat(
                    (picture, picture - canvas.sigmoid()), -1
                )  # (batch, rows, columns, 2 · channels)
                seen, _ = self.read(both, h)
                eh, ec = self.encoder(torch.cat((seen.flatten(1), h), 1), eh, ec)
                mean, log_scale = self.code(eh).chunk(2, 1)
                z = mean + log_scale.exp() * z
                divergence = divergence + 0.5 * (mean**2 + (2 * log_scale).exp() - 2 * log_scale - 1).sum(1)
            h, c = self.decoder(z, h, c)
            stroke, window = self.writer.write(h, *self.size[:2])
            canvas = canvas + stroke
            canvases.append(canvas.sigmoid())
            windows.append(window)
        return Drawing(torch.stack(canvases, 1), torch.stack(windows, 1), canvas, divergence)
