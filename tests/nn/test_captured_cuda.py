"""A module replayed on a GPU gives what it gives when it is run, whatever happens to it in between."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from anaphora.models.encoders import TransformerEncoder
from anaphora.nn import inside
from anaphora.nn.attention import MultiHead
from anaphora.nn.captured import CAPTURES, replayed
from anaphora.nn.embedding import Embedding
from anaphora.nn.positions import Learned, Sinusoidal
from anaphora.nn.transformer import EncoderLayer, FeedForward
from anaphora.nn.transformer import TransformerEncoder as Stack

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


def made(positions: type[nn.Module] = Learned) -> TransformerEncoder:
    torch.manual_seed(0)
    layer = EncoderLayer(MultiHead(32, 2), FeedForward(32, 64))
    placed = Learned(32, 16) if positions is Learned else Sinusoidal(32)
    return TransformerEncoder(Embedding(20, 32), Stack(layer, 2), positions=placed).eval()


def batch(device: str) -> tuple[Tensor, Tensor]:
    source = torch.randint(4, 20, (3, 9), generator=torch.Generator().manual_seed(1))
    return source.to(device), torch.tensor([9, 4, 7], device=device)


def test_nothing_is_replayed_on_a_cpu() -> None:
    m = made()
    with torch.no_grad():
        assert replayed(m, lambda *given: given, *batch("cpu")) is None


@cuda
@torch.no_grad()
def test_replays_equal_runs_and_follow_the_weights() -> None:
    m, (source, lengths) = made().cuda(), batch("cuda")
    CAPTURES.clear()
    plain = m._annotations(source, lengths)[0]
    for _ in range(3):
        found = m(source, lengths)
        torch.testing.assert_close(found.annotations, plain, rtol=0, atol=1e-5)
    assert CAPTURES.nbytes > 0
    assert found.mask.tolist() == (torch.arange(9) < lengths.cpu()[:, None]).tolist()
    other = m(source.flip(0), lengths.flip(0)).annotations
    torch.testing.assert_close(other.flip(0), plain, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.annotations, plain, rtol=0, atol=1e-5)  # a result of its own
    for weight in m.parameters():  # written in place
        weight.mul_(1.1)
    torch.testing.assert_close(
        m(source, lengths).annotations, m._annotations(source, lengths)[0], rtol=0, atol=1e-5
    )
    held = [copy.deepcopy(weight) for weight in m.parameters()]
    m.cpu().cuda()  # moved: the old places may hold anything
    for weight in m.parameters():
        weight.mul_(0.5)
    del held
    for _ in range(3):
        torch.testing.assert_close(
            m(source, lengths).annotations, m._annotations(source, lengths)[0], rtol=0, atol=1e-5
        )


@cuda
def test_gradients_hooks_and_values_inside_are_run() -> None:
    m, (source, lengths) = made().cuda(), batch("cuda")
    with torch.no_grad():
        for _ in range(3):
            m(source, lengths)
    m(source, lengths).annotations.sum().backward()
    assert m.embedding.weight.grad is not None
    with torch.no_grad():
        with inside.record() as notes:
            m(source, lengths)
        assert notes
        heard: list[int] = []
        hook = m.stack.layers[0].register_forward_hook(lambda *given: heard.append(1))
        for _ in range(3):
            m(source, lengths)
        assert len(heard) == 3
        hook.remove()


@cuda
@torch.no_grad()
def test_tables_that_grow_are_never_captured() -> None:
    m = made(Sinusoidal).cuda()
    CAPTURES.clear()
    before = CAPTURES.nbytes
    for _ in range(4):
        m(*batch("cuda"))
    assert CAPTURES.nbytes == before
