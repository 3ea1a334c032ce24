"""Vectors of symbols on a GPU: looked up in a table, whose gradient is one kernel, and added to those of their places."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from anaphora.native.cuda import KINDS, Kernel, serves
from anaphora.native.following import needs_gradient
from anaphora.native.fused import Backward, fused

# ----------------------------------------------------------------------
# Vectors looked up in a table, whose gradient is one kernel on a GPU where torch sorts the symbols first.
#
#     x_n = c E[s_n],    ∂E[v] = c Σ_{n: s_n = v} ∂x_n
#
# Each row of the table has a block that looks through all symbols for its own; the sums are always taken in the same order.
FEW = 3072  # symbols up to which torch has a kernel of its own that does not sort
MOST = 1 << 26  # symbols times rows of the table, beyond which sorting is less work

SOURCE = r"""
extern "C" __global__ void sum_rows(const long long*ids,const elem*grad,elem*out,int count,int table,int width,int scale_bits){
  __shared__ float part[8][128];
  const int warp=threadIdx.x>>5,lane=threadIdx.x&31,share=(count+255)/256*32;
  const int begin=warp*share,end=min(count,begin+share);
  for(int row=blockIdx.x;row<table;row+=gridDim.x){
    for(int c0=0;c0<width;c0+=128){
      float sum[4]={0.f,0.f,0.f,0.f};
      bool any=false;
      for(int first=begin;first<end;first+=32){
        unsigned found=__ballot_sync(~0u,first+lane<end&&ids[first+lane]==row);
        any|=found!=0;
        while(found){
          const int n=first+__ffs(found)-1;
          found&=found-1;
          const elem*g=grad+(long long)n*width+c0;
          #pragma unroll
          for(int k=0;k<4;k++)if(c0+k*32+lane<width)sum[k]+=wide(g[k*32+lane]);
        }
      }
      if(__syncthreads_or(any)){
        #pragma unroll
        for(int k=0;k<4;k++)part[warp][k*32+lane]=sum[k];
        __syncthreads();
        if(threadIdx.x<128){
          float total=0.f;
          #pragma unroll
          for(int w=0;w<8;w++)total+=part[w][threadIdx.x];
          if(c0+threadIdx.x<width)out[(long long)row*width+c0+threadIdx.x]=narrow(total*__int_as_float(scale_bits));
        }
        __syncthreads();
      }else if(threadIdx.x<128&&c0+threadIdx.x<width)out[(long long)row*width+c0+threadIdx.x]=narrow(0.f);
    }
  }
}
"""

_sum = Kernel(SOURCE, "sum_rows")


def look_up(symbols: Tensor, table: Tensor, scale: float = 1.0) -> Tensor:
    """``(…)`` whole numbers and ``(rows, width)`` -> ``(…, width)``, times ``scale``."""
    count, rows = symbols.numel(), len(table)
    worth = needs_gradient(table) and FEW < count <= MOST // rows
    if worth and symbols.dtype == torch.long and table.dtype in KINDS and serves(symbols, table):
        found: Tensor = _looked_up(symbols, table, scale=scale)
        return found
    return _by_torch(symbols, table, scale=scale)


def _forward(keep: bool, symbols: Tensor, table: Tensor, *, scale: float) -> tuple[Tensor, Sequence[Tensor]]:
    vectors = F.embedding(symbols, table)
    return vectors if scale == 1.0 else vectors.mul_(scale), ()


def _backward(back: Backward, *, scale: float) -> tuple[None, Tensor]:
    _, tensors, grads, _ = back
    (symbols, table), (grad,) = tensors, grads
    rows, width = table.shape
    made = grad.new_empty(rows, width)
    pointers = (symbols.contiguous(), grad.contiguous(), made)
    numbers = (symbols.numel(), rows, width, scale)
    _sum.run(grad, rows, pointers, numbers, KINDS[grad.dtype])
    return None, made


def _by_torch(symbols: Tensor, table: Tensor, *, scale: float) -> Tensor:
    vectors = F.embedding(symbols, table)
    return vectors if scale == 1.0 else vectors * scale


_looked_up = fused(_forward, _backward, _by_torch)

# ----------------------------------------------------------------------
# What enters a Transformer: the vectors of symbols and of their places, added and rounded to 16 bits by one kernel.
#
#     x_n = c E[s_n] + P[n mod T],    ∂E[v] += c Σ_{n: s_n = v} ∂x_n
#
# The gradient of the table is added to one that is there already, such as that of an output layer which shares the table. The symbols
# are sorted for it, so that the sums are always taken in the same order.
VALUES = r"""
union Four{unsigned long long all;elem each[4];};
struct alignas(16) Quad{float each[4];};
extern "C" __global__ void entered(const long long*ids,const float*table,const float*places,elem*out,int count,int time,int width,int scale_bits){
  const float by=__int_as_float(scale_bits);
  for(int n=blockIdx.x;n<count;n+=gridDim.x){
    const float*e=table+ids[n]*width,*p=places+(long long)(n%time)*width;
    for(int c=threadIdx.x*4;c<width;c+=blockDim.x*4){
      const Quad a=*(const Quad*)(e+c);
      Quad b;
      if(PLACED)b=*(const Quad*)(p+c);
      Four o;
      #pragma unroll
      for(int i=0;i<4;i++)o.each[i]=narrow(by*a.each[i]+(PLACED?b.each[i]:0.f));
      *(unsigned long long*)(out+(long long)n*width+c)=o.all;
    }
  }
}
"""

# A block takes the places of one symbol, which lie together in ``order``: its warps take turns over them.
RUNS = r"""
#define CHUNKS (WIDTH/128)
union Four{unsigned long long all;elem each[4];};
extern "C" __global__ void add_runs(const long long*sorted,const long long*order,const elem*grad,float*out,int count,int scale_bits){
  __shared__ float part[4][WIDTH];
  const int warp=threadIdx.x>>5,lane=threadIdx.x&31;
  const float by=__int_as_float(scale_bits);
  for(int p=blockIdx.x;p<count;p+=gridDim.x){
    const long long id=sorted[p];
    if(p>0&&sorted[p-1]==id)continue;
    const bool several=p+1<count&&sorted[p+1]==id;
    float sum[CHUNKS*4];
    #pragma unroll
    for(int k=0;k<CHUNKS*4;k++)sum[k]=0.f;
    for(int r=p+warp;r<count&&sorted[r]==id;r+=4){
      const elem*g=grad+order[r]*WIDTH+lane*4;
      #pragma unroll
      for(int k=0;k<CHUNKS;k++){
        Four v;
        v.all=*(const unsigned long long*)(g+k*128);
        #pragma unroll
        for(int i=0;i<4;i++)sum[k*4+i]+=wide(v.each[i]);
      }
    }
    __syncthreads();
    #pragma unroll
    for(int k=0;k<CHUNKS*4;k++)part[warp][k/4*128+lane*4+k%4]=sum[k];
    __syncthreads();
    for(int c=threadIdx.x;c<WIDTH;c+=128){
      float all=part[0][c];
      if(several)all+=part[1][c]+part[2][c]+part[3][c];
      out[id*WIDTH+c]+=by*all;
    }
  }
}
"""


@cache
def value_kernel(placed: bool) -> Kernel:
    return Kernel(f"#define PLACED {int(placed)}\n{VALUES}", "entered", threads=128, resident=16)


@cache
def run_kernel(width: int) -> Kernel:
    return Kernel(f"#define WIDTH {width}\n{RUNS}", "add_runs", threads=128, resident=16)


def entered(
    symbols: Tensor, table: Tensor, places: Tensor | None, scale: float, dtype: torch.dtype
) -> Tensor:
    """Symbols ``(batch, time)``, table ``(symbols, width)`` and places ``(time or more, width)`` float32: ``(batch · time, width)``."""
    if not table.is_cuda:
        x = scale * F.embedding(symbols, table)
        return (x if places is None else x + places[: symbols.shape[1]]).to(dtype).flatten(0, 1)
    count, width = symbols.numel(), table.shape[1]
    out = torch.empty(count, width, dtype=dtype, device=table.device)
    given = (symbols.contiguous(), table, None if places is None else places.contiguous(), out)
    numbers = (count, symbols.shape[1], width, float(scale))
    value_kernel(places is not None).run(out, count, given, numbers, KINDS[dtype])
    return out


def add_to_table(made: Tensor, grad: Tensor, sorted_: Tensor, order: Tensor, scale: float) -> None:
    """Add ``scale`` Σ ∂x_n to the rows of ``made`` ``(symbols, width)`` float32. grad ``(n, width)`` of 16 bits; ``torch.sort`` of the
    symbols gives ``sorted_`` and ``order``."""
    if not made.is_cuda:
        made.index_add_(0, sorted_, grad[order].float(), alpha=scale)
        return
    pointers = (sorted_, order, grad, made)
    run_kernel(made.shape[1]).run(made, len(order), pointers, (len(order), float(scale)), KINDS[grad.dtype])
