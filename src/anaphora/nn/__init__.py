"""Building blocks: recurrent cells and layers, and the way to look inside them."""

from anaphora.nn import inside
from anaphora.nn.affine import Affine
from anaphora.nn.cell import Cell
from anaphora.nn.cells.elman import IRNN, Elman
from anaphora.nn.cells.gru import GRU, MGU, SimpleGRU
from anaphora.nn.cells.lstm import LSTM
from anaphora.nn.recurrent import Recurrent

__all__ = [
    "GRU",
    "IRNN",
    "LSTM",
    "MGU",
    "Affine",
    "Cell",
    "Elman",
    "Recurrent",
    "SimpleGRU",
    "inside",
]
