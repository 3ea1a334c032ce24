"""Numbers of eight bits for products of matrices on GPUs that have them (compute capability 8.9 and later): e4m3, with a scale for each row.

    q = round(x / s) of 1 + 4 + 3 bits, |q| ≤ 448,    s = max |x| / 448 over a row

The kernels that write a matrix of 16 bits for the gradients of weights write these beside it, as they have its numbers at hand. Of weights,
one scale serves the whole matrix, so that it can be used both ways round.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from anaphora.kernels.gpu import columns
from anaphora.kernels.gpu.kernel import KINDS, Kernel

LARGEST = 448.0  # of e4m3
KIND = torch.float8_e4m3fn
MULTIPLE = 16  # of which both sides of a matrix must be one

EIGHT = r"""
#define LARGEST 448.f
__device__ inline float scale_of(float most){return most>0.f?most/LARGEST:most==most?1.f:most;}  // NaN stays one
#ifdef __CUDA_ARCH__
__device__ inline unsigned short two(float a,float b){
  unsigned short u;asm("cvt.rn.satfinite.e4m3x2.f32 %0,%1,%2;":"=h"(u):"f"(b),"f"(a));return u;
}
#else
inline unsigned one_(float v){
  unsigned u;memcpy(&u,&v,4);
  const unsigned sign=u>>31<<7;
  v=fabsf(v);
  if(v!=v)return sign|0x7f;
  if(v>LARGEST)v=LARGEST;
  int e;frexpf(v,&e);e=v==0.f||e<-5?-5:e;           // v < 2^e; below 2^-6 the step is 2^-9
  const float step=ldexpf(1.f,e-4);
  v=nearbyintf(v/step)*step;
  frexpf(v,&e);
  if(v<0.015625f)return sign|(unsigned)(v*512.f);
  return sign|(unsigned)(e-1+7)<<3|(unsigned)(ldexpf(v,4-e)-8.f);
}
inline unsigned short two(float a,float b){return one_(a)|one_(b)<<8;}
#endif
__device__ inline float larger(float a,float b){return b>a||b!=b?b:a;}
// a row that a warp has, four numbers of every 128 in a lane
template<int CHUNKS_> __device__ inline void put_row(const float*f,unsigned char*to,float*scale,int lane){
  float most=0.f;
  #pragma unroll
  for(int k=0;k<CHUNKS_*4;k++)most=larger(most,fabsf(f[k]));
  for(int o=16;o;o>>=1)most=larger(most,__shfl_xor_sync(~0u,most,o));
  const float s=scale_of(most),by=1.f/s;
  #pragma unroll
  for(int k=0;k<CHUNKS_;k++)*(unsigned*)(to+k*128)=two(f[k*4]*by,f[k*4+1]*by)|(unsigned)two(f[k*4+2]*by,f[k*4+3]*by)<<16;
  if(lane==0)*scale=s;
}
"""

# A thread has eight neighbouring columns of all rows of a share, so that a block has whole rows and knows their largest numbers.
ROWS = (
    columns.PACKED
    + EIGHT
    + r"""
#define AHEAD 2
#define STEP 1
BEFORE
#ifndef SUMMED
#define SUMMED 1
#endif
#ifndef KEPT
#define KEPT 1
#endif
extern "C" __global__ __launch_bounds__(BLOCK) void NAME(POINTERS,elem*out,float*sums,unsigned char*eight,float*scales,int rows,int width,int share NUMBERS){
  __shared__ float part[2][32][AHEAD];  // in turns, so that one barrier is enough
  int turn=0;
  const int warp=threadIdx.x>>5,lane=threadIdx.x&31,shares=(rows+share-1)/share,at=threadIdx.x*8;
  const bool mine=at<width;
  const int c=mine?at:width-8;
  for(int task=blockIdx.x;task<shares;task+=gridDim.x){
    const int first=task*share,last=min(rows,first+share);
    float sum[8]={0.f,0.f,0.f,0.f,0.f,0.f,0.f,0.f};
    SETUP
    for(int r0=first;r0<last;r0+=AHEAD,turn^=1){
      float f[AHEAD][8],most[AHEAD];
      if(mine){
        READ
        #pragma unroll
        for(int k=0;k<AHEAD;k++)if(r0+k<last){
          const int r=r0+k;
          Some s;
          #pragma unroll
          for(int i=0;i<8;i++){COMPUTE}
          #pragma unroll
          for(int i=0;i<8;i+=2)put(s,i,f[k][i],f[k][i+1]);
          #pragma unroll
          for(int i=0;i<8;i++)if(SUMMED)sum[i]+=f[k][i];
          if(KEPT)*(uint4*)(out+(long long)r*width+c)=s.all;
        }
      }
      #pragma unroll
      for(int k=0;k<AHEAD;k++){
        most[k]=0.f;
        if(mine&&r0+k<last){
          #pragma unroll
          for(int i=0;i<8;i++)most[k]=larger(most[k],fabsf(f[k][i]));
        }
        for(int o=16;o;o>>=1)most[k]=larger(most[k],__shfl_xor_sync(~0u,most[k],o));
      }
      #pragma unroll
      for(int k=0;k<AHEAD;k++)if(lane==0)part[turn][warp][k]=most[k];
      __syncthreads();
      #pragma unroll
      for(int k=0;k<AHEAD;k++)if(r0+k<last){
        float all=part[turn][0][k];
        for(int w=1;w<(int)blockDim.x/32;w++)all=larger(all,part[turn][w][k]);
        const float scale=scale_of(all),by=1.f/scale;
        if(threadIdx.x==0)scales[r0+k]=scale;
        if(mine){
          union{unsigned long long all;unsigned short each[4];} e;
          #pragma unroll
          for(int i=0;i<4;i++)e.each[i]=two(f[k][2*i]*by,f[k][2*i+1]*by);
          *(unsigned long long*)(eight+(long long)(r0+k)*width+c)=e.all;
        }
      }
    }
    if(SUMMED&&mine){
      #pragma unroll
      for(int i=0;i<8;i++)sums[(long long)task*width+c+i]=sum[i];
    }
  }
}
"""
)

# A block takes 64 × 64 numbers, and writes them as they stand and transposed; the blocks at the upper and the left edge also write the scale.
WEIGHTS = (
    EIGHT
    + r"""
