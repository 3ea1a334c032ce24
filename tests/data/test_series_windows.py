"""Windows by hand: what is read, what is asked, and that nothing reaches into the future or over the split."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anaphora.data.series import Series, SeriesData
from anaphora.data.series_readers import open_series
from anaphora.data.series_scale import Columns
from anaphora.data.series_windows import Windows, fill_forward
from anaphora.data.split import Split, split
from anaphora.errors import DataError


def plain(columns, **more):
    """Columns of mean 0 and scale 1, so that values are seen as they are."""
    zeros, ones = (0.0,) * len(columns), (1.0,) * len(columns)
    gaps = more.pop("gaps", (False,) * len(columns))
    usual = (0.0,) * len(more.get("targets", columns))
    facts = {"targets": columns, "known": (), "period": 1, "output": "continuous", **more}
    return Columns(names=columns, mean=zeros, scale=ones, gaps=gaps, usual=usual, **facts)


def counting(steps, width=1, begin=0):
    values = np.arange(float(steps))[:, None] + 100.0 * np.arange(width)
    return SeriesData(tuple("abc"[:width]), (Series("one", values, begin=begin),), {})


def test_windows_of_three_before_two():
    windows = Windows(counting(7), plain(("a",)), window=3, horizon=2)
    batch = windows.batch(range(len(windows)))
    assert batch.x[:, :, 0].tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert batch.y[:, 0, :, 0].tolist() == [[3, 4], [4, 5], [5, 6]]
    assert (batch.symbols, len(batch), windows.lengths.tolist()) == (6, 3, [3, 3, 3])
    assert batch.shard(1, 2).indices == [1]


def test_known_columns_show_their_future_and_others_do_not():
    columns = plain(("a", "b", "c"), targets=("a",), known=("c",))
    batch = Windows(counting(6, 3), columns, window=2, horizon=2).batch([1])
    assert batch.x[0].tolist() == [[1, 101, 201], [2, 102, 202]]
    assert batch.future[0, 0].tolist() == [[203], [204]]


def test_gaps_are_filled_from_before_masked_and_not_asked_for():
    values = np.array([[np.nan], [1.0], [np.nan], [3.0], [np.nan]])
    data = SeriesData(("a",), (Series("one", values),), {})
    batch = Windows(data, plain(("a",), gaps=(True,)), window=3, horizon=2).batch([0])
    assert batch.x[0].tolist() == [[0, 0], [1, 1], [1, 0]]
    tensors = batch.tensors()
    assert tensors.y[0, 0, :, 0].tolist() == [3, 0]
    assert tensors.real[0, 0, :, 0].tolist() == [True, False]
    assert batch.symbols == 1


def test_a_whole_series_asks_after_every_step():
    batch = Windows(counting(4), plain(("a",)), window=0, horizon=2).batch([0])
    assert batch.x[0, :, 0].tolist() == [0, 1, 2, 3]
    np.testing.assert_array_equal(batch.y[0, :, :, 0], [[1, 2], [2, 3], [3, np.nan], [np.nan, np.nan]])


def test_series_of_several_lengths_are_padded():
    data = SeriesData(("a",), tuple(Series(str(n), np.arange(float(n))[:, None]) for n in (2, 4)), {})
    batch = Windows(data, plain(("a",)), window=0, horizon=1).batch([0, 1])
    assert batch.lengths.tolist() == [2, 4]
    np.testing.assert_array_equal(batch.y[0, :, 0, 0], [1, np.nan, np.nan, np.nan])


@given(st.integers(1, 60), st.integers(2, 12), st.integers(0, 40))
def test_aligned_stretches_ask_for_every_step_exactly_once(steps, window, begin):
    begin = min(begin, steps - 1)
    data = counting(steps, 2, begin)
    windows = Windows(data, plain(("a", "b"), targets=("b",)), window=window, horizon=0)
    asked = []
    for index in range(len(windows)):
        batch = windows.batch([index])
        truth = batch.y[0, :, 0, 0]
        here = ~np.isnan(truth)
        np.testing.assert_array_equal(batch.x[0, here, 0] + 100, truth[here])  # the same step on both sides
        asked += truth[here].tolist()
    assert sorted(asked) == [100.0 + step for step in range(begin, steps)]


@given(st.integers(20, 80), st.integers(1, 6), st.integers(1, 4))
def test_training_never_sees_what_dev_asks_for(steps, window, horizon):
    train, dev = split(counting(steps), Split("end", least=horizon))
    columns = plain(("a",))
    mine, theirs = (Windows(part, columns, window=window, horizon=horizon) for part in (train, dev))
    seen = mine.batch(range(len(mine)))
    asked = theirs.batch(range(len(theirs))).y
    assert max(seen.x.max(), seen.y.max()) < asked.min()
    assert asked.max() == steps - 1


def test_a_series_shorter_than_window_and_horizon_is_told():
    with pytest.raises(
        DataError, match=r"the longest series has 7 steps, but at least window \+ horizon = 5 \+ 3"
    ):
        Windows(counting(7), plain(("a",)), window=5, horizon=3)


def test_filling_forward_by_hand():
    nan = np.nan
    values = np.array([[nan, 1.0], [2.0, nan], [nan, nan]])
    assert fill_forward(values).tolist() == [[0, 1], [2, 1], [2, 1]]


def test_spread_takes_the_first_and_the_last():
    windows = Windows(open_series(np.arange(50.0)), plain(("x1",)), window=1, horizon=1)
    assert windows.spread(5) == [0, 12, 24, 36, 48]
    assert windows.spread(1000) == list(range(49))


@pytest.mark.parametrize(
    ("window", "horizon", "least"),
    [
        (2, 1, [[0], [0], [-np.inf]]),  # histories 1 2, 2 0 and 0 −1
        (0, 1, [[0, 0, 0, -np.inf, -np.inf]]),  # after every step
        (2, 0, [[0]] * 4),  # aligned: the targets are not looked at
    ],
)
def test_forecasts_end_at_0_until_a_target_has_been_below(window, horizon, least):
    values = np.array([[1.0, 9.0], [2.0, 9.0], [0.0, -9.0], [-1.0, 9.0], [5.0, 9.0]])
    data = SeriesData(("a", "b"), (Series("one", values),), {})
    windows = Windows(
        data, plain(("a", "b"), targets=("a",), nonnegative=(True,)), window=window, horizon=horizon
    )
    found = windows.floors(windows.batch(range(len(windows))))
    assert found[:, :, 0, 0].tolist() == least
    both = Windows(data, plain(("a", "b"), targets=("a",)), window=window, horizon=horizon)
    assert both.floors(both.batch([0])) is None
