"""The whole text of persistent kernels, run by fibres on this machine, against the reference loop."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from persistent_emulated import COMPILER, emulated_passes
from recurrence_results import CELLS, inputs, reference, results
from test_persistent_host import OnHost

from anaphora import nn
from anaphora.kernels.recurrence.backends.persistent import passes as passes_module
from anaphora.kernels.recurrence.backends.persistent import run
from anaphora.kernels.recurrence.front.plan import Plan
from anaphora.nn.recurrent_step import LayerStep

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler here")
QUICK = ("lstm", "layer norm")


@pytest.mark.parametrize("near", [False, True])
@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in CELLS]
)
def test_kernels_run_by_fibres_equal_the_reference(
    name: str, near: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three blocks share each row, in a cluster or not, and groups of rows take turns; lengths differ, and time runs backwards."""
    small: Any = CELLS[name]()
    cell = type(small)(5, 20, **small.options)
    x, initial = inputs(cell, torch.float32, 9, 4)
    lengths = torch.tensor([4, 0, 2, 4, 1, 3, 4, 4, 2])
    made = []

    def passes(plan: Plan, batch: int, *_: Any) -> Any:
        made.append(emulated_passes(plan, batch, tmp_path, columns=8, processors=3, near=near))
        return made[-1]

    monkeypatch.setattr(run, "_passes", passes)
    monkeypatch.setattr(passes_module, "check_report", lambda device: None)
    ours = results(OnHost(LayerStep(cell)), cell, x, initial, lengths, True)
    assert made[0].forward_pass.tiling.slices == 3
    assert made[0].forward_pass.tiling.groups(9) == 2
    assert made[0].forward_pass.tiling.cluster == (3 if near else 0)
    for a, b in zip(ours, results(reference(cell), cell, x, initial, lengths, True), strict=True):
        apart = (a - b).norm().item()
        assert apart <= 2e-5 * b.norm().item() + 1e-6


def test_strips_of_a_row_are_summed_up_by_warps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks 64 columns wide in a cluster of two: of four strips the third has six columns, the last none."""
    cell = nn.LSTM(5, 70, layer_norm=True)
    x, initial = inputs(cell, torch.float32, 6, 3)

    def passes(plan: Plan, batch: int, *_: Any) -> Any:
        return emulated_passes(plan, batch, tmp_path, columns=64, near=True)

    monkeypatch.setattr(run, "_passes", passes)
    monkeypatch.setattr(passes_module, "check_report", lambda device: None)
    ours = results(OnHost(LayerStep(cell)), cell, x, initial, None, False)
    for a, b in zip(ours, results(reference(cell), cell, x, initial, None, False), strict=True):
        assert (a - b).norm().item() <= 2e-5 * b.norm().item() + 1e-6


@pytest.mark.parametrize("name", ["mgu", pytest.param("peephole", marks=pytest.mark.slow)])
def test_numbers_of_16_bits_travel_in_pairs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a cluster of two, whose second block has but eight of its 32 columns to fill."""
    small: Any = CELLS[name]()
    cell = type(small)(5, 40, **small.options)
    x, initial = inputs(cell, torch.float32, 6, 4)
    cell, x, *initial = (v.bfloat16() for v in (cell, x.detach(), *(s.detach() for s in initial)))
    exact, *given = copy.deepcopy(cell).float(), *(v.float().requires_grad_() for v in (x, *initial))
    for v in (x, *initial):
        v.requires_grad_()

    def passes(plan: Plan, batch: int, *_: Any) -> Any:
        return emulated_passes(plan, batch, tmp_path, columns=32, near=True, half=True)

    monkeypatch.setattr(run, "_passes", passes)
    monkeypatch.setattr(passes_module, "check_report", lambda device: None)
    ours = results(OnHost(LayerStep(cell)), cell, x, tuple(initial), None, False)
    theirs = results(reference(exact), exact, given[0], tuple(given[1:]), None, False)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.float() - b).norm().item() <= 0.02 * b.norm().item() + 1e-3
