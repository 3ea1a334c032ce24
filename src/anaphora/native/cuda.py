"""Kernels for NVIDIA GPUs: compiled from CUDA C++ by NVRTC, loaded through the CUDA driver, launched on PyTorch's current stream.

NVRTC comes with every CUDA build of PyTorch. What was compiled is kept in the same folder as compiled C, by a hash of the source, the
GPU's architecture and the compiler's version.

All blocks of a persistent kernel wait for one another, so they must all be on the GPU at once: the launch is
cooperative, which the driver refuses when they do not fit. Where only the blocks of a cluster wait for one another the
launch is in clusters, each of which the GPU starts as a whole.

A block whose wait takes about two seconds times out. It sets two words (:class:`Watch`): one in the GPU's memory,
on which every block that ends later overwrites its results with NaN, and one in the host's memory, which
:func:`check_kernels` raises as an error. The launch itself never waits for the GPU.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import struct
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from ctypes import byref
from ctypes.util import find_library
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from anaphora.errors import AnaphoraError
from anaphora.native import cache as kernel_cache
from anaphora.native.c import CannotCompile
from anaphora.native.following import following

_MOST_SHARED_MEMORY = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_NO_CONTEXT = (201, 400)  # CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE
_LARGE_CLUSTERS = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
_CLUSTER = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION


# ---------------------------------------------------------------------- compiling
@cache
def nvrtc() -> ctypes.CDLL:
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
def nvrtc_version() -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc().nvrtcVersion(byref(major), byref(minor))
    return major.value, minor.value


def machine_code(source: str, architecture: str, name: str) -> bytes:
    """The module compiled from ``source`` for ``architecture`` (sm_90a), from the cache when it is there and sound."""
    key = "\n".join((architecture, str(nvrtc_version()), source))
    stem = f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
    for _, body in kernel_cache.found(stem, ".cubin"):
        return body
    body = _compiled(source, architecture)
    with contextlib.suppress(OSError):  # compiled again next time
        kernel_cache.put(body, stem, ".cubin")
    return body


def _compiled(source: str, architecture: str) -> bytes:
    compiler, program, size = nvrtc(), ctypes.c_void_p(), ctypes.c_size_t()
    if compiler.nvrtcCreateProgram(byref(program), source.encode(), b"steps.cu", 0, None, None):
        raise CannotCompile("PyTorch's CUDA compiler (libnvrtc) does not start")
    try:
        options = (ctypes.c_char_p * 2)(f"--gpu-architecture={architecture}".encode(), b"--std=c++17")
        if compiler.nvrtcCompileProgram(program, len(options), options):
            compiler.nvrtcGetProgramLogSize(program, byref(size))
            log = ctypes.create_string_buffer(size.value)
            compiler.nvrtcGetProgramLog(program, log)
            said = [line for line in log.value.decode(errors="replace").splitlines() if "error" in line]
            raise CannotCompile(f"libnvrtc failed: {' '.join(said)[:500]}")
        if compiler.nvrtcGetCUBINSize(program, byref(size)):
            raise CannotCompile("libnvrtc made no machine code")
        code = ctypes.create_string_buffer(size.value)
        compiler.nvrtcGetCUBIN(program, code)
        return code.raw
    finally:
        compiler.nvrtcDestroyProgram(byref(program))


# ---------------------------------------------------------------------- loading and launching
class _Attribute(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int), ("unused", ctypes.c_int), ("value", ctypes.c_uint * 16))


class _Configuration(ctypes.Structure):
    """A launch, as cuLaunchKernelEx wants it described."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("memory", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def driver_version() -> int:
    """Of the CUDA driver: 12080 for 12.8."""
    found = ctypes.c_int()
    _check(_driver().cuDriverGetVersion(byref(found)))
    return found.value


