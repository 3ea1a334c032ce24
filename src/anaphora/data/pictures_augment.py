"""Pictures that look a little different each time they are learned from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anaphora.data.pictures import Pixels
from anaphora.data.pooled import random_of


@dataclass(frozen=True)
class Augmentation:
    """A picture shifted by up to ``amount`` of its size (its edge goes on into what becomes free), with

        x′ = mean + c (x − mean) + b,    c from 1 − amount to 1 + amount, b of up to amount/2 of white,

    and, with ``mirror``, turned left to right every second time. What happens to picture ``index`` in ``epoch`` follows
    from these two and the seed.
    """

    amount: float
    mirror: bool
    seed: int

    @property
    def active(self) -> bool:
        return self.amount > 0 or self.mirror

    def __call__(self, pixels: Pixels, epoch: int, index: int) -> Pixels:
        draw = random_of(self.seed, epoch, index)
        down, right, contrast, brightness, flip = draw.uniform(-1, 1, 5)
        x = pixels
        if self.mirror and flip > 0:
            x = x[:, ::-1]
        if self.amount > 0:
            x = _shifted(x, round(down * self.amount * x.shape[0]), round(right * self.amount * x.shape[1]))
            mean = x.mean()
            changed = mean + (1 + contrast * self.amount) * (x - mean) + brightness * self.amount / 2 * 255
            x = np.rint(changed.clip(0, 255)).astype(np.uint8)
        return np.ascontiguousarray(x)


def _shifted(x: Pixels, down: int, right: int) -> Pixels:
    """Row r comes from row r − down, column c from column c − right; beyond the edge, from the edge."""
    rows = (np.arange(x.shape[0]) - down).clip(0, x.shape[0] - 1)
    columns = (np.arange(x.shape[1]) - right).clip(0, x.shape[1] - 1)
    moved: Pixels = x[rows[:, None], columns]
    return moved
