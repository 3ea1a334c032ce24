"""CUDA C++ to machine code by NVRTC, the compiler that comes with every CUDA build of PyTorch.

What was compiled is kept in the same folder as compiled C, by a hash of the source, the GPU's architecture and the
compiler's version.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
from ctypes import byref
from ctypes.util import find_library
from functools import cache
from pathlib import Path

import torch

from anaphora.native import cache as kernel_cache
from anaphora.native.compiler import CannotCompile


@cache
def library() -> ctypes.CDLL:
    """NVRTC itself; raises :class:`CannotCompile` where there is none."""
    torch_folder = Path(torch.__file__).parent
    places = [(torch_folder.parent / "nvidia", "*/lib/libnvrtc.so*"), (torch_folder / "lib", "libnvrtc*.so*")]
    places += [(Path("/usr/local"), "cuda*/lib64/libnvrtc.so*")]
    found = [p for folder, pattern in places if folder.exists() for p in sorted(folder.glob(pattern))]
    names = [
        str(p)
        for p in found
        if "builtins" not in p.name and ".alt." not in p.name and ".static" not in p.name
    ]
    system = find_library("nvrtc")
    for name in [*names, *([system] if system else [])]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise CannotCompile("PyTorch's CUDA compiler (libnvrtc) was not found beside PyTorch")


@cache
def version() -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    library().nvrtcVersion(byref(major), byref(minor))
    return major.value, minor.value


def machine_code(source: str, architecture: str, name: str) -> bytes:
    """The module compiled from ``source`` for ``architecture`` (sm_90a), from the cache when it is there and sound."""
    key = "\n".join((architecture, str(version()), source))
    stem = f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
    for _, body in kernel_cache.found(stem, ".cubin"):
        return body
    body = _compiled(source, architecture)
    with contextlib.suppress(OSError):  # compiled again next time
        kernel_cache.put(body, stem, ".cubin")
    return body


def _compiled(source: str, architecture: str) -> bytes:
    nvrtc, program, size = library(), ctypes.c_void_p(), ctypes.c_size_t()
    if nvrtc.nvrtcCreateProgram(byref(program), source.encode(), b"steps.cu", 0, None, None):
        raise CannotCompile("PyTorch's CUDA compiler (libnvrtc) does not start")
    try:
        options = (ctypes.c_char_p * 2)(f"--gpu-architecture={architecture}".encode(), b"--std=c++17")
        if nvrtc.nvrtcCompileProgram(program, len(options), options):
            nvrtc.nvrtcGetProgramLogSize(program, byref(size))
            log = ctypes.create_string_buffer(size.value)
            nvrtc.nvrtcGetProgramLog(program, log)
            said = [line for line in log.value.decode(errors="replace").splitlines() if "error" in line]
            raise CannotCompile(f"libnvrtc failed: {' '.join(said)[:500]}")
        if nvrtc.nvrtcGetCUBINSize(program, byref(size)):
            raise CannotCompile("libnvrtc made no machine code")
        code = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetCUBIN(program, code)
        return code.raw
    finally:
        nvrtc.nvrtcDestroyProgram(byref(program))
