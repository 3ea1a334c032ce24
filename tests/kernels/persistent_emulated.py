"""Whole persistent kernels on a machine without a GPU: every thread a fibre, every exchange as it is written.

Their text is compiled as C++ after the few functions that are written in the GPU's own language have been replaced.
Fibres are switched where a thread would wait for others: at barriers, in exchanges between lanes, and at every poll.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from anaphora.engine.backends.persistent.clusters import clustered
from anaphora.engine.backends.persistent.launch import Arrays, Pass, make_programs
from anaphora.engine.backends.persistent.passes import Passes
from anaphora.engine.backends.persistent.source import Kernel
from anaphora.engine.backends.persistent.tiling import tile
from anaphora.engine.plan import Plan
from anaphora.native import c as native
from anaphora.native import cache
from anaphora.native.cuda import Watch

Change = Callable[[str], str]
COMPILER = shutil.which("g++")
HOST = r"""
#include <cmath>
#include <cstring>
#include <functional>
#include <ucontext.h>
#include <vector>
#define __device__
#define __forceinline__ inline
#define __global__
#define __launch_bounds__(...)
#define __shared__
struct uint4{unsigned x,y,z,w;};
static inline uint4 make_uint4(unsigned x,unsigned y,unsigned z,unsigned w){return {x,y,z,w};}
struct Three{int x;};
struct Barrier{int bytes;short waiting,phase;void add(int n,int came){bytes+=n;waiting-=came;if(!waiting&&!bytes){waiting=1;phase^=1;}}};
struct Gather{int count=0,turn=0;};
struct Warp{Gather gather;double slot[32];unsigned frag[32][6];};
struct Block{Gather gather,cluster,teams[16];std::vector<Warp> warps;std::vector<char> memory;};
struct Fibre{ucontext_t context;std::vector<char> stack;Three thread,block;bool done=false;};
static ucontext_t mainland;static Fibre*me;static Three gridDim,blockDim;static std::vector<Block> blocks;static std::vector<Fibre> fibres;
static std::function<void()> body;
#define threadIdx (me->thread)
#define blockIdx (me->block)
static void yield_(){Fibre*f=me;swapcontext(&f->context,&mainland);}
static void wait_(Gather&g,int n){int t=g.turn;if(++g.count==n){g.count=0;g.turn++;}else while(g.turn==t)yield_();}
static Block&block_(){return blocks[me->block.x];}
static Warp&warp_(){return block_().warps[me->thread.x>>5];}
static void __syncthreads(){wait_(block_().gather,blockDim.x);}
static void __syncwarp(){wait_(warp_().gather,32);}
template<class T> static T exchange_(T v,int from){Warp&w=warp_();memcpy(&w.slot[me->thread.x&31],&v,sizeof v);__syncwarp();T r;memcpy(&r,&w.slot[from],sizeof r);__syncwarp();return r;}
template<class T> static T __shfl_xor_sync(unsigned,T v,int o){return exchange_(v,(me->thread.x&31)^o);}
template<class T> static T __shfl_sync(unsigned,T v,int s,int width){return exchange_(v,(me->thread.x&31&~(width-1))+s);}
static char*memory_(int b){return (char*)(((size_t)blocks[b].memory.data()+63)&~(size_t)63);}
static float __uint_as_float(unsigned v){float r;memcpy(&r,&v,4);return r;}
static unsigned __float_as_uint(float v){unsigned r;memcpy(&r,&v,4);return r;}
static float __fdividef(float a,float b){return a/b;}
#define __expf expf
static float rsqrtf(float v){return 1.f/sqrtf(v);}
static void __threadfence_system(){}
static void start_(){body();me->done=true;yield_();}
"""
REPLACED = {
    "IN elem toe(float v){elem": "IN elem toe(float v){u32 u=__float_as_uint(v);elem r;"
    "r.u=v!=v?0x7FFF:(u+0x7FFF+(u>>16&1))>>16;return r;}",
    "IN u32 pack(": "IN u32 pack(float a,float b){return toe(a).u|(u32)toe(b).u<<16;}",
    "IN float r_tanh(float v){float": "IN float r_tanh(float v){return tanhf(v);}",
    "IN void give_up(": "IN void give_up(Wait&w){w.over=true;*w.aborted=1;*w.reported=1;}",
    "IN bool is_set(": "IN bool is_set(const int*p){return *p;}",
    "IN void store4(": "IN void store4(void*p,float a,float b,float c,float d)"
    "{unsigned v[4]={word(a),word(b),word(c),word(d)};memcpy(p,v,16);}",
    "IN void store(": "IN void store(void*p,u32 a){memcpy(p,&a,4);}",
    "IN uint4 load4(": "IN uint4 load4(const void*p){yield_();uint4 v;memcpy(&v,p,16);return v;}",
    "IN void touch(": "IN void touch(const void*p){}",
    "IN u32 inside(": "IN int first_(){return blockIdx.x/NSL*NSL;}",
    "IN void hand4(": "IN void hand4(void*p,void*bar,int to,uint4 v){char*other=memory_(first_()+to),*mine=memory_(blockIdx.x);"
    "memcpy(other+((char*)p-mine),&v,16);((Barrier*)(other+((char*)bar-mine)))->add(-16,0);}",
    "IN void set_up(": "IN void set_up(void*bar){*(Barrier*)bar={0,1,0};}",
    "IN void expect(": "IN void expect(void*bar,int bytes){((Barrier*)bar)->add(bytes,1);}",
    "IN bool arrived(": "IN bool arrived(const void*bar,u32 odd){yield_();return ((Barrier*)bar)->phase!=odd;}",
    "IN L nanoseconds(": "IN L nanoseconds(){static L calls=0;return calls+=1000;}",
    "IN void team(": "IN void team(int which,int threads){wait_(block_().teams[which],threads);}",
    "IN void meet(": "IN void meet(){wait_(blocks[first_()].cluster,NSL*blockDim.x);}",
}
_MMA = r"""
IN u32 operand(u32 v){return v;}
IN uint4 operand(uint4 v){return v;}
IN float half_(u32 w,int upper){return __uint_as_float(upper?w&0xFFFF0000u:w<<16);}
IN void mma(float*c,u32 a0,u32 a1,u32 a2,u32 a3,u32 b0,u32 b1){
  Warp&w=warp_();int l=threadIdx.x&31;u32 mine[6]={a0,a1,a2,a3,b0,b1};memcpy(w.frag[l],mine,24);__syncwarp();
  for(int i=0;i<4;i++){int row=(l>>2)+(i>>1)*8,col=(l&3)*2+(i&1);
#if HALF
    for(int k=0;k<16;k++){float a=half_(w.frag[(row&7)*4+(k>>1&3)][(row>>3)+(k>>3)*2],k&1),b=half_(w.frag[col*4+(k>>1&3)][4+(k>>3)],k&1);c[i]+=a*b;}}
#else
    for(int k=0;k<8;k++){float a=__uint_as_float(w.frag[(row&7)*4+(k&3)][(row>>3)+(k>>2)*2]),b=__uint_as_float(w.frag[col*4+(k&3)][4+(k>>2)]);c[i]+=a*b;}}
