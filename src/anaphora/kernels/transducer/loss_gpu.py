"""The transducer loss and its gradient on an NVIDIA GPU in three kernels, see `anaphora.kernels.transducer.lattice` for the formulas.

`transducer_nodes` takes the softmax of each node and keeps three numbers of it, `transducer_lattice` sums over alignments, and
`transducer_gradient` goes over the logits once more. A warp works at a node. By torch operations the same takes some thirty launches,
which is what a small lattice costs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anaphora.kernels.gpu.kernel import KINDS, Kernel
from anaphora.kernels.transducer.lattice_gpu import run_lattice

NODES = r"""
extern "C" __global__ void transducer_nodes(const elem*z,const long long*labels,const long long*frames,const long long*sizes,
                                            float*total,double*blank,double*label,
                                            int rows,int T_most,int width,int symbols,int silent){
  const float none=-__int_as_float(0x7f800000);
  const int lane=threadIdx.x&31,warps=blockDim.x>>5;
  const long long nodes=(long long)rows*T_most*width;
  for(long long n=(long long)blockIdx.x*warps+(threadIdx.x>>5);n<nodes;n+=(long long)gridDim.x*warps){
    const int u=(int)(n%width),t=(int)(n/width%T_most),b=(int)(n/width/T_most);
    const int U=(int)sizes[b];
    if(t>=frames[b]||u>U)continue;
    const elem*row=z+n*symbols;
    float most=none;
    for(int k=lane;k<symbols;k+=32)most=fmaxf(most,wide(row[k]));
    for(int o=16;o;o>>=1)most=fmaxf(most,__shfl_xor_sync(~0u,most,o));
    float sum=0;
    for(int k=lane;k<symbols;k+=32)sum+=expf(wide(row[k])-most);
    for(int o=16;o;o>>=1)sum+=__shfl_xor_sync(~0u,sum,o);
    if(lane)continue;
    const float all=isinf(most)?most:most+logf(sum);
    total[n]=all;
    blank[n]=(double)wide(row[silent])-(double)all;
    label[n]=u<U?(double)wide(row[labels[(long long)b*(width-1)+u]])-(double)all:(double)none;
  }
}
"""

GRADIENT = r"""
__device__ inline double share(double log_share){const double p=exp(log_share);return isnan(p)?0:p;}
extern "C" __global__ void transducer_gradient(const elem*z,const long long*labels,const long long*frames,const long long*sizes,
                                               const float*total,const double*blank,const double*label,
                                               const double*alpha,const double*beta,const float*upstream,elem*to,
                                               int rows,int T_most,int width,int symbols,int silent){
  const double none=-__longlong_as_double(0x7ff0000000000000LL);
  const int lane=threadIdx.x&31,warps=blockDim.x>>5;
  const long long nodes=(long long)rows*T_most*width;
  for(long long n=(long long)blockIdx.x*warps+(threadIdx.x>>5);n<nodes;n+=(long long)gridDim.x*warps){
    const int u=(int)(n%width),t=(int)(n/width%T_most),b=(int)(n/width/T_most);
    const int T=(int)frames[b],U=(int)sizes[b];
    const elem*row=z+n*symbols;
    elem*out=to+n*symbols;
    const double p=T?beta[(long long)b*T_most*width]:none;
    if(t>=T||u>U||p==none){
      for(int k=lane;k<symbols;k+=32)out[k]=narrow(0.f);
      continue;
    }
    const double later=t+1<T?beta[n+width]:u==U?0:none;
    const float g=upstream[b];
    const float by_blank=g*(float)share(alpha[n]+blank[n]+later-p);
    const float by_label=u<U?g*(float)share(alpha[n]+label[n]+beta[n+1]-p):0.f;
    const float visited=by_blank+by_label,all=total[n];
    const int next=u<U?(int)labels[(long long)b*(width-1)+u]:-1;
    for(int k=lane;k<symbols;k+=32){
      float v=visited==0?0.f:expf(wide(row[k])-all)*visited;
      if(k==silent)v-=by_blank;
      if(k==next)v-=by_label;
      out[k]=narrow(v);
    }
  }
}
"""

_WARPS = 8
_nodes = Kernel(NODES, "transducer_nodes", threads=32 * _WARPS)
_gradient = Kernel(GRADIENT, "transducer_gradient", threads=32 * _WARPS)


class Alignments:
    """The sums over alignments of logits ``(B, T, U + 1, V)`` on a GPU, float32 or of 16 bits; labels ``(B, U)``, frames and sizes
    ``(B,)`` lie on the CPU.

    losses: ``(B,)`` float32, zero where there is no alignment. log_p: ``(B,)`` float64, −∞ there.
    """

    def __init__(self, logits: Tensor, labels: Tensor, frames: Tensor, sizes: Tensor, blank: int):
        self.logits = logits.detach().contiguous()
        rows, time, width, symbols = logits.shape
        self._numbers = (rows, time, width, symbols, blank)
        whole = torch.cat((labels.flatten(), frames, sizes)).to(logits.device)  # one copy, not three
        first = labels.numel()
        self._counts = (whole[:first], whole[first : first + rows], whole[first + rows :])
        self._total = logits.new_empty(rows, time, width, dtype=torch.float32)
        self._steps = logits.new_empty(2, rows, time, width, dtype=torch.float64)  # log p of blank and label
        self._sums = torch.empty_like(self._steps)  # α and β
        self.losses = logits.new_empty(rows, dtype=torch.float32)
        pointers = (self.logits, *self._counts, self._total, *self._steps)
        _nodes.run(logits, self._tasks, pointers, self._numbers, KINDS[logits.dtype])
        (_, frames, sizes), (on_blank, on_label), (alpha, beta) = self._counts, self._steps, self._sums
        run_lattice(on_blank, on_label, frames, sizes, alpha, beta, self.losses)

    @property
    def log_p(self) -> Tensor:
        return self._sums[1, :, 0, 0]

    def gradient(self, logits: Tensor, upstream: Tensor) -> Tensor:
        """``(B, T, U + 1, V)`` of Σ_b upstream_b · loss_b."""
        found = torch.empty_like(logits)
        scale = upstream.to(torch.float32).contiguous()
        pointers = (logits, *self._counts, self._total, *self._steps, *self._sums, scale, found)
        _gradient.run(logits, self._tasks, pointers, self._numbers, KINDS[logits.dtype])
        return found

    @property
    def _tasks(self) -> int:
        rows, time, width, *_ = self._numbers
        return -(-rows * time * width // _WARPS)
