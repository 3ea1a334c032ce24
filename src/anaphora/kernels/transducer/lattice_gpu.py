"""α and β of `anaphora.kernels.transducer.lattice` on an NVIDIA GPU: a block for each row and direction.

Nodes with the same t + u depend on those of the diagonal before alone, so a block computes one diagonal after the other, a thread for
each u, and waits for all of its threads between two. Sums are in float64: there are T · U of them one after the other.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anaphora.kernels.gpu.kernel import Kernel

SOURCE = r"""
__device__ inline double log_add(double a,double b){
  const double high=fmax(a,b),low=fmin(a,b);
  if(isnan(a)||isnan(b))return a+b;
  return isinf(low)&&low<0?high:high+log1p(exp(low-high));
}
extern "C" __global__ void transducer_lattice(const double*blank,const double*label,const long long*frames,
                                              const long long*sizes,double*alpha,double*beta,float*losses,
                                              int rows,int T_most,int U_most){
  const double none=-__longlong_as_double(0x7ff0000000000000LL);
  const long long width=U_most;
  for(int task=blockIdx.x;task<2*rows;task+=gridDim.x){
    const int b=task>>1;
    const bool ahead=task&1;  // whether this block goes backwards in time
    const int T=(int)frames[b],U=(int)sizes[b];
    const long long first=(long long)b*T_most*width;
    const double*o=blank+first,*y=label+first;
    double*to=(ahead?beta:alpha)+first;
    if(T>0)for(int step=0;step<T+U;step++){
      const int n=ahead?T-1+U-step:step;  // the diagonal t + u = n
      const int least=max(0,n-(T-1)),most=min(U,n);
      for(int u=least+(int)threadIdx.x;u<=most;u+=blockDim.x){
        const int t=n-u;
        const long long at=t*width+u;
        double by_blank=none,by_label=none;
        if(!ahead){
          if(n==0)by_blank=0;
          if(t>0)by_blank=to[at-width]+o[at-width];
          if(u>0)by_label=to[at-1]+y[at-1];
        }else{
          if(t==T-1&&u==U)by_blank=o[at];
          if(t+1<T)by_blank=to[at+width]+o[at];
          if(u<U)by_label=to[at+1]+y[at];
        }
        to[at]=log_add(by_blank,by_label);
      }
      __syncthreads();
    }
    if(ahead&&threadIdx.x==0){
      if(T==0)to[0]=none;
      losses[b]=to[0]==none?0.f:(float)-to[0];
    }
    __syncthreads();
  }
}
"""

_kernel = Kernel(SOURCE, "transducer_lattice", threads=128, resident=4)


def lattice_cuda(blank: Tensor, label: Tensor, frames: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """α and β ``(B, T, U + 1)`` of ∅ and y, float64 on the GPU, of which row b has ``frames[b]`` frames and ``sizes[b]`` symbols."""
    alpha, beta = (
        torch.full_like(blank, -torch.inf, memory_format=torch.contiguous_format) for _ in range(2)
    )
    losses = blank.new_empty(len(blank), dtype=torch.float32)
    counts = (frames.to(blank.device), sizes.to(blank.device))
    run_lattice(blank.contiguous(), label.contiguous(), *counts, alpha, beta, losses)
    return alpha, beta


def run_lattice(
    blank: Tensor, label: Tensor, frames: Tensor, sizes: Tensor, alpha: Tensor, beta: Tensor, losses: Tensor
) -> None:
    """Fill α and β of real nodes, the others as they are, and the losses −β(0, 0) ``(B,)``, zero where there is no alignment."""
    rows, most, width = blank.shape
    _kernel.run(blank, 2 * rows, (blank, label, frames, sizes, alpha, beta, losses), (rows, most, width))
