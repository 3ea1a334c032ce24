"""Classifiers of pictures ``(batch, rows, columns, channels)``: by glimpses, or by states over the whole grid."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.models.classifier import SequenceClassifier
from anaphora.models.memory import Memory
from anaphora.nn.glimpse import DrawReader, Glimpses, Looks
from anaphora.nn.grid_lstm import GridLSTM
from anaphora.nn.transformer import TransformerEncoder


class LookingEncoder(nn.Module):
    """States after each of several looks, in the order of the looks."""

    def __init__(self, eye: Glimpses | DrawReader):
        super().__init__()
        self.eye = eye
        self.width = eye.hidden

    def forward(self, picture: Tensor, lengths: Tensor) -> Memory:
        """picture ``(batch, rows, columns, channels)``; lengths are its rows, which all have."""
        return self.remember(self.eye(picture))

    def remember(self, looks: Looks) -> Memory:
        states = looks.states
        return Memory(states, torch.ones(states.shape[:2], dtype=torch.bool, device=states.device))


class LookingClassifier(SequenceClassifier):
    """A classifier that answers from its state after the last look, and believes something after each."""

    encoder: LookingEncoder

    def look(self, picture: Tensor) -> tuple[Tensor, Looks]:
        """picture ``(batch, rows, columns, channels)`` -> scores ``(batch, outputs)``, and how they came about."""
        looks: Looks = self.encoder.eye(picture)
        return self.judge(self.encoder.remember(looks)), looks

    def beliefs(self, looks: Looks) -> Tensor:
        """The scores it would have answered with after each look, ``(batch, looks, outputs)``."""
        z: Tensor = self.output(looks.states)
        return F.pad(z, (1, 0)) if self.binary else z


class GridEncoder(nn.Module):
    """Squares of a picture, and layers of two-dimensional LSTMs over them.

        x_ij = W (the pixels of square i, j) + b;   each layer: x <- dropout(h) with h of a `GridLSTM`

    A picture that the squares do not divide is filled up with zeros below and to the right. Places come row by row.
    """

    def __init__(
        self, patch: int, channels: int, width: int, layers: list[GridLSTM], *, dropout: float = 0.0
    ):
        super().__init__()
        self.patch = patch
        self.embedding = nn.Linear(patch * patch * channels, width)
        self.layers = nn.ModuleList(layers)
        self.dropout = nn.Dropout(dropout)
        self.width = layers[-1].output_size

    def forward(self, picture: Tensor, lengths: Tensor) -> Memory:
        """picture ``(batch, rows, columns, channels)``; lengths are its rows, which all have."""
        x = self.embedding(self.squares(picture))
        ends = x
        for number, layer in enumerate(self.layers):
            x, ends = layer(self.dropout(x) if number else x)
        states = x.flatten(1, 2)
        mask = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
        return Memory(states, mask, (ends,))

    def squares(self, picture: Tensor) -> Tensor:
        """``(batch, rows/patch, columns/patch, patch·patch·channels)``, both rounded up."""
        return squares(picture, self.patch)


class PatchEncoder(nn.Module):
    """A Vision Transformer (Dosovitskiy et al. 2021): squares of a picture are the places of a self-attentive stack.

        x_p = W (the pixels of square p) + b + P_p;   so many learned vectors as ``first`` says stand before them ([CLS])

    ``positions`` is added; a picture that the squares do not divide is filled up with zeros below and to the right.
    """

    def __init__(
        self,
        patch: int,
        channels: int,
        stack: TransformerEncoder,
        *,
        positions: nn.Module,
        first: int = 0,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.patch, self.width = patch, stack.width
        self.embedding = nn.Linear(patch * patch * channels, stack.width)
        # one is a vector, as in every run so far
        self.first = (
            nn.Parameter(torch.zeros(*([first] if first > 1 else []), stack.width)) if first else None
        )
        self.positions = positions
        self.stack = stack
        self.dropout = nn.Dropout(dropout)

    def forward(self, picture: Tensor, lengths: Tensor) -> Memory:
        """picture ``(batch, rows, columns, channels)``; lengths are its rows, which all have."""
        x = self.embedding(squares(picture, self.patch).flatten(1, 2))
        if self.first is not None:
            begin = self.first.view(1, -1, self.width).expand(x.shape[0], -1, -1)  # (batch, first, width)
            x = torch.cat((begin.to(x.dtype), x), 1)
        states = self.stack(self.dropout(self.positions(x)))
        return Memory(states, torch.ones(states.shape[:2], dtype=torch.bool, device=states.device))


def squares(picture: Tensor, side: int) -> Tensor:
    """``(batch, rows, columns, channels)`` -> ``(batch, rows/side, columns/side, side·side·channels)``, both rounded up."""
    batch, rows, columns, channels = picture.shape
    filled = F.pad(picture, (0, 0, 0, -columns % side, 0, -rows % side))
    cut = filled.view(batch, filled.shape[1] // side, side, filled.shape[2] // side, side, channels)
    return cut.transpose(2, 3).flatten(3)
