"""Every random number of a step follows from (seed, step, rank, part), so no generator needs to be saved."""

from __future__ import annotations

import hashlib
import random

import numpy as np
import torch


def derive(seed: int, *path: int | str) -> int:
    """A 63-bit number that depends on every element of ``path``: the head of sha256("seed/a/b/…")."""
    text = "/".join(str(part) for part in (seed, *path))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def seed_everything(seed: int, *path: int | str) -> None:
    """Set Python's, numpy's and torch's generators (on all devices we train on) from ``derive(seed, *path)``."""
    value = derive(seed, *path)
    random.seed(value)
    np.random.seed(value % 2**32)
    # Not torch.manual_seed: for every kind of device that is not there it notes down who called it, at every step.
    torch.default_generator.manual_seed(value)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(value)
    if torch.backends.mps.is_available():
        torch.mps.manual_seed(value)
