"""Tables of sums, as `columns` and `normed` leave them, added up: up to four by one kernel, which takes little longer than one of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from anaphora.native.cuda import Kernel

MOST = 4  # tables that the kernel takes

# A block takes 32 columns of one table; its warps take turns over the rows.
SOURCE = r"""
extern "C" __global__ void added_tables(const float*t0,const float*t1,const float*t2,const float*t3,float*o0,float*o1,float*o2,float*o3,
                                        int rows0,int rows1,int rows2,int rows3,int width0,int width1,int width2,int width3){
  __shared__ float part[32][33];
  const int warp=threadIdx.x>>5,lane=threadIdx.x&31;
  const int n0=(width0+31)/32,n1=n0+(width1+31)/32,n2=n1+(width2+31)/32,n3=n2+(width3+31)/32;
  for(int task=blockIdx.x;task<n3;task+=gridDim.x){
    const int which=task<n0?0:task<n1?1:task<n2?2:3;
    const float*table=which==0?t0:which==1?t1:which==2?t2:t3;
    float*out=which==0?o0:which==1?o1:which==2?o2:o3;
    const int rows=which==0?rows0:which==1?rows1:which==2?rows2:rows3;
    const int width=which==0?width0:which==1?width1:which==2?width2:width3;
    const int c=(task-(which==0?0:which==1?n0:which==2?n1:n2))*32+lane;
    float sum=0.f;
    if(c<width){
      #pragma unroll 8
      for(int r=warp;r<rows;r+=32)sum+=table[(long long)r*width+c];
    }
    part[warp][lane]=sum;
    __syncthreads();
    if(warp==0&&c<width){
      float all=0.f;
      #pragma unroll
      for(int w=0;w<32;w++)all+=part[w][lane];
      out[c]=all;
    }
    __syncthreads();
  }
}
"""
_kernel = Kernel(SOURCE, "added_tables", threads=1024, resident=2)


def added_tables(tables: Sequence[Tensor]) -> list[Tensor]:
    """The sums over the first axes of up to `MOST` tables ``(shares, …)`` of float32, each in the order in which `columns.added` takes it."""
    if not 0 < len(tables) <= MOST:
        raise ValueError(f"{len(tables)} tables; the kernel takes 1 to {MOST}")
    found = [torch.empty_like(table[0]) for table in tables]
    missing = MOST - len(tables)
    sizes = [len(table) for table in tables], [one.numel() for one in found]
    pointers = (*tables, *(None,) * missing, *found, *(None,) * missing)
    numbers = [n for part in sizes for n in (*part, *(0,) * missing)]
    tasks = sum(-(-one.numel() // 32) for one in found)
    _kernel.run(tables[0], tasks, pointers, numbers)
    return found
