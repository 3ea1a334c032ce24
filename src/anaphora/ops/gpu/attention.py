"""Which of torch's attention kernels is used on a GPU.

cuDNN builds a plan for every new shape, which takes 20 ms forward and as much backward on an H200 (torch 2.11), so that batches
of changing lengths waited 0.4 s a step for it. It is left out there, and comes first where one long shape is used all the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from anaphora.native.following import COMPILED, following

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
