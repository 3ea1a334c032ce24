"""BeatNet (PyPI ``BeatNet``, ``model_1_weights.pt``; Heydari et al. 2021): beats and downbeats of music, 50 frames per second."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.foreign.architectures.parts import affine
from anaphora.foreign.gates import torch_rules
from anaphora.foreign.mapping import Rule
from anaphora.foreign.published import PublishedModule
from anaphora.nn import LSTM, Recurrent

States = tuple[Tensor, ...]


class BeatNet(nn.Module):
    """Scores of beat, downbeat and neither for every frame.

        m = an.load("BeatNet/models/model_1_weights.pt")
        scores, state = m(features)          # (batch, frames, 3) of (batch, frames, 272)
        scores, state = m(more, state)       # goes on

    ``features``: BeatNet's 136 logarithmic bands and their differences per frame. ``scores.softmax(-1)`` are probabilities.
    """

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(1, 2, 10)
        self.inward = nn.Linear(262, 150)
        self.lstm = Recurrent(LSTM(150, 150), layers=2)
        self.output = nn.Linear(150, 3)

    def forward(self, features: Tensor, state: States | None = None) -> tuple[Tensor, States]:
        """features ``(batch, frames, 272)`` -> scores ``(batch, frames, 3)`` and the state after them."""
        frames = features.flatten(0, 1)[:, None]  # (batch · frames, 1, 272)
        x = F.max_pool1d(F.relu(self.convolution(frames)), 2).flatten(1)
        y, state = self.lstm(self.inward(x).view(*features.shape[:2], -1), initial=state)
        return self.output(y), state


def _rules(m: BeatNet) -> tuple[Rule, ...]:
    return (
        *affine("conv1", "convolution"),
        *affine("linear0", "inward"),
        *torch_rules(m.lstm, "lstm.", "lstm."),
        *affine("linear", "output"),
    )


BEATNET = PublishedModule(
    "BeatNet", ("conv1.weight", "linear0.weight", "lstm.weight_ih_l1"), lambda given: BeatNet(), _rules
)
