"""Embeddings, one-hot vectors and the output layer."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from anaphora.nn.embedding import Embedding, OneHot, Output


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
