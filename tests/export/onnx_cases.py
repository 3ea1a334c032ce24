"""What the tests of exported models share: cases of a model and its inputs, and how one is exported and loaded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Case = tuple[Callable[[], Any], list[Any]]
LINEAR = ["retnet", "gla", "mamba", "mamba2", "mlstm", "deltanet", "gated-deltanet", "rwkv4", "rwkv7"]
SEEN = {"picture_size": 16, "halvings": 2}


def some(names: Any, *fast: str) -> list[Any]:
    """The cases, of which all but the ``fast`` ones run in make test-all only."""
    return [name if name in fast else pytest.param(name, marks=pytest.mark.slow) for name in names]


def exported(m: Any, folder: Path, **options: Any) -> Any:
    from anaphora.runtime import load

    m.export(folder / "out", **options)
    return load(folder / "out")
