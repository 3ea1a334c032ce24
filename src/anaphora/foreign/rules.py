"""How to say which tensor of a file is which of ours, where the names alone do not: for ``an.load(FILE, into=…, rules=…)``.

from anaphora.foreign.rules import gates, same, transposed

m = an.load("weights.npz", into=module, rules=[
    same("enc_emb", "embedding.weight"),
    transposed("dense/kernel", "output.weight"),               # Keras and TensorFlow have (inputs, outputs)
    *gates(module.lstm, 0, "lstm", "W", "U", "b", order="ifgo", transposed=True),
])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anaphora.foreign.hows import SAME, TRANSPOSED, How, Sizes
from anaphora.foreign.mapping import Rule
from anaphora.nn import GRU, LSTM, Cell, Elman, Recurrent

# ----------------------------------------------------------------------------
# Gates of recurrent layers: which rows of theirs are which of ours.
#
# Ours: an LSTM has i, f, g (the candidate), o in one matrix; a GRU r and u = 1 − z, and its candidate n apart.

TORCH = {"lstm": "ifgo", "gru": "rzn", "rnn": "n"}
"""The order of PyTorch's gates; Keras has ``ifgo`` and ``zrn``, ONNX ``iofg`` and ``zrn``."""


@dataclass(frozen=True)
class Gates:
    """The rows of the gates ``picked`` among theirs, in ``order``; ``-`` before a gate negates it. Several tensors of theirs
    are added. ``transposed``: they are ``(inputs, rows)``."""

    order: str
    picked: tuple[str, ...]
    transposed: bool = False
    count: int = 1

    def inward(self, given: Sequence[Tensor], sizes: Sizes) -> Tensor:
        total = sum((self._rows(one) for one in given[1:]), self._rows(given[0]))
        blocks = dict(zip(self.order, total.chunk(len(self.order)), strict=True))
        return torch.cat([-blocks[one[1]] if one[0] == "-" else blocks[one] for one in self.picked])

    def _rows(self, given: Tensor) -> Tensor:
        return given.t() if self.transposed and given.dim() == 2 else given

    def outward(self, own: Tensor, sizes: Sizes) -> list[Tensor]:
        """The shapes that theirs must have; the numbers of the other gates are not here."""
        rows = len(own) // len(self.picked) * len(self.order)
        shape = (rows, *own.shape[1:])
        return [torch.empty(shape[::-1] if self.transposed else shape, device="meta")] * self.count


@dataclass(frozen=True)
class Zero:
    """Theirs have no such bias."""

    size: int

    def inward(self, given: Sequence[Tensor], sizes: Sizes) -> Tensor:
        return torch.zeros(self.size)

    def outward(self, own: Tensor, sizes: Sizes) -> list[Tensor]:
        return []


@dataclass(frozen=True)
class Pointwise:
    """A convolution that looks at one place, ``(outputs, inputs, 1)``, is a linear map ``(outputs, inputs)``."""

    def inward(self, given: Sequence[Tensor], sizes: Sizes) -> Tensor:
        return given[0][..., 0]

    def outward(self, own: Tensor, sizes: Sizes) -> list[Tensor]:
        return [own[..., None]]


