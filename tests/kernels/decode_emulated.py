"""The kernel of a whole step on a machine without a GPU: every thread a fibre, all blocks at once."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path

import torch
from persistent_emulated import COMPILER, HOST, REPLACED
from torch import Tensor

from anaphora.kernels.decode import cuda

_MORE = r"""
#define __align__(n)
struct alignas(16) float4{float x,y,z,w;};
static inline int min(int a,int b){return a<b?a:b;}
"""
_CHANGED = REPLACED | {
    "IN void give_up(": "IN void give_up(Wait&w){w.over=true;*w.aborted=1;*w.reported=1;}",
    "IN uint4 load_weights(": "IN uint4 load_weights(const void*p){uint4 v;memcpy(&v,p,16);return v;}",
    "IN uint4 load_past(": "IN uint4 load_past(const void*p){uint4 v;memcpy(&v,p,16);return v;}",
    "IN void publish(": "IN void publish(u64*p,float v,u32 epoch){*p=(u64)epoch<<32|__float_as_uint(v);}",
    "IN void peek(": "IN void peek(const u64*p,u64&a,u64&b){yield_();a=p[0];b=p[1];}",
    "IN float load_vector(": "IN float load_vector(const float*p){return *p;}",
}
_LAUNCH = r"""
extern "C" void launch(int grid,int threads,int memory,void**p,long long*n){
  gridDim.x=grid;blockDim.x=threads;blocks.clear();blocks.resize(grid);fibres.clear();fibres.resize((size_t)grid*threads);
  for(auto&b:blocks){b.warps.resize(threads/32);b.memory.assign(memory+64,(char)0xFF);}
  body=[&]{whole_step(ARGUMENTS,(int)n[0]);};
  for(size_t k=0;k<fibres.size();k++){Fibre&f=fibres[k];f.block.x=k/threads;f.thread.x=k%threads;f.stack.resize(1<<16);
    getcontext(&f.context);f.context.uc_stack.ss_sp=f.stack.data();f.context.uc_stack.ss_size=f.stack.size();f.context.uc_link=&mainland;makecontext(&f.context,start_,0);}
  for(bool more=true;more;){more=false;for(auto&f:fibres)if(!f.done){more=true;me=&f;swapcontext(&mainland,&f.context);}}
}
"""


class EmulatedStep:
    """In the place of `Loaded`."""

    def __init__(self, source: str, memory: int, threads: int, folder: Path):
        self.memory, self.threads = memory, threads
        lines = []
        for line in source.splitlines():
            start = next((s for s in _CHANGED if line.startswith(s)), None)
            lines.append(_CHANGED[start] if start else line)
        text = "\n".join(lines).replace(
            "extern __shared__ __align__(16) char memory[];", "char*memory=memory_(blockIdx.x);"
        )
        head, body = text.split("typedef unsigned int u32;", 1)
        kinds = (
            "elem* float* elem* elem* float* float* float* elem* u64* u64* int* int* float* float* int* int*"
        )
        arguments = ",".join(f"({kind})p[{k}]" for k, kind in enumerate(kinds.split()))
        path = folder / f"step{len(list(folder.iterdir()))}"
        whole = (
            head + HOST + _MORE + "typedef unsigned int u32;" + body + _LAUNCH.replace("ARGUMENTS", arguments)
        )
        path.with_suffix(".cpp").write_text(whole)
        assert COMPILER is not None
        command = [COMPILER, "-std=c++17", "-O1", "-w", "-shared", "-fPIC", str(path.with_suffix(".cpp"))]
        subprocess.run([*command, "-o", str(path.with_suffix(".so"))], check=True)
        self.library = ctypes.CDLL(str(path.with_suffix(".so")))

    def launch(self, blocks: int, pointers: Sequence[Tensor | None], numbers: Sequence[int]) -> None:
        places = (ctypes.c_void_p * len(pointers))(*(None if t is None else t.data_ptr() for t in pointers))
        words = (ctypes.c_longlong * len(numbers))(*numbers)
        self.library.launch(blocks, self.threads, self.memory, places, words)


class EmulatedWriter(cuda.Writer):
    """`Writer` on a CPU."""

    def __init__(self, parts: cuda.Parts, kind: torch.dtype, folder: Path, **more: object):
        super().__init__(parts, kind, stride=10**6, **more)  # type: ignore[arg-type]
        self._words = (torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32))
        text = cuda.source(parts, kind, self.tuning, self.capacity)
        self.kernel = EmulatedStep(text, self.memory, 32 * self.tuning.warps, folder)  # type: ignore[assignment]

    def _watched(self) -> tuple[Tensor, Tensor]:
        return self._words
