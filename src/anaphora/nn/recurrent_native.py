"""Cells that PyTorch has too: which they are, their weights in PyTorch's order, and conversion both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from anaphora.engine.backends.base import Params
from anaphora.native.derived import named_tensors
from anaphora.nn.cell import Cell
from anaphora.nn.cells.gated import GRU, LSTM, Elman

if TYPE_CHECKING:
    from anaphora.nn.recurrent import Recurrent


def native_form(cell: Cell) -> str | None:
    """Which of PyTorch's kernels computes exactly this cell: rnn_tanh, rnn_relu, lstm, gru, or none.

    A subclass that brings its own ``step`` is not taken for its parent.
    """
    step = type(cell).step
    if isinstance(cell, Elman) and step is Elman.step:
        return f"rnn_{cell.activation}"
    if isinstance(cell, LSTM) and step is LSTM.step:
        plain = cell.forget and not (cell.peephole or cell.coupled or cell.layer_norm)
        return "lstm" if plain else None
    if isinstance(cell, GRU) and step is GRU.step:
        return "gru" if cell.reset == "after" else None
    return None


def native_weights(cell: Cell, params: Params | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The cell's parameters as PyTorch orders them: W_ih, W_hh, b_ih, b_hh; ``params``: all of them, in place of its own."""
    given = params or named_tensors(cell)
    if isinstance(cell, GRU):
        # Our update gate u is 1 − z of PyTorch: negate that block's weights.
        w, u, bias = given["gates.weights.0"], given["gates.weights.1"], given["gates.bias"]
        sign = torch.ones(2 * cell.hidden, 1, dtype=bias.dtype, device=bias.device)
        sign[cell.hidden :] = -1
        gates = bias * sign[:, 0]
        return (
            torch.cat((w * sign, given["candidate.weights.0"])),
            torch.cat((u * sign, given["recurrent.weights.0"])),
            torch.cat((gates, given["candidate.bias"])),
            torch.cat((torch.zeros_like(gates), given["recurrent.bias"])),
        )
    name = "gates" if isinstance(cell, LSTM) else "affine"
    bias = given[f"{name}.bias"]
    return given[f"{name}.weights.0"], given[f"{name}.weights.1"], bias, torch.zeros_like(bias)


def _bias(affine: Any) -> Tensor:
    assert isinstance(affine.bias, Tensor)
    return affine.bias


def from_torch(made: type[Recurrent], module: nn.RNNBase) -> Recurrent:
    """A ``Recurrent`` with the weights of PyTorch's layer; its two biases are added where one will do."""
    if not isinstance(module, nn.RNN | nn.LSTM | nn.GRU):
        raise ValueError(
            f"Recurrent.from_torch: expected nn.RNN, nn.LSTM or nn.GRU, got {type(module).__name__}."
        )
    if getattr(module, "proj_size", 0):
        raise ValueError("Recurrent.from_torch: a projected LSTM (proj_size) has no counterpart here.")
    if not module.batch_first:
        raise ValueError(
            "Recurrent.from_torch: this layer reads (time, batch, features), a Recurrent reads (batch, time, features); "
            "set module.batch_first = True and give both x.transpose(0, 1)."
        )
    sizes = (module.input_size, module.hidden_size)
    cell: Cell
    if isinstance(module, nn.LSTM):
        cell = LSTM(*sizes)
    elif isinstance(module, nn.GRU):
        cell = GRU(*sizes, reset="after")
    else:
        cell = Elman(*sizes, activation=module.nonlinearity)
    recurrent = made(
        cell, layers=module.num_layers, bidirectional=module.bidirectional, dropout=module.dropout
    )
    first = next(module.parameters())
    recurrent.to(device=first.device, dtype=first.dtype).train(module.training)
    with torch.no_grad():
        for k, target in enumerate(recurrent.cells):
            w, u, *biases = _torch_weights(module, k, recurrent.directions)
            b, bu = biases if biases else (w.new_zeros(len(w)), w.new_zeros(len(w)))
            assert isinstance(target, Cell)
            _take_weights(target, w, u, b, bu)
    return recurrent


def _torch_weights(module: nn.RNNBase, k: int, directions: int) -> list[Tensor]:
    end = f"_l{k // directions}" + ("_reverse" if k % directions else "")
    names = ["weight_ih", "weight_hh"] + (["bias_ih", "bias_hh"] if module.bias else [])
    return [getattr(module, name + end) for name in names]


def _take_weights(cell: Cell, w: Tensor, u: Tensor, b: Tensor, bu: Tensor) -> None:
    n = cell.hidden
    if isinstance(cell, GRU):
        sign = torch.ones(2 * n, 1, dtype=w.dtype, device=w.device)
        sign[n:] = -1
        cell.gates.weights[0].copy_(w[: 2 * n] * sign)
        cell.gates.weights[1].copy_(u[: 2 * n] * sign)
        _bias(cell.gates).copy_((b[: 2 * n] + bu[: 2 * n]) * sign[:, 0])
        cell.candidate.weights[0].copy_(w[2 * n :])
        cell.recurrent.weights[0].copy_(u[2 * n :])
        _bias(cell.candidate).copy_(b[2 * n :])
        _bias(cell.recurrent).copy_(bu[2 * n :])
        return
    affine: Any = cell.gates if isinstance(cell, LSTM) else cell.affine
    affine.weights[0].copy_(w)
    affine.weights[1].copy_(u)
    affine.bias.copy_(b + bu)


def to_torch(recurrent: Recurrent) -> nn.RNNBase:
    """PyTorch's layer with the weights of ``recurrent``; refused, with the reason, where there is none."""
    cell = recurrent.cells[0]
    assert isinstance(cell, Cell)
    kind = native_form(cell)
    if kind is None:
        raise ValueError(f"Recurrent.to_torch: PyTorch has no layer that computes {cell!r}.")
    noise = recurrent.recurrent_dropout or recurrent.weight_dropout or any(recurrent.zoneout)
    if recurrent.connections != "plain" or noise or (recurrent.variational and recurrent.dropout):
        raise ValueError(
            "Recurrent.to_torch: PyTorch's layers know neither these connections nor this noise."
        )
    kinds: dict[str, Any] = {"lstm": nn.LSTM, "gru": nn.GRU}
    options: dict[str, Any] = {} if kind in kinds else {"nonlinearity": kind.removeprefix("rnn_")}
    module: nn.RNNBase = kinds.get(kind, nn.RNN)(
        recurrent.inputs,
        recurrent.hidden,
        num_layers=recurrent.layers,
        bidirectional=recurrent.bidirectional,
        dropout=recurrent.dropout,
        batch_first=True,
        **options,
    )
    like = next(recurrent.parameters())
    module.to(device=like.device, dtype=like.dtype).train(recurrent.training)
    with torch.no_grad():
        for k, source in enumerate(recurrent.cells):
            assert isinstance(source, Cell)
            ours = native_weights(source)
            for target, weight in zip(_torch_weights(module, k, recurrent.directions), ours, strict=True):
                target.copy_(weight)
    return module
