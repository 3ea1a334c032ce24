"""Rows of unequal length on a GPU: in which order they are taken, and zeros where they have ended, one kernel each."""

from __future__ import annotations

import torch
from torch import Tensor

from anaphora.native.cuda import Kernel, serves

HEAD = r"""
__device__ inline long long steps_of(const long long*lengths,int row,int narrow){return narrow?((const int*)lengths)[row]:lengths[row];}
"""
ORDER = r"""
extern "C" __global__ void longest_first(const long long*lengths,int*places,int rows,int time,int narrow){
  for(int b=blockIdx.x*blockDim.x+threadIdx.x;b<rows;b+=gridDim.x*blockDim.x){
    const long long mine=steps_of(lengths,b,narrow);
    int place=0;
    for(int k=0;k<rows;k++){const long long other=steps_of(lengths,k,narrow);place+=other>mine||(other==mine&&k<b);}
    places[place]=mine<0?0:mine<time?(int)mine:time;
    places[rows+place]=b;
  }
}
"""
TRANSPOSE = r"""
extern "C" __global__ void transpose_rows(const uint4*from,const long long*lengths,uint4*to,
                                     int batch,int time,int width,int by_row,int by_step,int narrow){
  const int rows=batch*time,lane=threadIdx.x&31;
  for(int r=blockIdx.x*(blockDim.x/32)+(threadIdx.x>>5);r<rows;r+=gridDim.x*(blockDim.x/32)){
    const int t=r/batch,b=r%batch;
    const bool real=t<steps_of(lengths,b,narrow);
    const uint4*source=from+(long long)b*by_row+(long long)t*by_step;
    uint4*place=to+(long long)r*width,nothing;
    nothing.x=nothing.y=nothing.z=nothing.w=0;
    for(int k=lane;k<width;k+=32)place[k]=real?source[k]:nothing;
  }
}
"""
_order = Kernel(HEAD + ORDER, "longest_first")
_transpose = Kernel(HEAD + TRANSPOSE, "transpose_rows")


def longest_first(lengths: Tensor, time: int) -> Tensor:
    """``(2B,)``: the lengths from the longest to the shortest, none above ``time``, then the rows they belong to.

    Rows taken in groups in this order end together, and whole groups early. Of equally long rows the first comes first.
    """
    if serves(lengths) and _ready(lengths, _order):
        places = torch.empty(2 * len(lengths), dtype=torch.int32, device=lengths.device)
        tasks = -(-len(lengths) // 256)
        _order.run(lengths, tasks, (lengths, places), (len(lengths), time, _narrow(lengths)))
        return places
    ends, rows = lengths.sort(descending=True, stable=True)
    return torch.cat([ends.clamp(0, time), rows]).to(torch.int32)


def transposed_rows(value: Tensor, lengths: Tensor) -> Tensor:
    """``(B, T, ·)`` as ``(T, B, ·)`` in this order of memory, with zeros from ``lengths`` on, whatever was there."""
    batch, time, width = value.shape
    numbers = wide(value)
    if numbers and value.numel() and serves(value, lengths) and _ready(value, _transpose):
        made = value.new_empty(time, batch, width)
        steps = [n // numbers for n in (width, value.stride(0), value.stride(1))]
        tasks = -(-batch * time // 8)
        _transpose.run(value, tasks, (value, lengths, made), (batch, time, *steps, _narrow(lengths)))
        return made
    live = (torch.arange(time, device=value.device)[:, None] < lengths).unsqueeze(-1)
    return transposed(value, live)


def _narrow(lengths: Tensor) -> int:
    return int(lengths.dtype == torch.int32)


def _ready(like: Tensor, kernel: Kernel) -> bool:
    """A kernel cannot be loaded while a CUDA graph is captured."""
    return kernel.loaded_on(like) or not torch.cuda.is_current_stream_capturing()


# ----------------------------------------------------------------------
# The batch first or the time first: the same numbers in another order of memory.
_WIDE = 16  # bytes that a GPU moves at a time


def transposed(value: Tensor, live: Tensor | None = None) -> Tensor:
    """``(B, T, ·)`` as ``(T, B, ·)`` in this order of memory, or back; nothing is moved where it lies so already.

    ``live`` ``(T, B, 1)``: what of the result is real; the rest may be anything and becomes zero.
    """
    value = value.resolve_neg()
    found = value.transpose(0, 1)
    if live is None and found.is_contiguous():
        return found
    if wide(value):
        found = found.view(torch.complex128)  # sixteen bytes each, only moved
    if live is None:
        return found.contiguous().view(value.dtype)
    made = torch.empty(found.shape, dtype=found.dtype, device=value.device)
    return torch.where(live, found, found.new_zeros(()), out=made).view(value.dtype)


def wide(value: Tensor) -> int:
    """How many numbers of ``(·, ·, ·)`` a GPU moves at a time; 0 where its rows do not begin and end at such places."""
    numbers = _WIDE // value.element_size()
    places = (value.shape[2], value.stride(0), value.stride(1), value.storage_offset())
    return numbers if value.stride(2) == 1 and not any(place % numbers for place in places) else 0
