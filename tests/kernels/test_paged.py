"""Attention to pasts in pages, against the same written in torch; and rows that do not depend on those beside them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from anaphora.ops import packed
from anaphora.ops.invariant.alone import rows_alone
from anaphora.ops.paged import attend, attend_pages

SIZE = 4
LENGTHS = [1, 9, 4, 17, 30]


def pasts(heads: int, kept: int, d: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, pages and a table: rows of five lengths, their pages in no order."""
    torch.manual_seed(1)
    most = -(-max(LENGTHS) // SIZE)
    pages = torch.randn(40, SIZE, 2 * kept * d)
    table = torch.zeros(len(LENGTHS), 1 + most, dtype=torch.int64)
    free = torch.randperm(40).tolist()
    for row, length in enumerate(LENGTHS):
        table[row, 0] = length
        for place in range(-(-length // SIZE)):
            table[row, 1 + place] = free.pop()
    return torch.randn(len(LENGTHS), heads * d), pages, table


def written_out(
    query: torch.Tensor, pages: torch.Tensor, table: torch.Tensor, heads: int, kept: int, d: int
) -> list[torch.Tensor]:
    found = []
    for row, length in enumerate(LENGTHS):
        past = pages[table[row, 1:]].flatten(0, 1)[:length].view(length, 2, kept, d)
        keys, values = (past[:, part].transpose(0, 1).repeat_interleave(heads // kept, 0) for part in (0, 1))
        found.append(F.scaled_dot_product_attention(query[row].view(heads, 1, d), keys, values).flatten())
    return found


@pytest.mark.parametrize(("heads", "kept", "d"), [(1, 1, 8), (4, 4, 6), (4, 2, 5), (6, 1, 16)])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_row_attends_to_its_own_pages(heads, kept, d, compiled, monkeypatch):
    if compiled and packed.library.functions() is None:
        pytest.skip("no C compiler here")
    if not compiled:
        monkeypatch.setattr(attend.packed.library, "ready", lambda *_: False)
    query, pages, table = pasts(heads, kept, d)
    found = attend_pages(query, pages, table, heads=heads)
    for mine, wanted in zip(found, written_out(query, pages, table, heads, kept, d), strict=True):
        torch.testing.assert_close(mine, wanted, atol=1e-6, rtol=1e-5)
    for row in range(len(LENGTHS)):  # alone, to the last bit
        alone = attend_pages(query[row : row + 1], pages, table[row : row + 1].contiguous(), heads=heads)
        assert torch.equal(alone[0], found[row])


@pytest.mark.skipif(packed.library.functions() is None, reason="no C compiler here")
def test_slopes_and_reach_are_those_of_the_torch_version():
    query, pages, table = pasts(4, 4, 6)
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
    found = attend_pages(query, pages, table, heads=4, slopes=slopes, reach=3)
    for row, length in enumerate(LENGTHS):
        wanted = attend._row(query[row], pages, table[row, 1:], length, 4, slopes, 3)
        torch.testing.assert_close(found[row], wanted, atol=1e-6, rtol=1e-5)


@pytest.mark.skipif(packed.library.functions() is None, reason="no C compiler here")
def test_a_table_that_points_nowhere_is_an_error():
    query, pages, table = pasts(2, 2, 4)
    wrong = table.clone()
    wrong[3, 2] = 40
    with pytest.raises(ValueError, match="not there"):
        attend_pages(query, pages, wrong, heads=2)
    wrong = table.clone()
    wrong[0, 0] = 1000
    with pytest.raises(ValueError, match="not there"):
        attend_pages(query, pages, wrong, heads=2)


FUNCTIONS = {
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "softplus": F.softplus,
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "linear": lambda x: F.linear(x, torch.linspace(-1, 1, 7 * 29).view(7, 29), torch.ones(7)),
    "matmul": lambda x: x @ torch.linspace(-1, 1, 29 * 7).view(29, 7),
    "einsum": lambda x: torch.einsum("bd,bde->be", x, x[:, :, None] * torch.linspace(0, 1, 25)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@torch.no_grad()
def test_on_a_cpu_a_row_is_computed_alone(name):
    function, x = FUNCTIONS[name], torch.randn(33, 29)
    with rows_alone(torch.device("cpu")):
        together = function(x)
        for row in range(33):
            assert torch.equal(function(x[row : row + 1])[0], together[row])
    torch.testing.assert_close(together, function(x), atol=1e-5, rtol=1e-5)


def test_the_triton_program_computes_the_same():
    pytest.importorskip("triton", reason="Triton is not installed")
    program = Path(__file__).with_name("paged_interpreted.py")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, str(program)], check=True, env=environment, timeout=300)


@pytest.mark.cuda
@pytest.mark.parametrize(("heads", "kept", "d"), [(4, 4, 6), (4, 2, 5), (12, 12, 64), (2, 1, 128)])
def test_on_a_gpu(heads, kept, d):
    query, pages, table = pasts(heads, kept, d)
    wanted = attend_pages(query, pages, table, heads=heads)
    on = [tensor.cuda() for tensor in (query, pages, table)]
    found = attend_pages(*on, heads=heads)
    torch.testing.assert_close(found.cpu(), wanted, atol=1e-5, rtol=1e-5)
    for row in range(len(LENGTHS)):
        alone = attend_pages(on[0][row : row + 1], on[1], on[2][row : row + 1].contiguous(), heads=heads)
        assert torch.equal(alone[0], found[row])
