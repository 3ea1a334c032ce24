"""Files of models that packages of others hold, without importing those packages; ``make test-foreign`` installs them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest


def package(name: str) -> Path:
    """The folder of an installed package; the test is skipped where there is none."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        pytest.skip(f"{name} is not installed (make test-foreign)")
    return Path(found.origin).parent
