"""Embeddings, one-hot vectors and the output layer."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from anaphora.nn import embedding as module
from anaphora.nn.embedding import Embedding, OneHot, Output, aligned_logits
from anaphora.ops.softmax_loss import summed_loss


def test_a_look_up_is_the_product_with_a_one_hot_vector() -> None:
    """W · onehot is a column of W, exactly, and so are their gradients."""
    embedding, linear, symbols = (
        Embedding(7, 3),
        nn.Linear(7, 3, bias=False),
        torch.tensor([[4, 0, 4], [6, 1, 2]]),
    )
    linear.weight.data = embedding.weight.data.T.clone()
    looked_up, multiplied = embedding(symbols), linear(OneHot(7)(symbols))
    assert torch.equal(looked_up, multiplied)
    looked_up.sin().sum().backward()
    multiplied.sin().sum().backward()
    assert embedding.weight.grad is not None
    assert linear.weight.grad is not None
    torch.testing.assert_close(embedding.weight.grad, linear.weight.grad.T)


def test_scaled_embeddings_enter_with_variance_one() -> None:
    embedding = Embedding(500, 64, scaled=True)
    assert embedding.weight.std().item() == pytest.approx(64**-0.5, rel=0.05)
    assert embedding(torch.arange(500)).std().item() == pytest.approx(1.0, rel=0.05)


def test_a_tied_output_is_the_embedding() -> None:
    embedding = Embedding(5, 3)
    output = Output(3, 5, tied=embedding)
    x = torch.randn(2, 3)
    torch.testing.assert_close(output(x), x @ embedding.weight.T)
    assert list(output.state_dict()) == ["bias"]
    assert [name for name, _ in nn.ModuleList([embedding, output]).named_parameters()] == [
        "0.weight",
        "1.bias",
    ]


def test_a_copied_pair_stays_tied() -> None:
    embedding = Embedding(5, 3)
    pair = copy.deepcopy(nn.ModuleList([embedding, Output(3, 5, tied=embedding)])).double()
    pair[0].weight.data.zero_()
    assert (pair[1](torch.randn(2, 3, dtype=torch.float64)) == 0).all()


def test_untied_output_and_refusal() -> None:
    assert Output(3, 5)(torch.randn(2, 4, 3)).shape == (2, 4, 5)
    with pytest.raises(ValueError, match="5 symbols and width 3"):
        Output(4, 5, tied=Embedding(5, 3))


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("half", [False, True])
def test_padded_logits_have_the_loss_and_the_gradients_of_plain_ones(
    tied: bool, half: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedding = Embedding(67, 5)
    output = Output(5, 67, tied=embedding if tied else None)
    nn.init.normal_(output.bias)
    x, y = torch.randn(3, 5, requires_grad=True), torch.tensor([66, 0, 2])
    found = []
    for pads in (False, True):
        monkeypatch.setattr(module, "_pads", lambda *_, answer=pads: answer)
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            logits = aligned_logits(output, x)
        assert logits.shape == (3, 128 if pads else 67)
        loss = summed_loss(logits, y, ignored=0, symbols=67)
        gradients = torch.autograd.grad(loss, (x, output.matrix, output.bias))
        found.append((loss, logits[:, :67], *gradients))
    assert [g.dtype for g in found[0][2:]] == [g.dtype for g in found[1][2:]]
    for plain, padded in zip(*found, strict=True):
        torch.testing.assert_close(padded, plain, rtol=2**-7 if half else 1e-6, atol=1e-6)


@pytest.mark.cuda
def test_only_long_uneven_rows_in_half_precision_are_padded() -> None:
    x = torch.randn(2, 4, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        shapes = [aligned_logits(Output(4, n).cuda(), x).shape[1] for n in (1023, 1024, 1027, 33278)]
    assert shapes == [1023, 1024, 1088, 33280]
    assert aligned_logits(Output(4, 1027).cuda(), x).shape[1] == 1027
