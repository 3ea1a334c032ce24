"""Tables of symbols in one piece of memory: equal to rows filled up one by one."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from anaphora.data.batches.padded import Ragged, Sending, padded
from anaphora.data.batches.pairs import PairBatch
from anaphora.data.batches.stream import LineBatch
from anaphora.data.symbols import BOS, EOS, PAD

rows_of_symbols = st.lists(st.lists(st.integers(4, 40_000), max_size=9), max_size=7)


def by_rows(rows: list[list[int]]) -> list[list[int]]:
    longest = max(map(len, rows), default=0)
    return [row + [PAD] * (longest - len(row)) for row in rows]


@given(rows_of_symbols)
def test_rows_are_padded_with_and_without_symbols_at_their_ends(rows: list[list[int]]) -> None:
    cases = [
        ({}, rows),
        ({"first": BOS}, [[BOS, *row] for row in rows]),
        ({"last": EOS}, [[*row, EOS] for row in rows]),
        ({"first": BOS, "last": EOS}, [[BOS, *row, EOS] for row in rows]),
    ]
    for ends, expected in cases:
        table = padded(rows, "cpu", **ends)
        assert table.dtype == torch.long
        assert table.tolist() == by_rows(expected)
        assert table.shape == (len(rows), max(map(len, expected), default=0))


@given(st.lists(st.tuples(*[st.lists(st.integers(4, 40_000), max_size=9)] * 2), max_size=7))
def test_pairs_are_the_rows_with_their_special_symbols(pairs: list[tuple[list[int], list[int]]]) -> None:
    source, target = [s for s, _ in pairs], [t for _, t in pairs]
    made = PairBatch(source, target, list(range(len(pairs)))).tensors()
    assert made.source.tolist() == by_rows([[*row, EOS] for row in source])
    assert made.target_in.tolist() == by_rows([[BOS, *row] for row in target])
    assert made.target_out.tolist() == by_rows([[*row, EOS] for row in target])
    assert made.source_lengths.tolist() == [len(row) + 1 for row in source]
    assert made.target_lengths.tolist() == [len(row) + 1 for row in target]


@given(rows_of_symbols)
def test_lines_are_the_rows_with_their_special_symbols(rows: list[list[int]]) -> None:
    inputs, targets = LineBatch(rows, list(range(len(rows)))).tensors(torch.device("cpu"))
    assert inputs.tolist() == by_rows([[BOS, *row] for row in rows])
    assert targets.tolist() == by_rows([[*row, EOS] for row in rows])


def test_what_is_sent_lies_in_one_piece() -> None:
    sending = Sending([(2, 3), (0, 4), (5,)], "cpu")
    assert [table.tolist() for table in sending.tables] == [[[PAD] * 3] * 2, [], [PAD] * 5]
    sending.tables[0][1, 2], sending.tables[2][4] = 7, 9
    first, nothing, last = sending.sent()
    assert (first.tolist(), last.tolist()) == ([[PAD] * 3, [PAD, PAD, 7]], [PAD] * 4 + [9])
    assert nothing.shape == (0, 4)
    assert first.is_contiguous()
    assert last.data_ptr() == first.data_ptr() + 6 * 8


@given(rows_of_symbols.filter(len), st.data())
def test_rows_are_chosen_from_one_array(rows: list[list[int]], data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=9))
    ragged = Ragged.of(rows)
    assert ragged.lists() == rows
    chosen = ragged.chosen(np.array(numbers, dtype=np.int64))
    assert chosen.lists() == [rows[k] for k in numbers]
    assert len(chosen) == len(numbers)
