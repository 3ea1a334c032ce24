"""Resemblyzer's voice encoder (PyPI ``resemblyzer``, ``pretrained.pt``; Wan et al. 2018): a recording as a vector of its speaker."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.foreign.architectures.parts import affine
from anaphora.foreign.gates import torch_rules
from anaphora.foreign.mapping import Rule
from anaphora.foreign.published import PublishedModule
from anaphora.nn import LSTM, Recurrent


class VoiceEncoder(nn.Module):
    """A vector of length 1 for each recording: equal speakers have a large product.

        m = an.load("resemblyzer/pretrained.pt")
        v = m(mels)                          # (batch, 256) of (batch, frames, 40)

    ``mels``: powers in 40 mel bands of frames of 25 ms every 10 ms, as ``resemblyzer.audio.wav_to_mel_spectrogram`` gives
    them; the model was trained on 160 frames. ``lengths`` ``(batch,)``: how many frames of each row are real.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lstm = Recurrent(LSTM(40, 256), layers=3)
        self.output = nn.Linear(256, 256)

    def forward(self, mels: Tensor, lengths: Tensor | None = None) -> Tensor:
        """mels ``(batch, frames, 40)`` -> ``(batch, 256)``."""
        _, (h, _) = self.lstm(mels, lengths)
        found: Tensor = F.relu(self.output(h[-1]))
        return F.normalize(found, dim=1, eps=0.0)


def _rules(m: VoiceEncoder) -> tuple[Rule, ...]:
    return (*torch_rules(m.lstm, "lstm.", "lstm."), *affine("linear", "output"))


RESEMBLYZER = PublishedModule(
    "resemblyzer",
    ("similarity_weight", "lstm.weight_ih_l2", "linear.weight"),
    lambda given: VoiceEncoder(),
    _rules,
    silent=("similarity_weight", "similarity_bias"),  # of the loss
)
