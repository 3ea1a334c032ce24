"""The kernel of a whole step on a machine without a GPU: every thread a fibre, all blocks at once."""

from __future__ import annotations

import torch
from persistent_emulated import HOST, REPLACED, built
from scan_emulated import OnHost, on_host
from torch import Tensor

from anaphora.ops.decode import cuda

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


class EmulatedStep(OnHost):
    """The step compiled as C++."""

    def __init__(self, source: str, memory: int, threads: int):
        self.memory, self.threads = memory, threads
        head, body = on_host(source, _CHANGED).split("typedef unsigned int u32;", 1)
        kinds = (
            "elem* float* elem* elem* float* float* float* elem* u64* u64* int* int* float* float* int* int*"
        )
        arguments = ",".join(f"({kind})p[{k}]" for k, kind in enumerate(kinds.split()))
        launch = _LAUNCH.replace("ARGUMENTS", arguments)
        self.library = built(head + HOST + _MORE + "typedef unsigned int u32;" + body + launch)


class EmulatedWriter(cuda.Writer):
    """`Writer` on a CPU."""

    def __init__(self, parts: cuda.Parts, kind: torch.dtype, **more: object):
        super().__init__(parts, kind, stride=10**6, **more)  # type: ignore[arg-type]
        self._words = (torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32))
        text = cuda.source(parts, kind, self.tuning, self.capacity)
        self.kernel = EmulatedStep(text, self.memory, 32 * self.tuning.warps)  # type: ignore[assignment]

    def _watched(self) -> tuple[Tensor, Tensor]:
        return self._words
