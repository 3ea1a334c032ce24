"""How exact products of float32 numbers are on a GPU: as PyTorch's switch for recurrent layers has it.

``torch.backends.cudnn.rnn.fp32_precision`` (or ``cudnn.allow_tf32``, on unless switched off) lets a recurrent layer
shorten its factors to ten bits of fraction. Products outside recurrent layers follow another switch, which is off unless
switched on, so it is set while a layer computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def tf32_allowed() -> bool:
    """Whether recurrent layers in float32 may shorten the factors of their products."""
    rnn: Any = torch.backends.cudnn.rnn
    return bool(rnn.fp32_precision == "tf32")


@contextmanager
def recurrent_precision() -> Iterator[None]:
    """Torch's products in a recurrent layer's precision."""
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    wanted = "tf32" if tf32_allowed() else "ieee"
    if before == wanted:
        yield
        return
    matmul.fp32_precision = wanted
    try:
        yield
    finally:
        matmul.fp32_precision = before
