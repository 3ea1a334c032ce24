"""Compile C once, keep it in the cache, load it; and look at tensors before their addresses are handed to it."""

from __future__ import annotations

import ctypes
import hashlib
import os
import tempfile
from functools import cache
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor

from anaphora import processes
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


def load_beside(package: str | None, *files: str, name: str, before: str = "") -> ctypes.CDLL | None:
    """The library of C files that stand in ``package``, behind the text ``before``; None where it cannot be compiled, and
    other code does the work."""
    assert package is not None
    here = resources.files(package)
    own = "".join(here.joinpath(file).read_text(encoding="utf-8") for file in files)
    try:
        return load(before + own, name)
    except CannotCompile:
        return None


def _opened(path: Path) -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(str(path))
    except OSError:  # for instance a folder mounted noexec
        return None


def _build(tool: str, source: str) -> bytes:
    """The shared library compiled from ``source``."""
    try:
        with tempfile.TemporaryDirectory(prefix="anaphora-build-") as folder:
            text, made = Path(folder) / "kernel.c", Path(folder) / "kernel.so"
            text.write_text(source)
            done = processes.run(
                [tool, *FLAGS, *isa.march_flags(), str(text), "-o", str(made), "-lm", "-lpthread"],
                timeout=SECONDS,
                cwd=folder,
                text=True,
                errors="replace",
            )
            if done.returncode or not made.exists():
                raise CannotCompile(f"{tool} failed: {(done.stderr or done.stdout).strip()[:500]}")
            return made.read_bytes()
    except (OSError, processes.TimeoutExpired) as error:
        raise CannotCompile(f"{tool} could not be run: {error}") from error


# ---------------------------------------------------------------------- what C is given must be what it reads
def check(what: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Raises ValueError unless ``tensor`` is contiguous on the CPU, with this shape and type."""
    fits = tensor.shape == shape and tensor.dtype == dtype and tensor.device.type == "cpu"
    if not fits or not tensor.is_contiguous():
        found = f"{tensor.dtype} {tuple(tensor.shape)} on {tensor.device}"
        kind = "" if tensor.is_contiguous() else ", not contiguous"
        raise ValueError(f"{what} must be {dtype} {shape} on the CPU, contiguous; got {found}{kind}.")
