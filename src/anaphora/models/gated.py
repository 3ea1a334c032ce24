"""Sequence to sequence by one GRU on each side, as the plain tensors that `GreedyGRU` reads."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anaphora.kernels.packed.gated import Gated, GreedyGRU
from anaphora.models.bridge import HandOver
from anaphora.models.decoders.recurrent import RecurrentDecoder
from anaphora.models.encoders import RecurrentEncoder
from anaphora.models.seq2seq import Seq2Seq
from anaphora.nn.cells.gru import GRU
from anaphora.nn.embedding import Embedding, Output
from anaphora.nn.recurrent import Recurrent


def greedy_gru(model: Seq2Seq) -> GreedyGRU | None:
    """What writes the greedy output of ``model``, float32 on a CPU, in one call; None where it is of another kind: symbols in, one GRU with the
    reset after the product on each side, the state handed over as it is, no attention."""
    encoder, decoder = model.encoder, model.decoder
    if type(encoder) is not RecurrentEncoder or type(decoder) is not RecurrentDecoder or encoder.reverse:
        return None
    if type(decoder.bridge) is not HandOver or type(decoder.readout) is not nn.Identity:
        return None
    read, written = _gated(encoder.embedding, encoder.recurrent), _gated(decoder.embedding, decoder.recurrent)
    if read is None or written is None or type(decoder.output) is not Output:
        return None
    return GreedyGRU(read, written, decoder.output.matrix, decoder.output.bias)


def _gated(embedding: nn.Module, recurrent: nn.Module) -> Gated | None:
    """A layer of one cell on an embedding."""
    if type(embedding) is not Embedding or type(recurrent) is not Recurrent or len(recurrent.cells) != 1:
        return None
    cell = recurrent.cells[0]
    if type(cell) is not GRU or cell.reset != "after" or any(recurrent.zoneout) or _watched(recurrent, cell):
        return None
    gates, candidate, after = cell.gates, cell.candidate, cell.recurrent
    return Gated(
        vectors=embedding.weight * embedding.scale,
        inward=torch.cat((gates.weights[0], candidate.weights[0])),
        recurrent=torch.cat((gates.weights[1], after.weights[0])),
        bias=torch.cat(
            (
                _bias(gates.bias, gates.outputs, gates.weights[0]),
                _bias(candidate.bias, cell.hidden, gates.weights[0]),
            )
        ),
        reset_bias=_bias(after.bias, cell.hidden, gates.weights[0]),
    )


def _watched(*modules: nn.Module) -> bool:
    """Whether a user listens in on the modules: a kernel would not call what is registered there."""
    return any(m._forward_hooks or m._forward_pre_hooks for m in modules)


def _bias(bias: Tensor | None, size: int, like: Tensor) -> Tensor:
    return like.new_zeros(size) if bias is None else bias
