"""One kernel in CUDA C++ for any NVIDIA GPU: compiled by NVRTC at its first use, launched on the current stream."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache

import torch
from torch import Tensor
from torch._C._functorch import peek_interpreter_stack

from anaphora.native import nvrtc
from anaphora.native.compiler import CannotCompile
from anaphora.native.driver import Loaded

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
    code = nvrtc.machine_code(source, f"sm_{facts.major}{facts.minor}", name)
    with torch.cuda.device(device):
        return Loaded(code, name, memory, threads, 1)


def serves(*tensors: Tensor) -> bool:
    """Whether kernels of our own can take these: in an NVIDIA GPU's memory, and neither torch.compile nor functorch follows the
    operations."""
    watched = torch.compiler.is_compiling() or peek_interpreter_stack() is not None
    return not watched and all(t.is_cuda for t in tensors) and _compiler()


@cache
def _compiler() -> bool:
    if torch.version.hip:
        return False
    try:
        nvrtc.library()
    except CannotCompile:
        return False
    return True
