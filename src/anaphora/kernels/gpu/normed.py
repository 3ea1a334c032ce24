"""The backward pass of x' = x + δ + b, y = norm(x') in one kernel: also the gradients of the norm's gain and shift and of the bias b.

    h = (x' − mean)/σ,    ∂x' = above + (g ∘ ∂y − mean(g ∘ ∂y) − h mean(g ∘ ∂y ∘ h))/σ
    ∂g = Σ_n ∂y ∘ h,    ∂shift = Σ_n ∂y,    ∂b = Σ_n ∂x'

Without the two means for RMSNorm, which does not centre. ∂δ is ∂x' in the type of ∂y. The sums are in parts, as in `columns`.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from anaphora.kernels.gpu.columns import shares
from anaphora.kernels.gpu.kernel import KINDS, Kernel

# A warp takes a row of WIDTH numbers, four of every 128 in a lane, and keeps the sums of its columns in registers.
SOURCE = r"""
#define CHUNKS (WIDTH/128)
union Four{unsigned long long all;elem each[4];};
struct alignas(16) Quad{float each[4];};
__device__ inline float over_warp(float v){for(int o=16;o;o>>=1)v+=__shfl_xor_sync(~0u,v,o);return v;}
extern "C" __global__ void norm_gradients(const elem*dy,const float*x,const float*mean,const float*inverse,const float*gain,
                                          const float*above,float*out,elem*narrowed,float*sums,int rows,int share){
  __shared__ float part[4][WIDTH];
  const int warp=threadIdx.x>>5,lane=threadIdx.x&31,shares=(rows+share-1)/share;
  for(int task=blockIdx.x;task<shares;task+=gridDim.x){
    const int first=task*share,last=min(rows,first+share);
    float gains[CHUNKS*4],of_gain[CHUNKS*4],of_shift[CHUNKS*4],of_bias[CHUNKS*4];
    #pragma unroll
    for(int k=0;k<CHUNKS*4;k++){
      gains[k]=gain[k/4*128+lane*4+k%4];
      of_gain[k]=of_shift[k]=of_bias[k]=0.f;
    }
    for(int r=first+warp;r<last;r+=4){
      const long long at=(long long)r*WIDTH+lane*4;
      Four g[CHUNKS];Quad v[CHUNKS],a[CHUNKS];
      #pragma unroll
      for(int k=0;k<CHUNKS;k++){
        g[k].all=*(const unsigned long long*)(dy+at+k*128);
        v[k]=*(const Quad*)(x+at+k*128);
        a[k]=*(const Quad*)(above+at+k*128);
      }
      const float m=CENTRED?mean[r]:0.f,s=inverse[r];
      float one=0.f,two=0.f;
      #pragma unroll
      for(int k=0;k<CHUNKS;k++){
        float*h=v[k].each;
        #pragma unroll
        for(int i=0;i<4;i++){
          h[i]=(h[i]-m)*s;
          const float d=wide(g[k].each[i]),dg=d*gains[k*4+i];
          one+=dg;two+=dg*h[i];
          of_gain[k*4+i]+=d*h[i];of_shift[k*4+i]+=d;
        }
      }
      one=CENTRED?over_warp(one)/WIDTH:0.f;two=over_warp(two)/WIDTH;
      #pragma unroll
      for(int k=0;k<CHUNKS;k++){
        float*h=v[k].each,*o=a[k].each;
        Four n;
        #pragma unroll
        for(int i=0;i<4;i++){
          o[i]+=s*(wide(g[k].each[i])*gains[k*4+i]-one-h[i]*two);
          n.each[i]=narrow(o[i]);
          of_bias[k*4+i]+=o[i];
        }
        *(Quad*)(out+at+k*128)=a[k];
        *(unsigned long long*)(narrowed+at+k*128)=n.all;
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

SHARE = 32  # rows whose sums one block takes
WIDEST = 1024  # more would not fit into the registers of a warp


def fits(width: int) -> bool:
    """Whether the kernel takes rows of this width."""
    return width % 128 == 0 and 0 < width <= WIDEST


@cache
def kernel(width: int, centred: bool) -> Kernel:
    """For rows of ``width`` numbers, of a LayerNorm (``centred``) or an RMSNorm."""
    source = f"#define WIDTH {width}\n#define CENTRED {int(centred)}\n{SOURCE}"
    return Kernel(source, "norm_gradients", threads=128)


def by_kernel(
    dy: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, gain: Tensor, above: Tensor, centred: bool
) -> tuple[Tensor, Tensor, Tensor]:
    rows, width = x.shape
    out, narrowed = torch.empty_like(x), torch.empty_like(x, dtype=dy.dtype)
    sums = gain.new_empty(shares(rows, SHARE), 3, width)
    pointers = (dy.contiguous(), x, mean, inverse, gain, above.contiguous(), out, narrowed, sums)
    kernel(width, centred).run(x, len(sums), pointers, (rows, SHARE), KINDS[dy.dtype])
    return out, narrowed, sums


def by_torch(
    dy: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, gain: Tensor, above: Tensor, centred: bool
) -> tuple[Tensor, Tensor, Tensor]:
    h = (x - mean[:, None]) * inverse[:, None] if centred else x * inverse[:, None]
    d = dy.float()
    dg = d * gain
    middle = dg.mean(1, True) if centred else 0.0
    out = above + inverse[:, None] * (dg - middle - h * (dg * h).mean(1, True))
    return out, out.to(dy.dtype), torch.stack(((d * h).sum(0), d.sum(0), out.sum(0)))[None]


@torch.library.custom_op("anaphora::norm_gradients", mutates_args=())
def norm_gradients(
    dy: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, gain: Tensor, above: Tensor, centred: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """dy ``(n, width)`` of 16 bits; x (which is x') and above ``(n, width)``, mean and inverse (1/σ) ``(n,)``, gain ``(width,)`` float32.

    Gives ∂x' in float32 and in the type of dy, and the sums ``(shares, 3, width)``: of the gain, the shift and the bias.
    """
    return (by_kernel if x.is_cuda else by_torch)(dy, x, mean, inverse, gain, above, centred)


@norm_gradients.register_fake
def _(
    dy: Tensor, x: Tensor, mean: Tensor, inverse: Tensor, gain: Tensor, above: Tensor, centred: bool
) -> tuple[Tensor, Tensor, Tensor]:
    parts = shares(len(x), SHARE) if x.is_cuda else 1
    return torch.empty_like(x), torch.empty_like(x, dtype=dy.dtype), gain.new_empty(parts, 3, x.shape[1])
