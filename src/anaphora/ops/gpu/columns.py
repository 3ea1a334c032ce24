"""Backward passes of rows that sum up their columns on the way: the gradient of a bias costs no pass of its own over memory.

    ∂b = Σ_n ∂x_n

A block takes 256 columns of a share of the rows. Its sums go to a table ``(shares, width)``, which a second kernel adds up: the sums are
always taken in the same order. The operations are known to torch.compile; where there is no NVIDIA GPU, torch computes the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.native.cuda import KINDS, Kernel

Activation = Literal["gelu", "gelu-tanh", "relu", "silu"]

QUICK = r"""
// two to the x and 1/x as the GPU has them, within 2^-22; without what the compiler adds for numbers below 2^-126, which count as 0 here
#ifdef __CUDA_ARCH__
__device__ inline float exp2_of(float x){float y;asm("ex2.approx.ftz.f32 %0,%1;":"=f"(y):"f"(x));return y;}
__device__ inline float inverse_of(float x){float y;asm("rcp.approx.ftz.f32 %0,%1;":"=f"(y):"f"(x));return y;}
#else
inline float exp2_of(float x){return exp2f(x);}
inline float inverse_of(float x){return 1.f/x;}
#endif
#define LOG2E 1.44269504f
"""
PACKED = r"""
union Some{uint4 all;elem each[16/sizeof(elem)];};
__device__ inline void put(Some&s,int i,float a,float b){  // at i and i + 1; i is even
#if KIND==1&&defined(__CUDA_ARCH__)&&__CUDA_ARCH__>=800
  asm("cvt.rn.bf16x2.f32 %0,%1,%2;":"=r"(((unsigned*)&s)[i/2]):"f"(b),"f"(a));
#else
  s.each[i]=narrow(a);s.each[i+1]=narrow(b);
#endif
}
"""

# A lane has eight neighbouring columns, and the eight warps take turns over the rows, of which each reads four at once.
COLUMNS = (
    PACKED
    + r"""
#define AHEAD 4
#define STEP 8
BEFORE
#ifndef SUMMED
#define SUMMED 1
#endif
extern "C" __global__ void NAME(POINTERS,elem*out,float*sums,int rows,int width,int share NUMBERS){
  __shared__ float part[8][256];
  const int warp=threadIdx.x>>5,lane=threadIdx.x&31,stripes=(width+255)/256,shares=(rows+share-1)/share;
  for(int turn=blockIdx.x;turn<stripes*shares;turn+=gridDim.x){
    const int task=FROM_LAST(turn,stripes*shares),c=task%stripes*256+lane*8,first=task/stripes*share,last=min(rows,first+share);
    float sum[8]={0.f,0.f,0.f,0.f,0.f,0.f,0.f,0.f};
    if(c<width){
      SETUP
      for(int r0=first+warp;r0<last;r0+=8*AHEAD){
        READ
        #pragma unroll
        for(int k=0;k<AHEAD;k++){
          const int r=r0+STEP*k;
          if(r<last){
            Some s;
            float f[8];
            #pragma unroll
            for(int i=0;i<8;i++){COMPUTE}
            #pragma unroll
            for(int i=0;i<8;i+=2)put(s,i,f[i],f[i+1]);
            #pragma unroll
            for(int i=0;i<8;i++)if(SUMMED)sum[i]+=f[i];
            *(uint4*)(out+(long long)r*width+c)=s.all;
          }
        }
      }
    }
    if(!SUMMED)continue;
    __syncthreads();
    #pragma unroll
    for(int i=0;i<8;i++)part[warp][lane*8+i]=sum[i];
    __syncthreads();
    const int mine=task%stripes*256+threadIdx.x;
    float total=0.f;
    #pragma unroll
    for(int w=0;w<8;w++)total+=part[w][threadIdx.x];
    if(mine<width)sums[(long long)(task/stripes)*width+mine]=total;
  }
}
"""
)

SHARE = (
    128  # rows whose sums one block takes; with 256 the last blocks of a large batch would run by themselves
)

ADDED = r"""
extern "C" __global__ void added_rows(const float*table,float*out,int rows,int width){
  __shared__ float part[32][33];
  const int warp=threadIdx.x>>5,lane=threadIdx.x&31;
  for(int c0=blockIdx.x*32;c0<width;c0+=gridDim.x*32){
    float sum=0.f;
    if(c0+lane<width){
      #pragma unroll 8
      for(int r=warp;r<rows;r+=32)sum+=table[(long long)r*width+c0+lane];
    }
    part[warp][lane]=sum;
    __syncthreads();
    if(warp==0&&c0+lane<width){
      float all=0.f;
      #pragma unroll
      for(int w=0;w<32;w++)all+=part[w][lane];
      out[c0+lane]=all;
    }
    __syncthreads();
  }
}
"""
_added = Kernel(ADDED, "added_rows", threads=1024, resident=2)


# Of the error function: Abramowitz & Stegun 7.1.26, within 1.5e-7, which needs one exponential for both of its uses here.
ACTIVATIONS: dict[Activation, str] = {
    "gelu": r"""
