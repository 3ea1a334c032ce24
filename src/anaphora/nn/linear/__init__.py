"""Recurrences that are linear in their state: layers with matrix and expanded states, computed in chunks of steps."""

from anaphora.nn.linear.cells import MLSTM, CellLayer, Griffin, SLSTMLayer
from anaphora.nn.linear.layer import LinearLayer, ShortConvolution
from anaphora.nn.linear.local import LocalAttention
from anaphora.nn.linear.mamba import Mamba, Mamba2
from anaphora.nn.linear.matrix_states import GLA, RWKV7, DeltaNet, GatedDeltaNet, RetNet
from anaphora.nn.linear.rwkv4 import RWKV4, WKV, ChannelMixing, RWKV4Block
from anaphora.nn.linear.stack import LinearBlock, LinearStack
from anaphora.ops.matrix_scan import matrix_scan, matrix_step

__all__ = [
    "GLA",
    "MLSTM",
    "RWKV4",
    "RWKV7",
    "WKV",
    "CellLayer",
    "ChannelMixing",
    "DeltaNet",
    "GatedDeltaNet",
    "Griffin",
    "LinearBlock",
    "LinearLayer",
    "LinearStack",
    "LocalAttention",
    "Mamba",
    "Mamba2",
    "RWKV4Block",
    "RetNet",
    "SLSTMLayer",
    "ShortConvolution",
    "matrix_scan",
    "matrix_step",
]
