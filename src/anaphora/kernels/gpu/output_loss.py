"""The loss of symbols with the product that makes their logits, for torch.compile on a GPU: the logits are read once forward and once
backward, where their gradient is written and summed up to that of the bias.

−Σ_n log p_n(y_n),    p_n = softmax(W x_n + b)
∂z_n = p_n − [k = y_n],    ∂b = Σ_n ∂z_n,    ∂x_n = Wᵀ ∂z_n,    ∂W = Σ_n ∂z_n x_nᵀ

Rows of logits may be wider than there are symbols: what lies after them is padding, which is never read and has no gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.kernels.gpu.columns import PACKED, added, columns, shares, tasks
from anaphora.kernels.gpu.kernel import KINDS, Kernel

# A block takes a row in one pass: each thread keeps its largest number so far, and its sum of exponentials relative to that.
LOSSES = (
    PACKED
    + r"""
__device__ inline void join(float&most,float&sum,float m,float s){
  const float both=fmaxf(most,m);
  sum=both==-__int_as_float(0x7f800000)?sum+s:sum*__expf(most-both)+s*__expf(m-both);
  most=both;
}
extern "C" __global__ void logit_losses(const elem*z,const long long*y,float*loss,float*log_sum,
                                        int rows,int width,int symbols,int ignored){
  __shared__ float mosts[8],sums[8];
  const float none=-__int_as_float(0x7f800000);
  const int warp=threadIdx.x>>5,lane=threadIdx.x&31;
  for(int n=blockIdx.x;n<rows;n+=gridDim.x){
    const elem*row=z+(long long)n*width;
    float most=none,sum=0.f;
    for(int c0=threadIdx.x*8;c0<symbols;c0+=2048*4){
      Some v[4];
      #pragma unroll
      for(int k=0;k<4;k++)if(c0+2048*k<symbols)v[k].all=*(const uint4*)(row+c0+2048*k);
      float m=most;
      if(c0+2048*3+8<=symbols){
        #pragma unroll
        for(int k=0;k<4;k++)
          #pragma unroll
          for(int i=0;i<8;i++)m=fmaxf(m,wide(v[k].each[i]));
        if(m>most){sum*=__expf(most-m);most=m;}
        const float by=most==none?0.f:most;  // infinity minus infinity would be NaN
        #pragma unroll
        for(int k=0;k<4;k++)
          #pragma unroll
          for(int i=0;i<8;i++)sum+=__expf(wide(v[k].each[i])-by);
      }else for(int k=0;k<4;k++)for(int i=0;i<8&&c0+2048*k+i<symbols;i++){
        const float one=wide(row[c0+2048*k+i]);
        if(one>most){sum*=__expf(most-one);most=one;}
        sum+=__expf(one-(most==none?0.f:most));
      }
    }
    for(int o=16;o;o>>=1){
      const float m=__shfl_xor_sync(~0u,most,o),s=__shfl_xor_sync(~0u,sum,o);
      join(most,sum,m,s);
    }
    __syncthreads();
    if(lane==0){mosts[warp]=most;sums[warp]=sum;}
    __syncthreads();
    if(threadIdx.x==0){
      for(int w=1;w<8;w++)join(most,sum,mosts[w],sums[w]);
      const float all=most+logf(sum);
      const long long at=y[n];
      log_sum[n]=all;
      const bool known=at>=0&&at<symbols;
      loss[n]=at==ignored?0.f:known?all-wide(row[at]):__int_as_float(0x7fffffff);  // a symbol that is none: NaN
    }
  }
}
"""
)

GRADIENTS = columns(
    "logit_gradients",
    "const elem*z,const long long*y,const float*log_sum,const float*scale",
    """Some v[AHEAD];float total[AHEAD];int at[AHEAD];
        #pragma unroll
        for(int k=0;k<AHEAD;k++)if(r0+8*k<last){
          const int r=r0+8*k;
          v[k].all=*(const uint4*)(z+(long long)r*width+c);
          total[k]=log_sum[r];at[k]=(int)y[r];
        }""",
    """
              const bool live=at[k]!=ignored&&c+i<symbols;
              f[i]=live?by*(__expf(wide(v[k].each[i])-total[k])-(c+i==at[k]?1.f:0.f)):0.f;""",
    setup="const float by=*scale;",
    numbers=",int symbols,int ignored",
)

SHARE = 512  # rows whose sums one block takes
_losses = Kernel(LOSSES, "logit_losses")
_gradients = Kernel(GRADIENTS, "logit_gradients")


def losses_by_kernel(logits: Tensor, targets: Tensor, symbols: int, ignored: int) -> tuple[Tensor, Tensor]:
    rows, width = logits.shape
    loss, log_sum = (torch.empty(rows, device=logits.device) for _ in range(2))
    numbers = (rows, width, symbols, ignored)
    _losses.run(logits, rows, (logits, targets, loss, log_sum), numbers, KINDS[logits.dtype])
    return loss, log_sum


def losses_by_torch(logits: Tensor, targets: Tensor, symbols: int, ignored: int) -> tuple[Tensor, Tensor]:
    known = logits[:, :symbols].float()
    return F.cross_entropy(known, targets, ignore_index=ignored, reduction="none"), known.logsumexp(1)


def gradients_by_kernel(
    logits: Tensor, targets: Tensor, log_sum: Tensor, scale: Tensor, symbols: int, ignored: int
) -> tuple[Tensor, Tensor]:
    rows, width = logits.shape
    out = torch.empty_like(logits)
    sums = log_sum.new_empty(shares(rows, SHARE), width)
    pointers = (logits, targets, log_sum, scale, out, sums)
    numbers = (rows, width, SHARE, symbols, ignored)
    _gradients.run(logits, tasks(rows, width, SHARE), pointers, numbers, KINDS[logits.dtype])
    return out, added(sums)


def gradients_by_torch(
    logits: Tensor, targets: Tensor, log_sum: Tensor, scale: Tensor, symbols: int, ignored: int
) -> tuple[Tensor, Tensor]:
    p = torch.zeros_like(logits, dtype=torch.float32)
    p[:, :symbols] = (logits[:, :symbols].float() - log_sum[:, None]).exp()
    p[torch.arange(len(p)), targets] -= 1
    p = p * (scale * (targets != ignored))[:, None]
    return p.to(logits.dtype), p.sum(0)


@torch.library.custom_op("anaphora::logit_losses", mutates_args=())
def logit_losses(logits: Tensor, targets: Tensor, symbols: int, ignored: int) -> tuple[Tensor, Tensor]:
    """Logits ``(n, width)`` of 16 bits, targets ``(n,)``: the loss of each row, 0 where the target is ``ignored``, and log Σ exp."""
    return (losses_by_kernel if logits.is_cuda else losses_by_torch)(logits, targets, symbols, ignored)


@logit_losses.register_fake
def _(logits: Tensor, targets: Tensor, symbols: int, ignored: int) -> tuple[Tensor, Tensor]:
    found = logits.new_empty(2, len(logits), dtype=torch.float32)
    return found[0].clone(), found[1].clone()


@torch.library.custom_op("anaphora::logit_gradients", mutates_args=())
def logit_gradients(
    logits: Tensor, targets: Tensor, log_sum: Tensor, scale: Tensor, symbols: int, ignored: int
) -> tuple[Tensor, Tensor]:
    """∂z ``(n, width)`` times the number ``scale``, and the sums of its columns ``(width,)``."""
    by = gradients_by_kernel if logits.is_cuda else gradients_by_torch
    return by(logits, targets, log_sum, scale, symbols, ignored)


@logit_gradients.register_fake
def _(
    logits: Tensor, targets: Tensor, log_sum: Tensor, scale: Tensor, symbols: int, ignored: int
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(logits), log_sum.new_empty(logits.shape[1])


def output_loss(x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, ignored: int) -> Tensor:
    """The summed loss above: x ``(n, d)`` of 16 bits, weight ``(symbols, d)`` and bias ``(symbols,)`` of any type, targets ``(n,)``."""
    found: Tensor = _OutputLoss.apply(x, weight, bias, targets, ignored)  # type: ignore[no-untyped-call]
    return found


class _OutputLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, ignored: int) -> Tensor:
        symbols = len(weight)
        extra = -symbols % 64  # see `aligned_logits`
        narrow, added = (F.pad(t.to(x.dtype), (0,) * (2 * t.dim() - 1) + (extra,)) for t in (weight, bias))
        logits = F.linear(x, narrow, added)
        losses, log_sum = logit_losses(logits, targets, symbols, ignored)
        ctx.save_for_backward(x, narrow, logits, targets, log_sum)
        ctx.numbers, ctx.kinds = (symbols, ignored), (weight.dtype, bias.dtype)
        total: Tensor = losses.sum()
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, logits, targets, log_sum = ctx.saved_tensors
        symbols = ctx.numbers[0]
        made, sums = logit_gradients(logits, targets, log_sum, grad.float(), *ctx.numbers)
        of_weight = (made.t() @ x)[:symbols].to(ctx.kinds[0])
        of_bias = sums[:symbols].to(ctx.kinds[1])
        return made @ weight, of_weight, of_bias, None, None