__device__ inline float below(float x,float&e){  // the share of a standard normal distribution below x, and exp(-x^2/2)
  const float z=fabsf(x),t=inverse_of(1.f+0.23164189f*z);  // 0.3275911/√2
  e=exp2_of(-0.5f*LOG2E*z*z);
  const float tail=t*(0.127414796f+t*(-0.142248368f+t*(0.7107068705f+t*(-0.7265760135f+t*0.5307027145f))))*e;
  return x<0.f?tail:1.f-tail;
}
__device__ inline float value(float x){float e;return x*below(x,e);}
__device__ inline float slope(float x){float e;const float p=below(x,e);return p+x*0.39894228f*e;}""",
    "gelu-tanh": r"""
__device__ inline float share(float x){  // (1 + tanh z)/2
  return inverse_of(1.f+exp2_of(-1.5957691f*LOG2E*(x+0.044715f*x*x*x)));
}
__device__ inline float value(float x){return x*share(x);}
__device__ inline float slope(float x){const float s=share(x);return s+x*s*(1.f-s)*1.5957691f*(1.f+0.134145f*x*x);}""",
    "relu": r"""
__device__ inline float value(float x){return x<0.f?0.f:x;}
__device__ inline float slope(float x){return x>0.f?1.f:x==x?0.f:x;}""",
    "silu": r"""
__device__ inline float value(float x){return x*inverse_of(1.f+exp2_of(-LOG2E*x));}
__device__ inline float slope(float x){const float s=inverse_of(1.f+exp2_of(-LOG2E*x));return s+x*s*(1.f-s);}""",
}
BIAS = """float b[8];
      #pragma unroll
      for(int i=0;i<8;i++)b[i]=bias[c+i];"""


@dataclass(frozen=True)
class Parts:
    """What makes a kernel of rows: the places in `COLUMNS` that differ."""

    name: str
    pointers: str
    read: str
    """Reads AHEAD rows r0 + STEP k."""
    compute: str
    """Makes f[i] of row k, the number of column c + i."""
    before: str = ""
    setup: str = ""
    numbers: str = ""

    def put_into(self, text: str) -> str:
        places = {
            "NAME": self.name, "POINTERS": self.pointers, "READ": self.read, "COMPUTE": self.compute, "BEFORE": self.before,
            "SETUP": self.setup, "NUMBERS": self.numbers,
        }  # fmt: skip
        for word, part in places.items():
            text = text.replace(word, part)
        return text


def values_of(kind: Activation) -> Parts:
    """y = f(x + b)."""
    return Parts(
        "activation_values",
        "const elem*x,const float*bias",
        """Some v[AHEAD];
        #pragma unroll
        for(int k=0;k<AHEAD;k++)if(r0+STEP*k<last)v[k].all=LAST_LOOK(uint4,x+(long long)(r0+STEP*k)*width+c);""",
        "f[i]=value(wide(v[k].each[i])+b[i]);",
        before=f"#define SUMMED 0\n{QUICK}{ACTIVATIONS[kind]}",
        setup=BIAS,
    )


def slopes_of(kind: Activation) -> Parts:
    """∂x = ∂y ∘ f'(x + b)."""
    return Parts(
        "activation_gradients",
        "const elem*grad,const elem*x,const float*bias",
        """Some g[AHEAD],v[AHEAD];
        #pragma unroll
        for(int k=0;k<AHEAD;k++)if(r0+STEP*k<last){
          const long long at=(long long)(r0+STEP*k)*width+c;
          g[k].all=LAST_LOOK(uint4,grad+at);v[k].all=LAST_LOOK(uint4,x+at);
        }""",
        "f[i]=wide(g[k].each[i])*slope(wide(v[k].each[i])+b[i]);",
        before=QUICK + ACTIVATIONS[kind],
        setup=BIAS,
    )


