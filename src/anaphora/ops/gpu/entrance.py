"""What enters a Transformer: the vectors of symbols and of their places, added and rounded to 16 bits by one kernel.

    x_n = c E[s_n] + P[n mod T],    ∂E[v] += c Σ_{n: s_n = v} ∂x_n

The gradient of the table is added to one that is there already, such as that of an output layer which shares the table. The symbols
are sorted for it, so that the sums are always taken in the same order.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.native.cuda import KINDS, Kernel

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
