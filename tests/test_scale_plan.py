"""The plan of docs/measured/scale-plan.md: its arithmetic on numbers small enough for the head, and its tables in the page."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def scale():
    path = ROOT / "benchmarks" / "scale_plan.py"
    spec = importlib.util.spec_from_file_location("scale_plan", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["scale_plan"] = module
    spec.loader.exec_module(module)
    return module


def test_a_block_is_counted_on_the_real_module(scale):
    """12 w² + 13 w weights; kept: two norms (in and out), q, k, v, what attention gives, and twice … the inner layer."""
    found = scale.counted(64, 4)
    assert found.block == 12 * 64**2 + 13 * 64
    assert found.kept == pytest.approx(12 * 64, rel=0.02)


def test_one_row_by_hand(scale):
    gpu = scale.Gpu("toy", matmul=1000.0, memory=100.0, fits=1e9, used=0.5)
    assumed = scale.Assumed(near=10.0, far=1.0, machine=2, batch=16, length=4, symbols=5, together=4)
    row = scale.plan(scale.Model("toy", 2, 3, 1), 2, gpu, assumed, scale.Counted(block=100, kept=7.0))
    assert row.parameters == 2 * 100 + 2 * 5 * 3  # 230
    assert row.parts == 2  # 8 tokens of this GPU, 4 at once
    assert row.state == 16 * 230 / 2
    assert row.gathered == 8 * 30 + 14 * 100
    assert row.activations == 4 * (4 * (2 * 3 + 7) + 10 * 5)
    assert row.compute == pytest.approx(16 * (8 * 200 + 6 * 15 + 8 * 2 * 3 * 4) / (2 * 1000 * 0.5))
    assert row.traffic == pytest.approx(2 * 3 * 4 * 230 * 0.5 / 10)
    assert row.adam == pytest.approx(28 * 230 / 2 / 100)
    assert row.seconds == max(row.compute, row.traffic) + row.adam
    assert row.fits
    far = scale.plan(scale.Model("toy", 2, 3, 1), 4, gpu, assumed, scale.Counted(100, 7.0))
    assert far.traffic == pytest.approx(1 * 3 * 4 * 230 * 0.75 / 1)
    alone = scale.plan(scale.Model("toy", 2, 3, 1), 1, gpu, assumed, scale.Counted(100, 7.0))
    assert alone.traffic == 0


def test_sizes_are_what_their_names_say_and_more_gpus_hold_less(scale):
    rows = scale.plans()
    assert len(rows) == 9
    for row in rows:
        assert row.parameters == pytest.approx(float(row.model.split()[0]) * 1e9, rel=0.35)
    for before, after in itertools.pairwise(rows):
        if before.model == after.model:
            assert after.state == pytest.approx(before.state / 8)
            assert after.seconds < before.seconds if before.fits else True
    assert [row.fits for row in rows if row.gpus == 1] == [True, True, False]


def test_the_page_has_the_table_that_is_computed(scale):
    page = (ROOT / "docs" / "measured" / "scale-plan.md").read_text(encoding="utf-8")
    assert scale.table(scale.plans(), scale.Assumed()) in page
    gpu = scale.H200
    for figure in (
        f"{gpu.matmul / 1e12:.0f} TFLOP/s",
        f"{gpu.memory / 1e12:.1f} TB/s",
        f"{100 * gpu.used:.0f} %",
    ):
        assert figure in page, figure
