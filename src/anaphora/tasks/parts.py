"""Words of the settings become building blocks here, for every task."""

from __future__ import annotations

from torch import nn

from anaphora.models.encoders import RecurrentEncoder, TransformerEncoder
from anaphora.models.seeing import PictureEncoder
from anaphora.nn import GRU, LSTM, Cell, Elman, Recurrent, transformer
from anaphora.nn.attention import MultiHead
from anaphora.nn.positions import Sinusoidal
from anaphora.nn.residual import Patches, ResidualCNN
from anaphora.settings import PictureSettings
from anaphora.settings.network import RecurrentStack, TransformerStack


def make_cell(s: RecurrentStack, inputs: int) -> Cell:
    """The recurrent cell that ``cell`` names, from ``inputs`` to ``hidden`` values."""
    if s.cell == "elman":
        return Elman(inputs, s.hidden)
    if s.cell == "gru":
        return GRU(inputs, s.hidden, reset="after")  # the form that GPUs have a ready-made kernel for
    return LSTM(inputs, s.hidden)


def make_recurrent(s: RecurrentStack, inputs: int, *, bidirectional: bool) -> Recurrent:
    """``layers`` recurrent layers with dropout between them."""
    return Recurrent(make_cell(s, inputs), layers=s.layers, bidirectional=bidirectional, dropout=s.dropout)


def encoder_layer(s: TransformerStack) -> transformer.EncoderLayer:
    """Self-attention and feed-forward; dropout where the paper has it, after sublayers and embeddings."""
    return transformer.EncoderLayer(
        MultiHead(s.hidden, s.heads),
        transformer.FeedForward(s.hidden, s.feedforward),
        dropout=s.dropout,
        norm_first=s.norm_first,
    )


def decoder_stack(s: TransformerStack) -> transformer.TransformerDecoder:
    """``layers`` of self-attention, attention to what was read, and feed-forward; dropout as in `encoder_layer`."""
    layer = transformer.DecoderLayer(
        MultiHead(s.hidden, s.heads),
        MultiHead(s.hidden, s.heads),
        transformer.FeedForward(s.hidden, s.feedforward),
        dropout=s.dropout,
        norm_first=s.norm_first,
    )
    return transformer.TransformerDecoder(layer, s.layers)


def recurrent_encoder(
    s: RecurrentStack, embedding: nn.Module, *, bidirectional: bool, reverse: bool = False
) -> RecurrentEncoder:
    """Symbols to states ``(batch, time, hidden × directions)`` by recurrent layers."""
    layers = make_recurrent(s, width_of(embedding), bidirectional=bidirectional)
    return RecurrentEncoder(embedding, layers, dropout=s.dropout, reverse=reverse)


def transformer_encoder(
    s: TransformerStack, embedding: nn.Module, *, causal: bool = False
) -> TransformerEncoder:
    """Symbols to states ``(batch, time, hidden)`` by self-attention; the embedding must have width ``hidden``."""
    stack = transformer.TransformerEncoder(encoder_layer(s), s.layers)
    return TransformerEncoder(
        embedding, stack, positions=Sinusoidal(s.hidden), dropout=s.dropout, causal=causal
    )


def picture_encoder(
    s: PictureSettings,
    width: int,
    *,
    patches: bool = False,
    stack: transformer.TransformerEncoder | None = None,
    gain: float = 1.0,
) -> PictureEncoder:
    """Pictures to annotations ``(batch, places, width)`` by a residual network (for ``gain`` see `ResidualBlock`), or by a
    map of patches."""
    network: ResidualCNN | Patches
    if patches:
        network = Patches(width, 2**s.halvings)
    else:
        below = [s.channels * 2**level for level in range(s.halvings - 1)]
        network = ResidualCNN(below, width=width, coordinates=True, gain=gain)
    return PictureEncoder(network, size=(s.picture_size, s.picture_size), stack=stack)


def width_of(embedding: nn.Module) -> int:
    """How wide the vectors of an embedding (or of what stands for one) are."""
    return int(embedding.width)  # type: ignore[arg-type]
