"""Forced alignment against all paths that spell the target."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anaphora.errors import DataError
from anaphora.search import ctc_align, ctc_collapse


def test_by_hand() -> None:
    p = torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.3, 0.5, 0.2], [0.9, 0.05, 0.05], [0.1, 0.1, 0.8]])
    (found,) = ctc_align(p.log()[None], [[1, 2]])
    assert found.path == [0, 1, 1, 0, 2]
    assert [(s.symbol, s.start, s.end) for s in found.spans] == [(1, 1, 3), (2, 4, 5)]
    assert [s.confidence for s in found.spans] == pytest.approx([math.sqrt(0.8 * 0.5), 0.8])
    assert found.log_prob == pytest.approx(math.log(0.8 * 0.8 * 0.5 * 0.9 * 0.8))


@settings(max_examples=60)
@given(time=st.integers(0, 6), target=st.lists(st.integers(1, 2), max_size=4), seed=st.integers(0, 999))
def test_every_path(time: int, target: list[int], seed: int) -> None:
    log_p = torch.randn(1, time, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    log_p = (2 * log_p).log_softmax(-1)
    paths = [p for p in itertools.product(range(3), repeat=time) if ctc_collapse(p, 0) == target]
    if not paths:
        with pytest.raises(DataError, match="target 0"):
            ctc_align(log_p, [target])
        return
    best = max(paths, key=lambda path: sum(float(log_p[0, t, k]) for t, k in enumerate(path)))
    (found,) = ctc_align(log_p, [target])
    assert found.path == list(best)
    assert found.log_prob == pytest.approx(sum(float(log_p[0, t, k]) for t, k in enumerate(best)))
    assert [s.symbol for s in found.spans] == target
    for span in found.spans:
        assert set(found.path[span.start : span.end]) == {span.symbol}


def test_repeats_lengths_and_padding() -> None:
    log_p = torch.randn(2, 7, 4).log_softmax(-1)
    log_p[1, 3:] = math.nan  # past the end
    together = ctc_align(log_p, torch.tensor([[3, 3], [1, 0]]), [7, 3], [2, 1])
    first, second = together[0].spans
    assert first.end < second.start  # a blank between equal symbols
    assert len(together[1].path) == 3
    assert [together[1]] == ctc_align(log_p[1:, :3], [[1]])


def test_impossible_targets_are_named() -> None:
    with pytest.raises(DataError, match=r"target 1 \(2 symbols need 3 frames, there are 2\)"):
        ctc_align(torch.zeros(2, 2, 3), [[1, 2], [1, 1]])
    log_p = torch.zeros(1, 2, 3)
    log_p[:, :, 1] = -math.inf
    with pytest.raises(DataError, match="probability 0"):
        ctc_align(log_p, [[1]])