# q, k and v lie in any order of (batch, heads, time), heads of ``each`` columns; a lane's eight columns are of one head.
MERGE = Parts(
    "merged_gradients",
    "const elem*q,const elem*k_,const elem*v_",
    """Some v[AHEAD];
        #pragma unroll
        for(int k=0;k<AHEAD;k++)if(r0+STEP*k<last){
          const int r=r0+STEP*k;
          v[k].all=LAST_LOOK(uint4,from+(long long)(r/time)*by_row+(long long)(r%time)*by_place);
        }""",
    "f[i]=wide(v[k].each[i]);",
    setup="""const int third=width/3,of=c/third,inside=c-of*third;
      const int by_row=of==0?row0:of==1?row1:row2,by_head=of==0?head0:of==1?head1:head2;
      const int by_place=of==0?place0:of==1?place1:place2;
      const elem*from=(of==0?q:of==1?k_:v_)+(long long)(inside/each)*by_head+inside%each;""",
    numbers=",int each,int time,int row0,int head0,int place0,int row1,int head1,int place1,int row2,int head2,int place2",
)


@cache
def value_kernel(kind: Activation) -> Kernel:
    return Kernel(values_of(kind).put_into(COLUMNS), "activation_values")


@cache
def slope_kernel(kind: Activation) -> Kernel:
    return Kernel(slopes_of(kind).put_into(COLUMNS), "activation_gradients")


_merge = Kernel(MERGE.put_into(COLUMNS), "merged_gradients")


