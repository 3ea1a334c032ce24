"""Which way a recurrence takes on a GPU, as a function of what there is to choose from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anaphora.errors import AnaphoraError
from anaphora.kernels.recurrence.choose import Case, choose, force, forced

OPEN = Case(time=512, batch=64, hidden=512, native=True, no_persistent=None, no_triton=None)


def _case(persistent: bool, triton: bool, native: bool) -> Case:
    no = {True: None, False: "it rains"}
    return Case(8, 4, 16, native, no[persistent], no[triton])


@pytest.mark.parametrize(
    ("persistent", "triton", "native", "way"),
    [
        (True, True, True, "persistent"),
        (True, False, False, "persistent"),
        (False, True, True, "triton"),
        (False, True, False, "triton"),
        (False, False, True, "cudnn"),
        (False, False, False, "graph"),
    ],
)
def test_the_fastest_way_that_can_serve(persistent: bool, triton: bool, native: bool, way: str) -> None:
    assert choose(_case(persistent, triton, native)) == way


@pytest.mark.parametrize(
    ("batch", "hidden", "way", "recording"),
    [
        (64, 512, "persistent", "persistent"),
        (256, 512, "persistent", "persistent"),  # two rounds of narrow slices are still faster
        (64, 1024, "persistent", "persistent"),
        (128, 640, "triton", "cudnn"),
        (256, 1024, "triton", "cudnn"),
    ],
)
def test_large_layers_are_left_to_kernels_of_one_step(
    batch: int, hidden: int, way: str, recording: str
) -> None:
    case = replace(OPEN, batch=batch, hidden=hidden)
    assert choose(case) == way
    assert choose(case, uncompiled=True) == recording
    assert choose(replace(case, no_triton="it rains", native=False)) == "persistent"
    assert choose(replace(case, native=False), uncompiled=True) == "persistent"


@pytest.mark.parametrize("way", ["persistent", "triton", "graph", "cudnn", "reference"])
def test_a_way_can_be_forced_for_a_while(way: str) -> None:
    with force(way):  # type: ignore[arg-type]
        assert forced() == choose(OPEN) == way
        with force(None):
            assert choose(OPEN) == "persistent"
    assert forced() is None


@pytest.mark.parametrize("way", ["persistent", "triton", "cudnn"])
def test_a_forced_way_that_cannot_serve_says_why(way: str) -> None:
    case = _case(False, False, False)
    with force(way), pytest.raises(AnaphoraError, match=r"it rains|no layer for this cell"):  # type: ignore[arg-type]
        choose(case)


def test_an_old_gpu_is_named_as_the_reason() -> None:
    old = Case(8, 4, 16, True, "the GPU is no Hopper (compute capability 9)", None)
    assert choose(old) == "triton"
    with force("persistent"), pytest.raises(AnaphoraError) as caught:
        choose(old)
    assert "no Hopper" in str(caught.value)
    assert str(caught.value).count(".") == 1


def test_an_unknown_way_is_refused() -> None:
    with pytest.raises(ValueError, match="persistent, triton, graph, cudnn, reference"), force("fast"):  # type: ignore[arg-type]
        pass
