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

from anaphora.native.cuda import Kernel, serves

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


# ----------------------------------------------------------------------
# Many tensors worked through by one kernel: in chunks, which a table in the GPU's memory lists.
CHUNK = 1 << 14  # numbers that a block takes at once


class Addresses:
    """Where tensors lie, as a GPU can read it; looked at and sent there again only where it has changed."""

    def __init__(self) -> None:
        self._known: tuple[int, ...] = ()
        self._table: Tensor | None = None

    def of(self, tensors: Sequence[Tensor]) -> Tensor | None:
        """Addresses ``(count,)``; None where the tensors are not `plain`."""
        places = tuple(tensor.data_ptr() for tensor in tensors)
        if places != self._known:
            self._known = places
            self._table = sent(torch.tensor(places), tensors[0].device) if plain(tensors) else None
        return self._table


def pieces(tensors: Sequence[Tensor]) -> Tensor:
    """The chunks ``(count, 3)`` of tensors: which of them, the first number there, and how many."""
    rows = [
        (index, begin, min(CHUNK, tensor.numel() - begin))
        for index, tensor in enumerate(tensors)
        for begin in range(0, tensor.numel(), CHUNK)
    ]
    return torch.tensor(rows, dtype=torch.long).reshape(-1, 3)


def sent(table: Tensor, device: torch.device) -> Tensor:
    """A copy of the table in the GPU's memory."""
    return table.pin_memory().to(device, non_blocking=True)


def plain(tensors: Sequence[Tensor]) -> bool:
    """Whether kernels can take these by their addresses: float32 on one GPU, each in one piece that begins at whole vectors."""
    return (
        serves(*tensors)
        and len({tensor.device for tensor in tensors}) == 1
        and all(type(tensor) in (Tensor, torch.nn.Parameter) for tensor in tensors)
        and all(tensor.dtype == torch.float32 and tensor.is_contiguous() for tensor in tensors)
        and all(tensor.data_ptr() % 16 == 0 for tensor in tensors)
    )


SQUARES = r"""
struct alignas(16) Quad{float each[4];};
extern "C" __global__ void sum_squares(const long long*chunks,const long long*places,float*sums,int count){
  __shared__ float part[8];
  for(int task=blockIdx.x;task<count;task+=gridDim.x){
    const long long*row=chunks+3LL*task;
    const float*x=(const float*)places[row[0]]+row[1];
    const int numbers=(int)row[2],whole=numbers/4;
    float sum[4]={0.f,0.f,0.f,0.f};
    for(int k=threadIdx.x;k<whole;k+=blockDim.x){
      const Quad v=((const Quad*)x)[k];
      #pragma unroll
      for(int i=0;i<4;i++)sum[i]+=v.each[i]*v.each[i];
    }
    for(int k=whole*4+threadIdx.x;k<numbers;k+=blockDim.x)sum[0]+=x[k]*x[k];
    float all=(sum[0]+sum[1])+(sum[2]+sum[3]);
    for(int o=16;o;o>>=1)all+=__shfl_xor_sync(~0u,all,o);
    __syncthreads();
    if(!(threadIdx.x&31))part[threadIdx.x>>5]=all;
    __syncthreads();
    if(threadIdx.x==0){
      for(int w=1;w<8;w++)all+=part[w];
      sums[task]=all;
    }
  }
}
"""
_squares = Kernel(SQUARES, "sum_squares")


class Length:
    """‖x‖₂ over many tensors together, by one pass. The sums are always taken in the same order."""

    def __init__(self) -> None:
        self._sizes: tuple[int, ...] = ()
        self._chunks = torch.empty(0)
        self._places = Addresses()

    def of(self, tensors: Sequence[Tensor]) -> Tensor | None:
        """The length, float32 ``()``; None where the kernel does not take them."""
        places = self._places.of(tensors) if tensors else None
        if places is None:
            return None
        device = tensors[0].device
        sizes = tuple(tensor.numel() for tensor in tensors)
        if sizes != self._sizes:
            self._chunks, self._sizes = sent(pieces(tensors), device), sizes
        count = len(self._chunks)
        sums = torch.empty(count, device=device)
        _squares.run(sums, count, (self._chunks, places, sums), (count,))
        return sums.sum(dtype=torch.float64).sqrt().float()
