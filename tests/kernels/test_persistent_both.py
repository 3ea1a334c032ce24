"""Both directions in one launch, run by fibres on this machine, against two runs of the reference loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from persistent_emulated import COMPILER, emulated_passes
from recurrence_results import CELLS, inputs
from torch import Tensor

from anaphora import nn
from anaphora.engine.arguments import Arguments
from anaphora.engine.backends.base import Params
from anaphora.engine.backends.persistent import run
from anaphora.engine.backends.persistent.launch import make_programs
from anaphora.engine.backends.persistent.tiling import choose, cost
from anaphora.engine.backends.reference import run_reference
from anaphora.engine.plan import make_plan
from anaphora.engine.trace import trace
from anaphora.nn.recurrent_step import LayerStep

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler here")


def _expected(cells: list[nn.Cell], x: Tensor, initial: list[Any], lengths: Tensor) -> list[Tensor]:
    runs = [
        run_reference(LayerStep(cell, substitute=False), {}, (x,), (), start, lengths, reverse)
        for cell, start, reverse in zip(cells, initial, (False, True), strict=True)
    ]
    return [torch.cat([y for y, _ in runs], -1), *(s for _, last in runs for s in last)]


def _both(
    cells: list[nn.Cell], x: Tensor, initial: list[Any], lengths: Tensor, time_first: bool
) -> list[Tensor]:
    given, sides = [], []
    for cell, start in zip(cells, initial, strict=True):
        params: Params = dict(cell.named_parameters())
        traced = trace(LayerStep(cell), params, (x,), (), start)
        plan = make_plan(traced, [x.shape[2]], [], [cell.hidden] * len(cell.state), {0})
        matrices, vectors = traced.boundary(params)
        stacked = [torch.cat([matrices[p] for p in m.parts]) for m in plan.matrices]
        given.append(Arguments(stacked, vectors, (x,), (), start))
        sides.append(emulated_passes(plan, len(x), columns=32, sms=4, sides=2, tiles=2))
    assert sides[0].all[0].kernel.source == sides[1].all[0].kernel.source
    teams = any(p.split > 1 for p in sides[0].all[0].tiling.products)
    assert teams == isinstance(cells[0], nn.LSTM)  # four gates of 32 columns are many results for a warp
    y, first, second = run.run_sides((sides[0], sides[1]), given[0], given[1], lengths, time_first)
    with torch.no_grad():  # nothing is kept, and nothing else changes
        quiet, *ends = run.run_sides((sides[0], sides[1]), given[0], given[1], lengths, time_first)
    for a, b in zip((quiet, *ends[0], *ends[1]), (y, *first, *second), strict=True):
        torch.testing.assert_close(a, b)
    return [y, *first, *second]


@pytest.mark.parametrize(
    ("name", "time_first"), [("lstm", True), pytest.param("gru before", False, marks=pytest.mark.slow)]
)
def test_one_launch_equals_two_runs(name: str, time_first: bool) -> None:
    """Two blocks share sixteen rows of either direction, warps may form teams, and groups of rows take turns; lengths differ."""
    small: Any = CELLS[name]()
    cells = [type(small)(5, 40, **small.options) for _ in range(2)]
    x, start = inputs(cells[0], torch.float32, 18, 4)
    initial = [start, inputs(cells[1], torch.float32, 18, 4)[1]]
    lengths = torch.tensor([4, 0, 2, 4, 1, 3, 4, 4, 2] * 2)
    with torch.no_grad():
        x[1::9] = float("nan")  # of a row without steps nothing is looked at
    leaves = [x, *initial[0], *initial[1], *(p for cell in cells for p in cell.parameters())]
    ours = _both(cells, x, initial, lengths, time_first)
    assert ours[0].transpose(0, 1).is_contiguous() == time_first
    clean = torch.where(torch.isnan(x), torch.zeros_like(x), x)
    right = _expected(cells, clean, initial, lengths)
    torch.manual_seed(3)
    weights = [torch.randn_like(v) for v in right]
    ours += torch.autograd.grad(ours, leaves, weights)
    right += torch.autograd.grad(right, leaves, weights)
    for a, b in zip(ours, right, strict=True):
        assert (a - b).norm().item() <= 2e-5 * b.norm().item() + 1e-6


def test_half_a_gpu_holds_one_direction_of_the_common_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """LSTM, 512 units, 64 rows: all rows at once, and in less time than one direction after the other."""
    monkeypatch.setattr(torch.nn.init, "orthogonal_", torch.nn.init.uniform_)  # only shapes matter
    cell = nn.LSTM(6, 512)
    x, initial = inputs(cell, torch.float32, 2, 3)
    params: Params = dict(cell.named_parameters())
    plan = make_plan(trace(LayerStep(cell), params, (x,), (), initial), [6], [], [512, 512], {0})
    programs = make_programs(plan)
    for program in (programs.forward, programs.backward):
        half, whole = (choose(program, 512, 64, True, sms) for sms in (66, 132))
        assert half is not None
        assert whole is not None
        assert half.grid(64, 66) == half.slices * half.groups(64) == 64
        assert half.tiles * half.columns == 64
        assert cost(program, half, 64, True, 66) < 2 * cost(program, whole, 64, True, 132)
