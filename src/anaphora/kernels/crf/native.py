"""The chain's inner loops in C, where there is a compiler."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib import resources

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.kernels.toolchain import compiler


@cache
def library() -> ctypes.CDLL | None:
    """``chain.c``, compiled at first use; None where that cannot be done, and torch operations do the work."""
    source = resources.files(__package__).joinpath("chain.c").read_text(encoding="utf-8")
    try:
        return compiler.load(source, "crf")
    except compiler.CannotCompile:
        return None


def ready(scores: Tensor) -> bool:
    """Whether these scores can be given to `sums` and `viterbi`."""
    return scores.device.type == "cpu" and library() is not None


def sums(
    emissions: Tensor, highest: Tensor, moves: Tensor, begin: Tensor, finish: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """See `scaled.chain_sums`; moves, begin and finish are doubles."""
    batch, time, tags = emissions.shape
    wide = -(-tags // 8) * 8
    chances = moves.new_full((batch, time, wide), -torch.inf)  # e^−∞ = 0 in the columns that stand for no tag
    chances[..., :tags] = emissions
    chances.sub_(highest.unsqueeze(-1)).exp_()
    moves, back, begin, finish = (F.pad(x, (0, wide - tags)) for x in (moves, moves.T, begin, finish))
    log_sum, counts = moves.new_empty(batch), moves.new_empty(batch, tags, wide)
    given = (moves, back, begin, finish, lengths.long())
    made = (log_sum, counts, moves.new_empty(2 + 2 * time, wide))
    _call("crf_sums", (batch, time, tags, wide), (chances, *given), made)
    return log_sum, chances[..., :tags], counts[..., :tags]


def viterbi(
    emissions: Tensor, transitions: Tensor, start: Tensor, end: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """See `paths.chain_viterbi`; all scores are doubles."""
    batch, time, tags = emissions.shape
    path, score = torch.empty(batch, time, dtype=torch.int64), emissions.new_empty(batch)
    work, origins = emissions.new_empty(2 * tags), torch.empty(time, tags, dtype=torch.int64)
    given = (emissions, transitions, start, end, lengths.long())
    _call("crf_viterbi", emissions.shape, given, (path, score, work, origins))
    return path, score


def _call(name: str, sizes: tuple[int, ...], given: tuple[Tensor, ...], made: tuple[Tensor, ...]) -> None:
    loaded = library()
    assert loaded is not None
    held = [tensor.contiguous() for tensor in given]  # alive until the call is over
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (*held, *made)]
    getattr(loaded, name)(*(ctypes.c_int64(size) for size in sizes), *pointers)
