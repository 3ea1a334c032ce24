"""Windows that overlap by half: every symbol is read once, with the right symbol before it."""

from __future__ import annotations

import numpy as np
import pytest

from anaphora.data.batches.pooled import by_windows
from anaphora.data.symbols import PAD


@pytest.mark.parametrize("context", [1, 2, 5, 8])
def test_each_symbol_gets_the_number_of_the_pair_it_ends(context: int) -> None:
    rows = [list(range(10, 10 + size)) for size in (0, 1, 4, 5, 6, 23, 300)]
    widths = []

    def read(table):
        widths.append(table.shape[1] - 1)
        assert (table[:, 0] != PAD).all()
        return 1000.0 * table[:, :-1] + table[:, 1:]

    found = by_windows(rows, context, 3, read)
    for row, values in zip(rows, found, strict=True):
        assert values.tolist() == [1000.0 * a + b for a, b in zip([3, *row], row, strict=False)]
    assert max(widths) <= context


def test_symbols_past_the_first_window_have_half_a_context_before_them() -> None:
    row = np.arange(10, 50)
    before = by_windows([row], 8, 3, lambda table: np.tile(np.arange(table.shape[1] - 1.0), (len(table), 1)))[
        0
    ]
    assert (before[:8] == np.arange(8)).all()
    assert before[8:].min() == 4
