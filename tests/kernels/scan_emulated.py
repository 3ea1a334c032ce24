"""Generated scan kernels on a machine without a GPU: every thread a fibre; asynchronous copies arrive when they are waited for."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from persistent_emulated import HOST, REPLACED, built
from recurrence_results import Run
from torch import Tensor

from anaphora.engine.backends.base import LayerRun
from anaphora.engine.backends.scan import run as generated
from anaphora.engine.backends.scan.walk import Direction, run_units
from anaphora.nn.recurrent_step import LayerStep

_COPIES = r"""
#include <deque>
#include <map>
#define __align__(n)
#undef NAN
#undef INFINITY
struct Copy{void*to;const void*from;};
static std::map<Fibre*,std::deque<std::vector<Copy>>> groups_;static std::map<Fibre*,std::vector<Copy>> open_;
"""
_CHANGED = REPLACED | {
    "IN u32 inside(": "IN u32 inside(const void*p){return (char*)p-memory_(blockIdx.x);}",
    "IN void copy16(": "IN void copy16(u32 to,const void*from,bool on){if(on)open_[me].push_back({memory_(blockIdx.x)+to,from});}",
    "IN void put(float": "IN void put(float*&p,float v,L ahead,bool on){if(on)*p=v;p+=ahead;}",
    "IN void put(elem": "IN void put(elem*&p,float v,L ahead,bool on){if(on)*p=toe(v);p+=ahead;}",
    "IN void keep_known(": "IN void keep_known(L&v){}",
    "IN float power(": "IN float power(float v){return exp2f(v);}",
    "IN void commit(){asm": "IN void commit(){groups_[me].push_back(open_[me]);open_[me].clear();}",
    "IN void await_group(){asm": "IN void await_group(){auto&g=groups_[me];while(g.size()>STAGES-2){"
    "for(auto&c:g.front())memcpy(c.to,c.from,16);g.pop_front();}}",
}
_LAUNCH = r"""
extern "C" void launch(int grid,int threads,int memory,void**p,long long*n){
  gridDim.x=grid;blockDim.x=threads;body=[&]{NAME(ARGUMENTS);};
  for(int block=0;block<grid;block++){
    blocks.clear();blocks.resize(grid);fibres.clear();fibres.resize(threads);groups_.clear();open_.clear();
    blocks[block].warps.resize(threads/32);blocks[block].memory.assign(memory+64,(char)0xFF);
    for(int k=0;k<threads;k++){Fibre&f=fibres[k];f.block.x=block;f.thread.x=k;f.stack.resize(1<<16);
      getcontext(&f.context);f.context.uc_stack.ss_sp=f.stack.data();f.context.uc_stack.ss_size=f.stack.size();f.context.uc_link=&mainland;makecontext(&f.context,start_,0);}
    for(bool more=true;more;){more=false;for(auto&f:fibres)if(!f.done){more=true;me=&f;swapcontext(&mainland,&f.context);}}
  }
}
"""


def on_host(source: str, changed: Mapping[str, str]) -> str:
    """The source with the lines that C++ cannot have replaced, by what they begin with, and a block's memory in ordinary memory."""
    lines = []
    for line in source.splitlines():
        start = next((s for s in changed if line.startswith(s)), None)
        lines.append(changed[start] if start else line)
    return "\n".join(lines).replace(
        "extern __shared__ __align__(16) char memory[];", "char*memory=memory_(blockIdx.x);"
    )


class OnHost:
    """In the place of `Loaded`: a library whose ``launch`` runs all threads of a kernel as fibres."""

    library: ctypes.CDLL
    memory: int
    threads: int

    def launch(self, blocks: int, pointers: Sequence[Tensor | None], numbers: Sequence[int]) -> None:
        places = (ctypes.c_void_p * len(pointers))(*(None if t is None else t.data_ptr() for t in pointers))
        words = (ctypes.c_longlong * len(numbers))(*numbers)
        self.library.launch(blocks, self.threads, self.memory, places, words)


class Emulated(OnHost):
    """A kernel compiled as C++, its threads run as fibres."""

    def __init__(self, source: str, name: str, memory: int, threads: int):
        self.memory, self.threads = memory, threads
        text = on_host(source, _CHANGED)
        text = text.replace("__shared__ float ", "static thread_local float ")  # of the block at work
        head, body = text.split("typedef unsigned int u32;", 1)
        taken = body.split(f" {name}(")[1].split(") {", 1)[0].split(", ")
        pointers = [t.rpartition("*")[0].replace("__restrict__", "") + "*" for t in taken if "*" in t]
        arguments = [f"({kind})p[{k}]" for k, kind in enumerate(pointers)]
        arguments += [f"n[{k}]" for k in range(len(taken) - len(pointers))]
        launch = _LAUNCH.replace("NAME", name).replace("ARGUMENTS", ",".join(arguments))
        self.library = built(head + HOST + _COPIES + "typedef unsigned int u32;" + body + launch)


class EmulatedUnits(generated.GeneratedUnits):
    """Kernels compiled as C++ for this machine."""

    def compiled(self, source: str, name: str, memory: int, threads: int, device: torch.device) -> Any:
        return Emulated(source, name, memory, threads)


def by_kernels(cell: Any) -> Any:
    """An engine that runs a cell's generated kernels here."""
    engine = Run(LayerStep(cell))

    def run(*arguments: Any) -> Any:
        ready = engine.planned(*arguments)
        assert ready.plan is not None
        given = ready.arguments(LayerRun(engine.engine.function, *arguments))
        how = Direction(arguments[4], arguments[5], *arguments[1][0].shape[:2])
        return run_units(ready.plan, given, how, EmulatedUnits(ready.plan))

    return run
