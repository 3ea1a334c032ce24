"""Persistent kernels on a GPU against the reference loop in float64, and how they behave when something is wrong."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from recurrence_results import CELLS as SMALL
from torch import Tensor

from anaphora import nn
from anaphora.errors import AnaphoraError
from anaphora.kernels.recurrence.arguments import Arguments
from anaphora.kernels.recurrence.persistent import run
from anaphora.kernels.recurrence.persistent.driver import Loaded, check_report
from anaphora.kernels.recurrence.persistent.nvrtc import machine_code
from anaphora.kernels.recurrence.plan import Plan, make_plan
from anaphora.kernels.recurrence.reference import run_reference
from anaphora.kernels.recurrence.trace import trace
from anaphora.nn.recurrent_step import LayerStep

pytestmark = pytest.mark.cuda
ALLOWED = {torch.float32: 2e-3, torch.bfloat16: 2e-2, torch.float16: 4e-3}
# A normalisation divides by a small number; where a ReLU's input is near zero, rounding decides a whole gradient.
HARDER = {"layer norm": 4, "relu": 25}


@pytest.fixture(autouse=True)
def _shortened_products() -> Iterator[None]:
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("these kernels are for Hopper GPUs")
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = True
    yield
    torch.backends.cudnn.allow_tf32 = before


class Sequences:
    """A cell with random inputs, and everything a run of it gives."""

    def __init__(self, cell: nn.Cell, dtype: torch.dtype, batch: int, time: int, ragged: bool = False):
        self.cell = cell.to("cuda", dtype)
        self.x = self._drawn(batch, time, cell.inputs).requires_grad_()
        self.initial = tuple((0.5 * self._drawn(batch, cell.hidden)).requires_grad_() for _ in cell.state)
        self.lengths = torch.randint(0, time + 1, (batch,), device="cuda") if ragged else None
        self.weights = [self._drawn(batch, time, cell.hidden)]
        self.weights += [self._drawn(batch, cell.hidden) for _ in cell.state]
        params = dict(self.cell.named_parameters())
        self.traced = trace(LayerStep(self.cell), params, (self.x,), (), self.initial)
        states = [cell.hidden] * len(cell.state)
        self.plan: Plan = make_plan(self.traced, [cell.inputs], [], states, {0})

    def _drawn(self, *shape: int) -> Tensor:
        like = next(self.cell.parameters())
        return torch.randn(*shape, device="cuda").to(like.dtype)

    def given(self) -> Arguments:
        matrices, vectors = self.traced.boundary(dict(self.cell.named_parameters()))
        stacked = [torch.cat([matrices[p] for p in m.parts]) for m in self.plan.matrices]
        return Arguments(stacked, vectors, (self.x,), (), self.initial)

    def ours(self, reverse: bool = False) -> list[Tensor]:
        assert run.why_not(self.plan, self.given()) is None
        y, last = run.run_persistent(self.plan, self.given(), self.lengths, reverse)
        leaves = [self.x, *self.initial, *self.cell.parameters()]
        return [y, *last, *torch.autograd.grad([y, *last], leaves, self.weights)]

    def exact(self, reverse: bool = False) -> list[Tensor]:
        cell = copy.deepcopy(self.cell).double()
        x, *initial = (t.detach().double().requires_grad_() for t in (self.x, *self.initial))
        step, params = LayerStep(cell), dict(cell.named_parameters())
        y, last = run_reference(step, params, (x,), (), tuple(initial), self.lengths, reverse)
        weights = [w.double() for w in self.weights]
        return [y, *last, *torch.autograd.grad([y, *last], [x, *initial, *cell.parameters()], weights)]

    def check(self, reverse: bool = False, times: float = 1) -> None:
        for a, b in zip(self.ours(reverse), self.exact(reverse), strict=True):
            apart = (a.detach().double() - b.detach()).norm().item()
            assert apart <= times * ALLOWED[self.x.dtype] * b.detach().norm().item()


def _wide(name: str, inputs: int, hidden: int) -> nn.Cell:
    small: Any = SMALL[name]()
    return type(small)(inputs, hidden, **small.options)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(
    ("dtype", "batch", "hidden", "ragged", "reverse"),
    [
        (torch.bfloat16, 37, 200, True, False),
        (torch.float32, 7, 136, False, True),
        (torch.float16, 1, 320, True, True),
        (torch.bfloat16, 64, 512, False, False),
    ],
)
def test_every_cell_on_odd_sizes(
    name: str, dtype: torch.dtype, batch: int, hidden: int, ragged: bool, reverse: bool
) -> None:
    case = Sequences(_wide(name, 50, hidden), dtype, batch, 20, ragged)
    case.check(reverse, times=HARDER.get(name, 1))


@pytest.mark.parametrize("hidden", [8, 1000])
def test_narrow_and_wide_states(hidden: int) -> None:
    Sequences(nn.LSTM(24, hidden), torch.bfloat16, 5, 12).check()


def test_more_rows_than_fit_at_once() -> None:
    Sequences(nn.LSTM(24, 512), torch.bfloat16, 300, 6).check()


@pytest.mark.parametrize("name", ["lstm", "gru before", "layer norm"])
def test_runs_are_equal_to_the_last_bit(name: str) -> None:
    case = Sequences(_wide(name, 64, 256), torch.bfloat16, 24, 40)
    first = case.ours()
    for _ in range(3):
        for a, b in zip(first, case.ours(), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_nan_travels_and_stays_in_its_row(dtype: torch.dtype) -> None:
    """Also the NaN whose bits are all ones, which stands for nothing yet between blocks."""
    case = Sequences(nn.GRU(64, 256, reset="after"), dtype, 24, 30)
    with torch.no_grad():
        case.x[3, 10, 5] = float("nan")
        bits = torch.int16 if dtype == torch.bfloat16 else torch.int32
        case.initial[0][7].view(bits).fill_(-1)
    y = case.ours()[0]
    assert y.isnan().any(2).any(1).nonzero().flatten().tolist() == [3, 7]
    assert not y[3, :10].isnan().any()
    assert y[3, 10:].isnan().any(1).all()
    check_report(0)


def test_a_graph_replays_it() -> None:
    case = Sequences(nn.LSTM(64, 256), torch.bfloat16, 16, 30)
    given = case.given()
    with torch.no_grad():
        run.run_persistent(case.plan, given, None, False)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            run.run_persistent(case.plan, given, None, False)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y, _ = run.run_persistent(case.plan, given, None, False)
        case.x.copy_(torch.randn_like(case.x))
        graph.replay()
        wanted, _ = run.run_persistent(case.plan, given, None, False)
    assert torch.equal(y, wanted)


def test_waiting_in_vain_ends_and_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel whose first block publishes nothing: the others give up, and the next run says so."""
    case = Sequences(nn.LSTM(64, 256), torch.bfloat16, 8, 5)
    x = case.x
    passes = run._passes(case.plan, 8, x.dtype, x.device)
    one = passes.running_pass
    source = one.kernel.source.replace("#define SPIN 4000000", "#define SPIN 2000")
    silent = source.replace("if(on&&!(threadIdx.x&1))store", "if(on&&blockIdx.x&&!(threadIdx.x&1))store")
    assert silent != source
    code = machine_code(silent, one.architecture, "steps")
    broken = Loaded(code, "all_steps", one.tiling.shared_memory, 32 * one.tiling.warps)
    monkeypatch.setitem(one.__dict__, "loaded", broken)
    with torch.no_grad():
        run.run_persistent(case.plan, case.given(), None, False)
        torch.cuda.synchronize()
        with pytest.raises(AnaphoraError, match="waited more than two seconds"):
            run.run_persistent(case.plan, case.given(), None, False)
    monkeypatch.undo()
    check_report(0)


def test_exact_products_are_left_to_others() -> None:
    case = Sequences(nn.LSTM(64, 256), torch.float32, 4, 5)
    torch.backends.cudnn.allow_tf32 = False
    reason = run.why_not(case.plan, case.given())
    assert reason is not None
    assert "exact" in reason
