"""Batches: sizes, completeness, order from a seed, resuming in the middle, sharding, tensors."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anaphora.data.batches import pairs as batching
from anaphora.data.batches.pairs import PairBatch, PairBatches, cut_by_size, ordered_batches
from anaphora.data.table import HeldTable
from anaphora.data.tokenizers import PairTokenizer
from anaphora.errors import DataError

PAIRS = HeldTable([("a" * (1 + i % 7), "b" * (1 + i * i % 11)) for i in range(203)], {})
TOKENIZER = PairTokenizer.train(PAIRS, kind="char", vocab_size=20)


def stream(seed: int = 1, pool: int = 50, max_tokens: int = 100, batch_tokens: int = 60) -> PairBatches:
    return PairBatches(
        PAIRS, TOKENIZER, batch_tokens=batch_tokens, max_tokens=max_tokens, seed=seed, pool=pool
    )


def epoch(batches: PairBatches) -> list[PairBatch]:
    """All batches up to the end of the current epoch."""
    found = [next(batches)]
    current = batches.epoch
    while True:
        state = batches.state()
        batch = next(batches)
        if batches.epoch != current:
            batches.restore(state)
            return found
        found.append(batch)


@pytest.fixture(params=["held", "streamed"], autouse=True)
def _memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "streamed":
        monkeypatch.setattr(batching, "HELD_TEXT", 0)


def test_an_epoch_holds_every_example_once_with_its_ids() -> None:
    batches = epoch(stream())
    assert Counter(i for batch in batches for i in batch.indices) == Counter(range(len(PAIRS)))
    for batch in batches:
        for index, source, target in zip(batch.indices, batch.source, batch.target, strict=True):
            assert (TOKENIZER.source.decode(source), TOKENIZER.target.decode(target)) == PAIRS[index]


def test_batches_are_full_but_never_too_large() -> None:
    batches = epoch(stream())
    sizes = [len(b) * (1 + max(map(len, b.source + b.target))) for b in batches]
    assert max(sizes) <= 60
    assert np.mean(sizes) > 40


def test_a_row_larger_than_the_batch_comes_alone() -> None:
    assert all(len(batch) == 1 for batch in epoch(stream(batch_tokens=1)))


def test_held_and_streamed_give_the_same_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    here = list(islice(stream(), 100))
    monkeypatch.setattr(batching, "HELD_TEXT", 0)
    assert list(islice(stream(), 100)) == here


def test_the_order_follows_from_the_seed_and_the_epoch() -> None:
    first = stream()
    one, two = epoch(first), epoch(first)
    assert first.epoch == 1
    assert [b.indices for b in one] != [b.indices for b in two]
    again = stream()
    assert (epoch(again), epoch(again)) == (one, two)
    assert epoch(stream(seed=2)) != one


def test_the_first_batch_is_the_same_for_ever() -> None:
    """A literal: runs must resume after an upgrade of Python or numpy."""
    assert next(stream()).indices == [79, 108, 130, 200, 20, 106, 136]


@pytest.mark.parametrize("taken", [0, 1, 7, 23, 60])
def test_restoring_continues_exactly(taken: int) -> None:
    straight = stream(max_tokens=9)
    list(islice(straight, taken))
    state = json.loads(json.dumps(straight.state()))
    rest = list(islice(straight, 50))
    resumed = stream(max_tokens=9)
    list(islice(resumed, 3))
    resumed.restore(state)
    assert resumed.state() == state
    assert list(islice(resumed, 50)) == rest
    assert (resumed.epoch, resumed.dropped) == (straight.epoch, straight.dropped)


def test_long_examples_are_left_out_and_counted() -> None:
    batches = stream(max_tokens=5, pool=300)
    too_long = sum(max(map(len, pair)) > 5 for pair in PAIRS)
    assert too_long > 0
    assert sum(map(len, epoch(batches))) == len(PAIRS) - too_long
    assert batches.dropped == too_long


def test_nothing_fits() -> None:
    with pytest.raises(DataError, match="None of the 203 examples fits into max_tokens = 0"):
        next(stream(max_tokens=0))


def test_shards_partition_a_batch() -> None:
    batch = next(stream())
    shards = [batch.shard(i, 4) for i in range(4)]
    assert sorted(i for shard in shards for i in shard.indices) == sorted(batch.indices)
    assert sum(shard.symbols for shard in shards) == batch.symbols
    assert len(PairBatch([[5]], [[6]], [0]).shard(1, 2)) == 0


def test_tensors_by_hand() -> None:
    batch = PairBatch([[5, 6], [7]], [[8], [9, 10]], [3, 4])
    assert batch.symbols == 5
    tensors = batch.tensors()
    assert tensors.source.tolist() == [[5, 6, 3], [7, 3, 0]]
    assert tensors.source_lengths.tolist() == [3, 2]
    assert tensors.target_in.tolist() == [[2, 8, 0], [2, 9, 10]]
    assert tensors.target_out.tolist() == [[8, 3, 0], [9, 10, 3]]
    assert tensors.target_lengths.tolist() == [2, 3]
    assert tensors.source.dtype == torch.long


def test_an_empty_shard_has_empty_tensors() -> None:
    tensors = PairBatch([], [], []).tensors()
    assert tensors.source.shape == (0, 0)
    assert tensors.target_lengths.shape == (0,)


def test_ordered_batches_remember_where_rows_came_from() -> None:
    sources = [[4] * n for n in (3, 9, 1, 9, 4)]
    batches = ordered_batches(sources, batch_tokens=20)
    assert [b.indices for b in batches] == [[1, 3], [4, 0, 2]]
    assert [b.source for b in batches] == [[sources[1], sources[3]], [sources[4], sources[0], sources[2]]]
    assert batches[0].target == [[], []]
    assert ordered_batches([], batch_tokens=20) == []


@given(st.lists(st.integers(1, 30), max_size=40), st.integers(1, 100))
def test_cuts_cover_all_rows_and_are_as_long_as_allowed(lengths: list[int], batch_tokens: int) -> None:
    cuts = cut_by_size(np.array(lengths, dtype=np.int64), batch_tokens)
    assert [i for a, b in cuts for i in range(a, b)] == list(range(len(lengths)))
    for a, b in cuts:
        assert b - a == 1 or max(lengths[a:b]) * (b - a) <= batch_tokens
        if b < len(lengths):
            assert max(lengths[a : b + 1]) * (b + 1 - a) > batch_tokens
