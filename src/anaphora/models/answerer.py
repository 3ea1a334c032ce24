"""A question about a picture becomes a score for each answer."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anaphora.models.memory import Memory
from anaphora.models.pooling import LastState
from anaphora.models.seeing import PictureEncoder
from anaphora.nn import inside
from anaphora.nn.transformer import DecoderLayer
from anaphora.nn.transformer.stack import fresh_copies


class ByPicture:
    """Brings the questions about one picture together, so that whatever depends on the picture alone is computed once.

    ``which`` ``(questions,)`` says what picture each question is about; it must not decrease.
    """

    def __init__(self, which: Tensor, pictures: int):
        counts = torch.bincount(which, minlength=pictures)
        self.pictures, self.most = pictures, int(counts.max()) if len(which) else 0
        before = counts.cumsum(0) - counts
        self.place = which * self.most + torch.arange(len(which), device=which.device) - before[which]

    def together(self, x: Tensor) -> Tensor:
        """``(questions, …)`` -> ``(pictures, most, …)``, with zeros where a picture has fewer questions than others."""
        table = x.new_zeros(self.pictures * self.most, *x.shape[1:]).index_copy(0, self.place, x)
        return table.view(self.pictures, self.most, *x.shape[1:])

    def apart(self, x: Tensor) -> Tensor:
        """``(pictures, most, …)`` -> ``(questions, …)``."""
        return x.reshape(-1, *x.shape[2:]).index_select(0, self.place)


class Reader(Protocol):
    """What makes one vector ``(questions, width)`` of the questions and the places of their pictures."""

    width: int

    def __call__(self, asked: Memory, lengths: Tensor, seen: Tensor, groups: ByPicture) -> Tensor: ...


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
        """images ``(pictures, 3, H, W)``; which ``(questions,)``, the picture that each question is about, in order;
        question ``(questions, time)`` of symbols, lengths ``(questions,)`` -> scores ``(questions, answers)``."""
        asked: Memory = self.encoder(question, lengths)
        seen = images if self.pictures is None else self.pictures(images).annotations
        read = self.reader(asked, lengths, seen, ByPicture(which, len(images)))
        scores: Tensor = self.output(self.dropout(F.relu(self.hidden(read))))
        return scores


class QuestionOnly(nn.Module):
    """The last state of the question: a baseline that never sees the picture."""

    def __init__(self, width: int):
        super().__init__()
        self.width = width
        self.pooling = LastState()

    def forward(self, asked: Memory, lengths: Tensor, seen: Tensor, groups: ByPicture) -> Tensor:
        last: Tensor = self.pooling(asked)
        return last


class Looks(nn.Module):
    """The question as a whole looks at the picture several times, side by side (low-rank bilinear; Kim et al. 2017):

        α_g = softmax_j w_g · tanh(U a_j ⊙ V q),    c_g = Σ_j α_gj a_j,    v_g = relu(A_g c_g ⊙ B_g q)

    for ``looks`` looks g, with q the question's last state. The vector is [v_1; …; v_G; q; max_j m_j; mean_j m_j] with
    m_j = relu((1 + γ) ⊙ N(W a_j) + β), where γ and β are linear in q (Perez et al. 2018): a weighted mean finds things,
    but cannot count them, as its weights sum to 1. Notes ``weights``, α ``(questions, looks, places)``.
    """

    def __init__(self, *, looks: int, question: int, picture: int):
        super().__init__()
        self.looks = looks
        self.width = (looks + 2) * picture + question
        self.pooling = LastState()
        self.U, self.V = nn.Linear(picture, picture), nn.Linear(question, picture)
        self.w = nn.Linear(picture, looks)
        self.A = nn.ModuleList(nn.Linear(picture, picture) for _ in range(looks))
        self.B = nn.ModuleList(nn.Linear(question, picture) for _ in range(looks))
        self.places = nn.Linear(picture, picture)
        self.norm = nn.LayerNorm(picture, elementwise_affine=False)
        self.modulation = nn.Linear(question, 2 * picture)

    def forward(self, asked: Memory, lengths: Tensor, seen: Tensor, groups: ByPicture) -> Tensor:
        """asked: states ``(questions, time, question)``; seen ``(pictures, places, picture)``."""
        q = self.pooling(asked)
        together = torch.tanh(self.U(seen).unsqueeze(1) * groups.together(self.V(q)).unsqueeze(2))
        weights = torch.softmax(self.w(together).transpose(2, 3), -1)  # (pictures, most, looks, places)
        inside.note(self, "weights", groups.apart(weights))
        contexts = groups.apart(weights @ seen.unsqueeze(1)).unbind(1)
        found = [F.relu(A(c) * B(q)) for A, B, c in zip(self.A, self.B, contexts, strict=True)]
        gain, shift = groups.together(self.modulation(q)).unsqueeze(2).chunk(2, -1)
        marked = F.relu((1 + gain) * self.norm(self.places(seen)).unsqueeze(1) + shift)
        return torch.cat((*found, q, groups.apart(marked.amax(2)), groups.apart(marked.mean(2))), -1)


class CrossReader(nn.Module):
    """Layers of a Transformer in which the words of a question attend to each other, then to the places of the picture;
    the vector is the state of the first word."""

    def __init__(self, layer: DecoderLayer, layers: int):
        super().__init__()
        self.width = layer.width
        self.layers = nn.ModuleList(fresh_copies(layer, layers))
        self.norm = nn.LayerNorm(layer.width) if layer.norm_first else nn.Identity()

    def forward(self, asked: Memory, lengths: Tensor, seen: Tensor, groups: ByPicture) -> Tensor:
        """asked: word vectors ``(questions, time, width)``; seen ``(pictures, places, width)``."""
        x = asked.annotations
        for layer in self.layers:
            assert isinstance(layer, DecoderLayer)
            x = self._through(layer, x, asked.mask, seen, groups)
        first: Tensor = self.norm(x)[:, 0]
        return first

    @staticmethod
    def _through(layer: DecoderLayer, x: Tensor, mask: Tensor, seen: Tensor, groups: ByPicture) -> Tensor:
        def look(y: Tensor) -> Tensor:
            words = groups.together(y)
            context, _ = layer.cross_attention(words.flatten(1, 2), seen)
            return groups.apart(context.unflatten(1, words.shape[1:3]))

        x = layer.around_attention(x, lambda y: layer.attention(y, mask=mask)[0])
        x = layer.around_cross_attention(x, look)
        out: Tensor = layer.around_feedforward(x, layer.feedforward)
        return out
