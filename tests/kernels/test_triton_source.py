"""Kernels generated from plans: their text against golden files, their stages, and their numbers in Triton's interpreter.

``ANAPHORA_GOLDEN=write pytest tests/kernels/test_triton_source.py`` writes the golden files again.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from recurrence_results import Run

from anaphora import nn
from anaphora.engine.backends.triton.passes import programs, row_tile, shares, tile
from anaphora.engine.backends.triton.writer import CannotGenerate, forward_stages
from anaphora.engine.plan import Plan
from anaphora.nn.recurrent_step import LayerStep

GOLDEN = Path(__file__).parent / "golden"
I, H = 3, 8
CELLS = {
    "elman": lambda: nn.Elman(I, H),
    "irnn": lambda: nn.IRNN(I, H),
    "lstm": lambda: nn.LSTM(I, H),
    "lstm_no_forget": lambda: nn.LSTM(I, H, forget=False),
    "lstm_coupled": lambda: nn.LSTM(I, H, coupled=True),
    "lstm_peephole": lambda: nn.LSTM(I, H, peephole=True),
    "lstm_layer_norm": lambda: nn.LSTM(I, H, layer_norm=True),
    "gru_before": lambda: nn.GRU(I, H),
    "gru_after": lambda: nn.GRU(I, H, reset="after"),
    "simple_gru": lambda: nn.SimpleGRU(I, H),
    "mgu": lambda: nn.MGU(I, H),
    "shortcut": lambda: nn.Shortcut(I, H, cell=nn.GRU, by=3),
}


def _plan(cell: nn.Cell, masked: bool = False) -> Plan:
    x = torch.zeros(2, 4, cell.inputs, requires_grad=True)
    rows = (torch.ones(2, cell.hidden),) if masked else ()
    states = tuple(torch.zeros(2, cell.hidden) for _ in cell.state)
    ready = Run(LayerStep(cell, masked=masked)).planned(dict(cell.named_parameters()), (x,), rows, states)
    assert ready.plan is not None
    assert ready.trace is not None
    return ready.plan


@pytest.mark.parametrize("name", ["lstm_layer_norm"])  # products, pointwise operations and row reductions
def test_the_text_is_the_golden_one(name: str) -> None:
    text = "\n".join(program.text for program in programs(_plan(CELLS[name]())))
    path = GOLDEN / f"triton_{name}.txt"
    if os.environ.get("ANAPHORA_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_every_cell_becomes_valid_python_whatever_its_width(name: str, masked: bool) -> None:
    cell = CELLS[name]()
    printed = [program.text for program in programs(_plan(cell, masked))]
    for text in printed:
        names = [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
        assert len(names) == len(set(names)) > 1
    if not (name.endswith("layer_norm")):  # 1/H is part of a mean
        wide = type(cell)(I, 4 * H, **cell.options)
        assert [program.text for program in programs(_plan(wide, masked))] == printed


@pytest.mark.parametrize(
    ("name", "forward", "backward"),
    [
        ("lstm", 1, 1),  # one product, then everything else, with the next step's beginning
        ("gru_before", 2, 2),  # U (r ∘ h) waits for r = σ(U h …)
        ("lstm_layer_norm", 1, 1),
        ("mgu", 2, 2),
    ],
)
def test_how_many_kernels_a_step_takes(name: str, forward: int, backward: int) -> None:
    both = programs(_plan(CELLS[name]()))
    assert [len(program.each) for program in both] == [forward, backward]


def test_what_cannot_be_printed_says_so() -> None:
    class Narrow(nn.Cell):
        """Two states of different widths cannot share columns."""

        def setup(self, inputs: int, hidden: int) -> None:
            self.a = nn.Affine(inputs, hidden, 3)
            self.b = nn.Affine(3, hidden)

        def step(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.b(torch.tanh(self.a(x, h))))

    with pytest.raises(CannotGenerate, match="no multiple of the state's 8"):
        forward_stages(_plan(Narrow(I, H)))


def test_tiles_cover_rows_and_columns() -> None:
    for batch in (1, 7, 37, 64, 256, 300):
        for hidden in (8, 136, 200, 1000, 2048):
            for size in (tile(batch, hidden), row_tile(hidden)):
                columns, rows = size.grid(batch, hidden)
                assert columns * size.columns >= hidden
                assert rows * size.rows >= batch
            assert row_tile(hidden).columns >= hidden


def test_products_with_few_results_are_cut_along_their_depth() -> None:
    assert shares(256, 4096, 1024) == 4  # the gradient of 1024 units from 4096 gates
    assert shares(64, 8192, 2048) == 4
    assert shares(256, 1024, 4096) == 1  # as many results keep all SMs busy
    assert shares(8, 32, 8) == 1
    for depth in (4096, 4104, 6150, 3075):
        assert depth % shares(1, depth, 64) == 0


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_the_kernels_compute_what_the_loop_does() -> None:
    """In Triton's interpreter, which has to be asked for before Triton is first imported."""
    script = Path(__file__).parent / "triton_interpreted.py"
    paths = os.pathsep.join(filter(None, (str(script.parents[1]), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": paths, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert len(found["nan"]) > 20
    assert not any(found["nan"].values()), found["nan"]
    errors = found["errors"]
    assert len(errors) == len(CELLS) + 3
    assert max(errors.values()) < 2e-5, errors
