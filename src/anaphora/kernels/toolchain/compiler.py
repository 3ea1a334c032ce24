"""Compile C once, keep it in a cache, load it: for kernels that are generated at run time.

The cache is a folder per user (``ANAPHORA_CACHE``, else ``XDG_CACHE_HOME``/anaphora, else ~/.cache/anaphora; a
folder of our own among the temporary files when that cannot be written). A library's name holds a hash of its
source, the compiler with its flags and the processor, and a hash of its own bytes, and it is put in place by one
rename: several processes may build the same one at once, and none ever loads half a file or a damaged one.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from anaphora.kernels.toolchain import isa

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
SECONDS = 120  # a compiler that takes longer hangs


class CannotCompile(Exception):  # noqa: N818 (says what happened)
    """There is no working C compiler; the text says what happened."""


@cache
def compiler() -> str | None:
    """The C compiler: ``CC``, or the first of cc, gcc, clang that is installed."""
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        found = shutil.which(name) if name else None
        if found:
            return found
    return None


def cache_folder() -> Path:
    """The folder compiled kernels are kept in; made if need be."""
    asked = os.environ.get("ANAPHORA_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    for folder in (Path(asked) if asked else Path(base) / "anaphora", _temporary()):
        kernels = folder / "kernels"
        try:
            kernels.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            continue
        if os.access(kernels, os.W_OK | os.X_OK):
            return kernels
    return Path(tempfile.mkdtemp(prefix="anaphora-"))


def _temporary() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else "user"
    folder = Path(tempfile.gettempdir()) / f"anaphora-{user}"
    try:
        # Somebody else's folder of that name must not feed us code.
        if folder.exists() and hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
            return Path(tempfile.mkdtemp(prefix="anaphora-"))
    except OSError:
        return Path(tempfile.mkdtemp(prefix="anaphora-"))
    return folder


def load(source: str, name: str) -> ctypes.CDLL:
    """The library compiled from ``arithmetic.h`` and ``source``, from the cache when it is there and sound.

    Raises :class:`CannotCompile` when there is no compiler or it fails.
    """
    tool = compiler()
    source = ARITHMETIC.read_text() + source
    key = "\n".join((str(tool), *FLAGS, *isa.march_flags(), isa.cpu(), source))
    digest = hashlib.sha256(key.encode()).hexdigest()[:32]
    folder, stem = cache_folder(), f"{name}-{digest}"
    for path in sorted(folder.glob(f"{stem}-*.so")):
        library = _opened(path)
        if library is not None:
            return library
    if tool is None:
        raise CannotCompile("there is no C compiler (cc, gcc or clang) on the path")
    library = _opened(_build(tool, source, folder, stem))
    if library is None:
        raise CannotCompile(f"{tool} made a library that cannot be loaded")
    return library


def _opened(path: Path) -> ctypes.CDLL | None:
    """Load a library whose bytes are those its name promises; a damaged one would crash, not fail."""
    try:
        if path.stem.rpartition("-")[2] != fingerprint(path.read_bytes()):
            return None
        return ctypes.CDLL(str(path))
    except OSError:
        return None


def fingerprint(data: bytes) -> str:
    """What the name of a file in the cache ends with."""
    return hashlib.sha256(data).hexdigest()[:32]


def _build(tool: str, source: str, target: Path, stem: str) -> Path:
    """Compile into the folder ``target``; returns the library's path there."""
    with tempfile.TemporaryDirectory(prefix="anaphora-build-") as folder:
        text, made = Path(folder) / "kernel.c", Path(folder) / "kernel.so"
        text.write_text(source)
        try:
            done = subprocess.run(
                [tool, *FLAGS, *isa.march_flags(), str(text), "-o", str(made), "-lm", "-lpthread"],
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotCompile(f"{tool} could not be run: {error}") from error
        if done.returncode or not made.exists():
            raise CannotCompile(f"{tool} failed: {(done.stderr or done.stdout).strip()[:500]}")
        return put_in_place(made.read_bytes(), target, stem, ".so")


def put_in_place(body: bytes, target: Path, stem: str, suffix: str) -> Path:
    """Write what was compiled into the folder ``target`` by one rename; its name ends with a hash of its bytes."""
    path = target / f"{stem}-{fingerprint(body)}{suffix}"
    try:
        handle, temporary = tempfile.mkstemp(dir=target, prefix=".building-")
    except OSError as error:
        raise CannotCompile(f"the kernel cannot be written to {target}: {error}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(body)
        os.chmod(temporary, 0o700)
        os.replace(temporary, path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise CannotCompile(f"the kernel cannot be written to {target}: {error}") from error
    return path
