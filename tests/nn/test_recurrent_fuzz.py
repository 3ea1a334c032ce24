"""X9: No input crashes the process: drawn calls in a process of its own give the reference's results, or an ordinary error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import warm_command

SCRIPT = Path(__file__).with_name("recurrent_fuzz.py")


def _fuzz(device: str, seed: int, calls: int, *mode: str) -> dict[str, int]:
    words = [str(SCRIPT), device, str(seed), str(calls), *mode]
    if device == "cuda":  # which cannot be forked
        ended = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=600)
    else:
        ended = warm_command.run(words)
    assert ended.returncode == 0, f"exit {ended.returncode}: {ended.stderr[-2000:]}"
    found: dict[str, int] = json.loads(ended.stdout.splitlines()[-1])
    return found


def _expect(found: dict[str, int], calls: int, refused: bool = True) -> None:
    assert set(found) <= {"equal", "refused"}, found
    assert sum(found.values()) == calls
    assert found["equal"] > calls // 5
    if refused:
        assert found["refused"] > calls // 5


def test_layers_and_runs_of_any_shape() -> None:
    _expect(_fuzz("cpu", 0, 40), 80)


def test_a_compiled_layer_checks_its_lengths() -> None:
    _expect(_fuzz("cpu", 0, 15, "compiled"), 15)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 9))
def test_layers_and_runs_of_any_shape_at_length(seed: int) -> None:
    _expect(_fuzz("cpu", seed, 300), 600)


@pytest.mark.cuda
@pytest.mark.parametrize("seed", range(3))
def test_layers_and_runs_of_any_shape_on_a_gpu(seed: int) -> None:
    _expect(_fuzz("cuda", seed, 150), 300)
    _expect(_fuzz("cuda", seed, 20, "compiled"), 20, refused=False)


@pytest.mark.cuda
def test_lengths_past_the_end_on_a_gpu_are_an_error() -> None:
    found = _fuzz("cuda", 0, 1, "bad")
    assert "assert" in str(found["error"])
