"""x' = x + δ + b and y = norm(x') in one kernel: what a norm-first Transformer does between two of its sublayers.

    mean = Σ_i x'_i / d,    σ² = Σ_i (x'_i − mean)² / d + ε,    y = g ∘ (x' − mean)/σ + shift

RMSNorm centres nothing and has no shift. x' is rounded to its 16 bits before it is normalised, as it is kept. `normed` has the backward
pass.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from anaphora.native.cuda import KINDS, Kernel

# A warp takes a row of WIDTH numbers, four of every 128 in a lane.
SOURCE = r"""
#define CHUNKS (WIDTH/128)
union Four{unsigned long long all;elem each[4];};
struct alignas(16) Quad{float each[4];};
__device__ inline float over_warp(float v){for(int o=16;o;o>>=1)v+=__shfl_xor_sync(~0u,v,o);return v;}
extern "C" __global__ void added_norm(const elem*x,const elem*delta,const float*bias,const float*gain,const float*shift,
                                      elem*kept,elem*y,float*mean,float*inverse,int rows,int eps_bits){
  const int warp=threadIdx.x>>5,lane=threadIdx.x&31;
  const float eps=__int_as_float(eps_bits);
  for(int turn=blockIdx.x*4+warp;turn<rows;turn+=gridDim.x*4){
    const int r=FROM_LAST(turn,rows);
    const long long at=(long long)r*WIDTH+lane*4;
    Four v[CHUNKS],d[CHUNKS];
    #pragma unroll
    for(int k=0;k<CHUNKS;k++){
      v[k].all=LAST_LOOK(unsigned long long,x+at+k*128);
      if(ADDS)d[k].all=LAST_LOOK(unsigned long long,delta+at+k*128);
    }
    float f[CHUNKS*4],sum=0.f;
    #pragma unroll
    for(int k=0;k<CHUNKS;k++){
      Quad b;
      if(BIASED)b=*(const Quad*)(bias+lane*4+k*128);
      #pragma unroll
      for(int i=0;i<4;i++){
        float w=wide(v[k].each[i]);
        if(ADDS)w+=wide(d[k].each[i]);
        if(BIASED)w+=b.each[i];
        if(ADDS||BIASED){v[k].each[i]=narrow(w);w=wide(v[k].each[i]);}
        f[k*4+i]=w;
        sum+=w;
      }
      if(ADDS||BIASED)PUT_AWAY(unsigned long long,kept+at+k*128,v[k].all);
    }
    const float m=CENTRED?over_warp(sum)/WIDTH:0.f;
    float squares=0.f;
    #pragma unroll
    for(int k=0;k<CHUNKS*4;k++)squares+=(f[k]-m)*(f[k]-m);
    const float s=rsqrtf(over_warp(squares)/WIDTH+eps);
    #pragma unroll
    for(int k=0;k<CHUNKS;k++){
      const Quad g=*(const Quad*)(gain+lane*4+k*128);
      Quad b;
      if(CENTRED)b=*(const Quad*)(shift+lane*4+k*128);
      Four o;
      #pragma unroll
      for(int i=0;i<4;i++){
        f[k*4+i]=(f[k*4+i]-m)*s*g.each[i]+(CENTRED?b.each[i]:0.f);
        o.each[i]=narrow(f[k*4+i]);
      }
      *(unsigned long long*)(y+at+k*128)=o.all;
    }
    if(lane==0){mean[r]=m;inverse[r]=s;}
  }
}
"""


class Normed(NamedTuple):
    """Rows ``(n, width)``: x', y; and mean and 1/σ of each ``(n,)``, float32."""

    kept: Tensor
    y: Tensor
    mean: Tensor
    inverse: Tensor


@cache
def kernel(width: int, centred: bool, adds: bool, biased: bool) -> Kernel:
    """For rows of ``width`` numbers; whether there are a shift, δ and b."""
    flags = f"#define CENTRED {int(centred)}\n#define ADDS {int(adds)}\n#define BIASED {int(biased)}\n"
    return Kernel(f"#define WIDTH {width}\n{flags}{SOURCE}", "added_norm", threads=128)


def by_kernel(
    x: Tensor,
    delta: Tensor | None,
    bias: Tensor | None,
    gain: Tensor,
    shift: Tensor | None,
    eps: float,
) -> Normed:
    rows, width = x.shape
    kept = x if delta is None and bias is None else torch.empty_like(x)
    y, (mean, inverse) = torch.empty_like(x), gain.new_empty(2, rows).unbind()
    pointers = (x, delta, bias, gain, shift, kept, y, mean, inverse)
    made = kernel(width, shift is not None, delta is not None, bias is not None)
    made.run(x, -(-rows // 4), pointers, (rows, float(eps)), KINDS[x.dtype])
    return Normed(kept, y, mean, inverse)


def by_torch(
    x: Tensor,
    delta: Tensor | None,
    bias: Tensor | None,
    gain: Tensor,
    shift: Tensor | None,
    eps: float,
) -> Normed:
    wide = x.float()
    if delta is not None:
        wide = wide + delta
    if bias is not None:
        wide = wide + bias
    kept = wide.to(x.dtype)
    wide = kept.float()
    mean = wide.mean(1) if shift is not None else wide.new_zeros(len(wide))
    centred = wide - mean[:, None]
    inverse = torch.rsqrt(centred.square().mean(1) + eps)
    y = centred * inverse[:, None] * gain
    y = y if shift is None else y + shift
    return Normed(kept, y.to(x.dtype), mean, inverse)


def added_norm(
    x: Tensor,
    delta: Tensor | None,
    bias: Tensor | None,
    gain: Tensor,
    shift: Tensor | None,
    eps: float,
) -> Normed:
    """x and δ ``(n, width)`` of 16 bits; b, gain and shift ``(width,)`` float32, without a shift RMSNorm.

    See `normed.fits` for the widths it takes.
    """
    return (by_kernel if x.is_cuda else by_torch)(x, delta, bias, gain, shift, eps)
