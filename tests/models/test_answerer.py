"""Questions about pictures: grouping them by picture changes nothing, and each is read by its equation."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from anaphora.models.answerer import ByPicture, CrossReader, Looks, PictureAnswerer, QuestionOnly
from anaphora.models.classifier import BagEncoder
from anaphora.models.encoders import RecurrentEncoder
from anaphora.models.seeing import PictureEncoder
from anaphora.nn import LSTM, Recurrent, transformer
from anaphora.nn.attention import MultiHead
from anaphora.nn.embedding import Embedding
from anaphora.nn.residual import ResidualCNN

WHICH = torch.tensor([0, 0, 0, 2, 3, 3])  # nobody asks about picture 1
LENGTHS = torch.tensor([4, 2, 5, 1, 5, 3])


def test_together_and_apart_again():
    groups = ByPicture(WHICH, 4)
    x = torch.arange(6.0)[:, None] + 1
    table = groups.together(x)
    assert table[..., 0].tolist() == [[1, 2, 3], [0, 0, 0], [4, 0, 0], [5, 6, 0]]
    assert groups.apart(table).tolist() == x.tolist()


def model(kind: str) -> PictureAnswerer:
    torch.manual_seed(0)
    pictures = PictureEncoder(ResidualCNN((4,), width=8), size=(8, 8))
    if kind == "cross":
        layer = transformer.DecoderLayer(
            MultiHead(8, 2), MultiHead(8, 2), transformer.FeedForward(8, 16), norm_first=True
        )
        encoder = BagEncoder(Embedding(10, 8), width=8)
        return PictureAnswerer(encoder, pictures, CrossReader(layer, 2), hidden=8, answers=5)
    encoder = RecurrentEncoder(Embedding(10, 8), Recurrent(LSTM(8, 6), bidirectional=True))
    if kind == "blind":
        return PictureAnswerer(encoder, None, QuestionOnly(12), hidden=8, answers=5)
    reader = Looks(looks=3, question=12, picture=8)
    return PictureAnswerer(encoder, pictures, reader, hidden=8, answers=5)


@pytest.mark.parametrize("kind", ["looks", "cross", "blind"])
def test_a_question_does_not_depend_on_the_others(kind):
    net = model(kind).eval()
    images, question = torch.rand(4, 3, 8, 8), torch.randint(4, 10, (6, 5))
    together = net(images, WHICH, question, LENGTHS)
    for i, length in enumerate(LENGTHS.tolist()):
        one = images[WHICH[i] : WHICH[i] + 1]
        alone = net(one, torch.zeros(1, dtype=torch.long), question[i : i + 1, :length], LENGTHS[i : i + 1])
        torch.testing.assert_close(alone[0], together[i], atol=1e-5, rtol=1e-5)
    other = net(torch.rand(4, 3, 8, 8), WHICH, question, LENGTHS)
    assert torch.equal(other, together) == (kind == "blind")


def test_looks_are_taken_side_by_side_as_the_equations_say():
    net = model("looks").double().eval()
    images, question = torch.rand(1, 3, 8, 8, dtype=torch.float64), torch.tensor([[4, 7, 5]])
    lengths, which = torch.tensor([3]), torch.tensor([0])
    h = net.encoder(question, lengths).annotations[0]
    a = net.pictures(images).annotations[0]  # (4, 8)
    reader = net.reader
    q = torch.cat((h[-1, :6], h[0, 6:]))
    scores = reader.w(torch.tanh(reader.U(a) * reader.V(q)))  # (4, 3)
    alpha = torch.softmax(scores, 0)
    looks = [(reader.A[g](alpha[:, g] @ a) * reader.B[g](q)).relu() for g in range(3)]
    gain, shift = reader.modulation(q).split(8)
    marked = ((1 + gain) * F.layer_norm(reader.places(a), (8,)) + shift).relu()
    read = torch.cat((*looks, q, marked.amax(0), marked.mean(0)))
    expected = net.output(net.hidden(read).relu())
    torch.testing.assert_close(net(images, which, question, lengths)[0], expected)
