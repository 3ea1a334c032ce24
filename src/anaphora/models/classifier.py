"""Many to one: a sequence of symbols or vectors becomes a score for each class, or a number."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anaphora.data.symbols import PAD
from anaphora.models.memory import Memory
from anaphora.nn.attention import masks
from anaphora.nn.convolution import Convolution, DilatedStack


class SequenceClassifier(nn.Module):
    """z = W pool(h_1 … h_T) + b, with ``outputs`` scores.

    With ``binary`` one score z stands for two classes: the scores 0 and z make softmax(0, z) = (1 − σ(z), σ(z)), so
    cross entropy is then the loss of logistic regression. ``begin`` is a symbol put before every sequence; without
    ``end`` the last symbol of every sequence, </s>, is not read: a language model of lines has never read one.
    """

    def __init__(
        self,
        encoder: nn.Module,
        pooling: nn.Module,
        *,
        width: int,
        outputs: int,
        binary: bool = False,
        dropout: float = 0.0,
        begin: int | None = None,
        end: bool = True,
    ):
        super().__init__()
        self.begin, self.end = begin, end
        self.encoder = encoder
        self.pooling = pooling
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(width, 1 if binary else outputs)
        self.binary = binary
        nn.init.normal_(self.output.weight, std=width**-0.5)
        nn.init.zeros_(self.output.bias)

    @property
    def outputs(self) -> int:
        """Scores of a sequence."""
        return self.output.out_features + self.binary

    def forward(self, source: Tensor, lengths: Tensor) -> Tensor:
        """source ``(batch, time)`` of symbols or ``(batch, time, features)``; lengths ``(batch,)`` ->
        scores ``(batch, outputs)``."""
        return self.scores(self.pooled(source, lengths))

    def pooled(self, source: Tensor, lengths: Tensor) -> Tensor:
        """One vector ``(batch, width)`` of each sequence."""
        if not self.end:
            source, lengths = without_last(source, lengths)
        if self.begin is not None:
            first = torch.full_like(source[:, :1], self.begin)
            source, lengths = torch.cat((first, source), 1), lengths + 1
        memory: Memory = self.encoder(source, lengths)
        vectors: Tensor = self.pooling(memory)
        return vectors

    def scores(self, pooled: Tensor) -> Tensor:
        """Scores ``(batch, outputs)`` of vectors ``(batch, width)``."""
        z: Tensor = self.output(self.dropout(pooled))
        return F.pad(z, (1, 0)) if self.binary else z

    def judge(self, memory: Memory) -> Tensor:
        """Scores ``(batch, outputs)`` of what an encoder made of the sequences."""
        return self.scores(self.pooling(memory))


def without_last(source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Symbols ``(batch, time)`` and lengths ``(batch,)`` without the last symbol of each row.

    What has no other symbol becomes one <pad>, so that no row is empty.
    """
    lengths = lengths - 1
    real = torch.arange(source.shape[1], device=source.device) < lengths[:, None]
    kept = source.masked_fill(~real, PAD)  # (batch, time)
    return kept[:, : max(source.shape[1] - 1, 1)], lengths.clamp(min=1)


class VectorInput(nn.Module):
    """Vectors in the place of symbols: x as it is, or W x + b where a ``width`` is given."""

    def __init__(self, features: int, width: int | None = None):
        super().__init__()
        self.width = features if width is None else width
        self.linear = nn.Identity() if width is None else nn.Linear(features, width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x)
        return out


class BagEncoder(nn.Module):
    """The vectors of the symbols and nothing else: whatever is pooled of them knows no order."""

    def __init__(self, embedding: nn.Module, *, width: int, dropout: float = 0.0):
        super().__init__()
        self.embedding = embedding
        self.dropout = nn.Dropout(dropout)
        self.width = width

    def forward(self, source: Tensor, lengths: Tensor) -> Memory:
        """source ``(batch, time)`` or ``(batch, time, features)``, lengths ``(batch,)``."""
        return Memory(self.dropout(self.embedding(source)), masks.padding(lengths, source.shape[1]))


class ConvolutionEncoder(nn.Module):
    """Windows of several widths over the vectors, side by side (Kim 2014), and dilated layers above them.

        h_t = [relu(conv_k(x)_t) for each width k],  then  h <- h + dropout(relu(conv(h))) with dilation 1, 2, 4 …

    Each width has ``filters`` filters; with max pooling each of them asks whether its pattern occurs at all.
    """

    def __init__(
        self,
        embedding: nn.Module,
        inputs: int,
        filters: int,
        widths: Sequence[int],
        *,
        deeper: int = 0,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.embedding = embedding
        self.windows = nn.ModuleList(Convolution(inputs, filters, width, causal=True) for width in widths)
        self.width = filters * len(widths)
        self.stack = DilatedStack(self.width, 3, deeper, dropout=dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, source: Tensor, lengths: Tensor) -> Memory:
        """source ``(batch, time)`` or ``(batch, time, features)``, lengths ``(batch,)``."""
        mask = masks.padding(lengths, source.shape[1])
        x = self.dropout(self.embedding(source))
        h = torch.cat([F.relu(window(x, mask)) for window in self.windows], -1)
        return Memory(self.stack(h, mask), mask)