extern "C" __global__ void eight_weights(const float*w,const float*most,unsigned char*out,unsigned char*other,
                                         float*scales,float*other_scales,int rows,int width){
  __shared__ unsigned char tile[64][68];
  const float scale=scale_of(*most),by=1.f/scale;
  const int across=(width+63)/64,down=(rows+63)/64;
  for(int task=blockIdx.x;task<across*down;task+=gridDim.x){
    const int r0=task/across*64,c0=task%across*64;
    __syncthreads();
    for(int k=threadIdx.x;k<64*32;k+=blockDim.x){
      const int r=k/32,c=k%32*2;
      if(r0+r<rows&&c0+c<width){
        const float*from=w+(long long)(r0+r)*width+c0+c;
        const unsigned short e=two(from[0]*by,from[1]*by);
        tile[r][c]=e&255;tile[r][c+1]=e>>8;
        *(unsigned short*)(out+(long long)(r0+r)*width+c0+c)=e;
      }
    }
    __syncthreads();
    for(int k=threadIdx.x;k<64*32;k+=blockDim.x){
      const int c=k/32,r=k%32*2;
      if(r0+r<rows&&c0+c<width)
        *(unsigned short*)(other+(long long)(c0+c)*rows+r0+r)=(unsigned short)(tile[r][c]|tile[r+1][c]<<8);
    }
    if(c0==0&&threadIdx.x<64&&r0+threadIdx.x<rows)scales[r0+threadIdx.x]=scale;
    if(r0==0&&threadIdx.x<64&&c0+threadIdx.x<width)other_scales[c0+threadIdx.x]=scale;
  }
}
"""
)
PLAIN = columns.Parts(
    "rounded_rows",
    "const elem*x",
    columns.values_of("relu").read,
    "f[i]=wide(v[k].each[i]);",
    before="#define SUMMED 0\n#define KEPT 0",
)
SHARE = 16  # rows that one block takes
_weights = Kernel(WEIGHTS, "eight_weights")


class Eight(NamedTuple):
    """A matrix ``(n, width)`` of e4m3, and the scales of its rows ``(n,)``, float32."""

    numbers: Tensor
    scales: Tensor

    def wide(self) -> Tensor:
        """What it stands for, float32."""
        return self.numbers.float() * self.scales[:, None]


def space(rows: int, width: int, device: torch.device) -> Eight:
    """An empty matrix."""
    return Eight(torch.empty(rows, width, dtype=KIND, device=device), torch.empty(rows, device=device))


def rounded(x: Tensor) -> Eight:
    """x ``(n, width)`` in eight bits."""
    if x.is_cuda:
        return rounded_by_kernel(x)
    most = x.float().abs().amax(1)
    scales = torch.where(most == 0, 1.0, most / LARGEST)
    return Eight((x.float() / scales[:, None]).clamp(-LARGEST, LARGEST).to(KIND), scales)


def rounded_by_kernel(x: Tensor) -> Eight:
    rows, width = x.shape
    made = space(rows, width, x.device)
    pointers, numbers = (x, None, None, *made), (rows, width, SHARE)
    kernel(PLAIN, width).run(x, columns.shares(rows, SHARE), pointers, numbers, KINDS[x.dtype])
    return made


def product(a: Eight, b: Eight, dtype: torch.dtype, bias: Tensor | None = None) -> Tensor:
    """a bᵀ + bias in ``dtype``, which is bfloat16 on a GPU: a ``(n, k)``, b ``(m, k)``, bias ``(m,)``: ``(n, m)``."""
    if not a.numbers.is_cuda:
        made = a.wide() @ b.wide().t()
        return (made if bias is None else made + bias).to(dtype)
    scales = (a.scales[:, None], b.scales[None])
    return torch._scaled_mm(
        a.numbers, b.numbers.t(), *scales, bias=bias, out_dtype=dtype, use_fast_accum=True
    )


def weights(given: Sequence[Tensor]) -> list[tuple[Eight, Eight]]:
    """Matrices ``(m, k)`` of float32 in eight bits, and transposed ``(k, m)``; both of one scale."""
    most = torch._foreach_norm(list(given), float("inf"))
    found = []
    for weight, largest in zip(given, most, strict=True):
        if weight.is_cuda:
            found.append(weight_by_kernel(weight, largest))
            continue
        scale = float(largest) / LARGEST if largest else 1.0
        numbers = (weight / scale).clamp(-LARGEST, LARGEST).to(KIND)
        one, other = (
            Eight(each, torch.full((len(each),), scale)) for each in (numbers, numbers.t().contiguous())
        )
        found.append((one, other))
    return found


def weight_by_kernel(weight: Tensor, most: Tensor) -> tuple[Eight, Eight]:
    rows, width = weight.shape
    out, across = space(rows, width, weight.device), space(width, rows, weight.device)
    pointers = (weight, most, out.numbers, across.numbers, out.scales, across.scales)
    _weights.run(weight, -(-rows // 64) * -(-width // 64), pointers, (rows, width))
    return out, across


@cache
def kernel(parts: columns.Parts, width: int) -> Kernel:
    """Of rows of ``width`` numbers."""
    threads = -(-width // 256) * 32
    text = f"#define BLOCK {threads}\n{parts.put_into(ROWS.replace('COMPUTE', parts.compute.replace('f[i]', 'f[k][i]')))}"
    return Kernel(text, parts.name, threads=threads, resident=max(1, 2048 // threads))


def activated(x: Tensor, bias: Tensor, kind: columns.Activation) -> tuple[Tensor, Eight]:
    """f(x + b), and in eight bits."""
    if not x.is_cuda:
        out = columns.values_by_torch(x, bias, kind)
        return out, rounded(columns._values(x.float() + bias, kind))
    return activated_by_kernel(x, bias, kind)


def activated_by_kernel(x: Tensor, bias: Tensor, kind: columns.Activation) -> tuple[Tensor, Eight]:
    rows, width = x.shape
    out, eight = torch.empty_like(x), space(rows, width, x.device)
    pointers = (x, bias, out, None, *eight)
    made = kernel(columns.values_of(kind), width)
    made.run(x, columns.shares(rows, SHARE), pointers, (rows, width, SHARE), KINDS[x.dtype])
    return out, eight


def activation_gradients(
    grad: Tensor, x: Tensor, bias: Tensor, kind: columns.Activation
) -> tuple[Tensor, Tensor, Eight]:
    """∂x, the table that `columns.added` makes ∂b of, and ∂x in eight bits."""
    if not x.is_cuda:
        out, sums = columns.gradients_by_torch(grad, x, bias, kind)
        return out, sums[None], rounded(out)
    return gradients_by_kernel(grad, x, bias, kind)


def gradients_by_kernel(
    grad: Tensor, x: Tensor, bias: Tensor, kind: columns.Activation
) -> tuple[Tensor, Tensor, Eight]:
    rows, width = x.shape
    out, eight = torch.empty_like(x), space(rows, width, x.device)
    share = 2 * SHARE
    sums = bias.new_empty(columns.shares(rows, share), width)
    made = kernel(columns.slopes_of(kind), width)
    made.run(x, len(sums), (grad, x, bias, out, sums, *eight), (rows, width, share), KINDS[x.dtype])
    return out, sums, eight


def merged(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Eight]:
    """As `columns.merged_and_table`, and in eight bits."""
    if not q.is_cuda:
        out, sums = columns.merged_by_torch(q, k, v)
        return out, sums[None], rounded(out)
    return merged_by_kernel(q, k, v)


def merged_by_kernel(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Eight]:
    batch, heads, time, each = q.shape
    rows, width = batch * time, 3 * heads * each
    given, strides = columns.strided(q, k, v)
    out, eight = q.new_empty(rows, width), space(rows, width, q.device)
    share = 2 * SHARE
    sums = torch.empty(columns.shares(rows, share), width, device=q.device)
    numbers = (rows, width, share, each, time, *strides)
    kernel(columns.MERGE, width).run(q, len(sums), (*given, out, sums, *eight), numbers, KINDS[q.dtype])
    return out, sums, eight
