"""Compile C once, keep it in the cache, load it; and look at tensors before their addresses are handed to it."""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from anaphora import processes
from anaphora.files import read_bytes
from anaphora.files.writing import scratch_folder, write_new
from anaphora.native import cache as kernel_cache
from anaphora.native import isa

FLAGS = (
    "-O3",
    "-std=gnu11",
    "-ffp-contract=off",  # fused multiply-adds are written out: arithmetic.h
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fopenmp-simd",
    "-shared",
    "-fPIC",
    "-w",
)
ARITHMETIC = Path(__file__).with_name("arithmetic.h")
LANES = Path(__file__).with_name("lanes.h")  # for kernels that sum floats
SECONDS = 120  # a compiler that takes longer hangs


class CannotCompile(Exception):  # noqa: N818 (says what happened)
    """There is no working C compiler; the text says what happened."""


@cache
def compiler() -> str | None:
    """The C compiler: ``CC``, or the first of cc, gcc, clang that is installed."""
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        found = processes.program(name) if name else None
        if found:
            return found
    return None


@cache
def _version(tool: str) -> str:
    """The program behind a compiler's name and the first line of what it says about itself."""
    try:
        said = processes.run([tool, "--version"], timeout=SECONDS, text=True, errors="replace").stdout
    except (OSError, processes.TimeoutExpired):
        said = ""
    return f"{os.path.realpath(tool)} {said.partition(os.linesep)[0]}"


def target() -> str:
    """All that decides what a source is compiled to: the compiler, its version, its flags and the CPU.

    Raises :class:`CannotCompile` where there is no compiler.
    """
    tool = compiler()
    if tool is None:
        raise CannotCompile("there is no C compiler (cc, gcc or clang) on the path")
    return "\n".join((tool, _version(tool), *FLAGS, *isa.march_flags(), isa.cpu()))


def load(source: str, name: str) -> ctypes.CDLL:
    """The library compiled from ``arithmetic.h`` and ``source``, from the cache when it is there and sound.

    Raises :class:`CannotCompile` when there is no compiler or it fails.
    """
    source = ARITHMETIC.read_text() + source
    stem = f"{name}-{hashlib.sha256((target() + source).encode()).hexdigest()[:32]}"
    for path, _ in kernel_cache.found(stem, ".so"):
        library = _opened(path)
        if library is not None:
            return library
    tool = str(compiler())
    body = _build(tool, source)
    try:
        library = _opened(kernel_cache.put(body, stem, ".so"))
    except OSError as error:
        raise CannotCompile(f"the kernel cannot be written to the cache: {error}") from error
    if library is None:
        raise CannotCompile(f"{tool} made a library that cannot be loaded")
    return library


def beside(package: str | None, *files: str) -> str:
    """Return the text of C files that stand in ``package``, one after the other."""
    assert package is not None
    here = resources.files(package)
    return "".join(here.joinpath(file).read_text(encoding="utf-8") for file in files)


def _opened(path: Path) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(str(path))
    except OSError:  # for instance a folder mounted noexec
        return None


def _build(tool: str, source: str) -> bytes:
    """The shared library compiled from ``source``."""
    try:
        with scratch_folder("anaphora-build-") as folder:
            text, made = Path(folder) / "kernel.c", Path(folder) / "kernel.so"
            write_new(text, source.encode())
            done = processes.run(
                [tool, *FLAGS, *isa.march_flags(), str(text), "-o", str(made), "-lm", "-lpthread"],
                timeout=SECONDS,
                cwd=folder,
                text=True,
                errors="replace",
            )
            if done.returncode or not made.exists():
                raise CannotCompile(f"{tool} failed: {(done.stderr or done.stdout).strip()[:500]}")
            return read_bytes(made)
    except (OSError, processes.TimeoutExpired) as error:
        raise CannotCompile(f"{tool} could not be run: {error}") from error


# ---------------------------------------------------------------------- what C is given must be what it reads
# Where a tensor's storage lies; `Tensor.data_ptr` would ask for writable memory, which moves what is cloned lazily.
memory_of: Callable[[Tensor], int] = torch._C._data_address  # type: ignore[attr-defined]
_PLAIN = (Tensor, nn.Parameter)


def address_of(tensor: Tensor) -> int:
    """Return where a tensor lies, for reading only."""
    return memory_of(tensor) + int(tensor.storage_offset()) * tensor.element_size()


def plain(*tensors: Tensor | None) -> bool:
    """Return True if all tensors hold their numbers in the CPU's memory, as a pointer to them shows: no subclass, no wrapper
    of functorch, no tensor without memory (meta, fake, functional), none whose sign PyTorch has put off."""
    try:
        for t in tensors:
            if t is None:
                continue
            if type(t) not in _PLAIN or not t.is_cpu or t.is_neg() or (not memory_of(t) and t.numel()):
                return False
    except NotImplementedError:  # it has no storage
        return False
    return True


