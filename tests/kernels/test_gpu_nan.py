"""NaN and infinities in recurrences on a GPU: every backend has NaN where the reference loop has it.

The generated kernels are also run without a GPU: triton_interpreted.py, test_persistent_emulated.py.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from recurrence_errors import CELLS
from recurrence_nan import Spoilt, drawn_cell

from anaphora.engine.backends.base import BackendName
from anaphora.engine.dispatch import force
from anaphora.errors import AnaphoraError
from anaphora.nn.recurrent_run import run_layer

pytestmark = pytest.mark.cuda
BACKENDS: list[BackendName] = ["persistent", "triton", "cuda_graph"]
INPUTS, HIDDEN = 24, 64


def _check(case: Spoilt, backend: BackendName) -> bool:
    """Compare with the reference loop; False where this backend cannot serve the cell."""
    try:
        with force(backend):
            wrong = case.differences(run_layer)
    except AnaphoraError as reason:
        if ", but " not in str(reason):  # what was forced cannot serve, and the message says why
            raise
        return False
    assert not wrong, f"{backend}: {wrong}"
    return True


@pytest.fixture(autouse=True)
def _shortened_products() -> Any:
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = True  # or persistent kernels do not take float32
    yield
    torch.backends.cudnn.allow_tf32 = before


@pytest.mark.parametrize("seed", range(13))
def test_nan_in_a_drawn_cell(seed: int) -> None:
    case = Spoilt(drawn_cell(seed, INPUTS, HIDDEN), seed, float("nan"), "cuda")
    if not case.usable:
        pytest.skip("this cell overflows without our help")
    served = [_check(case, backend) for backend in BACKENDS]
    assert any(served)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["elman relu", "lstm", "lstm peephole", "gru before", "gru after", "mgu"])
def test_nan_and_infinity_in_our_cells(name: str, bad: float) -> None:
    case = Spoilt(CELLS[name](INPUTS, HIDDEN), 5, bad, "cuda")
    served = [_check(case, backend) for backend in BACKENDS[1:]]
    assert all(served)
    hopper = torch.cuda.get_device_capability()[0] == 9
    assert _check(case, "persistent") == hopper