#endif
  __syncwarp();
}
"""
_LAUNCH = r"""
extern "C" void launch(int grid,int threads,int memory,void**p,int T,int B,int reverse,int groups,int time_first){
  gridDim.x=grid;blockDim.x=threads;blocks.clear();blocks.resize(grid);fibres.clear();fibres.resize((size_t)grid*threads);
  for(auto&b:blocks){b.warps.resize(threads/32);b.memory.resize(memory+64);}
  body=[&]{all_steps(ARGUMENTS,T,B,reverse,groups,time_first);};
  for(size_t k=0;k<fibres.size();k++){Fibre&f=fibres[k];f.block.x=k/threads;f.thread.x=k%threads;f.stack.resize(1<<17);
    getcontext(&f.context);f.context.uc_stack.ss_sp=f.stack.data();f.context.uc_stack.ss_size=f.stack.size();f.context.uc_link=&mainland;makecontext(&f.context,start_,0);}
  for(bool more=true;more;){more=false;for(auto&f:fibres)if(!f.done){more=true;me=&f;swapcontext(&mainland,&f.context);}}
}
"""


def as_cpp(kernel: Kernel, change: Change = str) -> str:
    """The kernel's text, changed if need be, as C++ for this machine; numbers must be float32 or bfloat16."""
    text = change(kernel.source)
    lines = []
    for line in text.splitlines():
        start = next((s for s in REPLACED if line.startswith(s)), None)
        lines.append(REPLACED[start] if start else line)
    text = "\n".join(lines)
    before, rest = text.split("IN u32 operand(u32 v){", 1)
    text = before + _MMA + rest[rest.index("// This block's rows of a matrix") :]
    aligned = "char*memory=memory_(blockIdx.x);"
    text = text.replace("extern __shared__ char memory[];", aligned)
    kinds = [kind for kind, _ in kernel.parameters] * kernel.sides
    kinds += ["int*", "int*"]  # the words of a kernel that gives up
    arguments = ",".join(f"({kind})p[{k}]" for k, kind in enumerate(kinds))
    head, body = text.split("typedef unsigned int u32;", 1)
    return head + HOST + "typedef unsigned int u32;" + body + _LAUNCH.replace("ARGUMENTS", arguments)


