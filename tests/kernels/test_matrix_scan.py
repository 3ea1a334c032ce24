"""The fused matrix scan in Triton's interpreter, against plain torch in float64."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from anaphora.ops import matrix_scan

CLOSE = {
    "bfloat16": 2e-2,
    "by head, bfloat16": 2e-2,
    "mild, bfloat16": 2e-2,
    "float16": 2e-3,
}  # it rounds towards zero


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_the_kernels_equal_plain_torch() -> None:
    """In Triton's interpreter, which has to be asked for before Triton is first imported."""
    script = Path(__file__).parent / "matrix_scan_interpreted.py"
    around = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=around, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    errors = json.loads(done.stdout.splitlines()[-1])
    assert errors
    for name, found in errors.items():
        assert all(error < CLOSE.get(name, 1e-6) for error in found.values()), (name, found)


def test_tensors_of_the_cpu_are_left_to_plain_torch() -> None:
    x = torch.zeros(1, 2, 1, 3)
    assert not matrix_scan.serves(x, x, x, x, None)
