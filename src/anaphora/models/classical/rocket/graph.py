"""ROCKET as a graph: a loop over the dilations, as nothing in a graph may depend on numbers or sizes that were traced."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.models.classical.rocket.classifier import RocketClassifier, both
from anaphora.models.classical.rocket.convolutions import KERNELS, LENGTH, added, measures, places, shares
from anaphora.nn.exporting import Tensors, loop


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
