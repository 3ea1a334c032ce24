"""The loss of symbols and the gradient of their logits in one kernel that reads each logit once: for a step that is written out.

    loss_n = log Σ_k exp z_nk − z_n,y_n,    ∂z_n = p_n − [k = y_n],    p_n = softmax(z_n),    z = logits + bias

The gradient takes the place of the logits. What the loss is multiplied by later, which is not known yet, is left out. A block takes one
row after another: while it works on one, the next is copied to shared memory. The sums of columns, which are the gradient of the bias,
stay in its registers. Where a row does not fit, `output_loss` computes the same in two passes.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from anaphora.native.cuda import KINDS, Kernel
from anaphora.ops.gpu.columns import PACKED, QUICK

THREADS = 512
STATIC = 1024  # bytes of shared memory that the source declares, at most
WIDEST = 36864  # two rows and the bias fit into the 227 KiB of shared memory, and sums of the columns into the registers

SOURCE = (
    QUICK
    + PACKED
    + r"""
#define PIECES (WIDTH/8)
#define EACH ((PIECES+THREADS-1)/THREADS)
#define WARPS (THREADS/32)
#ifdef __CUDA_ARCH__
extern __shared__ uint4 memory[];
__device__ inline void copied(uint4*to,const void*from){
  asm volatile("cp.async.cg.shared.global [%0],[%1],16;"::"r"((unsigned)__cvta_generic_to_shared(to)),"l"(from):"memory");
}
__device__ inline void queued(){asm volatile("cp.async.commit_group;":::"memory");}
__device__ inline void but_last(){asm volatile("cp.async.wait_group 1;":::"memory");}
#else
static uint4 memory[3*PIECES];
inline void copied(uint4*to,const void*from){*to=*(const uint4*)from;}
inline void queued(){}
inline void but_last(){}
#endif
// logits are counted in powers of two here. Each thread reads only what it has copied itself.
extern "C" __global__ __launch_bounds__(THREADS) void logit_step(const elem*bias,const long long*y,elem*z,float*loss,float*sums,
                                                                 int rows,int symbols,int ignored){
  __shared__ float mosts[2][32],totals[2][32];
  const float none=-__int_as_float(0x7f800000);
  const int thread=threadIdx.x,warp=thread>>5,lane=thread&31;
  uint4*start=memory+2*PIECES;
  float sum[EACH*8];
  #pragma unroll
  for(int k=0;k<EACH*8;k++)sum[k]=0.f;
  for(int p=thread;p<PIECES;p+=THREADS)start[p]=((const uint4*)bias)[p];
  int odd=0;
  for(int p=thread;p<PIECES;p+=THREADS)if((int)blockIdx.x<rows)copied(memory+p,z+(long long)FROM_LAST((int)blockIdx.x,rows)*WIDTH+p*8);
  queued();
  for(int turn=blockIdx.x;turn<rows;turn+=gridDim.x,odd^=1){
    const int next=turn+gridDim.x,n=FROM_LAST(turn,rows);
    const uint4*row=memory+odd*PIECES;
    if(next<rows)for(int p=thread;p<PIECES;p+=THREADS)copied(memory+(odd^1)*PIECES+p,z+(long long)FROM_LAST(next,rows)*WIDTH+p*8);
    queued();
    but_last();
    const long long at=y[n];
    float most=none,total=0.f;
    #pragma unroll
    for(int k=0;k<EACH;k++){
      const int p=thread+k*THREADS;
      if(p<PIECES){
        Some v,b;
        v.all=row[p];b.all=start[p];
        float f[8],m=most;
        #pragma unroll
        for(int i=0;i<8;i++)f[i]=wide(v.each[i])+wide(b.each[i]);
        if(p*8+8>symbols){
          #pragma unroll
          for(int i=0;i<8;i++)if(p*8+i>=symbols)f[i]=none;
        }
        #pragma unroll
        for(int i=0;i<8;i++)m=fmaxf(m,f[i]);
        const float by=m==none?0.f:LOG2E*m;  // infinity minus infinity would be NaN
        if(m>most){total*=exp2_of(LOG2E*most-by);most=m;}
        #pragma unroll
        for(int i=0;i<8;i++)total+=exp2_of(LOG2E*f[i]-by);
      }
    }
    float top=most;
    for(int o=16;o;o>>=1)top=fmaxf(top,__shfl_xor_sync(~0u,top,o));
    if(top!=none)total*=exp2_of(LOG2E*(most-top));
    for(int o=16;o;o>>=1)total+=__shfl_xor_sync(~0u,total,o);
    if(lane==0){mosts[odd][warp]=top;totals[odd][warp]=total;}
    __syncthreads();  // once a row: the other half of the table is written next
    most=lane<WARPS?mosts[odd][lane]:none;total=lane<WARPS?totals[odd][lane]:0.f;
    top=most;
    for(int o=16;o;o>>=1)top=fmaxf(top,__shfl_xor_sync(~0u,top,o));
    if(top!=none)total*=exp2_of(LOG2E*(most-top));
    for(int o=16;o;o>>=1)total+=__shfl_xor_sync(~0u,total,o);
    const float all=(top==none?0.f:top)+logf(total),by=LOG2E*all;
    const bool live=at!=ignored;
    if(thread==0&&(!live||at<0||at>=symbols))loss[n]=live?__int_as_float(0x7fffffff):0.f;  // a symbol that is none: NaN
    #pragma unroll
    for(int k=0;k<EACH;k++){
      const int p=thread+k*THREADS;
      if(p<PIECES){
        Some v,b,s;
        v.all=row[p];b.all=start[p];
        float f[8];
        #pragma unroll
        for(int i=0;i<8;i++)f[i]=exp2_of(LOG2E*(wide(v.each[i])+wide(b.each[i]))-by);
        if(at>=p*8&&at<p*8+8&&at<symbols){
          #pragma unroll
          for(int i=0;i<8;i++)if(p*8+i==at){
            f[i]-=1.f;
            if(live)loss[n]=all-(wide(v.each[i])+wide(b.each[i]));
          }
        }
        if(!live||p*8+8>symbols){
          #pragma unroll
          for(int i=0;i<8;i++)if(!live||p*8+i>=symbols)f[i]=0.f;
        }
        #pragma unroll
        for(int i=0;i<8;i+=2)put(s,i,f[i],f[i+1]);
        #pragma unroll
        for(int i=0;i<8;i++)sum[k*8+i]+=f[i];
        *(uint4*)(z+(long long)n*WIDTH+p*8)=s.all;
      }
    }
  }
  #pragma unroll
  for(int k=0;k<EACH;k++){
    const int p=thread+k*THREADS;
    if(p<PIECES){
      #pragma unroll
      for(int i=0;i<8;i++)sums[(long long)blockIdx.x*WIDTH+p*8+i]=sum[k*8+i];
    }
  }
}
"""
)

SCALED = (
    PACKED
    + r"""
