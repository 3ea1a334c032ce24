"""numba's ``njit``, whose machine code is kept with the other compiled kernels.

numba itself keeps it beside the package, by the time at which a file was changed, and raises where it can write neither
there nor to the home folder. Here it is kept by the texts it was made of: two copies of the package share it, a container
without a home has a place for it, and what other users could have written is never run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from anaphora.native.cache import folder, found, put


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
ENDING = ".nbc"


def njit(*, cache: bool = False, **options: Any) -> Any:
    """As ``numba.njit``, used as ``@njit(cache=True, …)``."""

    def compiled(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(**options)(function)
        if cache:
            dispatcher._cache = Kept(function)
        return dispatcher

    return compiled


class Kept:
    """The machine code of one function: numba asks here before it compiles for new types, and gives what it has compiled."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function

    @property
    def cache_path(self) -> str:
        return str(folder())

    def load_overload(self, signature: Any, context: Any) -> Any:
        context.refresh()
        for _, body in found(self._stem(signature, context.codegen()), ENDING):
            return numba.core.compiler.CompileResult._rebuild(context, *pickle.loads(body))
        return None

    def save_overload(self, signature: Any, made: Any) -> None:
        if made.lifted or made.library.has_dynamic_globals:
            return  # addresses of this process are compiled in
        with contextlib.suppress(OSError):  # there is nowhere to write
            put(numba.core.serialize.dumps(made._reduce()), self._stem(signature, made.codegen), ENDING)

    def flush(self) -> None:
        """Keep all: what is out of date has another name."""

    def _stem(self, signature: Any, codegen: Any) -> str:
        machine = (numba.__version__, sys.version, codegen.magic_tuple())
        made_of = repr((signature, machine, sorted(_sources(self._function, set()))))
        return f"{self._function.__qualname__.rpartition('.')[2]}-{hashlib.sha256(made_of.encode()).hexdigest()[:32]}"


def _sources(function: Callable[..., Any], seen: set[str]) -> Iterator[str]:
    """All that decides what is compiled: the text of the function's file and its place there, the constants it takes from
    other files, and the same of the compiled functions that it calls."""
    place = f"{function.__module__} {function.__qualname__}"
    if place in seen:
        return
    seen.add(place)
    yield f"{place} {_text(function.__code__.co_filename)}"
    for name in _names(function.__code__):
        value = function.__globals__.get(name)
        if isinstance(value, numba.core.dispatcher.Dispatcher):
            yield from _sources(value.py_func, seen)
        elif not callable(value) and not isinstance(value, ModuleType):
            yield f"{place} {name} {value!r}"


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


@cache
def _text(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