def cell_rules(
    cell: Cell,
    ours: str,
    weight: str,
    recurrent: str,
    biases: tuple[str, ...] = (),
    *,
    order: str = "",
    transposed: bool = False,
) -> tuple[Rule, ...]:
    """The rules of one cell at ``ours`` (``lstm.cells.0``).

    ``weight`` ``(gates · hidden, inputs)`` and ``recurrent`` ``(gates · hidden, hidden)`` are the names of theirs, ``biases``
    those of one bias, of two (which are added, but for a GRU's candidate) or of none; ``order``: of their gates.
    """
    kind = _kind(cell)
    order = order or TORCH[kind]

    def how(*picked: str, of: int = 1) -> How:
        same = "".join(picked) == order and of == 1 and not transposed
        return SAME if same else Gates(order, picked, transposed, of)

    def bias(name: str, used: tuple[str, ...], *picked: str) -> Rule:
        if not used:
            return Rule((), name, Zero(cell.hidden * len(picked)))
        return Rule(used, name, Gates(order, picked, count=len(used)))

    if kind != "gru":
        part, picked = ("gates", tuple("ifgo")) if kind == "lstm" else ("affine", ("n",))
        return (
            Rule(weight, f"{ours}.{part}.weights.0", how(*picked)),
            Rule(recurrent, f"{ours}.{part}.weights.1", how(*picked)),
            bias(f"{ours}.{part}.bias", biases, *picked),
        )
    if "".join(sorted(order)) != "nrz":
        raise ValueError(f"order: the gates of a GRU are r, z and n in some order, got {order!r}")
    assert isinstance(cell, GRU)
    apart = cell.reset == "after"
    return (
        Rule(weight, f"{ours}.gates.weights.0", how("r", "-z")),
        Rule(recurrent, f"{ours}.gates.weights.1", how("r", "-z")),
        bias(f"{ours}.gates.bias", biases, "r", "-z"),
        Rule(weight, f"{ours}.candidate.weights.0", how("n")),
        Rule(recurrent, f"{ours}.recurrent.weights.0" if apart else f"{ours}.candidate.weights.1", how("n")),
        bias(f"{ours}.candidate.bias", biases[:1] if apart else biases, "n"),
        *((bias(f"{ours}.recurrent.bias", biases[1:], "n"),) if apart else ()),
    )


def torch_rules(layer: Recurrent, theirs: str, ours: str, *, bias: bool = True) -> tuple[Rule, ...]:
    """The rules of a whole `Recurrent` at ``ours`` whose weights PyTorch's layer at ``theirs`` has (``weight_ih_l0`` …)."""
    found: list[Rule] = []
    for k, cell in enumerate(layer.cells):
        assert isinstance(cell, Cell)
        end = f"_l{k // layer.directions}" + ("_reverse" if k % layer.directions else "")
        names = [f"{theirs}{one}{end}" for one in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        found += cell_rules(
            cell, f"{ours}cells.{k}", names[0], names[1], (names[2], names[3]) if bias else ()
        )
    return tuple(found)


def _kind(cell: Cell) -> str:
    plain = isinstance(cell, LSTM) and cell.forget and not (cell.peephole or cell.coupled or cell.layer_norm)
    kind = "lstm" if plain else "gru" if isinstance(cell, GRU) else "rnn" if isinstance(cell, Elman) else ""
    if not kind:
        raise ValueError(
            f"{cell!r} has other weights than an LSTM, a GRU or an Elman cell; give rules for them"
        )
    return kind


# ----------------------------------------------------------------------------

__all__ = ["Rule", "gates", "same", "transposed"]


def same(theirs: str, ours: str) -> Rule:
    """Their tensor ``theirs`` is our parameter ``ours``, number for number."""
    return Rule(theirs, ours)


def transposed(theirs: str, ours: str) -> Rule:
    """Their matrix ``theirs`` ``(inputs, outputs)`` is our parameter ``ours`` ``(outputs, inputs)``."""
    return Rule(theirs, ours, TRANSPOSED)


def gates(
    layer: Recurrent,
    index: int,
    ours: str,
    weight: str,
    recurrent: str,
    *biases: str,
    order: str = "",
    transposed: bool = False,
) -> tuple[Rule, ...]:
    """The weights of cell ``index`` (layer · directions + direction) of the `Recurrent` at ``ours``.

    ``weight`` ``(gates · hidden, inputs)`` multiplies the input, ``recurrent`` ``(gates · hidden, hidden)`` the state, and
    there are one, two or no ``biases``. ``order`` are their gates, one letter each: an LSTM's i, f, g (the candidate) and o, by
    default ``ifgo``, in ONNX ``iofg``; a GRU's r, z (which keeps the old state) and n, by default ``rzn``, in Keras and ONNX ``zrn``.
    Raises a ``ValueError`` for other cells.
    """
    cell = layer.cells[index]
    assert isinstance(cell, Cell)
    return cell_rules(
        cell, f"{ours}.cells.{index}", weight, recurrent, biases, order=order, transposed=transposed
    )
