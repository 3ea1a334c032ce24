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

from anaphora.native.cuda import KINDS, Kernel
from anaphora.ops.gpu.columns import COLUMNS, PACKED, QUICK, Parts, added, shares, tasks

# A block takes four rows in one pass: each thread keeps its largest number of each so far, and its sum of exponentials relative to that.
LOSSES = (
    QUICK
    + PACKED
    + r"""
#define ROWS 4
__device__ inline void join(float&most,float&sum,float m,float s){
  const float both=fmaxf(most,m);
  sum=both==-__int_as_float(0x7f800000)?sum+s:sum*exp2_of(most-both)+s*exp2_of(m-both);
  most=both;
}
// logits are counted in powers of two here: z' = (z + b) log2 e
extern "C" __global__ void logit_losses(const elem*z,const elem*bias,const long long*y,float*loss,float*log_sum,
                                        int rows,int width,int symbols,int ignored){
  __shared__ float mosts[8][ROWS],sums[8][ROWS];
  const float none=-__int_as_float(0x7f800000);
  const int warp=threadIdx.x>>5,lane=threadIdx.x&31;
  for(int n0=blockIdx.x*ROWS;n0<rows;n0+=gridDim.x*ROWS){
    float most[ROWS],sum[ROWS];
    #pragma unroll
    for(int k=0;k<ROWS;k++){most[k]=none;sum[k]=0.f;}
    #pragma unroll 2
    for(int c=threadIdx.x*8;c<symbols;c+=2048){
      Some b,v[ROWS];
      b.all=*(const uint4*)(bias+c);
      #pragma unroll
      for(int k=0;k<ROWS;k++)if(n0+k<rows)v[k].all=*(const uint4*)(z+(long long)(n0+k)*width+c);
      float start[8];
      #pragma unroll
      for(int i=0;i<8;i++)start[i]=LOG2E*wide(b.each[i]);
      #pragma unroll
      for(int k=0;k<ROWS;k++)if(n0+k<rows){
        float f[8],m=most[k];
        #pragma unroll
        for(int i=0;i<8;i++)f[i]=LOG2E*wide(v[k].each[i])+start[i];
        if(c+8>symbols){
          #pragma unroll
          for(int i=0;i<8;i++)if(c+i>=symbols)f[i]=none;
        }
        #pragma unroll
        for(int i=0;i<8;i++)m=fmaxf(m,f[i]);
        if(m>most[k]){sum[k]*=exp2_of(most[k]-m);most[k]=m;}
        const float by=most[k]==none?0.f:most[k];  // infinity minus infinity would be NaN
        #pragma unroll
        for(int i=0;i<8;i++)sum[k]+=exp2_of(f[i]-by);
      }
    }
    #pragma unroll
    for(int k=0;k<ROWS;k++)for(int o=16;o;o>>=1){
      const float m=__shfl_xor_sync(~0u,most[k],o),s=__shfl_xor_sync(~0u,sum[k],o);
      join(most[k],sum[k],m,s);
    }
    __syncthreads();
    #pragma unroll
    for(int k=0;k<ROWS;k++)if(lane==0){mosts[warp][k]=most[k];sums[warp][k]=sum[k];}
    __syncthreads();
    const int n=n0+(int)threadIdx.x;
    if(threadIdx.x<ROWS&&n<rows){
      float top=mosts[0][threadIdx.x],all=sums[0][threadIdx.x];
      for(int w=1;w<8;w++)join(top,all,mosts[w][threadIdx.x],sums[w][threadIdx.x]);
      const float total=top*0.69314718f+logf(all);
      const long long at=y[n];
      log_sum[n]=total;
      const bool known=at>=0&&at<symbols;
      // a symbol that is none: NaN
      loss[n]=at==ignored?0.f:known?total-(wide(z[(long long)n*width+at])+wide(bias[at])):__int_as_float(0x7fffffff);
    }
  }
}
"""
)

GRADIENTS = Parts(
    "logit_gradients",
    "const elem*z,const elem*bias,const long long*y,const float*log_sum,const float*scale",
    """Some v[AHEAD];float total[AHEAD];int at[AHEAD];
        #pragma unroll
        for(int k=0;k<AHEAD;k++)if(r0+STEP*k<last){
          const int r=r0+STEP*k;
          v[k].all=*(const uint4*)(z+(long long)r*width+c);
          total[k]=log_sum[r];at[k]=(int)y[r];
        }""",
    """
              const bool live=at[k]!=ignored&&c+i<symbols;
              f[i]=live?by*(__expf(wide(v[k].each[i])+b[i]-total[k])-(c+i==at[k]?1.f:0.f)):0.f;""",
    setup="""const float by=*scale;
      float b[8];
      #pragma unroll
      for(int i=0;i<8;i++)b[i]=wide(bias[c+i]);""",
    numbers=",int symbols,int ignored",
).put_into(COLUMNS)

SHARE = 512  # rows whose sums one block takes
_losses = Kernel(LOSSES, "logit_losses")
_gradients = Kernel(GRADIENTS, "logit_gradients")


