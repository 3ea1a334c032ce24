"""The backward pass of x' = x + δ + b, y = norm(x') in one kernel: also the gradients of the norm's gain and shift and of the bias b.

    h = (x' − mean)/σ,    ∂x' = above + (g ∘ ∂y − mean(g ∘ ∂y) − h mean(g ∘ ∂y ∘ h))/σ
    ∂g = Σ_n ∂y ∘ h,    ∂shift = Σ_n ∂y,    ∂b = Σ_n ∂x'

Without the first mean for RMSNorm, which does not centre. ∂δ is ∂x'. Sums are taken as in `columns`.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from anaphora.native.cuda import KINDS, Kernel
from anaphora.ops.gpu.columns import added, shares

# A warp takes a row of WIDTH numbers, four of every 128 in a lane, and keeps the sums of its columns in registers.
SOURCE = r"""
#define CHUNKS (WIDTH/128)
union Four{unsigned long long all;elem each[4];};
__device__ inline float over_warp(float v){for(int o=16;o;o>>=1)v+=__shfl_xor_sync(~0u,v,o);return v;}
extern "C" __global__ void norm_gradients(const elem*dy,const elem*x,const float*mean,const float*inverse,const float*gain,
                                          const elem*above,elem*out,float*sums,int rows,int share){
  __shared__ float part[4][WIDTH];
  const int warp=threadIdx.x>>5,lane=threadIdx.x&31,shares=(rows+share-1)/share;
  for(int turn=blockIdx.x;turn<shares;turn+=gridDim.x){
    const int task=FROM_LAST(turn,shares),first=task*share,last=min(rows,first+share);
    float gains[CHUNKS*4],of_gain[CHUNKS*4],of_shift[CHUNKS*4],of_bias[CHUNKS*4];
    #pragma unroll
    for(int k=0;k<CHUNKS*4;k++){
      gains[k]=gain[k/4*128+lane*4+k%4];
      of_gain[k]=of_shift[k]=of_bias[k]=0.f;
    }
    for(int r=first+warp;r<last;r+=4){
      const long long at=(long long)r*WIDTH+lane*4;
      Four g[CHUNKS],v[CHUNKS],a[CHUNKS];
      #pragma unroll
      for(int k=0;k<CHUNKS;k++){
        g[k].all=LAST_LOOK(unsigned long long,dy+at+k*128);
        v[k].all=LAST_LOOK(unsigned long long,x+at+k*128);
        if(ABOVE)a[k].all=LAST_LOOK(unsigned long long,above+at+k*128);
      }
      const float m=CENTRED?mean[r]:0.f,s=inverse[r];
      float one=0.f,two=0.f;
      #pragma unroll
      for(int k=0;k<CHUNKS;k++){
        #pragma unroll
        for(int i=0;i<4;i++){
          const float h=(wide(v[k].each[i])-m)*s,d=wide(g[k].each[i]),dg=d*gains[k*4+i];
          one+=dg;two+=dg*h;
          of_gain[k*4+i]+=d*h;of_shift[k*4+i]+=d;
        }
      }
      one=CENTRED?over_warp(one)/WIDTH:0.f;two=over_warp(two)/WIDTH;
      #pragma unroll
      for(int k=0;k<CHUNKS;k++){
        Four n;
        #pragma unroll
        for(int i=0;i<4;i++){
          const float h=(wide(v[k].each[i])-m)*s;
          const float o=(ABOVE?wide(a[k].each[i]):0.f)+s*(wide(g[k].each[i])*gains[k*4+i]-one-h*two);
          n.each[i]=narrow(o);
          of_bias[k*4+i]+=o;
        }
        *(unsigned long long*)(out+at+k*128)=n.all;
      }
    }
    float*const of[3]={of_gain,of_shift,of_bias};
    #pragma unroll
    for(int w=0;w<3;w++){
      __syncthreads();
      #pragma unroll
      for(int k=0;k<CHUNKS*4;k++)part[warp][k/4*128+lane*4+k%4]=of[w][k];
      __syncthreads();
      for(int c=threadIdx.x;c<WIDTH;c+=128)
        sums[((long long)task*3+w)*WIDTH+c]=part[0][c]+part[1][c]+part[2][c]+part[3][c];
    }
  }
}
"""

SHARE = 32  # rows whose sums one block takes, or twice as many
MANY = 16384  # rows from which on there are blocks enough for a GPU even so
WIDEST = 1024  # more would not fit into the registers of a warp


def fits(width: int) -> bool:
    """Whether the kernel takes rows of this width."""
    return width % 128 == 0 and 0 < width <= WIDEST


@cache
def kernel(width: int, centred: bool, above: bool = True) -> Kernel:
    """For rows of ``width`` numbers, of a LayerNorm (``centred``) or an RMSNorm; whether there is a gradient from ``above``."""
    flags = {"WIDTH": width, "CENTRED": centred, "ABOVE": above}
    source = "".join(f"#define {name} {int(value)}\n" for name, value in flags.items())
    return Kernel(source + SOURCE, "norm_gradients", threads=128)


def by_kernel(
    dy: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, gain: Tensor, above: Tensor, centred: bool
) -> tuple[Tensor, Tensor]:
    out, sums = with_table(dy, x, mean, inverse, gain, above, centred)
    return out, added(sums)


def with_table(
    dy: Tensor,
    x: Tensor,
    mean: Tensor,
    inverse: Tensor,
    gain: Tensor,
    above: Tensor | None,
    centred: bool,
) -> tuple[Tensor, Tensor]:
    """∂x', and the table that `added` makes the other gradients of; nothing comes from ``above`` where it is None."""
    rows, width = x.shape
    share = SHARE if rows < MANY else 2 * SHARE
    out, sums = torch.empty_like(x), gain.new_empty(shares(rows, share), 3, width)
    upper = None if above is None else above.contiguous()
    pointers = (dy.contiguous(), x, mean, inverse, gain, upper, out, sums)
    kernel(width, centred, above is not None).run(x, len(sums), pointers, (rows, share), KINDS[dy.dtype])
    return out, sums


def by_torch(
    dy: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, gain: Tensor, above: Tensor, centred: bool
) -> tuple[Tensor, Tensor]:
    middle = mean[:, None] if centred else 0.0
    h, d = (x.float() - middle) * inverse[:, None], dy.float()
    dg = d * gain
    first = dg.mean(1, True) if centred else 0.0
    out = above.float() + inverse[:, None] * (dg - first - h * (dg * h).mean(1, True))
    return out.to(x.dtype), torch.stack(((d * h).sum(0), d.sum(0), out.sum(0)))


@torch.library.custom_op("anaphora::norm_gradients", mutates_args=())
def norm_gradients(
    dy: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, gain: Tensor, above: Tensor, centred: bool
) -> tuple[Tensor, Tensor]:
    """dy, x (which is x') and above ``(n, width)`` of 16 bits; mean and inverse (1/σ) ``(n,)``, gain ``(width,)`` float32.

    Gives ∂x' ``(n, width)``, and ``(3, width)`` float32: the gradients of gain, shift and bias.
    """
    return (by_kernel if x.is_cuda else by_torch)(dy, x, mean, inverse, gain, above, centred)


@norm_gradients.register_fake
def _(
    dy: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, gain: Tensor, above: Tensor, centred: bool
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), gain.new_empty(3, x.shape[1])
