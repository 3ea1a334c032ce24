"""Adam and AdamW of many float32 tensors in one kernel: each number is read once and written once.

    g = gradient / divisor,    m ← β₁ m + (1 − β₁) g,    v ← β₂ v + (1 − β₂) g²
    θ ← (1 − lr λ) θ − lr m̂ / (√v̂ + ε),    m̂ = m / (1 − β₁ᵗ),    v̂ = v / (1 − β₂ᵗ)

Adam adds λ θ to g instead of shrinking θ. torch's fused kernel computes the same, but writes the divided gradient back, and it computes
in float64 in between.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from anaphora.native.cuda import Kernel
from anaphora.ops.gpu.chunks import Addresses, pieces, sent

SOURCE = r"""
#define MOVE(P,G,M,V){\
  float g_=(G)*by;\
  if(decoupled)P-=lr*decay*P;else g_+=decay*P;\
  M=b1*M+r1*g_;V=b2*V+r2*g_*g_;\
  P-=size*M/(sqrtf(V)*root+eps);\
}
struct alignas(16) Quad{float each[4];};
extern "C" __global__ void adam_step(const long long*chunks,const long long*places,const long long*gradients,const float*divisor,const float*bad,
                                     int count,int tensors,int lr_bits,int beta1_bits,int beta2_bits,int rest1_bits,
                                     int rest2_bits,int eps_bits,int decay_bits,int decoupled){
  if(*bad!=0.f)return;
  const float lr=__int_as_float(lr_bits),eps=__int_as_float(eps_bits),decay=__int_as_float(decay_bits);
  const float b1=__int_as_float(beta1_bits),b2=__int_as_float(beta2_bits);
  const float r1=__int_as_float(rest1_bits),r2=__int_as_float(rest2_bits);
  const float by=1.f/ *divisor;
  for(int task=blockIdx.x;task<count;task+=gridDim.x){
    const long long*row=chunks+3LL*FROM_LAST(task,count),*at=places+row[0],first=row[1];
    float*p=(float*)at[0]+first,*m=(float*)at[tensors]+first,*v=(float*)at[2*tensors]+first;
    const float*g=(const float*)gradients[row[0]]+first;
    const float t=*(const float*)at[3*tensors];
    const int numbers=(int)row[2],whole=numbers/4;
    const float size=lr/(1.f-powf(b1,t)),root=rsqrtf(1.f-powf(b2,t));
    for(int k=threadIdx.x;k<whole;k+=blockDim.x){
      Quad P=((Quad*)p)[k],M=((Quad*)m)[k],V=((Quad*)v)[k];
      const Quad G=((const Quad*)g)[k];
      #pragma unroll
      for(int i=0;i<4;i++)MOVE(P.each[i],G.each[i],M.each[i],V.each[i])
      ((Quad*)p)[k]=P;((Quad*)m)[k]=M;((Quad*)v)[k]=V;
    }
    for(int k=whole*4+threadIdx.x;k<numbers;k+=blockDim.x)MOVE(p[k],g[k],m[k],v[k])
  }
}
"""
_kernel = Kernel(SOURCE, "adam_step")


class AdamGroup:
    """Parameters that move with the same rates."""

    def __init__(self) -> None:
        self._sizes: tuple[int, ...] = ()
        self._chunks = torch.empty(0)
        self._places, self._gradients = Addresses(), Addresses()

    def step(
        self,
        tensors: Sequence[Sequence[Tensor]],
        gradients: Sequence[Tensor],
        divisor: Tensor,
        bad: Tensor,
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        decay: float,
        decoupled: bool,
    ) -> bool:
        """Move the parameters along their gradients divided by ``divisor``, unless ``bad`` is 1; False where the kernel does not take them.

        tensors: parameters, first moments, second moments, and steps, which count this one already: lists of float32 as long
        as ``gradients``. ``decoupled``: AdamW.
        """
        places = self._places.of([tensor for each in tensors for tensor in each])
        drawn = self._gradients.of(gradients)
        if places is None or drawn is None:
            return False
        sizes = tuple(tensor.numel() for tensor in gradients)
        if sizes != self._sizes:
            self._chunks, self._sizes = sent(pieces(gradients), divisor.device), sizes
        rates = (lr, *betas, 1.0 - betas[0], 1.0 - betas[1], eps, decay)
        numbers = (len(self._chunks), len(gradients), *(float(rate) for rate in rates), int(decoupled))
        _kernel.run(divisor, len(self._chunks), (self._chunks, places, drawn, divisor, bad), numbers)
        return True
