"""Learned numbers for distances (T5), heads of another width and scores that are not scaled."""

from __future__ import annotations

import pytest
import torch

import anaphora as an
from anaphora.nn.attention import MultiHead
from anaphora.nn.distances import Distances


def test_near_distances_have_a_bucket_each_and_far_ones_share_them() -> None:
    both, back = Distances(2, buckets=8, limit=16), Distances(2, buckets=8, limit=16, both=False)
    assert both.bucket(torch.tensor([0, -1, -2, -4, -8, -99, 1, 2, 5, 99])).tolist() == [
        0,
        1,
        2,
        2,
        3,
        3,
        5,
        6,
        6,
        7,
    ]
    assert back.bucket(torch.tensor([5, 0, -1, -3, -4, -8, -99])).tolist() == [0, 0, 1, 3, 4, 6, 7]
    bias = both.bias(3, 5, like=torch.zeros(1))  # queries at the places 2, 3 and 4
    assert bias.shape == (2, 3, 5)
    assert torch.equal(bias[:, 0, 2], both.weight[0])
    assert torch.equal(bias[:, 0, 3], both.weight[5])
    with pytest.raises(ValueError, match="at least 4 buckets"):
        Distances(2, buckets=3)


def test_attention_with_wide_heads_computes_what_is_written_out() -> None:
    torch.manual_seed(1)
    attention = MultiHead(6, 3, head_width=5, scaled=False, bias=False, outward_bias=False).eval()
    x = torch.randn(2, 4, 6)
    q, k, v = (part.view(2, 4, 3, 5).transpose(1, 2) for part in attention.inward(x).split(15, -1))
    alpha = torch.softmax(q @ k.transpose(2, 3), -1)
    found = attention.outward((alpha @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(attention(x)[0], found)
    torch.testing.assert_close(attention(x, weights=True)[0], found)


def test_all_layers_share_the_numbers_of_the_first_and_steps_equal_the_whole() -> None:
    m = an.Translator(
        "transformer",
        hidden=12,
        heads=3,
        layers=2,
        decoder_layers=3,
        feedforward=16,
        steps=1,
        positions="none",
        distance_buckets=8,
        distance_limit=6,
        head_width=5,
        biases="none",
        scaled_scores=False,
        norm="rms",
        tie=False,
        joint=True,
        shared_vectors=True,
        shrunk_output=True,
    ).fit([("a b c d", "b c"), ("c d", "d c b a")] * 4, verbose=False)
    names = [name for name, _ in m.model_.named_parameters()]
    assert [name for name in names if "positions" in name] == [
        f"{side}.stack.layers.0.attention.positions.weight" for side in ("encoder", "decoder")
    ]
    assert sum(name.endswith("cross_attention.inward.weight") for name in names) == 3
    assert m.model_.encoder.embedding is m.model_.decoder.embedding
    source, target = torch.randint(4, 8, (2, 9)), torch.randint(4, 8, (2, 7))
    with torch.no_grad():
        memory = m.model_.eval().encode(source, torch.tensor([9, 5]))
        whole = m.model_.decoder(target, memory)
        state = m.model_.start(memory)
        for place, symbols in enumerate(target.unbind(1)):
            step, state = m.model_.decoder.step(symbols, state)
            torch.testing.assert_close(step, whole[:, place], rtol=1e-5, atol=1e-5)