def losses_by_kernel(
    logits: Tensor, bias: Tensor, targets: Tensor, symbols: int, ignored: int
) -> tuple[Tensor, Tensor]:
    rows, width = logits.shape
    loss, log_sum = (torch.empty(rows, device=logits.device) for _ in range(2))
    numbers = (rows, width, symbols, ignored)
    _losses.run(logits, -(-rows // 4), (logits, bias, targets, loss, log_sum), numbers, KINDS[logits.dtype])
    return loss, log_sum


def losses_by_torch(
    logits: Tensor, bias: Tensor, targets: Tensor, symbols: int, ignored: int
) -> tuple[Tensor, Tensor]:
    known = logits[:, :symbols].float() + bias[:symbols]
    return F.cross_entropy(known, targets, ignore_index=ignored, reduction="none"), known.logsumexp(1)


def gradients_by_kernel(
    logits: Tensor, bias: Tensor, targets: Tensor, log_sum: Tensor, scale: Tensor, symbols: int, ignored: int
) -> tuple[Tensor, Tensor]:
    out, sums = gradients_and_table(logits, bias, targets, log_sum, scale, symbols, ignored)
    return out, added(sums)


def gradients_and_table(
    logits: Tensor,
    bias: Tensor,
    targets: Tensor,
    log_sum: Tensor,
    scale: Tensor,
    symbols: int,
    ignored: int,
    *,
    in_place: bool = False,
) -> tuple[Tensor, Tensor]:
    """∂z, in place of the logits if so wished, and the table that `added` makes the sums of its columns of."""
    rows, width = logits.shape
    out = logits if in_place else torch.empty_like(logits)
    sums = log_sum.new_empty(shares(rows, SHARE), width)
    pointers = (logits, bias, targets, log_sum, scale, out, sums)
    numbers = (rows, width, SHARE, symbols, ignored)
    _gradients.run(logits, tasks(rows, width, SHARE), pointers, numbers, KINDS[logits.dtype])
    return out, sums


def gradients_by_torch(
    logits: Tensor, bias: Tensor, targets: Tensor, log_sum: Tensor, scale: Tensor, symbols: int, ignored: int
) -> tuple[Tensor, Tensor]:
    p = torch.zeros_like(logits, dtype=torch.float32)
    known = logits[:, :symbols].float() + bias[:symbols]
    p[:, :symbols] = (known - log_sum[:, None]).exp()
    p[torch.arange(len(p)), targets] -= 1
    p = p * (scale * (targets != ignored))[:, None]
    return p.to(logits.dtype), p.sum(0)


@torch.library.custom_op("anaphora::logit_losses", mutates_args=())
def logit_losses(
    logits: Tensor, bias: Tensor, targets: Tensor, symbols: int, ignored: int
) -> tuple[Tensor, Tensor]:
    """Logits ``(n, width)`` without their bias ``(width,)``, both of 16 bits, targets ``(n,)``: the loss of each row, 0 where the target is ``ignored``, and log Σ exp."""
    return (losses_by_kernel if logits.is_cuda else losses_by_torch)(logits, bias, targets, symbols, ignored)


@logit_losses.register_fake
def _(logits: Tensor, bias: Tensor, targets: Tensor, symbols: int, ignored: int) -> tuple[Tensor, Tensor]:
    found = logits.new_empty(2, len(logits), dtype=torch.float32)
    return found[0].clone(), found[1].clone()


@torch.library.custom_op("anaphora::logit_gradients", mutates_args=())
def logit_gradients(
    logits: Tensor, bias: Tensor, targets: Tensor, log_sum: Tensor, scale: Tensor, symbols: int, ignored: int
) -> tuple[Tensor, Tensor]:
    """∂z ``(n, width)`` times the number ``scale``, and the sums of its columns ``(width,)``."""
    by = gradients_by_kernel if logits.is_cuda else gradients_by_torch
    return by(logits, bias, targets, log_sum, scale, symbols, ignored)


@logit_gradients.register_fake
def _(
    logits: Tensor, bias: Tensor, targets: Tensor, log_sum: Tensor, scale: Tensor, symbols: int, ignored: int
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
        logits = F.linear(x, narrow)  # the kernels add the bias, which takes a product longer
        losses, log_sum = logit_losses(logits, added, targets, symbols, ignored)
        ctx.save_for_backward(x, narrow, logits, added, targets, log_sum)
        ctx.numbers, ctx.kinds = (symbols, ignored), (weight.dtype, bias.dtype)
        total: Tensor = losses.sum()
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, logits, bias, targets, log_sum = ctx.saved_tensors
        symbols = ctx.numbers[0]
        made, sums = logit_gradients(logits, bias, targets, log_sum, grad.float(), *ctx.numbers)
        of_weight = (made.t() @ x)[:symbols].to(ctx.kinds[0])
        of_bias = sums[:symbols].to(ctx.kinds[1])
        return made @ weight, of_weight, of_bias, None, None
