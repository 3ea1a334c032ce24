"""Recurrences in residual blocks, as the settings name them."""

from __future__ import annotations

from typing import Any

from torch.nn import functional as F

from anaphora.nn import Cell, linear
from anaphora.settings.network import RecurrentStack, state_heads

_MIXERS: dict[str, type[linear.LinearLayer]] = {
    "retnet": linear.RetNet,
    "gla": linear.GLA,
    "mamba": linear.Mamba,
    "mamba2": linear.Mamba2,
    "mlstm": linear.MLSTM,
    "deltanet": linear.DeltaNet,
    "gated-deltanet": linear.GatedDeltaNet,
    "rwkv7": linear.RWKV7,
}
_WHOLE = ("mamba", "mamba2", "mlstm")  # blocks that widen inside and have no feed-forward network beside them
_GRIFFIN_EVERY = 3  # two recurrent blocks, one that attends, as published
_XLSTM_EVERY = 8  # seven blocks of mLSTM, one of sLSTM (xLSTM[7:1])


def make_blocks(
    s: RecurrentStack, inputs: int, cell: Cell | None, *, bidirectional: bool
) -> linear.LinearStack:
    """``layers`` blocks of the kind that ``cell`` names, or around a ``cell`` that is given."""
    return linear.LinearStack(inputs, _pattern(s, cell), layers=s.layers, bidirectional=bidirectional)


def _pattern(s: RecurrentStack, cell: Cell | None) -> list[linear.LinearBlock]:
    """The blocks that are repeated."""
    heads = state_heads(s)
    noise: dict[str, Any] = {"dropout": s.dropout, "row_dropout": s.row_dropout}
    # three matrices of 8/3 have as many parameters as two of 4 times the width
    usual = 0 if s.cell in _WHOLE else eighths(8 / 3 * s.hidden)
    if cell is not None:
        return [linear.LinearBlock(linear.CellLayer(cell), feedforward=usual, **noise)]
    if s.cell == "griffin":
        inner, every = 3 * s.hidden, s.mixed_every or _GRIFFIN_EVERY
        mixers: list[linear.LinearLayer] = [linear.Griffin(s.hidden) for _ in range(every - 1)]
        mixers.append(linear.LocalAttention(s.hidden, heads, window=s.local_window))
        return [linear.LinearBlock(m, feedforward=inner, activation=F.gelu, **noise) for m in mixers]
    if s.cell == "xlstm":
        every = s.mixed_every or _XLSTM_EVERY
        scalar = linear.LinearBlock(
            linear.SLSTMLayer(s.hidden, heads),
            feedforward=eighths(4 / 3 * s.hidden),
            activation=F.gelu,
            **noise,
        )
        matrix = [linear.LinearBlock(linear.MLSTM(s.hidden, heads), **noise) for _ in range(every - 1)]
        return [*matrix[:1], scalar, *matrix[1:]]  # the second of each group, so that small models have one
    if s.cell == "rwkv4":
        return [linear.RWKV4Block(s.hidden, **noise)]
    more: dict[str, Any] = {"signed": True} if s.signed else {}
    if s.state_size:
        more["state"] = s.state_size
    return [linear.LinearBlock(_MIXERS[s.cell](s.hidden, heads, **more), feedforward=usual, **noise)]


def eighths(width: float) -> int:
    """The next whole number that eight divides."""
    return -(-int(width) // 8) * 8