class Loaded:
    """One kernel on one GPU."""

    def __init__(self, code: bytes, name: str, shared_memory: int, threads: int, cluster: int = 0):
        """``cluster``: blocks that form one; 0 where all blocks wait for one another, 1 where none does."""
        self.threads, self.shared_memory, self.cluster = threads, shared_memory, cluster
        self._attribute = _Attribute(_CLUSTER, 0, (cluster, 1, 1))
        self._code = code  # the driver may read it as long as the module lives
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        driver = _driver()
        _check(_called(driver.cuModuleLoadData, byref(self._module), code))
        _check(driver.cuModuleGetFunction(byref(self._function), self._module, name.encode()))
        _check(driver.cuFuncSetAttribute(self._function, _MOST_SHARED_MEMORY, shared_memory))
        if cluster > 1:
            _check(driver.cuFuncSetAttribute(self._function, _LARGE_CLUSTERS, 1))

    def launch(
        self,
        blocks: int,
        pointers: Sequence[Tensor | int | None],
        numbers: Sequence[int],
        threads: int | None = None,
    ) -> None:
        """Run it on the current stream; ``pointers`` (tensors or addresses) and ``numbers`` are its arguments, in order."""
        # One block of words for all: an object for each would take longer than the launch itself.
        values = [t.data_ptr() if isinstance(t, Tensor) else t or 0 for t in pointers]
        words = (ctypes.c_uint64 * (len(values) + len(numbers)))(*values, *numbers)
        first = ctypes.addressof(words)
        places = (ctypes.c_void_p * len(words))(*range(first, first + 8 * len(words), 8))
        stream = torch._C._cuda_getCurrentRawStream(torch.cuda.current_device())
        size, memory = threads or self.threads, self.shared_memory
        if self.cluster == 1:
            launch = _driver().cuLaunchKernel
            at = ctypes.c_void_p(stream)
            _check(_called(launch, self._function, blocks, 1, 1, size, 1, 1, memory, at, places, None))
            return
        if self.cluster:
            shape = self._in_clusters(blocks, stream)
            _check(_called(_driver().cuLaunchKernelEx, byref(shape), self._function, places, None))
            return
        launch = _driver().cuLaunchCooperativeKernel
        at = ctypes.c_void_p(stream)
        _check(_called(launch, self._function, blocks, 1, 1, size, 1, 1, memory, at, places))

    def clusters_at_once(self) -> int:
        """How many clusters of this kernel the current GPU holds; none where it cannot hold one."""
        found = ctypes.c_int()
        shape = self._in_clusters(self.cluster, 0)
        status = _driver().cuOccupancyMaxActiveClusters(byref(found), self._function, byref(shape))
        return 0 if status else found.value

    def _in_clusters(self, blocks: int, stream: int) -> _Configuration:
        size, memory = (self.threads, 1, 1), self.shared_memory
        return _Configuration((blocks, 1, 1), size, memory, stream, ctypes.pointer(self._attribute), 1)


def _called(function: Callable[..., int], *arguments: object) -> int:
    """The status of a call, in a thread that knows the GPU: PyTorch's own, in which gradients are computed, may not have
    had anything to do there yet."""
    status = function(*arguments)
    if status not in _NO_CONTEXT:
        return status
    driver, device, context = _driver(), ctypes.c_int(), ctypes.c_void_p()
    _check(driver.cuDeviceGet(byref(device), torch.cuda.current_device()))
    _check(driver.cuDevicePrimaryCtxRetain(byref(context), device))
    _check(driver.cuCtxSetCurrent(context))
    return function(*arguments)


def _check(status: int) -> None:
    if status:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(status, byref(text))
        said = text.value.decode() if text.value else f"error {status}"
        raise RuntimeError(f"a kernel could not be started on the GPU: {said}")


# ---------------------------------------------------------------------- kernels that timed out
class Watch(NamedTuple):
    """Two words ``(1,)`` that a kernel sets when it gives up waiting; both are zero otherwise."""

    aborted: Tensor  # in the GPU's memory, for the blocks that still run and for the kernels after them
    reported: Tensor  # in the host's memory, for the host


_watches: dict[int, Watch] = {}


def watch(device: int) -> Watch:
    """The words of a GPU: made once, since CUDA graphs keep their addresses."""
    found = _watches.get(device)
    if found is None:
        # On a stream of its own: a caller's graph capture must not take the zeroing for a part of its work.
        beside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        with torch.inference_mode(False), torch.cuda.stream(beside):
            aborted = torch.zeros(1, dtype=torch.int32, device=f"cuda:{device}")
            reported = torch.zeros(1, dtype=torch.int32, pin_memory=True)
        beside.synchronize()
        found = _watches.setdefault(device, Watch(aborted, reported))
    return found


def check_kernels(device: torch.device | str | int | None = None, *, wait: bool = True) -> None:
    """Raise an `AnaphoraError` if a kernel of a recurrent layer timed out on a GPU; its results are NaN.

    Call it before you use results that must not be wrong: before a save, after a measurement. Without a GPU it does nothing.

    Args:
        device: one GPU; None: all on which recurrent layers have run.
        wait: let the GPU finish first; False if you know that it has.

    >>> an.nn.check_kernels()
    """
    only = None if device is None else torch.device(device).index or 0
    for index in list(_watches):
        if only in (None, index):
            if wait and not torch.cuda.is_current_stream_capturing():
                torch.cuda.synchronize(index)
            check_report(index)


def check_report(device: int) -> None:
    """Raise what an earlier kernel has reported; a look at the host's memory, which never waits for the GPU."""
    found = _watches.get(device)
    if found is None or not int(found.reported):
        return
    if not torch.cuda.is_current_stream_capturing():  # both words stay set where they cannot be cleared
        torch.cuda.synchronize(device)  # no kernel that still runs may set them again
        found.aborted.zero_()
        found.reported.zero_()
        torch.cuda.synchronize(device)
    raise AnaphoraError(
        f"A recurrence on cuda:{device} timed out: it waited more than two seconds for its other parts, so its "
        "results are NaN: free the GPU of other programs, or run with fewer layers at once."
    )


