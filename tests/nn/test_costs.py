"""What the blocks cost, counted: the exponents of Vaswani et al. 2017, table 1."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from anaphora.nn import Convolution, Elman, Recurrent, inside
from anaphora.nn.attention import MultiHead, scaled_dot
from anaphora.nn.attention.scaled_dot import local_scaled_dot

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def costs() -> ModuleType:
    """The benchmark itself, so that what it prints is what is tested."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec = importlib.util.spec_from_file_location("cost_table", BENCHMARKS / "cost_table.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["cost_table"] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module


def kind(costs: ModuleType, name: str) -> object:
    return next(k for k in costs.KINDS if k.name == name)


@torch.no_grad()
def test_products_are_counted_one_by_one(costs: ModuleType) -> None:
    n, d, k, r = 24, 8, 3, 4
    x = torch.randn(1, 1, n, d)
    expected = {
        n * n * d * 2: lambda: scaled_dot(x, x, x),  # QKᵀ and αV
        n * 2 * d * d: lambda: Recurrent(Elman(d, d))(x[0]),  # Wx and Uh at every step
        k * n * d * d: lambda: Convolution(d, d, k, causal=True)(x[0]),
        n * 3 * r * d * 2: lambda: local_scaled_dot(x, x, x, r),  # blocks of r queries, stretches of 3r keys
        n * n * d * 2 + 4 * n * d * d: lambda: MultiHead(d, 2)(x[0]),  # and its four projections
    }
    for count, run in expected.items():
        with costs.Products() as products, inside.record():
            run()
        assert products.multiplications == count


@torch.no_grad()
def test_the_fused_kernel_costs_as_much_as_the_product_written_out(costs: ModuleType) -> None:
    x = torch.randn(2, 3, 10, 4)
    counts = []
    for weights in (False, True):
        with costs.Products() as products:
            scaled_dot(x, x, x, weights=weights)
        counts.append(products.multiplications)
    assert counts == [2 * 3 * 10 * 10 * 4 * 2] * 2


@pytest.mark.parametrize(
    ("name", "theory"),
    [
        ("self-attention", {"n": 2, "d": 1}),
        ("recurrent", {"n": 1, "d": 2}),
        ("convolution", {"n": 1, "d": 2, "k": 1}),
        ("restricted self-attention", {"n": 1, "d": 1, "r": 1}),
    ],
)
def test_counted_exponents_are_those_of_the_theory(
    costs: ModuleType, name: str, theory: dict[str, int]
) -> None:
    layer = kind(costs, name)
    found = {size: costs.counted_exponent(layer, size) for size in theory}
    assert found == pytest.approx(theory, abs=1e-9)


@pytest.mark.parametrize("n", [16, 64])
def test_steps_that_wait_for_one_another(costs: ModuleType, n: int) -> None:
    found = {k.name: costs.sequential_steps(k, n) for k in costs.KINDS}
    assert found == {
        "self-attention": 1,
        "recurrent": n,
        "convolution": 1,
        "restricted self-attention": 1,
    }


@pytest.mark.parametrize("n", [5, 16, 17, 64])
def test_how_far_apart_the_ends_of_a_sequence_are(costs: ModuleType, n: int) -> None:
    found = {k.name: costs.path_length(k, n) for k in costs.KINDS}
    assert found == {
        "self-attention": 1,
        "recurrent": n,
        "convolution": math.ceil(math.log(n, 4) - 1e-9),  # kernel 4, dilations 1, 4, 16 …
        "restricted self-attention": math.ceil((n - 1) / 4),  # four places to either side
    }


def test_slopes_are_least_squares_in_the_logarithms(costs: ModuleType) -> None:
    assert costs.slope((1, 2, 4), (5, 40, 320)) == pytest.approx(3)
    assert costs.slope((1, 10), (7, 7)) == pytest.approx(0)


def test_the_rows_have_the_shared_form(costs: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "timed_exponent", lambda kind, size, times: 1.5)
    rows = costs.measure(times=1)
    assert all(set(r) == {"row", "peer", "ours", "theirs", "unit", "ratio", "goal"} for r in rows)
    assert {r["goal"] for r in rows} == {1.0, None}
    assert all(r["ratio"] == 1 for r in rows if r["goal"])
    assert "16 (16), 64 (64)" in costs.table(rows)
