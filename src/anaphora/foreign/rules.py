"""How to say which tensor of a file is which of ours, where the names alone do not: for ``an.load(FILE, into=…, rules=…)``.

from anaphora.foreign.rules import gates, same, transposed

m = an.load("weights.npz", into=module, rules=[
    same("enc_emb", "embedding.weight"),
    transposed("dense/kernel", "output.weight"),               # Keras and TensorFlow have (inputs, outputs)
    *gates(module.lstm, 0, "lstm", "W", "U", "b", order="ifgo", transposed=True),
])
"""

from __future__ import annotations

from anaphora.foreign.gates import cell_rules
from anaphora.foreign.hows import TRANSPOSED
from anaphora.foreign.mapping import Rule
from anaphora.nn import Cell, Recurrent

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
