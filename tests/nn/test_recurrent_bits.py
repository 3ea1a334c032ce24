"""X11: An output never depends on its batch: to the last bit, with every compiler and instruction set there is here."""

from __future__ import annotations

import shutil
import warnings

import pytest
import torch
from recurrent_bits import check_rows, results

from anaphora.native import c as compiler
from anaphora.native import isa

SETS = [word for word in isa.executable() if word != "native"] or ["native"]
TARGETS = [(tool, word) for tool in ("gcc", "clang") for word in SETS if shutil.which(tool)]
DTYPES = [torch.float32, torch.float64]


def _aim(monkeypatch: pytest.MonkeyPatch, tool: str, word: str) -> None:
    path = shutil.which(tool)
    monkeypatch.setattr(compiler, "compiler", lambda: path)
    monkeypatch.setenv("ANAPHORA_ISA", word)


def _tested(tool: str, word: str) -> list[object]:
    """Each target in float32; in float64, whose code differs by its vector length only, the fewest that are of use."""
    rest = () if tool == "gcc" and word == "avx2" else (pytest.mark.slow,)
    return [
        pytest.param(tool, word, torch.float32),
        pytest.param(tool, word, torch.float64, marks=rest),
    ]


@pytest.mark.parametrize(("tool", "word", "dtype"), [case for target in TARGETS for case in _tested(*target)])
def test_a_row_is_the_same_alone_and_among_others(
    tool: str, word: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    _aim(monkeypatch, tool, word)
    for hidden in (1, 33, 130):
        check_rows(hidden, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)])
def test_all_compilers_and_vector_lengths_give_the_same_bits(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the CPU has a fused multiply-add, that is: without one each is rounded twice."""
    fused = [(tool, word) for tool, word in TARGETS if word != "baseline"]
    if len(fused) < 2:
        pytest.skip("there is only one target here")
    found = []
    for tool, word in fused:
        _aim(monkeypatch, tool, word)
        found.append(results(33, dtype))
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(other, found[0], strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_a_compiler(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "compiler", lambda: None)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*there is no C compiler")
        for hidden in (1, 33, 130):
            check_rows(hidden, dtype)
