"""Two hundred layers drawn at random on a GPU: every cell, odd sizes, all gradients, in four precisions.

No tensor may be less exact than the peer's (:mod:`recurrence_errors`): cuDNN's where it has the cell, the plain loop's otherwise.
"""

from __future__ import annotations

import pytest
from recurrence_errors import CELLS, Layer, drawn_at_random

from anaphora.engine.backends.base import BackendName

pytestmark = pytest.mark.cuda
COUNT, AT_ONCE = 200, 10
DRAWN = drawn_at_random(COUNT)


def test_every_cell_is_drawn_with_every_size() -> None:
    assert len({(d.cell, d.hidden, d.batch) for d in DRAWN}) == len(CELLS) * 5 * 3


@pytest.mark.parametrize("first", range(0, COUNT, AT_ONCE))
def test_random_configurations(first: int) -> None:
    wrong = [said for drawn in DRAWN[first : first + AT_ONCE] for said in Layer(drawn).less_exact()]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("way", ["triton", "cuda_graph"])
@pytest.mark.parametrize("cell", CELLS)
def test_ways_that_are_not_chosen_first(cell: str, way: BackendName) -> None:
    """The first time as it comes, then recorded, then replayed."""
    for drawn in [d for d in DRAWN if d.cell == cell and d.hidden < 1000][::6]:
        layer = Layer(drawn)
        for _ in range(3):
            wrong = layer.less_exact(way)
            assert not wrong, "\n".join(wrong)
