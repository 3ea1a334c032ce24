"""What stays in a beam, against a sorted list."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from anaphora.ops.prune import choose, new_table

SCORES = st.one_of(st.sampled_from([-3.0, -2.0, 0.0, -math.inf]), st.floats(-1e300, 1e300), st.floats(-20, 0))


def kept(scores: list[float], states: list[int], width: int, per_state: int, distance: float) -> list[int]:
    pool = np.empty(len(scores), dtype=np.int64)
    found = choose(
        np.array(scores), np.array(states, dtype=np.int64), len(scores), width, per_state, distance,
        new_table(len(scores)), pool,
    )  # fmt: skip
    return sorted(pool[:found].tolist())


def expected(
    scores: list[float], states: list[int], width: int, per_state: int, distance: float
) -> list[int]:
    ranked = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    taken: Counter[int] = Counter()
    found: list[int] = []
    for i in ranked:
        if scores[i] == -math.inf or scores[i] < scores[ranked[0]] - distance:
            continue
        taken[states[i]] += 1
        if len(found) < width and (not per_state or taken[states[i]] <= per_state):
            found.append(i)
    return sorted(found)


@given(
    st.lists(st.tuples(SCORES, st.integers(-3, 2**62)), min_size=1, max_size=60),
    st.integers(1, 20),
    st.integers(0, 3),
    st.sampled_from([0.5, 5.0, math.inf]),
)
def test_the_best_of_each_state_stay(
    pairs: list[tuple[float, int]], width: int, per_state: int, distance: float
) -> None:
    scores, states = [score for score, _ in pairs], [state % 5 for _, state in pairs]
    options = (width, per_state, distance)
    assert kept(scores, states, *options) == expected(scores, states, *options)


def test_equal_scores_stay_in_their_order() -> None:
    assert kept([1.0] * 6, [0] * 6, 3, 0, math.inf) == [0, 1, 2]
    assert kept([1.0, 2.0, 1.0, 2.0], [7, 7, 8, 8], 4, 1, math.inf) == [1, 3]
    assert kept([-math.inf] * 3, [0, 1, 2], 2, 1, math.inf) == []
    assert kept([0.0, -1.0, -9.0], [0, 1, 2], 3, 0, 5.0) == [0, 1]
