"""Printed kernels as a Python module: Triton reads a kernel's text from its file, so it needs one."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType

from anaphora.kernels.toolchain.compiler import cache_folder


@cache
def load(text: str) -> ModuleType:
    """The module of this text, kept beside the other compiled kernels."""
    name = f"anaphora_steps_{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    path = cache_folder() / f"{name}.py"
    if not _holds(path, text):
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".building-")
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.replace(temporary, path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Triton looks it up
    spec.loader.exec_module(module)
    return module


def _holds(path: Path, text: str) -> bool:
    try:
        return path.read_text() == text
    except OSError:
        return False