extern "C" __global__ void scaled_rows(const elem*x,const float*scale,elem*out,int pieces){
  const float by=*scale;
  for(int p=blockIdx.x*blockDim.x+threadIdx.x;p<pieces;p+=gridDim.x*blockDim.x){
    Some v,s;
    v.all=((const uint4*)x)[p];
    #pragma unroll
    for(int i=0;i<8;i+=2)put(s,i,by*wide(v.each[i]),by*wide(v.each[i+1]));
    ((uint4*)out)[p]=s.all;
  }
}
"""
)
_scaled = Kernel(SCALED, "scaled_rows")


def fits(width: int, device: torch.device) -> bool:
    """Whether the kernel takes rows of so many logits there: a GPU of compute capability 8 or later with shared memory enough."""
    if device.type != "cuda" or width % 8 or not 0 < width <= WIDEST:
        return False
    facts = torch.cuda.get_device_properties(device)
    return facts.major >= 8 and 6 * width + STATIC <= getattr(facts, "shared_memory_per_block_optin", 0)


@cache
def kernel(width: int) -> Kernel:
    """For rows of ``width`` logits."""
    return Kernel(
        f"#define WIDTH {width}\n#define THREADS {THREADS}\n{SOURCE}",
        "logit_step",
        threads=THREADS,
        resident=1,
        memory=6 * width,
    )


def losses_and_gradients(
    logits: Tensor, bias: Tensor, targets: Tensor, symbols: int, ignored: int
) -> tuple[Tensor, Tensor]:
    """Logits ``(n, width)`` without their bias ``(width,)``, both of 16 bits, become their gradient; targets ``(n,)``.

    Gives the loss of each row ``(n,)``, 0 where the target is ``ignored``, and the table whose sum over its first axis is that of the
    gradient's columns.
    """
    rows, width = logits.shape
    made = kernel(width)
    losses = torch.empty(rows, device=logits.device)
    sums = torch.empty(made.blocks(logits, rows), width, device=logits.device)
    made.run(
        logits, rows, (bias, targets, logits, losses, sums), (rows, symbols, ignored), KINDS[logits.dtype]
    )
    return losses, sums


def scaled(x: Tensor, by: Tensor) -> Tensor:
    """x of 16 bits, a multiple of 8 numbers, times ``by`` ``()`` of float32, which torch would round to 16 bits first."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    pieces = x.numel() // 8
    _scaled.run(x, -(-pieces // 256), (x.contiguous(), by, out), (pieces,), KINDS[x.dtype])
    return out
