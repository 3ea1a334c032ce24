"""A question about a picture becomes a score for each answer."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anaphora.models.memory import Memory
from anaphora.models.pooling import LastState
from anaphora.models.seeing import PictureEncoder
from anaphora.nn.attention.base import Attention
from anaphora.nn.recurrent import Recurrent
from anaphora.nn.transformer import TransformerEncoder


class Reader(Protocol):
    """What makes one vector ``(batch, width)`` of a question and of the places of its picture."""

    width: int

    def __call__(self, asked: Memory, lengths: Tensor, seen: Tensor | None) -> Tensor: ...


class PictureAnswerer(nn.Module):
    """z = W₂ relu(W₁ read(question, picture) + b₁) + b₂, a score for each answer.

    ``encoder`` reads the question, ``pictures`` the picture (None: the answer is guessed from the question alone), and
    ``reader`` brings them together. A picture is seen once, however many questions are asked about it.
    """

    def __init__(
        self,
        encoder: nn.Module,
        pictures: PictureEncoder | None,
        reader: Reader,
        *,
        hidden: int,
        answers: int,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.encoder = encoder
        self.pictures = pictures
        self.reader = reader
        self.hidden = nn.Linear(reader.width, hidden)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(hidden, answers)
        nn.init.normal_(self.output.weight, std=hidden**-0.5)
        nn.init.zeros_(self.output.bias)

    def forward(self, images: Tensor, which: Tensor, question: Tensor, lengths: Tensor) -> Tensor:
        """images ``(pictures, 3, H, W)``; which ``(batch,)``, the picture that each question is about; question
        ``(batch, time)`` of symbols, lengths ``(batch,)`` -> scores ``(batch, answers)``."""
        asked: Memory = self.encoder(question, lengths)
        seen = None if self.pictures is None else self.pictures(images).annotations[which]
        read = self.dropout(F.relu(self.hidden(self.reader(asked, lengths, seen))))
        scores: Tensor = self.output(read)
        return scores


class QuestionOnly(nn.Module):
    """The last state of the question: what answers look like when nobody looks at the picture."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width
        self.pooling = LastState()

    def forward(self, asked: Memory, lengths: Tensor, seen: Tensor | None = None) -> Tensor:
        last: Tensor = self.pooling(asked)
        return last


class WordByWord(nn.Module):
    """Every word of the question looks at the picture, and a second layer reads words together with what they saw.

        c_t = Σ_j α_tj a_j,    α_t = softmax_j score(h_t, a_j),    s_t = cell(s_{t−1}, [h_t; c_t])

    and the vector is [s_T; m], where m = (1/L) Σ_j relu((1 + γ) ⊙ N(W a_j) + β) with γ and β linear in the question's
    last state (Perez et al. 2018): a weighted mean finds things, but cannot count them, as its weights sum to 1.
    """

    def __init__(self, attention: Attention, recurrent: Recurrent, *, question: int, picture: int):
        super().__init__()
        self.attention = attention
        self.recurrent = recurrent
        self.width = recurrent.output_size + picture
        self.pooling = LastState()
        self.places = nn.Linear(picture, picture)
        self.norm = nn.LayerNorm(picture, elementwise_affine=False)
        self.modulation = nn.Linear(question, 2 * picture)

    def forward(self, asked: Memory, lengths: Tensor, seen: Tensor | None) -> Tensor:
        """asked: states ``(batch, time, question)``; seen ``(batch, places, picture)``."""
        assert seen is not None
        context, _ = self.attention(asked.annotations, seen)
        _, last = self.recurrent(torch.cat((asked.annotations, context), -1), lengths)
        gain, shift = self.modulation(self.pooling(asked)).unsqueeze(1).chunk(2, -1)
        found = F.relu((1 + gain) * self.norm(self.places(seen)) + shift).mean(1)
        return torch.cat((last[0][-1], found), -1)


class JointReader(nn.Module):
    """Self-attention over the words of the question and the places of the picture as one sequence (Li et al. 2019); the
    vector is the state of the question's first word.

    A learnt vector is added to all words, and another to all places, to tell them apart.
    """

    def __init__(self, stack: TransformerEncoder):
        super().__init__()
        self.stack = stack
        self.width = stack.width
        self.kinds = nn.Parameter(torch.empty(2, stack.width))
        nn.init.normal_(self.kinds, std=0.3)

    def forward(self, asked: Memory, lengths: Tensor, seen: Tensor | None) -> Tensor:
        """asked: word vectors ``(batch, time, width)``; seen ``(batch, places, width)``."""
        assert seen is not None
        words, places = asked.annotations + self.kinds[0], seen + self.kinds[1]
        there = asked.mask.new_ones(seen.shape[:2])
        states = self.stack(torch.cat((words, places), 1), torch.cat((asked.mask, there), 1))
        first: Tensor = states[:, 0]
        return first
