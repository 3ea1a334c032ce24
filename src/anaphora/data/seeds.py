"""A seed of its own for each input, which depends on nothing but the input and the ``seed``."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from anaphora.data.pictures import Pixels


def symbols_seed(seed: int, source: Sequence[int]) -> int:
    """Of a source of symbols."""
    text = " ".join(map(str, (seed, *source)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def picture_seed(seed: int, picture: Pixels) -> int:
    """Of a picture."""
    digest = hashlib.blake2b(str(seed).encode(), digest_size=8)
    digest.update(np.ascontiguousarray(picture).tobytes())
    return int.from_bytes(digest.digest())
