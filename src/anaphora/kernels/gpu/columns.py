"""Backward passes of rows that sum up their columns on the way: the gradient of a bias costs no pass of its own over memory.

    ∂b = Σ_n ∂x_n

A block takes 256 columns of a share of the rows. Its sums go to a table ``(shares, width)``, which a second kernel adds up: the sums are
always taken in the same order. The operations are known to torch.compile; where there is no NVIDIA GPU, torch computes the same.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.kernels.gpu.kernel import KINDS, Kernel

Activation = Literal["gelu", "gelu-tanh", "relu", "silu"]

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
BEFORE
#ifndef SUMMED
#define SUMMED 1
#endif
extern "C" __global__ void NAME(POINTERS,elem*out,float*sums,int rows,int width,int share NUMBERS){
  __shared__ float part[8][256];
  const int warp=threadIdx.x>>5,lane=threadIdx.x&31,stripes=(width+255)/256,shares=(rows+share-1)/share;
  for(int task=blockIdx.x;task<stripes*shares;task+=gridDim.x){
    const int c=task%stripes*256+lane*8,first=task/stripes*share,last=min(rows,first+share);
    float sum[8]={0.f,0.f,0.f,0.f,0.f,0.f,0.f,0.f};
    if(c<width){
      SETUP
      for(int r0=first+warp;r0<last;r0+=8*AHEAD){
        READ
        #pragma unroll
        for(int k=0;k<AHEAD;k++){
          const int r=r0+8*k;
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

SHARE = 256  # rows whose sums one block takes

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


def columns(
    name: str, pointers: str, read: str, compute: str, *, before: str = "", setup: str = "", numbers: str = ""
) -> str:
    """The source of a kernel that writes f[0] … f[7] of columns c … c + 7 in row r, and sums them up.

    ``read`` reads AHEAD rows r0 + 8 k, ``compute`` makes f[i] of row k.
    """
    parts = {
        "NAME": name, "POINTERS": pointers, "READ": read, "COMPUTE": compute, "BEFORE": before, "SETUP": setup,
        "NUMBERS": numbers,
    }  # fmt: skip
    text = COLUMNS
    for word, part in parts.items():
        text = text.replace(word, part)
    return text


# Of the error function: Abramowitz & Stegun 7.1.26, within 1.5e-7, which needs one exponential for both of its uses here.
ACTIVATIONS: dict[Activation, str] = {
    "gelu": r"""
__device__ inline float below(float x,float&e){  // the share of a standard normal distribution below x, and exp(-x^2/2)
  const float z=fabsf(x)*0.70710678f,t=__fdividef(1.f,1.f+0.3275911f*z);
  e=__expf(-z*z);
  const float tail=0.5f*t*(0.254829592f+t*(-0.284496736f+t*(1.421413741f+t*(-1.453152027f+t*1.061405429f))))*e;
  return x<0.f?tail:1.f-tail;
}
__device__ inline float value(float x){float e;return x*below(x,e);}
__device__ inline float slope(float x){float e;const float p=below(x,e);return p+x*0.39894228f*e;}""",
    "gelu-tanh": r"""
__device__ inline float share(float x){  // (1 + tanh z)/2
  return __fdividef(1.f,1.f+__expf(-1.5957691f*(x+0.044715f*x*x*x)));
}
__device__ inline float value(float x){return x*share(x);}
__device__ inline float slope(float x){const float s=share(x);return s+x*s*(1.f-s)*1.5957691f*(1.f+0.134145f*x*x);}""",
    "relu": r"""
__device__ inline float value(float x){return x<0.f?0.f:x;}
__device__ inline float slope(float x){return x>0.f?1.f:x==x?0.f:x;}""",
    "silu": r"""
__device__ inline float value(float x){return __fdividef(x,1.f+__expf(-x));}
__device__ inline float slope(float x){const float s=__fdividef(1.f,1.f+__expf(-x));return s+x*s*(1.f-s);}""",
}
BIAS = """float b[8];
      #pragma unroll
      for(int i=0;i<8;i++)b[i]=bias[c+i];"""


@cache
def value_kernel(kind: Activation) -> Kernel:
    """y = f(x + b)."""
    source = columns(
        "activation_values",
        "const elem*x,const float*bias",
        """Some v[AHEAD];
        #pragma unroll
        for(int k=0;k<AHEAD;k++)if(r0+8*k<last)v[k].all=*(const uint4*)(x+(long long)(r0+8*k)*width+c);""",
        "f[i]=value(wide(v[k].each[i])+b[i]);",
        before=f"#define SUMMED 0\n{ACTIVATIONS[kind]}",
        setup=BIAS,
    )
    return Kernel(source, "activation_values")


@cache
def slope_kernel(kind: Activation) -> Kernel:
    """∂x = ∂y ∘ f'(x + b)."""
    source = columns(
        "activation_gradients",
        "const elem*grad,const elem*x,const float*bias",
        """Some g[AHEAD],v[AHEAD];
        #pragma unroll
        for(int k=0;k<AHEAD;k++)if(r0+8*k<last){
          const long long at=(long long)(r0+8*k)*width+c;
          g[k].all=*(const uint4*)(grad+at);v[k].all=*(const uint4*)(x+at);
        }""",
        "f[i]=wide(g[k].each[i])*slope(wide(v[k].each[i])+b[i]);",
        before=ACTIVATIONS[kind],
        setup=BIAS,
    )
    return Kernel(source, "activation_gradients")


# q, k and v lie in any order of (batch, heads, time), heads of ``each`` columns; a lane's eight columns are of one head.
MERGE = columns(
    "merged_gradients",
    "const elem*q,const elem*k_,const elem*v_",
    """Some v[AHEAD];
        #pragma unroll
        for(int k=0;k<AHEAD;k++)if(r0+8*k<last){
          const int r=r0+8*k;
          v[k].all=*(const uint4*)(from+(long long)(r/time)*by_row+(long long)(r%time)*by_place);
        }""",
    "f[i]=wide(v[k].each[i]);",
    setup="""const int third=width/3,of=c/third,inside=c-of*third;
      const int by_row=of==0?row0:of==1?row1:row2,by_head=of==0?head0:of==1?head1:head2;
      const int by_place=of==0?place0:of==1?place1:place2;
      const elem*from=(of==0?q:of==1?k_:v_)+(long long)(inside/each)*by_head+inside%each;""",
    numbers=",int each,int time,int row0,int head0,int place0,int row1,int head1,int place1,int row2,int head2,int place2",
)
_merge = Kernel(MERGE, "merged_gradients")


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
    rows, width = x.shape
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    sums = bias.new_empty(shares(rows, SHARE), width)
    pointers, numbers = (grad.contiguous(), x.contiguous(), bias, out, sums), (rows, width, SHARE)
    slope_kernel(kind).run(x, tasks(*numbers), pointers, numbers, KINDS[x.dtype])
    return out, added(sums)


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
    batch, heads, time, each = q.shape
    rows, width = batch * time, 3 * heads * each
    given = [t if t.stride(-1) == 1 else t.contiguous() for t in (q, k, v)]
    out = torch.empty(rows, width, dtype=q.dtype, device=q.device)
    sums = torch.empty(shares(rows, SHARE), width, device=q.device)
    strides = [t.stride(axis) for t in given for axis in (0, 1, 2)]
    numbers = (rows, width, SHARE)
    pointers = (*given, out, sums)
    _merge.run(q, tasks(*numbers), pointers, (*numbers, each, time, *strides), KINDS[q.dtype])
    return out, added(sums)


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
