"""Both directions of a layer in one launch, on a GPU: as exact as one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from recurrence_errors import CELLS, SLACK, Drawn, Layer, Precision, products_of
from torch import Tensor

from anaphora.engine.backends.base import LayerRun
from anaphora.engine.backends.persistent import run
from anaphora.nn.recurrent_run import run_both_layers, run_layer

pytestmark = pytest.mark.cuda
LARGE: tuple[Precision, int, int, bool] = ("bf16", 64, 512, False)
ODD: list[tuple[Precision, int, int, bool]] = [
    ("bf16", 37, 200, True),
    ("tf32", 7, 136, False),
    ("fp16", 1, 320, True),
]
CASES = [(cell, *size) for k, cell in enumerate(CELLS) for size in (LARGE, ODD[k % 3])]


class Both:
    """Two layers that read the same x, one from either end."""

    def __init__(self, drawn: Drawn):
        self.there, self.back = Layer(drawn), Layer(replace(drawn, reverse=True, seed=drawn.seed + 1))
        self.back.x, self.back.lengths = self.there.x, self.there.lengths
        self.layers, self.dtype = (self.there, self.back), self.there.dtype
        self.at = 1 + len(self.there.cell.state)  # the gradient of x among the results

    def joined(self, results: Sequence[list[Any]], x: Any) -> list[Any]:
        """Both layers' results; the gradient of x, which is the sum of theirs, comes last."""
        return [*(r for found in results for k, r in enumerate(found) if k != self.at), x]

    def together(self) -> list[list[Tensor]]:
        """Each layer's results, with the gradient of x of both in the first's place and none in the second's."""
        x = self.there.x.detach().requires_grad_()
        runs, leaves = [], []
        for layer in self.layers:
            start = tuple(s.detach().requires_grad_() for s in layer.initial)
            params = {k: p.detach().requires_grad_() for k, p in layer.cell.named_parameters()}
            steps, rows = (x, *layer.extra), tuple(layer.rows)
            runs.append(LayerRun(layer.step, params, steps, rows, start, layer.lengths, layer.drawn.reverse))
            leaves.append([*start, *params.values()])
        with products_of(self.there.drawn.precision):
            y, ends = run_both_layers(*runs, inner=self.there.drawn.ragged)
            outputs = [y, *(s for states in ends for s in states)]
            weights = [torch.cat([layer.weights[0] for layer in self.layers], -1)]
            weights += [w for layer in self.layers for w in layer.weights[1:]]
            dx, *rest = torch.autograd.grad(outputs, [x, *leaves[0], *leaves[1]], weights)
        halves, grads = y.detach().chunk(2, -1), (rest[: len(leaves[0])], rest[len(leaves[0]) :])
        zero = torch.zeros_like(dx)
        return [
            [half, *(s.detach() for s in states), through, *of]
            for half, states, through, of in zip(halves, ends, (dx, zero), grads, strict=True)
        ]

    def apart(self) -> list[list[Tensor]]:
        with products_of(self.there.drawn.precision):
            return [layer.results(run_layer, self.dtype) for layer in self.layers]

    def errors(self, results: list[list[Tensor]]) -> list[float]:
        exact = [layer.exact(found[0]) for layer, found in zip(self.layers, results, strict=True)]
        found, expected = (
            self.joined(r, r[0][self.at].double() + r[1][self.at].double()) for r in (results, exact)
        )
        return Layer.relative(found, expected)

    @property
    def one_rounding(self) -> list[float]:
        ones = [layer.one_rounding for layer in self.layers]
        return self.joined(ones, max(one[self.at] for one in ones))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each time both directions were launched together."""
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("these kernels are for Hopper GPUs")
    seen: list[int] = []
    whole = run.run_sides

    def watched(*arguments: Any) -> Any:
        seen.append(1)
        return whole(*arguments)

    monkeypatch.setattr(run, "run_sides", watched)
    return seen


@pytest.mark.parametrize(("cell", "precision", "batch", "hidden", "ragged"), CASES)
def test_as_exact_as_one_after_the_other(
    cell: str, precision: Precision, batch: int, hidden: int, ragged: bool, launches: list[int]
) -> None:
    both = Both(Drawn(cell, precision, batch, 15, 50, hidden, ragged))
    names = both.joined([layer.names for layer in both.layers], "gradient of x")
    ours, apart = both.errors(both.together()), both.errors(both.apart())
    wrong = [
        f"{name} is off by {a:.2e}, alone by {b:.2e}, one rounding is {one:.2e}"
        for name, a, b, one in zip(names, ours, apart, both.one_rounding, strict=True)
        if not a <= SLACK * b + one
    ]
    assert not wrong, "\n".join(wrong)
    if cell in ("lstm", "gru after") and batch == 64:
        assert launches  # or nothing has been tested


def test_the_same_bits_again(launches: list[int]) -> None:
    both = Both(Drawn("lstm", "bf16", 64, 30, 64, 512, ragged=True))
    first, second = both.together(), both.together()
    assert launches
    for one, other in zip(first, second, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_nan_stays_in_its_row(launches: list[int]) -> None:
    both = Both(Drawn("lstm", "bf16", 64, 12, 64, 512))
    both.there.x[5, 4, 3] = float("nan")
    (there, *_), (back, *_) = both.together()
    assert launches
    for y, touched in ((there, slice(4, None)), (back, slice(None, 5))):
        assert y.isnan().any(2).any(1).nonzero().flatten().tolist() == [5]
        assert y[5, touched].isnan().any(1).all()
        assert int(y[5].isnan().any(1).sum()) == y[5, touched].shape[0]
