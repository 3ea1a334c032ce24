"""Persistent kernels on a GPU against the reference loop in float64, and how they behave when something is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
import torch
from recurrence_errors import CELLS, Drawn, Layer, Precision
from torch import Tensor

from anaphora import nn
from anaphora.engine.arguments import Arguments
from anaphora.engine.backends.base import Case
from anaphora.engine.backends.persistent import run
from anaphora.engine.backends.persistent.launch import Pass
from anaphora.engine.backends.persistent.source import NAME
from anaphora.engine.plan import Plan, make_plan
from anaphora.engine.trace import trace
from anaphora.errors import AnaphoraError
from anaphora.native.cuda import Loaded, check_kernels, machine_code
from anaphora.nn.recurrent_step import LayerStep

pytestmark = pytest.mark.cuda


@pytest.fixture(autouse=True)
def _shortened_products() -> Iterator[None]:
    if torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("these kernels are for Hopper GPUs")
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = True
    yield
    torch.backends.cudnn.allow_tf32 = before


class Sequences:
    """A cell with random inputs, and everything a run of its persistent kernels gives."""

    def __init__(self, cell: nn.Cell, dtype: torch.dtype, batch: int, time: int):
        self.cell = cell.to("cuda", dtype)
        self.x = self._drawn(batch, time, cell.inputs).requires_grad_()
        self.initial = tuple((0.5 * self._drawn(batch, cell.hidden)).requires_grad_() for _ in cell.state)
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

    def case(self) -> Case:
        return Case(self.x.device, self.x.dtype, *self.x.shape[:2], self.cell.hidden, self.plan)

    def ours(self) -> list[Tensor]:
        assert run.why_not(self.case()) is None
        y, last = run.run_persistent(self.plan, self.given(), None, False)
        leaves = [self.x, *self.initial, *self.cell.parameters()]
        return [y, *last, *torch.autograd.grad([y, *last], leaves, self.weights)]


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize(
    ("precision", "batch", "hidden", "ragged", "reverse"),
    [
        ("bf16", 37, 200, True, False),
        ("tf32", 7, 136, False, True),
        ("fp16", 1, 320, True, True),
        ("bf16", 64, 512, False, False),
    ],
)
def test_every_cell_on_odd_sizes(
    cell: str, precision: Precision, batch: int, hidden: int, ragged: bool, reverse: bool
) -> None:
    _check(Drawn(cell, precision, batch, 20, 50, hidden, ragged, reverse))


@pytest.mark.parametrize("hidden", [8, 1000])
def test_narrow_and_wide_states(hidden: int) -> None:
    _check(Drawn("lstm", "bf16", 5, 12, 24, hidden))


def test_more_rows_than_fit_at_once() -> None:
    _check(Drawn("lstm", "bf16", 300, 6, 24, 512))


def _check(drawn: Drawn) -> None:
    wrong = Layer(drawn).less_exact("persistent")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", ["lstm", "gru before", "lstm layer norm"])
def test_runs_are_equal_to_the_last_bit(name: str) -> None:
    case = Sequences(CELLS[name](64, 256), torch.bfloat16, 24, 40)
    first = case.ours()
    for _ in range(3):
        for a, b in zip(first, case.ours(), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", ["lstm peephole", "lstm layer norm", "gru after", "gru before", "mgu"])
def test_nan_travels_and_stays_in_its_row(name: str, dtype: torch.dtype) -> None:
    """Also the NaN whose bits are all ones, which stands for nothing yet between blocks."""
    case = Sequences(CELLS[name](64, 512), dtype, 64, 14)
    with torch.no_grad():
        case.x[3, 10, 5] = float("nan")
        bits = torch.int16 if dtype == torch.bfloat16 else torch.int32
        case.initial[0][7].view(bits).fill_(-1)
    y, *rest = case.ours()
    assert y.isnan().any(2).any(1).nonzero().flatten().tolist() == [3, 7]
    assert not y[3, :10].isnan().any()
    assert y[3, 10:].isnan().any(1).all()
    dx = rest[len(case.initial)]
    assert dx.isnan().any(2).any(1).nonzero().flatten().tolist() == [3, 7]
    assert all(g.isnan().any() for g in rest[2 * len(case.initial) + 1 :])  # of every weight
    check_kernels()


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


@pytest.mark.parametrize("name", ["lstm", "mgu", "lstm layer norm"])
def test_waiting_in_vain_ends_and_is_reported(name: str) -> None:
    """In a process of its own: should it hang or break the GPU's context, no other test does."""
    with ProcessPoolExecutor(1, get_context("spawn")) as apart:
        apart.submit(_wait_in_vain, name).result(timeout=120)


def _wait_in_vain(name: str) -> None:
    """A kernel whose first block publishes nothing: the others give up, and no wrong number is handed out.

    The run after it raises; the one after that is right.
    """
    torch.backends.cudnn.allow_tf32 = True
    case = Sequences(CELLS[name](64, 512), torch.bfloat16, 64, 5)
    passes = run._passes(case.plan, 64, case.x.dtype, case.x.device)
    right = case.ours()
    with torch.no_grad():
        expected, ends = run.run_persistent(case.plan, case.given(), None, False)
        impatient(passes.running_pass)
        y, last = run.run_persistent(case.plan, case.given(), None, False)
        with pytest.raises(AnaphoraError, match="waited more than two seconds"):
            check_kernels()
        for a, b in zip((y, *last), (expected, *ends), strict=True):
            assert a.isnan().any()
            assert a[torch.ne(a, b)].isnan().all()
        run.run_persistent(case.plan, case.given(), None, False)
        torch.cuda.synchronize()
        with pytest.raises(AnaphoraError, match="waited more than two seconds"):
            run.run_persistent(case.plan, case.given(), None, False)
    impatient(passes.backward_pass)
    y, last = run.run_persistent(case.plan, case.given(), None, False)
    leaves = [case.x, *case.initial, *case.cell.parameters()]
    grads = torch.autograd.grad([y, *last], leaves, case.weights)
    with pytest.raises(AnaphoraError, match="waited more than two seconds"):
        check_kernels()
    for a, b in zip(grads, right[1 + len(last) :], strict=True):
        assert a.isnan().any()
        assert a[torch.ne(a, b)].isnan().all()
    for one in (passes.running_pass, passes.backward_pass):
        del one.__dict__["loaded"]
    assert all(torch.equal(a, b) for a, b in zip(case.ours(), right, strict=True))
    check_kernels()


def impatient(one: Pass) -> None:
    """Its kernel, changed: the first block publishes nothing, and the others give up after some milliseconds."""
    source = one.kernel.source
    for patient, hasty in (("SPIN 4000000", "SPIN 2000"), ("2000000000LL", "2000000LL")):
        assert patient in source
        source = source.replace(patient, hasty)
    publishing = r"(IN void (?:store|hand4)\([^)]*\)\{)"  # to memory, and to the blocks of a cluster
    source, count = re.subn(publishing, r"\1if(blockIdx.x==0)return;", source)
    assert count == 2
    tiling = one.tiling
    code = machine_code(source, one.architecture, "steps")
    one.__dict__["loaded"] = Loaded(code, NAME, tiling.shared_memory, 32 * tiling.warps, tiling.cluster)


def test_exact_products_are_left_to_others() -> None:
    case = Sequences(nn.LSTM(64, 256), torch.float32, 4, 5)
    torch.backends.cudnn.allow_tf32 = False
    reason = run.why_not(case.case())
    assert reason is not None
    assert "exact" in reason
