"""numba's ``njit``, with a place for what it compiles.

numba keeps it beside the package, or else in the home folder, and raises where it can write to neither: a package
that another user installed, and a container without a home. The cache of our other kernels has a place even then.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

from anaphora.native.cache import folder


def _imported() -> ModuleType:
    """Return numba, imported without the ``.numba_config.yaml`` of the working folder.

    A stranger's could name a folder of compiled code, which numba would unpickle and run. numba reads the file while it
    is imported, where it finds PyYAML; the variables ``NUMBA_…`` set the same.
    """
    if "numba" in sys.modules or not os.path.lexists(".numba_config.yaml"):
        import numba

        return numba
    absent: Any = None
    yaml = sys.modules.get("yaml", absent)
    sys.modules["yaml"] = absent  # importing it fails
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numba says that it cannot read the file
            import numba
    finally:
        del sys.modules["yaml"]
        if yaml is not None:
            sys.modules["yaml"] = yaml
    warnings.warn(
        f"{os.path.abspath('.numba_config.yaml')} is not read; set variables such as NUMBA_NUM_THREADS instead.",
        stacklevel=2,
    )
    return numba


numba = _imported()


def njit(**options: Any) -> Any:
    """As ``numba.njit``, used as ``@njit(cache=True, …)``."""

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(**options)(function)
        except RuntimeError as error:
            if "no locator available" not in str(error):
                raise
        config: Any = numba.config
        config.CACHE_DIR = str(folder())
        try:
            return numba.njit(**options)(function)
        except (RuntimeError, OSError):
            return numba.njit(**{**options, "cache": False})(function)

    return compiled
