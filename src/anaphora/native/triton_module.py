"""Generated kernels as a Python module: Triton reads a kernel's text from its file, so it needs one."""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from types import ModuleType

from anaphora.native import cache as kernel_cache


@cache
def load(text: str) -> ModuleType:
    """The module of this text, kept with the other compiled kernels."""
    name = f"anaphora_steps_{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    path = next((path for path, _ in kernel_cache.found(name, ".py")), None)
    if path is None:
        path = kernel_cache.put(text.encode(), name, ".py")
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # Triton looks it up
    # Not imported: Python would keep byte code of its own beside the file, and run what it finds there.
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module
