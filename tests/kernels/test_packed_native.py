"""Packed products, attention to a past in blocks, and best symbols against the same written in torch."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from anaphora.ops import packed as native

pytestmark = pytest.mark.skipif(native.library.functions() is None, reason="no C compiler here")
SIZES = [(1, 1, 1), (2, 33, 5), (5, 64, 130), (7, 31, 64), (12, 100, 17), (13, 32, 96), (41, 257, 70)]


def rounded(x: Tensor, how: str) -> tuple[Tensor, Tensor]:
    """Whole numbers from −127 to 127 and the scale of each row, in double precision."""
    scale = x.abs().amax(1, keepdim=True) / 127
    steps = (x / scale).double()
    return (steps.round() if how == "even" else (steps + 0.5).floor()), scale.double()


@pytest.mark.parametrize(("rows", "outputs", "inputs"), SIZES)
def test_products_in_single_precision(rows: int, outputs: int, inputs: int) -> None:
    x, weight, bias = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(outputs)
    for b in (bias, None):
        expected = F.linear(x.double(), weight.double(), None if b is None else b.double())
        found = native.linear(x, native.pack(weight, b))
        torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-6 * inputs)


@pytest.mark.parametrize(("rows", "outputs", "inputs"), SIZES)
def test_products_of_eight_bits_are_those_of_the_rounded_numbers(
    rows: int, outputs: int, inputs: int
) -> None:
    x, weight, bias = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(outputs)
    (q, by), (u, s) = rounded(weight, "even"), rounded(x, "up")
    expected = (u @ q.T) * s * by.T + bias
    found = native.linear(x, native.pack(weight, bias, int8=True))
    # Where a number lies between two whole ones, the last bit decides: at most one step of it may differ.
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5 + float((127 * s * by.T).max()))
    near = (found.double() - expected).abs() < 1e-4
    assert near.double().mean() > 0.95


@pytest.mark.parametrize("int8", [False, True])
def test_a_row_does_not_depend_on_the_rows_beside_it_nor_on_threads(int8: bool) -> None:
    x, packed = torch.randn(29, 300), native.pack(torch.randn(1000, 300), torch.randn(1000), int8=int8)
    together = native.linear(x, packed)
    for row in (0, 11, 12, 28):
        assert torch.equal(native.linear(x[row : row + 1], packed)[0], together[row])
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert torch.equal(native.linear(x, packed), together)
    finally:
        torch.set_num_threads(threads)


def test_zeros_stay_zeros() -> None:
    for int8 in (False, True):
        packed = native.pack(torch.zeros(3, 4), torch.tensor([1.0, 2.0, 3.0]), int8=int8)
        assert native.linear(torch.randn(2, 4), packed).tolist() == [[1, 2, 3]] * 2
        packed = native.pack(torch.randn(3, 4), None, int8=int8)
        assert native.linear(torch.zeros(2, 4), packed).tolist() == [[0, 0, 0]] * 2


def test_attention_to_a_past_in_blocks() -> None:
    """Three steps with 2, 4 and 3 rows: each row reads its own line of ancestors."""
    heads, width, layers = 2, 10, 3
    blocks = [torch.randn(layers, rows, 2 * width) for rows in (2, 4, 3)]
    slots = torch.tensor([[1, 3, 0], [0, 0, 1], [1, 2, 2]])
    query = torch.randn(3, width)
    addresses = torch.tensor([block.data_ptr() for block in blocks])
    sizes = torch.tensor([block.shape[1] for block in blocks])
    for layer in range(layers):
        found = native.attend_past(query, heads, addresses, sizes, slots, layer)
        for row in range(3):
            past = torch.stack([blocks[t][layer, slots[row, t]] for t in range(3)])
            k, v = (x.view(3, heads, -1).transpose(0, 1) for x in past.chunk(2, -1))
            expected = F.scaled_dot_product_attention(query[row].view(heads, 1, -1), k, v)
            torch.testing.assert_close(found[row], expected.flatten())


def test_attention_to_a_shared_memory() -> None:
    heads, width = 3, 12
    memory, mask = torch.randn(2, 5, 2 * width), torch.tensor([[True] * 5, [True, False, True, False, False]])
    item, query = torch.tensor([1, 0, 1, 1]), torch.randn(4, width)
    found, looks = native.attend_memory(query, heads, memory, item, mask)
    k, v = (x.reshape(4, 5, heads, -1).transpose(1, 2) for x in memory[item].chunk(2, -1))
    q = query.view(4, heads, 1, -1)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[item][:, None, None])
    torch.testing.assert_close(found, expected.flatten(1))
    scores = (q @ k.transpose(2, 3) / 2).masked_fill(~mask[item][:, None, None], -math.inf)
    torch.testing.assert_close(looks, scores.softmax(-1).mean(1).squeeze(1))
    for nothing in native.attend_memory(query, heads, memory, item, torch.zeros_like(mask)):
        assert not nothing.any()


@settings(max_examples=100)
@given(
    rows=st.integers(1, 4),
    symbols=st.integers(1, 700),
    count=st.integers(1, 9),
    levels=st.sampled_from([2, 5, 10**6]),
    seed=st.integers(0, 10**6),
)
def test_best_symbols_in_order(rows: int, symbols: int, count: int, levels: int, seed: int) -> None:
    """Few levels make many equal logits, of which the lower symbol goes first."""
    source = torch.Generator().manual_seed(seed)
    logits = torch.randint(levels, (rows, symbols), generator=source) * (8 / levels) - 4
    logits[torch.rand(rows, symbols, generator=source) < 0.1] = -math.inf
    forbidden = seed % symbols if seed % 2 else None
    log_p, found = native.best_symbols(logits, count, forbidden)
    totals = logits.double().logsumexp(1)
    for row in range(rows):
        ranked = sorted(
            (-x, i) for i, x in enumerate(logits[row].tolist()) if x > -math.inf and i != forbidden
        )[:count]
        assert found[row, : len(ranked)].tolist() == [i for _, i in ranked]
        expected = [-x - float(totals[row]) for x, _ in ranked]
        assert log_p[row, : len(ranked)].tolist() == pytest.approx(expected, abs=1e-5)
        assert (log_p[row, len(ranked) :] == -math.inf).all()


def test_a_row_with_nan_is_nan() -> None:
    logits = torch.randn(3, 500)
    logits[1, 300] = math.nan
    log_p, _ = native.best_symbols(logits, 4, None)
    assert log_p.isnan().all(1).tolist() == [False, True, False]


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_not_hidden(int8: bool, value: float) -> None:
    x = torch.randn(3, 20)
    x[1, 7] = value
    found = native.linear(x, native.pack(torch.randn(5, 20), None, int8=int8))
    assert found.isfinite().all(1).tolist() == [True, False, True]


def test_attention_does_not_hide_what_is_no_number() -> None:
    memory, seen = torch.randn(2, 5, 24), torch.ones(2, 5, dtype=torch.bool)
    item, query = torch.tensor([0, 1, 1]), torch.randn(3, 12)
    query[0] = math.nan  # all scores of this row are NaN: none is the greatest
    found, _ = native.attend_memory(query, 3, memory, item, seen)
    assert found.isnan().all(1).tolist() == [True, False, False]
    query[0], memory[0, 2, 0] = 1.0, math.nan  # one key of the first head
    found, looks = native.attend_memory(query, 3, memory, item, seen)
    assert found.isnan().tolist() == [[i < 4 for i in range(12)], *([False] * 12 for _ in range(2))]
    assert looks[0].isnan().all()


def test_indices_that_are_not_there_are_refused() -> None:
    block, query = torch.randn(1, 2, 8), torch.randn(1, 4)
    addresses, sizes = torch.tensor([block.data_ptr()]), torch.tensor([2])
    for slot in (-1, 2):
        with pytest.raises(ValueError, match="not there"):
            native.attend_past(query, 2, addresses, sizes, torch.tensor([[slot]]), 0)
        with pytest.raises(ValueError, match="not there"):
            native.attend_memory(
                query, 2, torch.randn(2, 3, 8), torch.tensor([slot]), torch.ones(2, 3, dtype=torch.bool)
            )