def built(text: str) -> ctypes.CDLL:
    """The library of a C++ program, from the cache of compiled kernels where it was built before."""
    assert COMPILER is not None
    command = [COMPILER, "-std=c++17", "-O1", "-w", "-shared", "-fPIC"]
    made_of = repr((native._version(COMPILER), command, text))
    stem = f"emulated-{hashlib.sha256(made_of.encode()).hexdigest()[:32]}"
    for path, _ in cache.found(stem, ".so"):
        return ctypes.CDLL(str(path))
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "kernel.cpp"), Path(folder, "kernel.so")
        source.write_text(text)
        subprocess.run([*command, str(source), "-o", str(library)], check=True)
        return ctypes.CDLL(str(cache.put(library.read_bytes(), stem, ".so")))


def _run(
    library: ctypes.CDLL,
    one: Pass,
    words: Watch,
    sides: Sequence[Arrays],
    time: int,
    batch: int,
    reverse: bool,
    time_first: bool,
) -> None:
    tensors = [*(arrays.get(name) for arrays in sides for _, name in one.kernel.parameters), *words]
    pointers = [None if t is None else t.data_ptr() for t in tensors]
    t, grid = one.tiling, len(sides) * one.blocks(batch)
    places = (ctypes.c_void_p * len(pointers))(*pointers)
    numbers = (time, batch, int(reverse), t.groups(batch), int(time_first))
    library.launch(grid, 32 * t.warps, t.shared_memory, places, *numbers)


def no_words() -> Watch:
    """The words of a kernel that gives up, both zero."""
    return Watch(torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32))


def emulated_passes(
    plan: Plan,
    batch: int,
    columns: int = 8,
    sms: int = 132,
    near: bool = False,
    half: bool = False,
    sides: int = 1,
    tiles: int = 1,
    words: Watch | None = None,
    change: Change = str,
) -> Passes:
    """The passes of a plan with their kernels run by fibres; ``columns`` per block, so that several wait.

    ``near``: in clusters; ``half``: in bfloat16; ``sides``: directions that a launch serves; ``tiles``: of eight rows, in a block;
    ``words``: those a kernel sets when it gives up; ``change``: what is done to the kernels' text.
    """
    programs = make_programs(plan)
    made: list[Pass] = []
    for program in (programs.forward, programs.backward, programs.running):
        tiling = tile(program, programs.hidden, columns, tiles, 4, half)
        assert tiling is not None
        tiling = clustered(program, tiling, half) if near else tiling
        before = made[0].kernel if program.backward else None
        kernel = Kernel(program, tiling, "bf16" if half else "tf32", before, sides)
        one = Pass(kernel, torch.device("cpu"), "", sms)
        library = built(as_cpp(one.kernel, change))
        one.run = partial(_run, library, one, words or no_words())  # type: ignore[method-assign]
        made.append(one)
    return Passes(programs, *made)
