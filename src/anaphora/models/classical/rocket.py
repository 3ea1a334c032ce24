"""Sequences of numbers by what thousands of fixed convolutions answer, under a linear model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.data.batches.padded import tensors_of
from anaphora.data.batches.pooled import in_order
from anaphora.models.classical.calibration import sharpness
from anaphora.nn.exporting import Tensors, loop

# ----------------------------------------------------------------------------
# What fixed convolutions answer at every place of a sequence, and what is counted of it (Dempster et al. 2021).

LENGTH = 9
"""Taps of a kernel."""
KERNELS = tuple(combinations(range(LENGTH), 3))
"""The three taps of each kernel that weigh 2; the other six weigh −1, so that a kernel sums to zero and no level moves it."""
_WEIGHING = [[k for k, chosen in enumerate(KERNELS) if tap in chosen] for tap in range(LENGTH)]
"""The kernels in which each tap weighs 2."""
PARTS = 4
"""Parts of a sequence, of about equal length, that are measured by themselves, besides the whole."""
MEASURES = 4


def convolved(x: Tensor, dilation: int, channels: Tensor) -> Tensor:
    """What every kernel answers at every place, ``(batch, kernels, time)``.

        u_t = Σ_{c ∈ channels} x_{c,t}        y_t = Σ_j w_j u_{t + (j − 4)·dilation}

    Args:
        x: ``(batch, features, time)``; beyond its ends there are zeros.
        dilation: steps from one tap to the next.
        channels: ``(kernels, n)``, the features that each kernel adds up; a number that is no feature adds nothing.

    All sums are of a fixed order and element by element, so that no other sequence of the batch changes a bit.
    """
    batch, _, time = x.shape
    step = max(1, min(dilation, time))  # a tap further away finds nothing but zeros either
    u = added(x, channels)
    wide = F.pad(u, (4 * step, 4 * step))
    taps = [wide[..., j * step : j * step + time] for j in range(LENGTH)]
    total = taps[0]
    for tap in taps[1:]:
        total = total + tap
    found = (-total).expand(batch, len(KERNELS), time).clone()
    for tap, kernels in zip(taps, _WEIGHING, strict=True):
        found[:, kernels] += 3 * (tap if u.shape[1] == 1 else tap[:, kernels])
    return found


def added(x: Tensor, channels: Tensor) -> Tensor:
    """u of `convolved`, ``(batch, kernels, time)``; ``(batch, 1, time)`` of one feature, which all kernels see."""
    features = x.shape[1]
    if features == 1:
        return x
    known = F.pad(x, (0, 0, 0, 1))  # the last row is that of no feature
    chosen = torch.where((channels < 0) | (channels > features), features, channels)
    found = known.index_select(1, chosen[:, 0])
    for one in chosen.T[1:]:
        found = found + known.index_select(1, one)
    return found


def shares(y: Tensor, thresholds: Tensor, lengths: Tensor, counting: torch.dtype = torch.int64) -> Tensor:
    """The share of places at which answers exceed each threshold.

    Args:
        y: answers ``(batch, kernels, time)``.
        thresholds: ``(kernels, n)``.
        lengths: places of each sequence that count, ``(batch,)``.
        counting: what counts are summed in.

    Returns ``(batch, kernels · n)``.
    """
    inside = torch.arange(y.shape[-1], device=y.device) < lengths[:, None]
    kept = y.masked_fill(~inside[:, None], float("-inf"))
    counts = torch.stack([(kept > one[:, None]).sum(-1, dtype=counting) for one in thresholds.unbind(1)], -1)
    return (counts / lengths.clamp_min(1)[:, None, None]).flatten(1).to(y.dtype)


def places(y: Tensor, lengths: Tensor) -> Tensor:
    """Where each kernel answers most, from −1 at the first place to 1 at the last; the first of several such places.

    y: answers ``(batch, kernels, time)``; returns ``(batch, kernels)``.
    """
    inside = torch.arange(y.shape[-1], device=y.device) < lengths[:, None]
    at = y.masked_fill(~inside[:, None], float("-inf")).argmax(-1)
    return (2 * at / (lengths - 1).clamp_min(1)[:, None] - 1).to(y.dtype)


def measures(x: Tensor, lengths: Tensor) -> Tensor:
    """Mean, deviation, least and greatest of each feature, over the whole sequence and over each of its four parts, and the logarithm of
    its length: what kernels that sum to zero do not see.

    x: ``(batch, features, time)``; returns ``(batch, 1 + features · 20)``. A part without a place is measured as zeros.
    """
    places = torch.arange(x.shape[-1], device=x.device)
    inside = places < lengths[:, None]
    part = places * PARTS // lengths.clamp_min(1)[:, None]
    exact = x.double()
    found = [lengths.clamp_min(1).double().log()[:, None]]
    for own in (inside, *(inside & (part == one) for one in range(PARTS))):
        mine = own[:, None]
        count = mine.sum(-1).clamp_min(1)
        empty = ~own.any(-1)[:, None]
        mean = (exact * mine).sum(-1) / count
        spread = ((exact - mean[..., None]).square() * mine).sum(-1) / count
        least = exact.masked_fill(~mine, float("inf")).amin(-1).masked_fill(empty, 0.0)
        most = exact.masked_fill(~mine, float("-inf")).amax(-1).masked_fill(empty, 0.0)
        found += [mean, spread.sqrt(), least, most]
    return torch.cat(found, 1).to(x.dtype)


# ----------------------------------------------------------------------------
# Ridge regression whose penalty is chosen by what each example is predicted without it. In float64, without torch.

Doubles = np.ndarray[Any, np.dtype[np.float64]]
PENALTIES = np.logspace(-6, 1, 15)
"""Penalties that are tried, for each feature."""
MOST_EXAMPLES = 5000
"""Up to so many examples the matrix of their products is decomposed; with more, that of the features is solved."""
DOUBTED = 1500
"""Up to so many examples it is tried whether they are predicted better without the doubtful features; of more, those do no harm."""
JUDGES = 1000
"""Of more examples so many, or a fifth, are held out to choose the penalty by."""


class Fit(NamedTuple):
    """Predictions are ``((x − mean) / scale) @ weight + bias``."""

    mean: Doubles
    scale: Doubles
    weight: Doubles
    bias: Doubles
    penalty: float
    held: Doubles
    """What examples are predicted by a regression that has not seen them, ``(n, outputs)``."""
    rows: np.ndarray[Any, np.dtype[np.int64]]
    """The numbers of these examples."""


def ridge(features: Callable[[], Iterable[Doubles]], truth: Doubles, width: int, doubtful: int = 0) -> Fit:
    """Minimise |y − ŷ|² + penalty |w|² over standardised features, with the penalty that predicts unseen examples best. The last ``doubtful``
    features are left out, with weights of 0, where that is better still.

    Args:
        features: called once or more often, gives the rows ``(some, width)`` of all examples in their order, in pieces.
        truth: y, ``(n, outputs)``.
        width: features of an example.
    """
    if len(truth) <= MOST_EXAMPLES:
        return _by_examples(np.concatenate(list(features())), truth, doubtful)
    return _by_features(features, truth, width)


def _by_examples(x: Doubles, y: Doubles, doubtful: int) -> Fit:
    """With ŷ = K c of the products K of centred examples, leaving example i out changes what it is predicted to yᵢ − cᵢ / Gᵢᵢ, where G
    = (K + penalty)⁻¹ without the direction in which all examples are alike, which is that of the mean."""
    mean, scale = _spread(x.mean(0), x.std(0))
    z = (x - mean) / scale
    n, bias, sure = len(z), y.mean(0), z.shape[1] - doubtful
    best: tuple[float, float, int, Doubles, Doubles] | None = None
    for width in (sure, z.shape[1]) if doubtful and n <= DOUBTED else (z.shape[1],):
        values, vectors = np.linalg.eigh(z[:, :width] @ z[:, :width].T)
        values, squares, turned = values.clip(0), np.square(vectors), vectors.T @ (y - bias)
        for penalty in PENALTIES * width:
            shrunk = 1 / (values + penalty)
            c = vectors @ (shrunk[:, None] * turned)
            diagonal = squares @ shrunk - 1 / (n * penalty)
            held = y - c / np.maximum(diagonal, 1e-300)[:, None]
            error = float(np.square(held - y).mean())
            if best is None or error < best[0]:
                best = (error, penalty, width, c, held)
    assert best is not None
    _, penalty, width, c, held = best
    weight = np.zeros((z.shape[1], y.shape[1]))
    weight[:width] = z[:, :width].T @ c
    return Fit(mean, scale, weight, bias, penalty, held, np.arange(n))


def _by_features(features: Callable[[], Iterable[Doubles]], y: Doubles, width: int) -> Fit:
    """From sums over the examples, which are read in pieces; some are held out of them at first to choose the penalty by."""
    n = len(y)
    judging = np.zeros(n, bool)
    judging[np.random.RandomState(0).permutation(n)[: min(JUDGES, n // 5)]] = True
    total, square, cross = np.zeros(width), np.zeros((width, width)), np.zeros((width, y.shape[1]))

    def add(some: Doubles, truth: Doubles) -> None:
        np.add(total, some.sum(0), out=total)
        np.add(square, some.T @ some, out=square)
        np.add(cross, some.T @ truth, out=cross)

    judged, first = [], 0
    for piece in features():
        own, held = y[first : first + len(piece)], judging[first : first + len(piece)]
        first += len(piece)
        judged.append(piece[held])
        add(piece[~held], own[~held])
    x = np.concatenate(judged)
    tried = []
    for penalty in PENALTIES[2::3] * width:
        found = _solved(total, square, cross, y[~judging], penalty)
        answers = ((x - found.mean) / found.scale) @ found.weight + found.bias
        tried.append((float(np.square(answers - y[judging]).mean()), penalty, answers))
    _, penalty, answers = min(tried, key=lambda one: one[0])
    add(x, y[judging])
    return _solved(total, square, cross, y, penalty)._replace(held=answers, rows=np.flatnonzero(judging))


def _solved(total: Doubles, square: Doubles, cross: Doubles, y: Doubles, penalty: float) -> Fit:
    n = len(y)
    plain, bias = total / n, y.mean(0)
    variance = np.diag(square) / n - plain**2
    mean, scale = _spread(plain, np.sqrt(variance.clip(0)))
    of_features = (square - n * np.outer(mean, mean)) / np.outer(scale, scale)
    of_features[np.diag_indices(len(mean))] += penalty
    of_targets = (cross - n * np.outer(mean, bias)) / scale[:, None]
    return Fit(
        mean, scale, np.linalg.solve(of_features, of_targets), bias, penalty, y[:0], np.zeros(0, np.int64)
    )


def _spread(mean: Doubles, deviation: Doubles) -> tuple[Doubles, Doubles]:
    """What features are measured by; one that never changes is only shifted."""
    return mean, np.where(deviation > 1e-6, deviation, 1.0)


# ----------------------------------------------------------------------------
# Classes, or a number, of sequences of vectors from what random convolutions answer (ROCKET).

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


# ----------------------------------------------------------------------------
# ROCKET as a graph: a loop over the dilations, as nothing in a graph may depend on numbers or sizes that were traced.


class RocketGraph(nn.Module):
    """The scores of `RocketClassifier.forward`: what is compared with thresholds is the same to the last bit."""

    thrice: Tensor

    def __init__(self, model: RocketClassifier):
        super().__init__()
        self.model = model
        weighing = [[3.0 * (tap in chosen) for chosen in KERNELS] for tap in range(LENGTH)]
        self.register_buffer("thrice", torch.tensor(weighing))  # (taps, kernels): 2 is −1 + 3

    def forward(self, source: Tensor, lengths: Tensor) -> Tensor:
        """source ``(batch, time, features)`` with ``lengths`` ``(batch,)`` -> scores ``(batch, outputs)``."""
        return self.model.scores(self.transform(source, lengths))

    def transform(self, source: Tensor, lengths: Tensor) -> Tensor:
        """φ, the measures and the places, ``(batch, width)``."""
        model, found, where = self.model, [], []
        step = _with_places if model.places else _step
        own = both(F.pad(source, (0, 0, 0, 1)), lengths)  # so that a single step has a difference, too
        for which, (x, count) in enumerate(own):
            given = (model.dilations[which], model.channels[which], model.thresholds[which])
            _, answered = loop(step, (x, count, self.thrice), given)
            counted = model.thresholds[which, 0].numel()
            each = answered.transpose(
                0, 1
            )  # (batch, dilations, kernels · thresholds, and kernels more where places count)
            found.append(each[..., :counted].flatten(1))
            where += [each[..., counted:].flatten(1)] * bool(model.places)
        return torch.cat([*found, measures(*own[0]), *where], 1)


def _step(state: Tensors, given: Tensors) -> tuple[Tensors, Tensor]:
    """The shares of one dilation. What stays the same is passed on as the state."""
    # onnxruntime adds float32 much faster than int64, and up to 2²⁴ places exactly
    counted = shares(_answers(state, given), given[2], state[1], torch.float32)
    return tuple(one.clone() for one in state), counted


def _with_places(state: Tensors, given: Tensors) -> tuple[Tensors, Tensor]:
    """The shares of one dilation, and the places."""
    answers = _answers(state, given)
    counted = shares(answers, given[2], state[1], torch.float32)
    return tuple(one.clone() for one in state), torch.cat([counted, places(answers, state[1])], 1)


def _answers(state: Tensors, given: Tensors) -> Tensor:
    """What every kernel answers, ``(batch, kernels, time)``; the sums are in the order of `convolved`."""
    x, _, thrice = state
    dilation, channels, _ = given
    time = x.shape[-1]
    # (batch, time + 1, kernels), zero at the last place: rows of this layout are looked up several times as fast
    u = F.pad(added(x, channels), (0, 1)).transpose(1, 2)
    steps = torch.arange(time)
    taps = []
    for j in range(LENGTH):
        at = steps + (j - LENGTH // 2) * dilation
        taps.append(u.index_select(1, at.masked_fill((at < 0) | (at >= time), time)))
    total = taps[0]
    for tap in taps[1:]:
        total = total + tap
    answers = -total
    for tap, weights in zip(taps, thrice.unbind(0), strict=True):
        answers = answers + tap * weights
    return answers.transpose(1, 2)
