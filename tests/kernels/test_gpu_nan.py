"""NaN and infinities in recurrences on a GPU: every backend has NaN where the reference loop has it.

Past the end of a row nothing is looked at: the loop itself would make 0 · NaN of its state there.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from recurrence_errors import CELLS
from test_recurrence_drawn import OPERATIONS, Drawn
from torch import Tensor

from anaphora import nn
from anaphora.errors import AnaphoraError
from anaphora.kernels.recurrence.backends.base import BackendName, LayerRun, Result
from anaphora.kernels.recurrence.backends.reference import run_reference
from anaphora.kernels.recurrence.dispatch import force
from anaphora.nn.recurrent_run import run_layer
from anaphora.nn.recurrent_step import LayerStep

pytestmark = pytest.mark.cuda
BACKENDS: list[BackendName] = ["persistent", "triton", "cuda_graph"]
BATCH, TIME, INPUTS, HIDDEN = 11, 7, 24, 64


def by_loop(run: LayerRun) -> Result:
    """The reference, with what a layer's run says."""
    params = run.params or {}
    return run_reference(run.step, params, run.steps, run.rows, run.initial, run.lengths, run.reverse)


class Spoilt:
    """A cell and inputs of which some numbers are NaN or infinite."""

    def __init__(self, cell: nn.Cell, seed: int, bad: float):
        draw = random.Random(seed)
        torch.manual_seed(seed)
        self.cell = cell.cuda()
        self.x = torch.randn(BATCH, TIME, INPUTS, device="cuda")
        self.initial = [torch.randn(BATCH, HIDDEN, device="cuda") for _ in cell.state]
        self.lengths = torch.randint(0, TIME + 1, (BATCH,), device="cuda")
        self.weights = [torch.randn(BATCH, TIME, HIDDEN, device="cuda")]
        self.weights += [torch.randn(BATCH, HIDDEN, device="cuda") for _ in cell.state]
        self.clean = self.results(by_loop)
        for _ in range(2):
            self.x.view(-1)[draw.randrange(self.x.numel())] = bad
        state = draw.choice(self.initial)
        state.view(-1)[draw.randrange(state.numel())] = bad

    def results(self, run: Any, row: int | None = None) -> list[Tensor]:
        """y, the last states, and the gradients of x, the first states and the parameters; of one row, up to its end."""
        some = slice(None) if row is None else slice(row, row + 1)
        until = TIME if row is None else int(self.lengths[row])
        x = self.x[some, :until].clone().requires_grad_()
        start = tuple(s[some].clone().requires_grad_() for s in self.initial)
        params = {k: p.detach().clone().requires_grad_() for k, p in self.cell.named_parameters()}
        lengths = self.lengths if row is None else None
        y, last = run(LayerRun(LayerStep(self.cell), params, (x,), (), start, lengths))
        leaves = [x, *start, *params.values()]
        weights = [self.weights[0][some, :until], *(w[some] for w in self.weights[1:])]
        grads = torch.autograd.grad([y, *last], leaves, weights, allow_unused=True)
        zeros = (torch.zeros_like(v) for v in leaves)
        return [y, *last, *(z if g is None else g for g, z in zip(grads, zeros, strict=True))]

    def expected(self) -> list[Tensor]:
        """The same by the reference loop, row by row and each no further than to its end."""
        states = len(self.initial)
        y, dx = torch.zeros_like(self.weights[0]), torch.zeros_like(self.x)
        last, first = [s.clone() for s in self.initial], [w.clone() for w in self.weights[1:]]
        params = [torch.zeros_like(p) for p in self.cell.parameters()]
        for row, length in enumerate(self.lengths.tolist()):
            if not length:
                continue
            found = iter(self.results(by_loop, row))
            y[row, :length] = next(found)[0]
            for k in range(states):
                last[k][row] = next(found)[0]
            dx[row, :length] = next(found)[0]
            for k in range(states):
                first[k][row] = next(found)[0]
            for total, part in zip(params, found, strict=True):
                total += part
        return [y, *last, dx, *first, *params]

    @property
    def usable(self) -> bool:
        """Whether all is finite when nothing is spoilt."""
        return all(bool(t.isfinite().all()) for t in self.clean)

    def check(self, backend: BackendName) -> bool:
        """Compare with the reference loop; False where this backend cannot serve the cell."""
        try:
            with force(backend):
                found = self.results(run_layer)
        except AnaphoraError as reason:
            if ", but " not in str(reason):  # what was forced cannot serve, and the message says why
                raise
            return False
        for k, (a, b) in enumerate(zip(found, self.expected(), strict=True)):
            counts = int(a.isnan().sum()), int(b.isnan().sum())
            assert torch.equal(a.isnan(), b.isnan()), f"result {k} by {backend}: NaN {counts}, of {a.numel()}"
        return True


@pytest.fixture(autouse=True)
def _shortened_products() -> Any:
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = True  # or persistent kernels do not take float32
    yield
    torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize("seed", range(1, 13))
def test_nan_in_a_drawn_cell(seed: int) -> None:
    draw = random.Random(1000 + seed)
    program = [
        (draw.choice(OPERATIONS), draw.randrange(30), draw.randrange(30)) for _ in range(draw.randint(2, 8))
    ]
    case = Spoilt(Drawn(INPUTS, HIDDEN, states=draw.randint(1, 2), program=program), seed, float("nan"))
    if not case.usable:
        pytest.skip("this cell overflows without our help")
    served = [case.check(backend) for backend in BACKENDS]
    assert any(served)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["elman relu", "lstm", "lstm peephole", "gru before", "gru after", "mgu"])
def test_nan_and_infinity_in_our_cells(name: str, bad: float) -> None:
    case = Spoilt(CELLS[name](INPUTS, HIDDEN), 5, bad)
    served = [case.check(backend) for backend in BACKENDS[1:]]
    assert all(served)
    hopper = torch.cuda.get_device_capability()[0] == 9
    assert case.check("persistent") == hopper