def check(what: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raise ValueError unless ``tensor`` is contiguous on the CPU, with this shape and type."""
    fits = tensor.shape == shape and tensor.dtype == dtype and tensor.is_cpu
    if not fits or not tensor.is_contiguous():
        found = f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
        kind = "" if tensor.is_contiguous() else ", not contiguous"
        raise ValueError(f"{what} must be {dtype} {shape} on the CPU, contiguous; got {found}{kind}.")


class CLibrary:
    """The functions of a C source, compiled at first use for each type of numbers: ``int f(const int64_t *sizes, void **places)``.

    ``source(double)`` returns the text, for float64 or float32. A function returns 0, 1 where there is no memory, and 2 where a
    number that it read points at something that is not there; those named in ``void`` return nothing. Those in ``counts`` take
    whole numbers and return one.
    """

    opened: ClassVar[dict[tuple[str, str], ctypes.CDLL]] = {}
    """Every library of this process, by its source and what that was compiled for."""

    def __init__(
        self,
        name: str,
        source: Callable[[bool], str],
        dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float64),
        *,
        no_memory: str,
        void: tuple[str, ...] = (),
        counts: tuple[str, ...] = (),
    ):
        self.name, self.source, self.dtypes, self.no_memory = name, source, dtypes, no_memory
        self._void, self._counts = void, counts
        self._loaded: dict[torch.dtype, ctypes.CDLL | None] = {}
        self._counted: dict[tuple[object, ...], int] = {}

    def load(self, dtype: torch.dtype) -> ctypes.CDLL:
        """Return the functions for one type of numbers; raise :class:`CannotCompile` where they cannot be compiled."""
        source = self.source(dtype == torch.float64)
        key = (source, target())
        found = self.opened.get(key)
        if found is None:
            found = self.opened[key] = load(source, self.name)
        for function in self._void:
            getattr(found, function).restype = None
        for function in self._counts:
            getattr(found, function).restype = ctypes.c_longlong
        self._loaded[dtype] = found
        return found

    def functions(self, dtype: torch.dtype | None = None) -> ctypes.CDLL | None:
        """Return the same (None: for the first type), or None where torch operations have to do the work."""
        dtype = dtype or self.dtypes[0]
        if dtype not in self._loaded:
            try:
                return self.load(dtype)
            except CannotCompile:
                self._loaded[dtype] = None
        return self._loaded[dtype]

    def ready(self, *tensors: Tensor | None) -> bool:
        """Return True if the functions can read all these tensors, which have one type of numbers (None: left out)."""
        dtype: torch.dtype | None = None
        for tensor in tensors:  # a loop: generators cost more than all else here
            if tensor is None:
                continue
            if dtype is None:
                dtype = tensor.dtype
            elif tensor.dtype != dtype:
                return False
        return dtype in self.dtypes and plain(*tensors) and self.functions(dtype) is not None

    def count(self, dtype: torch.dtype, function: str, *sizes: int) -> int:
        """Return the number that one of ``counts`` returns."""
        key = (dtype, function, *sizes)
        if key not in self._counted:
            self._counted[key] = int(getattr(self.load(dtype), function)(*map(ctypes.c_longlong, sizes)))
        return self._counted[key]

    def call(
        self,
        dtype: torch.dtype,
        function: str,
        sizes: Sequence[int],
        tensors: Sequence[Tensor | int | None],
        *,
        no_memory: str | None = None,
        out_of_range: Callable[[], str] | None = None,
    ) -> None:
        """Run a function on tensors that it reads and writes; what is only read may be an address, see `address_of`.

        Raise MemoryError or ValueError with the texts given, and TypeError where a tensor is not in the CPU's memory.
        """
        places = [
            t if isinstance(t, int) else t.data_ptr() if t is not None and t.is_cpu else 0 for t in tensors
        ]
        if not all(places):
            for t, place in zip(tensors, places, strict=True):
                if isinstance(t, Tensor) and not place and t.numel():
                    raise TypeError(
                        f"{self.name}: {function} needs tensors in the CPU's memory, got a {type(t).__name__} on {t.device}."
                    )
        n, p = (ctypes.c_longlong * len(sizes))(*sizes), (ctypes.c_void_p * len(places))(*places)
        failed = getattr(self._loaded.get(dtype) or self.load(dtype), function)(n, p)
        if failed == 2 and out_of_range is not None:
            raise ValueError(out_of_range())
        if failed:
            raise MemoryError(no_memory or self.no_memory)
