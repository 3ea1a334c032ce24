"""The whole text of persistent kernels, run by fibres on this machine, against the reference loop."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from persistent_emulated import COMPILER, emulated_passes, no_words
from recurrence_nan import Spoilt
from recurrence_results import CELLS, inputs, reference, results
from test_persistent_host import OnHost

from anaphora import nn
from anaphora.engine.backends.base import LayerRun
from anaphora.engine.backends.persistent import run
from anaphora.engine.plan import Plan
from anaphora.nn.recurrent_step import LayerStep

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler here")
QUICK = [("lstm", True), ("layer norm", False)]
REST = [(name, near) for name in CELLS for near in (False, True) if (name, near) not in QUICK]


@pytest.mark.parametrize(
    ("name", "near"), [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in REST)]
)
def test_kernels_run_by_fibres_equal_the_reference(
    name: str, near: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three blocks share each row, in a cluster or not, and groups of rows take turns; lengths differ, and time runs backwards."""
    small: Any = CELLS[name]()
    cell = type(small)(5, 20, **small.options)
    x, initial = inputs(cell, torch.float32, 9, 4)
    lengths = torch.tensor([4, 0, 2, 4, 1, 3, 4, 4, 2])
    made = []

    def passes(plan: Plan, batch: int, *_: Any) -> Any:
        made.append(emulated_passes(plan, batch, columns=8, sms=3, near=near))
        return made[-1]

    monkeypatch.setattr(run, "_passes", passes)
    ours = results(OnHost(LayerStep(cell)), cell, x, initial, lengths, True)
    assert made[0].forward_pass.tiling.slices == 3
    assert made[0].forward_pass.tiling.groups(9) == 2
    assert made[0].forward_pass.tiling.cluster == (3 if near else 0)
    for a, b in zip(ours, results(reference(cell), cell, x, initial, lengths, True), strict=True):
        apart = (a - b).norm().item()
        assert apart <= 2e-5 * b.norm().item() + 1e-6


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nan_where_the_loop_has_it(bad: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows end early, with NaN or infinity in their last states: steps past the end add nothing to a gradient."""
    cell = nn.LSTM(5, 20, peephole=True)

    def passes(plan: Plan, batch: int, *_: Any) -> Any:
        return emulated_passes(plan, batch, columns=8, sms=3)

    monkeypatch.setattr(run, "_passes", passes)

    def by_fibres(given: LayerRun) -> Any:
        assert isinstance(given.step, LayerStep)
        rest = (given.steps, given.rows, given.initial, given.lengths, given.reverse)
        return OnHost(given.step)(given.params, *rest)

    assert not Spoilt(cell, 5, bad, batch=5, time=3).differences(by_fibres)


def test_strips_of_a_row_are_summed_up_by_warps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks 64 columns wide in a cluster of two: of four strips the third has six columns, the last none."""
    cell = nn.LSTM(5, 70, layer_norm=True)
    x, initial = inputs(cell, torch.float32, 6, 3)

    def passes(plan: Plan, batch: int, *_: Any) -> Any:
        return emulated_passes(plan, batch, columns=64, near=True)

    monkeypatch.setattr(run, "_passes", passes)
    ours = results(OnHost(LayerStep(cell)), cell, x, initial, None, False)
    for a, b in zip(ours, results(reference(cell), cell, x, initial, None, False), strict=True):
        assert (a - b).norm().item() <= 2e-5 * b.norm().item() + 1e-6


@pytest.mark.parametrize("name", ["mgu", pytest.param("peephole", marks=pytest.mark.slow)])
def test_numbers_of_16_bits_travel_in_pairs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a cluster of two, whose second block has but eight of its 32 columns to fill."""
    small: Any = CELLS[name]()
    cell = type(small)(5, 40, **small.options)
    x, initial = inputs(cell, torch.float32, 6, 4)
    cell, x, *initial = (v.bfloat16() for v in (cell, x.detach(), *(s.detach() for s in initial)))
    exact, *given = copy.deepcopy(cell).float(), *(v.float().requires_grad_() for v in (x, *initial))
    for v in (x, *initial):
        v.requires_grad_()

    def passes(plan: Plan, batch: int, *_: Any) -> Any:
        return emulated_passes(plan, batch, columns=32, near=True, half=True)

    monkeypatch.setattr(run, "_passes", passes)
    ours = results(OnHost(LayerStep(cell)), cell, x, tuple(initial), None, False)
    theirs = results(reference(exact), exact, given[0], tuple(given[1:]), None, False)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.float() - b).norm().item() <= 0.02 * b.norm().item() + 1e-3


class Laundering(nn.Cell):
    """Makes a number of NaN: ``pre > 0`` is false for it."""

    state = ("h",)

    def setup(self, inputs: int, hidden: int) -> None:
        self.affine = nn.Affine(inputs, hidden, hidden)

    def step(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        pre = self.affine(x, h)
        return torch.where(pre > 0, torch.tanh(pre), torch.zeros_like(pre))


def _silence_of_the_first_block(text: str) -> str:
    """Block 0 publishes nothing, and the others lose patience soon."""
    changes = {
        "SPIN 4000000": "SPIN 50",
        "2000000000LL": "50000LL",
        "bool on){\n": "bool on){on=on&&blockIdx.x;\n",  # put, put2
        "bool over){\n": "bool over){over=over||!blockIdx.x;\n",  # hand
        "if(on[i]&&j%RW==0){float*to": "if(blockIdx.x&&on[i]&&j%RW==0){float*to",
        "if(s<NSL&&!wait.over)": "if(blockIdx.x&&s<NSL&&!wait.over)",
    }
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    ("cell", "near"),
    [
        (Laundering(5, 20), False),
        pytest.param(Laundering(5, 20), True, marks=pytest.mark.slow),
        (nn.LSTM(5, 20, layer_norm=True), True),
        pytest.param(nn.LSTM(5, 20, layer_norm=True), False, marks=pytest.mark.slow),
    ],
    ids=["memory", "cluster", "sums in a cluster", "sums in memory"],
)
def test_what_is_computed_after_waiting_in_vain_is_nan(
    cell: nn.Cell, near: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the cell makes of NaN. The backward pass comes after it, so its results are NaN as well."""
    x, initial = inputs(cell, torch.float32, 9, 3)
    words = no_words()

    def passes(plan: Plan, batch: int, *_: Any) -> Any:
        return emulated_passes(plan, batch, sms=3, near=near, words=words, change=_silence_of_the_first_block)

    monkeypatch.setattr(run, "_passes", passes)
    y, *rest = results(OnHost(LayerStep(cell)), cell, x, initial, None, False)
    assert [int(word) for word in words] == [1, 1]
    for value in (y, *rest):
        assert value.isnan().all()
