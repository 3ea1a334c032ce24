"""Every row of the engine's table of operations: read from torch, differentiated, compiled, and compared with torch."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from recurrence_results import COMPILER, I, inputs, is_compiled, make_engine, reference, results
from torch import Tensor

from anaphora import nn
from anaphora.engine.dispatch import BACKENDS
from anaphora.engine.ops import OPS

ONE = {name: op.torch for name, op in OPS.items() if op.aten and "{1}" not in op.triton}
POSITIVE = ("log", "log1p", "sqrt", "rsqrt")


class EveryOperation(nn.Cell):
    """A cell whose step adds up all operations of one argument, and chooses by those of two."""

    def setup(self, inputs: int, hidden: int) -> None:
        self.state = ("h",)
        self.enter = nn.Affine(inputs + hidden, 2 * hidden)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        a, b = self.enter(torch.cat((x, h), 1)).chunk(2, 1)
        total = torch.where(a > b, a, torch.where(a >= 0.1, b, torch.maximum(a, torch.minimum(b, h))))
        for k, (name, operation) in enumerate(ONE.items()):
            total = total + operation(1.5 + torch.tanh(a) if name in POSITIVE else a) * (0.1 + 0.01 * k)
        return torch.tanh(0.3 * total)


@pytest.mark.parametrize("compile_it", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_operation_is_what_torch_makes_of_it(compile_it: bool) -> None:
    torch.manual_seed(0)
    cell = EveryOperation(I, 4).double()
    x, initial = inputs(cell, torch.float64, 5, 4)
    engine = make_engine(cell)
    if not compile_it:
        engine.planned(dict(cell.named_parameters()), (x,), (), initial)
    lengths = torch.tensor([4, 1, 3, 4, 2])
    ours = results(engine, cell, x, initial, lengths)
    for a, b in zip(ours, results(reference(cell), cell, x, initial, lengths), strict=True):
        torch.testing.assert_close(a, b, atol=1e-11, rtol=1e-11)
    assert is_compiled(engine) is (compile_it and COMPILER)


def test_the_page_about_the_engine_names_all_operations_and_backends() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/engine.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^The graph knows few operations .*: (.*)\.$", page, re.MULTILINE)
    assert listed.replace("`", "").split(", ") == list(OPS)
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == [backend.name for backend in BACKENDS]


def test_every_operation_of_torch_belongs_to_one_row() -> None:
    names = [name for op in OPS.values() for name in op.aten]
    assert len(names) == len(set(names))
    for op in OPS.values():
        places = set(re.findall(r"\{(\d)\}", op.triton))
        assert not op.c or set(re.findall(r"\{(\d)\}", op.c)) == places, op.name
