"""Vectors looked up in a table, whose gradient is one kernel on a GPU where torch sorts the symbols first.

    x_n = c E[s_n],    ∂E[v] = c Σ_{n: s_n = v} ∂x_n

Each row of the table has a block that looks through all symbols for its own; the sums are always taken in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from anaphora.native.cuda import KINDS, Kernel, serves
from anaphora.native.following import needs_gradient
from anaphora.native.fused import Backward, fused

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
