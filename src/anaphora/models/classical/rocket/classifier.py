"""Classes, or a number, of sequences of vectors from what random convolutions answer (ROCKET)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from anaphora.data.labelled_batches import tensors_of
from anaphora.data.labelled_rows import in_order
from anaphora.models.classical.calibration import sharpness
from anaphora.models.classical.rocket.convolutions import (
    KERNELS,
    LENGTH,
    MEASURES,
    PARTS,
    convolved,
    measures,
    places,
    shares,
)
from anaphora.models.classical.rocket.ridge import ridge

DILATIONS = 16
"""How many distances of taps there are, from 1 to where a kernel is as long as the longest training sequence."""
MOST_ADDED = 9
"""Most features that one kernel adds up."""
_DRAWN = 12  # sequences that tell the thresholds of one dilation
_TOGETHER = 8192  # steps that are read at once
_PIECE = 512  # examples whose features are summed at once
_GOLDEN = (5**0.5 + 1) / 2
Array = np.ndarray[Any, Any]


class RocketClassifier(nn.Module):
    """Scores of a sequence x by the shares of its places at which fixed convolutions exceed fixed thresholds:

        φ_kd(x) = 1/T Σ_t [ (w_k *_d x)_t > b_kd ]        z = W (φ − μ) / σ + b

    84 kernels w_k of nine taps (see `convolutions`) are stretched by dilations d, of x and of its differences x_t − x_{t−1}. The
    thresholds b are quantiles of what kernels answer to training sequences; of several features each kernel adds up some that were drawn.
    Beside φ stand the `measures` of x and, with ``places``, where each convolution answers most, which shows the order in which things happen.
    Training leaves the places out again if it predicts examples that it has not seen better without. W is the ridge regression of ±1 (of
    numbers: of themselves) on the standardised features, whose penalty suits sequences it has not seen best. Its answers z are stretched
    until softmax (σ where there may be several classes) is as sure of such sequences as it is right.

    (Dempster, Schmidt & Webb 2021; differences: Tan et al. 2022.)
    """

    thresholds: Tensor
    dilations: Tensor
    channels: Tensor
    mean: Tensor
    scale: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self, features: int, outputs: int, *, thresholds: int = 4, places: bool = False):
        super().__init__()
        self.outputs = outputs
        kernels, added = len(KERNELS), min(features, MOST_ADDED)
        self.places = 2 * DILATIONS * kernels * places
        """Features that are places, the last ones."""
        self.width = (
            2 * DILATIONS * kernels * thresholds + 1 + features * MEASURES * (1 + PARTS) + self.places
        )
        for name, shape in {
            "thresholds": (2, DILATIONS, kernels, thresholds),
            "mean": (self.width,),
            "scale": (self.width,),
            "weight": (outputs, self.width),
            "bias": (outputs,),
        }.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape), requires_grad=False))
        self.register_buffer("dilations", torch.ones(2, DILATIONS, dtype=torch.int64))
        self.register_buffer("channels", torch.zeros(2, DILATIONS, kernels, added, dtype=torch.int64))
        self.held: tuple[Array, Array] | None = None
        """After `fit`: scores ``(n, outputs)`` of training examples by a model that has not seen them, and their numbers ``(n,)``."""

    def forward(self, source: Tensor, lengths: Tensor) -> Tensor:
        """source ``(batch, time, features)`` with ``lengths`` ``(batch,)`` -> scores ``(batch, outputs)``."""
        return self.scores(self.transform(source, lengths))

    def scores(self, features: Tensor) -> Tensor:
        """z of the features ``(batch, width)``: ``(batch, outputs)``."""
        return nn.functional.linear((features - self.mean) / self.scale, self.weight, self.bias)

    def transform(self, source: Tensor, lengths: Tensor) -> Tensor:
        """φ, the measures and the places, ``(batch, width)``."""
        found, where = [], []
        for which, (x, own) in enumerate(both(source, lengths)):
            known: dict[int, Tensor] = {}
            for slot, dilation in enumerate(self.dilations[which].tolist()):
                if x.shape[1] > 1 or dilation not in known:
                    known = {dilation: convolved(x, dilation, self.channels[which, slot])}
                found.append(shares(known[dilation], self.thresholds[which, slot], own))
                if self.places:
                    where.append(places(known[dilation], own))
        (x, own), _ = both(source, lengths)
        return torch.cat([*found, measures(x, own), *where], 1)

    def fit(self, inputs: Sequence[Array], truth: Array, kind: str, seed: int) -> RocketClassifier:
        """Learn from sequences ``(time, features)``.

        Args:
            inputs: the sequences, scaled.
            truth: what `Targets.encode` gives: ``(n,)`` classes or numbers, or ``(n, outputs)`` of 0 and 1.
            kind: class, classes or number.
            seed: draws the features that kernels add up, and the sequences that thresholds are taken from.
        """
        self._draw(inputs, seed)
        y = truth.astype(np.float64)
        if kind == "class":
            y = (truth[:, None] == np.arange(self.outputs)).astype(np.float64)
        y = y[:, None] if kind == "number" else 2 * y - 1
        found = ridge(lambda: self._pieces(inputs), y, self.width, self.places)
        sure = 1.0
        if kind != "number":
            sure = sharpness(found.held, (y[found.rows] + 1) / 2, several=kind == "classes")
        for name, value in {
            "mean": found.mean,
            "scale": found.scale,
            "weight": sure * found.weight.T,
            "bias": sure * found.bias,
        }.items():
            getattr(self, name).copy_(torch.from_numpy(np.ascontiguousarray(value)))
        self.held = (sure * found.held, found.rows)
        return self

    def _draw(self, inputs: Sequence[Array], seed: int) -> None:
        """Choose dilations, the features of each kernel, and thresholds."""
        draw = np.random.RandomState(seed)
        features, added = inputs[0].shape[1], self.channels.shape[-1]
        furthest = max(1.0, (max(map(len, inputs)) - 1) / (LENGTH - 1))
        spread = (2 ** np.linspace(0, np.log2(furthest), DILATIONS)).astype(np.int64)
        number = 1
        for which in range(2):
            self.dilations[which] = torch.from_numpy(spread)
            for slot, dilation in enumerate(spread.tolist()):
                chosen = np.full((len(KERNELS), added), features)
                for row in chosen:
                    count = int(2 ** draw.uniform(0, np.log2(added + 1)))
                    row[:count] = np.sort(draw.permutation(features)[:count])
                self.channels[which, slot] = torch.from_numpy(chosen)
                examples = draw.randint(len(inputs), size=_DRAWN)[np.arange(len(KERNELS)) % _DRAWN]
                for example in np.unique(examples).tolist():
                    x, own = both(*tensors_of([inputs[example]]))[which]
                    answers = convolved(x, dilation, self.channels[which, slot])[0, :, : max(1, int(own))]
                    for kernel in np.flatnonzero(examples == example).tolist():
                        count = self.thresholds.shape[-1]
                        at = np.arange(number, number + count) * _GOLDEN % 1
                        number += count
                        quantiles = np.quantile(answers[kernel].numpy().astype(np.float64), at)
                        self.thresholds[which, slot, kernel] = torch.from_numpy(quantiles)

    def _pieces(self, inputs: Sequence[Array]) -> Iterator[Array]:
        """φ of all inputs in their order, in float64."""
        for first in range(0, len(inputs), _PIECE):
            some = inputs[first : first + _PIECE]
            found = np.zeros((len(some), self.width))
            for rows in in_order(some, _TOGETHER):
                found[rows] = self.transform(*tensors_of([some[i] for i in rows])).numpy()
            yield found


def both(source: Tensor, lengths: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The sequences ``(batch, features, time)``, zero behind their ends, with their lengths, and their differences likewise."""
    inside = torch.arange(source.shape[1], device=source.device) < lengths[:, None]
    x = (source * inside[..., None]).transpose(1, 2)
    if source.shape[1] < 2:
        return (x, lengths), (torch.zeros_like(x), lengths)
    apart = (x[..., 1:] - x[..., :-1]) * inside[:, None, 1:]
    return (x, lengths), (apart, (lengths - 1).clamp_min(1))
