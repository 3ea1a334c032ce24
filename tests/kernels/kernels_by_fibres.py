"""GPU kernels run on this machine: every thread of a block is a fibre, and the blocks take turns."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import cache

import pytest
from persistent_emulated import COMPILER, HOST, built
from torch import Tensor

from anaphora.native.cuda import PRELUDE, Kernel

MORE = r"""
#include <algorithm>
using std::max;
using std::min;
static double __longlong_as_double(long long v){double r;memcpy(&r,&v,8);return r;}
static float __int_as_float(int v){float r;memcpy(&r,&v,4);return r;}
static unsigned __ballot_sync(unsigned,bool v){unsigned all=0;for(int k=0;k<32;k++)all|=exchange_((unsigned)v,k)<<k;return all;}
static int __ffs(unsigned v){return __builtin_ffs(v);}
static int any_;
static int __syncthreads_or(int v){__syncthreads();any_=0;__syncthreads();any_|=v;__syncthreads();int r=any_;__syncthreads();return r;}
"""
LAUNCH = r"""
extern "C" void launch(int grid,int threads,void**p,int*n){
  gridDim.x=grid;blockDim.x=threads;
  body=[&]{CALL;};
  for(int b=0;b<grid;b++){  // one block after another: they share nothing
    blocks.clear();blocks.resize(grid);blocks[b].warps.resize(threads/32);fibres.clear();fibres.resize(threads);
    for(int k=0;k<threads;k++){Fibre&f=fibres[k];f.block.x=b;f.thread.x=k;f.stack.resize(1<<16);
      getcontext(&f.context);f.context.uc_stack.ss_sp=f.stack.data();f.context.uc_stack.ss_size=f.stack.size();f.context.uc_link=&mainland;makecontext(&f.context,start_,0);}
    for(bool more=true;more;){more=false;for(auto&f:fibres)if(!f.done){more=true;me=&f;swapcontext(&mainland,&f.context);}}
  }
}
"""


_library = cache(built)


def run_by_fibres(
    kernel: Kernel,
    like: Tensor,
    tasks: int,
    pointers: Sequence[Tensor | int | None],
    numbers: Sequence[int | float] = (),
    kind: int = 0,
    threads: int | None = None,
) -> None:
    """As ``Kernel.run``, in this machine's memory and with two blocks only."""
    head = kernel._source.split(f"void {kernel._name}(", 1)[1].split(")", 1)[0].split(",")
    kinds = [argument.rsplit("*", 1)[0] + "*" for argument in head if "*" in argument]
    given = [f"({kind_})p[{k}]" for k, kind_ in enumerate(kinds)]
    given += [f"n[{k}]" for k in range(len(head) - len(kinds))]
    host = HOST.replace("#define __shared__\n", "#define __shared__ static\n")
    call = LAUNCH.replace("CALL", f"{kernel._name}({','.join(given)})")
    library = _library(f"#define KIND {kind}\n{host}{MORE}{PRELUDE}{kernel._source}{call}")
    words = [n if isinstance(n, int) else struct.unpack("i", struct.pack("f", n))[0] for n in numbers]
    places = (ctypes.c_void_p * len(pointers))(
        *(t.data_ptr() if isinstance(t, Tensor) else t for t in pointers)
    )
    library.launch(min(2, tasks), threads or kernel._threads, places, (ctypes.c_int * len(words))(*words))


def on_fibres(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every kernel run by fibres. Skips the test where there is no C++ compiler."""
    if COMPILER is None:
        pytest.skip("no C++ compiler here")

    def run(self: Kernel, *given: object) -> None:
        run_by_fibres(self, *given)

    monkeypatch.setattr(Kernel, "run", run)