# ---------------------------------------------------------------------- kernels without a loop around them
KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""Types of numbers by what ``KIND`` is in a source; 3 is float64, for kernels that serve it."""

PRELUDE = """
#if KIND==0
typedef float elem;
__device__ inline float wide(elem v){return v;}
__device__ inline elem narrow(float v){return v;}
#elif KIND==1
typedef unsigned short elem;
__device__ inline float wide(elem v){return __uint_as_float((unsigned)v<<16);}
__device__ inline elem narrow(float v){
  unsigned u=__float_as_uint(v);
  if((u&0x7fffffffu)>0x7f800000u)return (elem)(u>>16|0x40);  // NaN stays one
  return (elem)((u+0x7fffu+(u>>16&1u))>>16);
}
#elif KIND==2
typedef unsigned short elem;
__device__ inline float wide(elem v){float f;asm("cvt.f32.f16 %0,%1;":"=f"(f):"h"(v));return f;}
__device__ inline elem narrow(float v){elem u;asm("cvt.rn.f16.f32 %0,%1;":"=h"(u):"f"(v));return u;}
#else
typedef double elem;
__device__ inline double wide(elem v){return v;}
__device__ inline elem narrow(double v){return v;}
#endif
// Products go through their rows from the first to the last, and more than fits into the second-level cache. Kernels between them take the
// last rows first: those were written last, and then the first rows are, with which the next product begins.
#define FROM_LAST(TURN,COUNT) ((COUNT)-1-(TURN))
// What is not read again soon leaves the cache first.
#ifdef __CUDA_ARCH__
#define LAST_LOOK(TYPE,FROM) __ldcs((const TYPE*)(FROM))
#define PUT_AWAY(TYPE,TO,VALUE) __stcs((TYPE*)(TO),VALUE)
#else
#define LAST_LOOK(TYPE,FROM) (*(const TYPE*)(FROM))
#define PUT_AWAY(TYPE,TO,VALUE) (*(TYPE*)(TO)=(VALUE))
#endif
"""


class Kernel:
    """``name`` of ``source``: its blocks of ``threads`` take turns over the tasks, ``resident`` of them on an SM, each with ``memory``
    bytes of shared memory beside what the source declares."""

    def __init__(self, source: str, name: str, *, threads: int = 256, resident: int = 8, memory: int = 0):
        self._source, self._name, self._threads, self._resident = source, name, threads, resident
        self._memory = memory
        self._loaded: dict[tuple[int, int], tuple[Loaded, int]] = {}

    def run(
        self,
        like: Tensor,
        tasks: int,
        pointers: Sequence[Tensor | int | None],
        numbers: Sequence[int | float] = (),
        kind: int = 0,
        threads: int | None = None,
    ) -> None:
        """Run on the GPU of ``like``. The kernel takes the pointers (tensors or addresses), then the numbers; floats arrive as their
        bits. ``threads``: of a block, where it is fewer than usual."""
        index = like.device.index or 0
        if (index, kind) not in self._loaded:
            self._loaded[index, kind] = self._load(index, kind)
        loaded, blocks = self._loaded[index, kind]
        words = [n if isinstance(n, int) else struct.unpack("i", struct.pack("f", n))[0] for n in numbers]
        here = torch.cuda.current_device() == index
        with (
            nullcontext() if here else torch.cuda.device(index)
        ):  # the latter takes as long as a small kernel
            loaded.launch(min(blocks, tasks), pointers, words, threads)

    def blocks(self, like: Tensor, tasks: int) -> int:
        """How many blocks work on so many tasks, on the GPU of ``like``."""
        return min(
            tasks, torch.cuda.get_device_properties(like.device).multi_processor_count * self._resident
        )

    def loaded_on(self, like: Tensor, kind: int = 0) -> bool:
        """Whether it has run on the GPU of ``like`` before."""
        return (like.device.index or 0, kind) in self._loaded

    def _load(self, index: int, kind: int) -> tuple[Loaded, int]:
        facts = torch.cuda.get_device_properties(index)
        source = f"#define KIND {kind}\n{PRELUDE}{self._source}"
        found = loaded(source, self._name, self._memory, self._threads, torch.device("cuda", index))
        return found, facts.multi_processor_count * self._resident


def loaded(source: str, name: str, memory: int, threads: int, device: torch.device) -> Loaded:
    """Kernel ``name`` of a source on a GPU: blocks of ``threads`` with ``memory`` bytes beside what the source declares."""
    facts = torch.cuda.get_device_properties(device)
    code = machine_code(source, f"sm_{facts.major}{facts.minor}", name)
    with torch.cuda.device(device):
        return Loaded(code, name, memory, threads, 1)


def serves(*tensors: Tensor) -> bool:
    """Return True if kernels of our own can take these: in an NVIDIA GPU's memory, where no one follows the operations."""
    return following(*tensors) is None and all(t.is_cuda for t in tensors) and _compiles()


@cache
def _compiles() -> bool:
    if torch.version.hip:
        return False
    try:
        nvrtc()
    except CannotCompile:
        return False
    return True
