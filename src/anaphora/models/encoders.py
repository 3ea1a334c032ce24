"""Encoders: a source ``(batch, S)`` of symbols becomes a `Memory`.

The embedding is any module that gives vectors ``(batch, S, width)``, so a source of vectors is read just as well.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.engine.backends.reference import reverse_rows
from anaphora.models.listener import ConvolutionListener
from anaphora.models.memory import Memory
from anaphora.models.pretrained.contextual import Mixture
from anaphora.nn import inside
from anaphora.nn.attention import MultiHead, masks
from anaphora.nn.captured import replayed
from anaphora.nn.convolution import Convolution
from anaphora.nn.embedding import Embedding
from anaphora.nn.linear import LinearStack
from anaphora.nn.positions import Learned, NoPositions
from anaphora.nn.recurrent import Recurrent
from anaphora.nn.transformer import TransformerEncoder as Stack


class RecurrentEncoder(nn.Module):
    """h_j = [→h_j; ←h_j] for every source symbol, or →h_j alone: as the `Recurrent` layer has directions.

    ``reverse`` reads the source last symbol first (Sutskever et al. 2014): its first symbols are then near
    the first symbols of the target. Annotation j still belongs to source symbol j. With ``symbols`` every annotation ends in the
    vector E x_j of its symbol, without dropout, for a decoder that uses it by itself (`AttentionDecoder`).
    """

    def __init__(
        self,
        embedding: nn.Module,
        recurrent: Recurrent | LinearStack,
        *,
        dropout: float = 0.0,
        reverse: bool = False,
        symbols: bool = False,
    ):
        super().__init__()
        self.embedding = embedding
        self.recurrent = recurrent
        self.dropout = nn.Dropout(dropout)
        self.reverse = reverse
        self.symbols = symbols
        self.width: int = recurrent.output_size + (int(embedding.width) if symbols else 0)  # type: ignore[arg-type]

    def forward(self, source: Tensor, lengths: Tensor) -> Memory:
        """source ``(batch, S)``, lengths ``(batch,)``."""
        mask = masks.padding(lengths, source.shape[1])
        vectors = self.embedding(source)
        x = self.dropout(vectors)
        if self.reverse:
            x = reverse_rows(x, lengths)
        annotations, last = self.recurrent(x, lengths)
        if self.reverse:
            annotations = reverse_rows(annotations, lengths)
        if self.symbols:
            annotations = torch.cat((annotations, vectors.to(annotations.dtype)), -1)
        # The states of a linear recurrence are no vectors to go on from.
        return Memory(annotations, mask, last if isinstance(self.recurrent, Recurrent) else ())


class WindowEncoder(nn.Module):
    """A network on a window instead of recurrence: h_t = relu(W [x_{t−c}; …; x_{t+c}] + b), zeros past the ends.

    ``above`` are further layers: on each place by itself (a feed-forward network), or `ConvolutionListener`.
    """

    def __init__(
        self,
        embedding: nn.Module,
        window: Convolution,
        above: nn.Module | None = None,
        *,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.embedding, self.window, self.above = embedding, window, above
        self.dropout = nn.Dropout(dropout)
        self.width = window.weight.shape[0]

    def forward(self, source: Tensor, lengths: Tensor) -> Memory:
        """source ``(batch, S)``, lengths ``(batch,)``."""
        mask = masks.padding(lengths, source.shape[1])
        h = F.relu(self.window(self.dropout(self.embedding(source)), mask))
        inside.note(self, "hidden", h)
        if isinstance(self.above, ConvolutionListener):
            memory: Memory = self.above(h, lengths)
            return memory
        return Memory(h if self.above is None else self.above(h), mask)


class TransformerEncoder(nn.Module):
    """Embedding plus positions, dropout, and a stack of self-attentive layers; ``causal`` ones look back only.

    With ``types`` every place gets the first of so many learned vectors, which tell the parts of a pair of texts apart
    (BERT); ``norm`` normalises the sum of the three, of width ``embedding``, and a linear map brings it to that of the stack
    where they differ (ELECTRA). With ``mix`` the output is a learned mixture of what enters the stack and what leaves each of
    its layers.
    """

    def __init__(
        self,
        embedding: nn.Module,
        stack: Stack,
        *,
        positions: nn.Module | None = None,
        dropout: float = 0.0,
        causal: bool = False,
        types: int = 0,
        norm: nn.Module | None = None,
        project: nn.Linear | None = None,
        mix: bool = False,
    ):
        super().__init__()
        self.embedding = embedding
        self.positions = NoPositions() if positions is None else positions
        self.stack = stack
        self.dropout = nn.Dropout(dropout)
        self.causal = causal
        self.width = stack.width
        self.norm, self.project = norm, project
        self.mix = Mixture(len(stack.layers) + 1) if mix else None
        self.types = nn.Parameter(torch.zeros(types, int(embedding.width))) if types else None  # type: ignore[arg-type]

    def forward(self, source: Tensor, lengths: Tensor) -> Memory:
        """source ``(batch, S)``, lengths ``(batch,)``."""
        found = replayed(self, self._annotations, source, lengths, fits=self._fixed)
        annotations, mask = self._annotations(source, lengths) if found is None else found
        return Memory(annotations, mask)

    def _annotations(self, source: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Annotations ``(batch, S, width)`` and the mask ``(batch, S)``."""
        mask = masks.padding(lengths, source.shape[1])
        entered = self.enter(source)
        if self.mix is not None:
            return self.mix(self.stack.each_layer(entered, mask, causal=self.causal)), mask
        return self.stack(entered, mask, causal=self.causal), mask

    def _fixed(self) -> bool:
        """Whether no table is made for the lengths that come, as for rotary positions or windows."""
        own = [part for part in self.stack.modules() if isinstance(part, MultiHead)]
        plain = all(part.positions is None and part.window is None for part in own)
        return (
            plain and isinstance(self.positions, Learned | NoPositions) and type(self.embedding) is Embedding
        )

    def enter(self, symbols: Tensor, place: int = 0) -> Tensor:
        """What the stack reads of symbols ``(batch, time)``, the first of which stands at ``place``: ``(batch, time, width)``."""
        return self.placed(self.positions(self.vectors(symbols), place))

    def vectors(self, symbols: Tensor) -> Tensor:
        """The vectors of symbols ``(…)`` before their positions are added, ``(…, width)``."""
        x: Tensor = self.embedding(symbols)
        return x if self.types is None else x + self.types[0]

    def placed(self, x: Tensor) -> Tensor:
        """What the stack reads of vectors with their positions, ``(…, width)``."""
        if self.norm is not None:
            x = self.norm(x)
        x = self.dropout(x)
        return x if self.project is None else self.project(x)
