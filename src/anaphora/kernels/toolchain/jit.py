"""numba's ``njit``, with a place for what it compiles.

numba keeps it beside the package, or else in the home folder, and raises where it can write to neither: a package
that another user installed, and a container without a home. The cache of our other kernels has a place even then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

from anaphora.kernels.toolchain.cache import folder


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
