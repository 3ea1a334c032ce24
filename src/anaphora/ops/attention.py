"""Which of torch's attention kernels is used on a GPU.

cuDNN builds a plan for every new shape, which takes 20 ms forward and as much backward on an H200 (torch 2.11), so that batches
of changing lengths waited 0.4 s a step for it. It is left out there, and comes first where one long shape is used all the time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from anaphora.native.cuda import KINDS, Kernel, serves
from anaphora.native.following import COMPILED, following
from anaphora.native.fused import Backward, fused

LONG = 512
"""Places from which cuDNN's kernel is ahead of flash attention on an H200: forward and backward 0.57 against 0.82 ms for 16 × 12
heads of 1 024 places, 0.62 against 0.97 for 8 × 12 of 2 048; 0.59 against 0.46 for 64 × 6 of 256 (bf16, head width 64)."""
_ORDER = [
    SDPBackend.CUDNN_ATTENTION,
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.MATH,
]
_lock = Lock()


@contextmanager
def quickest_attention(places: int, device: torch.device) -> Iterator[None]:
    """Inside the block, cuDNN's attention comes first for sequences of ``places`` where it was measured to be ahead: long ones
    on GPUs of Hopper's generation or later, unless algorithms have to be deterministic. Elsewhere torch's own order holds."""
    ahead = (
        device.type == "cuda"
        and places >= LONG
        and torch.cuda.get_device_capability(device) >= (9, 0)
        and not torch.are_deterministic_algorithms_enabled()
    )
    if not ahead:
        yield
        return
    with sdpa_kernel(_ORDER, set_priority=True):
        yield


def attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    *,
    dropout: float,
    causal: bool,
    scale: float | None,
) -> Tensor:
    """torch's fused attention, on a GPU without cuDNN's kernel, since the next batch may have another shape.

    Compiled code is of one shape and keeps torch's choice. query ``(…, Q, d)``, keys ``(…, K, d)``, values ``(…, K, Dv)``, mask
    (True or added) broadcasts to ``(…, Q, K)``: ``(…, Q, Dv)``.
    """
    if not query.is_cuda or following() == COMPILED:
        return F.scaled_dot_product_attention(
            query, keys, values, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scale
        )
    with _lock:  # the choice is one for all threads
        allowed = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
        torch.backends.cuda.enable_cudnn_sdp(False)
        try:
            return F.scaled_dot_product_attention(
                query, keys, values, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scale
            )
        finally:
            torch.backends.cuda.enable_cudnn_sdp(allowed)


# ----------------------------------------------------------------------
# Softmax among some places of each row on a GPU: one kernel forward, one backward.
#
#     p_k = m_k exp(s_k) / Σ_j m_j exp(s_j),    ∂s_k = p_k (∂p_k − Σ_j p_j ∂p_j)
#
# A row without any place is all zeros, and so is its gradient.
HEAD = r"""
__device__ inline float lanes_max(float v){for(int o=16;o;o>>=1)v=fmaxf(v,__shfl_xor_sync(~0u,v,o));return v;}
__device__ inline float lanes_sum(float v){for(int o=16;o;o>>=1)v+=__shfl_xor_sync(~0u,v,o);return v;}
#define EACH_ROW for(int row=blockIdx.x*(blockDim.x/32)+(threadIdx.x>>5);row<rows;row+=gridDim.x*(blockDim.x/32))
#define EACH_KEY for(int k=threadIdx.x&31;k<keys;k+=32)
#define MASK const unsigned char*real=mask+(long long)(row/queries)*by_batch+(long long)(row%queries)*by_query;
"""
FORWARD = r"""
extern "C" __global__ void weights_of_rows(const elem*s,const unsigned char*mask,elem*p,float*log_sum,
                                           int rows,int queries,int keys,int by_batch,int by_query){
  const float nothing=-__int_as_float(0x7f800000);
  EACH_ROW{
    MASK
    const elem*from=s+(long long)row*keys;elem*to=p+(long long)row*keys;
    float most=nothing;
    EACH_KEY if(real[k])most=fmaxf(most,wide(from[k]));
    most=lanes_max(most);
    const float shift=most==nothing?0.f:most;  // all of them may be that low
    float sum=0.f;
    EACH_KEY if(real[k])sum+=expf(wide(from[k])-shift);
    sum=lanes_sum(sum);
    const float whole=sum>0.f||sum!=sum?shift+logf(sum):-nothing;
    EACH_KEY to[k]=narrow(real[k]?expf(wide(from[k])-whole):0.f);
    if(!(threadIdx.x&31))log_sum[row]=whole;
  }
}
"""
BACKWARD = r"""
extern "C" __global__ void gradients_of_rows(const elem*s,const unsigned char*mask,const float*log_sum,const elem*dp,elem*ds,
                                             int rows,int queries,int keys,int by_batch,int by_query){
  EACH_ROW{
    MASK
    const long long first=(long long)row*keys;
    const float whole=log_sum[row];
    float dot=0.f;
    EACH_KEY if(real[k])dot+=expf(wide(s[first+k])-whole)*wide(dp[first+k]);
    dot=lanes_sum(dot);
    EACH_KEY ds[first+k]=narrow(real[k]?expf(wide(s[first+k])-whole)*(wide(dp[first+k])-dot):0.f);
  }
}
"""
_weights_of_rows = Kernel(HEAD + FORWARD, "weights_of_rows")
_gradients_of_rows = Kernel(HEAD + BACKWARD, "gradients_of_rows")


def fits(scores: Tensor, mask: Tensor) -> bool:
    """Whether `softmax_among` takes these: scores ``(batch, queries, keys)``, a mask of as many or fewer."""
    return (
        serves(scores, mask)
        and scores.dim() == mask.dim() == 3
        and scores.dtype in KINDS
        and scores.numel() > 0
        and mask.dtype == torch.bool
        and mask.shape[2] == scores.shape[2]
        and mask.stride(2) == 1
        and all(m in (1, s) for m, s in zip(mask.shape[:2], scores.shape[:2], strict=True))
    )


def softmax_among(scores: Tensor, mask: Tensor) -> Tensor:
    """p ``(batch, queries, keys)`` in the type of the scores, among the places where ``mask`` is True."""
    found: Tensor = _softmax(scores.contiguous(), mask)
    return found


def by_torch(scores: Tensor, mask: Tensor) -> Tensor:
    """The same by torch's operations, of any shapes that fit together."""
    elsewhere = ~mask
    # The lowest finite number instead of -inf: a row of -inf would make NaN, also in the backward pass.
    scores = scores.masked_fill(elsewhere, torch.finfo(scores.dtype).min)
    return torch.softmax(scores, -1).masked_fill(elsewhere, 0.0)


def _forward(keep: bool, scores: Tensor, mask: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
    numbers = _sizes(scores, mask)
    made = torch.empty_like(scores)
    log_sum = torch.empty(numbers[0], dtype=torch.float32, device=scores.device)
    pointers = (scores, mask, made, log_sum)
    _weights_of_rows.run(scores, -(-numbers[0] // 8), pointers, numbers, KINDS[scores.dtype])
    return made, (log_sum,)


def _backward(back: Backward) -> tuple[Tensor, None]:
    kept, tensors, grads, _ = back
    (scores, mask), (log_sum,), (grad,) = tensors, kept, grads
    numbers = _sizes(scores, mask)
    made = torch.empty_like(scores)
    pointers = (scores, mask, log_sum, grad.contiguous(), made)
    _gradients_of_rows.run(scores, -(-numbers[0] // 8), pointers, numbers, KINDS[scores.dtype])
    return made, None


def _sizes(scores: Tensor, mask: Tensor) -> tuple[int, ...]:
    batch, queries, keys = scores.shape
    steps = [0 if m == 1 else stride for m, stride in zip(mask.shape[:2], mask.stride(), strict=False)]
    return (batch * queries, queries, keys, *steps)


_softmax = fused(_forward, _backward, by_torch)
