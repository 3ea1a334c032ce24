"""LSTM, GRU and SimpleRNN of Keras, alone and in both directions, with masks as Keras has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from anaphora.foreign.gates import cell_rules
from anaphora.foreign.keras.activations import activation
from anaphora.foreign.keras.cells import cell
from anaphora.foreign.mapping import UnmappedError
from anaphora.foreign.published import NO_SIZES
from anaphora.nn import Cell, Recurrent

_GATES = {"LSTM": 4, "GRU": 3, "SimpleRNN": 1}
_ORDER = {"LSTM": "ifgo", "GRU": "zrn", "SimpleRNN": "n"}
_CUDNN = {"CuDNNLSTM": "LSTM", "CuDNNGRU": "GRU"}


class RecurrentLayer(nn.Module):
    """A recurrent layer as Keras calls it: the whole sequence or its end, with the states after it where they are wanted."""

    def __init__(
        self,
        recurrent: Recurrent,
        *,
        sequences: bool,
        states: bool = False,
        backwards: bool = False,
        merge: str | None = "concat",
        zeros: bool = False,
    ):
        super().__init__()
        self.recurrent = recurrent
        self.sequences, self.states, self.backwards, self.merge, self.zeros = (
            sequences,
            states,
            backwards,
            merge,
            zeros,
        )

    def forward(self, x: Tensor, mask: Tensor | None, *initial: Tensor) -> Any:
        """x ``(batch, time, inputs)``, mask ``(batch, time)``; ``initial``: the states of each direction ``(batch, hidden)``.

        Returns y ``(batch, time, outputs)`` or its end ``(batch, outputs)``, with the last states behind it in a tuple where
        the layer gives them.
        """
        if self.backwards:
            x, mask = x.flip(1), None if mask is None else mask.flip(1)
        first = None
        if initial:
            count = len(self.recurrent.state)
            first = tuple(torch.stack(initial[i::count]) for i in range(count))
        if mask is None:
            y, last = self.recurrent(x, initial=first)
        else:
            y, last = self._masked(x, mask, first)
        if not self.sequences:
            y = torch.cat(tuple(last[0]), -1)
        y = self._merged(y)
        if not self.states:
            return y
        return (y, *(state[k] for k in range(self.recurrent.directions) for state in last))

    def _masked(self, x: Tensor, mask: Tensor, first: Any) -> tuple[Tensor, Any]:
        """Steps that the mask leaves out change nothing: the others are put side by side, and what they give is put back.

        In between stands the output of the step before, or zero where ``zeros``.
        """
        order = torch.argsort(~mask, dim=1, stable=True)  # the real steps first
        lengths = mask.sum(1)
        held = lengths.clamp(min=1)  # a row without a step is run and left out
        y, last = self.recurrent(x.gather(1, order[..., None].expand_as(x)), held, initial=first)
        empty = lengths == 0
        if bool(empty.any()):
            was = first or tuple(torch.zeros_like(state) for state in last)
            last = tuple(torch.where(empty[None, :, None], a, b) for a, b in zip(was, last, strict=True))
        halves = y.chunk(self.recurrent.directions, -1)
        ahead = mask.long().cumsum(1) - 1  # the newest real step at or before each
        behind = lengths[:, None] - mask.long().flip(1).cumsum(1).flip(1)  # the next one at or after each
        placed = []
        for half, at in zip(halves, (ahead, behind), strict=False):
            there = (at >= 0) & (at < lengths[:, None])
            there = there & mask if self.zeros else there
            picked = half.gather(1, at.clamp(0, x.shape[1] - 1)[..., None].expand_as(half))
            placed.append(picked * there[..., None])
        return torch.cat(placed, -1), last

    def _merged(self, y: Tensor) -> Any:
        if self.recurrent.directions == 1 or self.merge == "concat":
            return y
        one, other = y.chunk(2, -1)
        if self.merge is None:
            return (one, other)
        return {"sum": one + other, "ave": (one + other) / 2, "mul": one * other}[self.merge]


def recurrent_layer(
    kind: str,
    config: Mapping[str, Any],
    weights: Sequence[Tensor],
    version: str,
    backward: tuple[Mapping[str, Any], Sequence[Tensor]] | None = None,
    merge: str | None = "concat",
) -> RecurrentLayer:
    """The layer of a config, filled; ``backward``: the config and weights of the other direction.

    An `UnmappedError` names what has no counterpart, a ``ValueError`` weights that do not fit.
    """
    if config.get("stateful"):
        raise UnmappedError("stateful = True")
    if config.get("time_major"):
        raise UnmappedError("time_major = True")
    if backward is not None and config.get("go_backwards"):
        raise UnmappedError("go_backwards = True in both directions")
    if merge not in ("concat", "sum", "ave", "mul", None):
        raise UnmappedError(f"merge_mode = {merge!r}")
    base, hidden = _CUDNN.get(kind, kind), int(config["units"])
    gate = activation(config.get("recurrent_activation", "sigmoid"), version)
    inner = activation(config.get("activation", "tanh"), version)
    sides = [weights] if backward is None else [weights, backward[1]]
    plain = [_plain(base, hidden, side, config) for side in sides]
    apart = len(plain[0]) == 4 or bool(config.get("reset_after"))
    made = cell(base, plain[0][0].shape[1], hidden, gate, inner, reset_after=apart)
    found = Recurrent(made, bidirectional=backward is not None)
    for k, (one, given) in enumerate(zip(found.cells, plain, strict=True)):
        assert isinstance(one, Cell)
        names = ("weight", "recurrent", "bias", "more")[: len(given)]
        tensors = dict(zip(names, given, strict=True))
        own = dict(found.named_parameters())
        for rule in cell_rules(
            one, f"cells.{k}", "weight", "recurrent", tuple(names[2:]), order=_ORDER[base]
        ):
            with torch.no_grad():
                own[rule.ours].copy_(rule.how.inward([tensors[name] for name in rule.names], NO_SIZES))
    return RecurrentLayer(
        found,
        sequences=bool(config.get("return_sequences")),
        states=bool(config.get("return_state")),
        backwards=bool(config.get("go_backwards")),
        merge=merge,
        zeros=bool(config.get("zero_output_for_mask")),
    )


def _plain(kind: str, hidden: int, weights: Sequence[Tensor], config: Mapping[str, Any]) -> list[Tensor]:
    """W ``(gates · hidden, inputs)``, U ``(gates · hidden, hidden)`` and no, one or two biases ``(gates · hidden,)``, of what
    a layer or its CuDNN twin has."""
    rows = _GATES[kind] * hidden
    wanted = 3 if config.get("use_bias", True) else 2
    if len(weights) != wanted:
        raise ValueError(f"has {len(weights)} weights instead of {wanted}")
    kernel, again = weights[0].float(), weights[1].float()
    if kernel.dim() != 2 or kernel.shape[1] != rows or tuple(again.shape) != (hidden, rows):
        raise ValueError(
            f"has weights of {tuple(kernel.shape)} and {tuple(again.shape)} instead of (inputs, {rows}) and ({hidden}, {rows})"
        )
    if wanted == 2:
        return [kernel.t(), again.t()]
    bias = weights[2].float()
    if tuple(bias.shape) == (rows,):
        return [kernel.t(), again.t(), bias]
    if tuple(bias.shape) == (2, rows):  # GRU(reset_after=True)
        return [kernel.t(), again.t(), bias[0], bias[1]]
    if tuple(bias.shape) == (
        2 * rows,
    ):  # CuDNN: each gate's matrix row by row in a (inputs, hidden) of its own
        inward = [one.reshape(hidden, -1) for one in kernel.chunk(_GATES[kind], 1)]
        return [torch.cat(inward), torch.cat(again.chunk(_GATES[kind], 1)), bias[:rows], bias[rows:]]
    raise ValueError(f"has a bias of {tuple(bias.shape)}, which belongs to no layout of {kind}")
