"""Building blocks: recurrent cells and layers in one and two dimensions, attention and Transformers, looks at pictures, and
the way to look inside them."""

from anaphora.native.cuda import check_kernels
from anaphora.nn import attention, inside, linear, positions
from anaphora.nn.cell import Affine, Cell
from anaphora.nn.cells.gated import GRU, IRNN, LSTM, MGU, SLSTM, Elman, Shortcut, SimpleGRU
from anaphora.nn.cells.scanned import GILR, HGRN, LRU, QRNN, RGLRU, S4D, S5, SRU, IndRNN, MinGRU, MinLSTM
from anaphora.nn.convolution import Convolution, DilatedStack, WindowMLP
from anaphora.nn.crf import CRF
from anaphora.nn.embedding import Embedding, OneHot, Output
from anaphora.nn.glimpse import DrawReader, GaussianRead, Glimpses, Retina
from anaphora.nn.grid_lstm import GridLSTM
from anaphora.nn.highway import Highway
from anaphora.nn.mixture import MixtureOutput
from anaphora.nn.nade import NADE
from anaphora.nn.neighbours import Neighbours
from anaphora.nn.recurrent import Recurrent
from anaphora.nn.transformer import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    SwiGLU,
    TransformerDecoder,
    TransformerEncoder,
)
from anaphora.ops.matrix_scan.scan import contract, outer

__all__ = [
    "CRF",
    "GILR",
    "GRU",
    "HGRN",
    "IRNN",
    "LRU",
    "LSTM",
    "MGU",
    "NADE",
    "QRNN",
    "RGLRU",
    "S4D",
    "S5",
    "SLSTM",
    "SRU",
    "Affine",
    "Cell",
    "Convolution",
    "DecoderLayer",
    "DilatedStack",
    "DrawReader",
    "Elman",
    "Embedding",
    "EncoderLayer",
    "FeedForward",
    "GaussianRead",
    "Glimpses",
    "GridLSTM",
    "Highway",
    "IndRNN",
    "MinGRU",
    "MinLSTM",
    "MixtureOutput",
    "Neighbours",
    "OneHot",
    "Output",
    "Recurrent",
    "Retina",
    "Shortcut",
    "SimpleGRU",
    "SwiGLU",
    "TransformerDecoder",
    "TransformerEncoder",
    "WindowMLP",
    "attention",
    "check_kernels",
    "contract",
    "inside",
    "linear",
    "outer",
    "positions",
]