def shares(rows: int, share: int) -> int:
    """How many rows the table of sums has that a kernel makes."""
    return -(-rows // share)


def added(table: Tensor) -> Tensor:
    """The sum over the first axis of a table ``(shares, …)`` of float32."""
    out = torch.empty_like(table[0])
    _added.run(table, -(-out.numel() // 32), (table, out), (len(table), out.numel()))
    return out


def tasks(rows: int, width: int, share: int) -> int:
    """How many pieces of work a kernel has."""
    return shares(rows, share) * -(-width // 256)


def values_by_kernel(x: Tensor, bias: Tensor, kind: Activation) -> Tensor:
    rows, width = x.shape
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    numbers = (rows, width, SHARE)
    value_kernel(kind).run(x, tasks(*numbers), (x.contiguous(), bias, out, None), numbers, KINDS[x.dtype])
    return out


def values_by_torch(x: Tensor, bias: Tensor, kind: Activation) -> Tensor:
    return _values(x.float() + bias, kind).to(x.dtype)


def gradients_by_kernel(grad: Tensor, x: Tensor, bias: Tensor, kind: Activation) -> tuple[Tensor, Tensor]:
    out, sums = gradients_and_table(grad, x, bias, kind)
    return out, added(sums)


def gradients_and_table(grad: Tensor, x: Tensor, bias: Tensor, kind: Activation) -> tuple[Tensor, Tensor]:
    """∂x, and the table that `added` makes ∂b of."""
    rows, width = x.shape
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    sums = bias.new_empty(shares(rows, SHARE), width)
    pointers, numbers = (grad.contiguous(), x.contiguous(), bias, out, sums), (rows, width, SHARE)
    slope_kernel(kind).run(x, tasks(*numbers), pointers, numbers, KINDS[x.dtype])
    return out, sums


def gradients_by_torch(grad: Tensor, x: Tensor, bias: Tensor, kind: Activation) -> tuple[Tensor, Tensor]:
    given = (grad.float(), x.float() + bias)
    if kind == "relu":
        found = torch.ops.aten.threshold_backward(*given, 0)
    elif kind == "silu":
        found = torch.ops.aten.silu_backward(*given)
    else:
        found = torch.ops.aten.gelu_backward(*given, approximate="tanh" if kind == "gelu-tanh" else "none")
    return found.to(x.dtype), found.sum(0)


def _values(x: Tensor, kind: Activation) -> Tensor:
    if kind == "relu":
        return F.relu(x)
    if kind == "silu":
        return F.silu(x)
    return F.gelu(x, approximate="tanh" if kind == "gelu-tanh" else "none")


def merged_by_kernel(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    out, sums = merged_and_table(q, k, v)
    return out, added(sums)


def merged_and_table(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """What `merged_gradients` gives, and the table that `added` makes its sums of."""
    batch, heads, time, each = q.shape
    rows, width = batch * time, 3 * heads * each
    given, strides = strided(q, k, v)
    out = torch.empty(rows, width, dtype=q.dtype, device=q.device)
    sums = torch.empty(shares(rows, SHARE), width, device=q.device)
    numbers = (rows, width, SHARE)
    pointers = (*given, out, sums)
    _merge.run(q, tasks(*numbers), pointers, (*numbers, each, time, *strides), KINDS[q.dtype])
    return out, sums


def strided(q: Tensor, k: Tensor, v: Tensor) -> tuple[list[Tensor], list[int]]:
    """The three with their features side by side, and their strides over (batch, heads, time)."""
    given = [t if t.stride(-1) == 1 else t.contiguous() for t in (q, k, v)]
    return given, [t.stride(axis) for t in given for axis in (0, 1, 2)]


def merged_by_torch(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    out = torch.cat([t.transpose(1, 2).flatten(2).flatten(0, 1) for t in (q, k, v)], 1)
    return out, out.float().sum(0)


@torch.library.custom_op("anaphora::activation_values", mutates_args=())
def activation_values(x: Tensor, bias: Tensor, kind: str) -> Tensor:
    """f(x + b), rows ``(n, width)`` of 16 bits, bias ``(width,)`` float32."""
    return (values_by_kernel if x.is_cuda else values_by_torch)(x, bias, kind)  # type: ignore[arg-type]


@activation_values.register_fake
def _(x: Tensor, bias: Tensor, kind: str) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("anaphora::activation_gradients", mutates_args=())
def activation_gradients(grad: Tensor, x: Tensor, bias: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """Of `activation_values`: ∂x ``(n, width)`` and ∂b ``(width,)``."""
    return (gradients_by_kernel if x.is_cuda else gradients_by_torch)(grad, x, bias, kind)  # type: ignore[arg-type]


@activation_gradients.register_fake
def _(grad: Tensor, x: Tensor, bias: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x, memory_format=torch.contiguous_format), torch.empty_like(bias)


@torch.library.custom_op("anaphora::merged_gradients", mutates_args=())
def merged_gradients(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """``(batch, heads, time, d)`` each, of 16 bits: side by side ``(batch · time, 3 · heads · d)``, and the sums of its columns."""
    return (merged_by_kernel if q.is_cuda else merged_by_torch)(q, k, v)


@merged_gradients.register_fake
def _(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    batch, heads, time, each = q.shape
    rows, width = batch * time, 3 * heads * each
    return q.new_empty(rows, width), q.new_empty(width, dtype=torch.float32)


@torch.library.custom_op("anaphora::narrowed", mutates_args=())
def narrowed(weights: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Copies of all weights in ``dtype``, by one launch on a GPU."""
    made = [torch.empty_like(weight, dtype=dtype) for weight in weights]
    torch._foreach_copy_(made, weights)
    return made


@narrowed.register_fake
def _(weights: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    return [torch.empty_like(weight, dtype=dtype) for weight in weights]
