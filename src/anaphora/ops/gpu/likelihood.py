"""The loss of symbols from their logits on a GPU: one kernel forward, one backward, nothing kept but the logits.

−Σ_n (1−ε) log p_n(y_n) + ε/V Σ_k log p_n(k),    p_n = softmax z_n
∂/∂z_nk = p_n(k) − (1−ε) [k = y_n] − ε/V

Rows may be wider than V: what lies after the logits of V symbols is padding, which is never read and has no gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from anaphora.native.cuda import KINDS, Kernel, serves
from anaphora.native.fused import Backward, fused

ROWS = r"""
#define VEC (16/(int)sizeof(elem))
union Some{uint4 all;elem each[VEC];};
__device__ inline bool aligned(const void*row){return ((size_t)row&15)==0;}
// f(k, value) for every number of a row, sixteen bytes at a time where they lie so
template<class F> __device__ inline void each_of(const elem*row,int n,F f){
  const int whole=aligned(row)?n/VEC:0;
  for(int v=threadIdx.x;v<whole;v+=blockDim.x){
    Some s;s.all=((const uint4*)row)[v];
    for(int i=0;i<VEC;i++)f(v*VEC+i,wide(s.each[i]));
  }
  for(int k=whole*VEC+threadIdx.x;k<n;k+=blockDim.x)f(k,wide(row[k]));
}
// the row of all f(k, value)
template<class F> __device__ inline void map_of(const elem*row,elem*to,int n,F f){
  const int whole=aligned(row)&&aligned(to)?n/VEC:0;
  for(int v=threadIdx.x;v<whole;v+=blockDim.x){
    Some s;s.all=((const uint4*)row)[v];
    for(int i=0;i<VEC;i++)s.each[i]=narrow(f(v*VEC+i,wide(s.each[i])));
    ((uint4*)to)[v]=s.all;
  }
  for(int k=whole*VEC+threadIdx.x;k<n;k+=blockDim.x)to[k]=narrow(f(k,wide(row[k])));
}
"""

SUMS = r"""
__device__ float all_max(float v,float*s){
  for(int o=16;o;o>>=1)v=fmaxf(v,__shfl_xor_sync(~0u,v,o));
  if(!(threadIdx.x&31))s[threadIdx.x>>5]=v;
  __syncthreads();v=s[0];for(int w=1;w<blockDim.x/32;w++)v=fmaxf(v,s[w]);__syncthreads();
  return v;
}
__device__ float all_sum(float v,float*s){
  for(int o=16;o;o>>=1)v+=__shfl_xor_sync(~0u,v,o);
  if(!(threadIdx.x&31))s[threadIdx.x>>5]=v;
  __syncthreads();v=s[0];for(int w=1;w<blockDim.x/32;w++)v+=s[w];__syncthreads();
  return v;
}
extern "C" __global__ void row_losses(const elem*z,const long long*y,float*loss,float*log_sum,
                                      int rows,int width,int symbols,int ignored,int smoothing_bits){
  __shared__ float s[32];
  const float smoothing=__int_as_float(smoothing_bits);
  for(int n=blockIdx.x;n<rows;n+=gridDim.x){
    const elem*row=z+(long long)n*width;
    const long long at=y[n];
    float most=-__int_as_float(0x7f800000);
    each_of(row,symbols,[&](int,float v){most=fmaxf(most,v);});
    most=all_max(most,s);
    float sum=0.f,all=0.f;
    each_of(row,symbols,[&](int,float v){sum+=expf(v-most);all+=v-most;});
    sum=all_sum(sum,s);
    if(smoothing>0.f)all=all_sum(all,s);
    if(threadIdx.x==0){
      const float away=logf(sum);
      log_sum[n]=most+away;
      const bool known=at>=0&&at<symbols;
      const float right=known?away-(wide(row[at])-most):__int_as_float(0x7fffffff);  // a symbol that is none: NaN
      // 0 times infinity would be NaN: without smoothing a logit of minus infinity is an impossible symbol, no more
      const float even=smoothing>0.f?smoothing*(away-all/symbols):0.f;
      loss[n]=at==ignored?0.f:(1.f-smoothing)*right+even;
    }
  }
}
"""

GRADIENTS = r"""
extern "C" __global__ void row_gradients(const elem*z,const long long*y,const float*log_sum,const float*scale,elem*dz,
                                         int rows,int width,int symbols,int ignored,int smoothing_bits){
  const float smoothing=__int_as_float(smoothing_bits);
  for(int n=blockIdx.x;n<rows;n+=gridDim.x){
    const long long first=(long long)n*width;
    const int at=(int)y[n];
    const bool live=at!=ignored;
    const float total=log_sum[n],even=smoothing/symbols,by=scale[n];
    map_of(z+first,dz+first,width,[&](int k,float v){
      return live&&k<symbols?by*(expf(v-total)-even-(k==at?1.f-smoothing:0.f)):0.f;
    });
  }
}
"""

FEW = 256  # symbols up to which a row is too little work for many threads
_losses = (Kernel(ROWS + SUMS, "row_losses", threads=32, resident=32), Kernel(ROWS + SUMS, "row_losses"))
_gradients = (
    Kernel(ROWS + GRADIENTS, "row_gradients", threads=32, resident=32),
    Kernel(ROWS + GRADIENTS, "row_gradients"),
)


def summed_loss(
    logits: Tensor, targets: Tensor, *, ignored: int, smoothing: float = 0.0, symbols: int | None = None
) -> Tensor:
    """The loss above of logits ``(n, V)`` and targets ``(n,)``, in float32 (of float64 in float64); targets ``ignored`` add nothing.

    With ``symbols`` = V the rows may be wider: columns from V on are padding.
    """
    known = logits.shape[-1] if symbols is None else symbols
    if _served(logits, targets):
        return row_losses(logits, targets, ignored=ignored, smoothing=smoothing, symbols=symbols).sum()
    return _by_torch(logits, targets, symbols=known, ignored=ignored, smoothing=smoothing, reduction="sum")


def row_losses(
    logits: Tensor, targets: Tensor, *, ignored: int, smoothing: float = 0.0, symbols: int | None = None
) -> Tensor:
    """What each row adds to `summed_loss`: ``(n,)``, 0 where the target is ``ignored``."""
    symbols = logits.shape[-1] if symbols is None else symbols
    served = _served(logits, targets)
    losses = _fused_losses if served else _by_torch
    found: Tensor = losses(
        logits,
        targets.contiguous() if served else targets,
        symbols=symbols,
        ignored=ignored,
        smoothing=smoothing,
    )
    return found


def _served(logits: Tensor, targets: Tensor) -> bool:
    plain = logits.dtype in KINDS and logits.is_contiguous() and logits.numel() > 0
    return serves(logits, targets) and plain


def _by_torch(
    logits: Tensor,
    targets: Tensor,
    *,
    symbols: int,
    ignored: int,
    smoothing: float,
    reduction: str = "none",
) -> Tensor:
    logits = logits[:, :symbols]
    return F.cross_entropy(
        logits if logits.dtype == torch.float64 else logits.float(),
        targets,
        ignore_index=ignored,
        label_smoothing=smoothing,
        reduction=reduction,
    )


def _forward(
    keep: bool, logits: Tensor, targets: Tensor, *, symbols: int, ignored: int, smoothing: float
) -> tuple[Tensor, Sequence[Tensor]]:
    rows, width = logits.shape
    found = torch.empty(2, rows, dtype=torch.float32, device=logits.device)
    numbers = (rows, width, symbols, ignored, smoothing)
    kernel = _losses[symbols > FEW]
    kernel.run(logits, rows, (logits, targets, found[0], found[1]), numbers, KINDS[logits.dtype])
    return found[0].clone() if keep else found[0], (found,)  # what is saved may not be handed out


def _backward(back: Backward, *, symbols: int, ignored: int, smoothing: float) -> tuple[Tensor, None]:
    kept, tensors, grads, _ = back
    (logits, targets), (found,), (grad,) = tensors, kept, grads
    made = torch.empty_like(logits)
    pointers = (logits, targets, found[1], grad.float().contiguous(), made)
    numbers = (*logits.shape, symbols, ignored, smoothing)
    _gradients[symbols > FEW].run(logits, len(logits), pointers, numbers, KINDS[logits.dtype])
    return made, None


_fused_losses = fused(_forward, _backward, _by_torch)
