"""Words of the settings become building blocks here, for every task."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.errors import SettingsError
from anaphora.models.encoders import RecurrentEncoder, TransformerEncoder
from anaphora.models.frontend import ConvolvedFrames, DenseFrames
from anaphora.models.own import OwnEncoder, Spec, made
from anaphora.models.seeing import PictureEncoder
from anaphora.nn import (
    GRU,
    IRNN,
    LSTM,
    MGU,
    SLSTM,
    Cell,
    Elman,
    Recurrent,
    Shortcut,
    SimpleGRU,
    linear,
    transformer,
)
from anaphora.nn.attention import MultiHead, NormedMultiHead
from anaphora.nn.cells import scanned
from anaphora.nn.distances import Distances
from anaphora.nn.positions import Alibi, Learned, Rotary, Sinusoidal
from anaphora.nn.recurrent import Connections
from anaphora.nn.residual import Patches, ResidualCNN
from anaphora.settings import PictureSettings
from anaphora.settings.frames import FrameSettings
from anaphora.settings.network import (
    BLOCKS,
    LSTM_ONLY,
    SCANNED,
    RecurrentStack,
    TransformerStack,
    in_blocks,
    state_heads,
)
from anaphora.settings.own import Part
from anaphora.tasks.blocks import make_blocks

_CELLS: dict[str, tuple[type[Cell], dict[str, Any]]] = {
    "elman": (Elman, {}),
    "irnn": (IRNN, {}),
    "lstm": (LSTM, {}),
    "slstm": (SLSTM, {}),
    "gru": (GRU, {"reset": "after"}),  # the form that GPUs have a ready-made kernel for
    "gru-after": (GRU, {"reset": "after"}),
    "gru-before": (GRU, {"reset": "before"}),
    "simple-gru": (SimpleGRU, {}),
    "mgu": (MGU, {}),
    "mingru": (scanned.MinGRU, {}),
    "minlstm": (scanned.MinLSTM, {}),
    "gilr": (scanned.GILR, {}),
    "qrnn": (scanned.QRNN, {}),
    "sru": (scanned.SRU, {}),
    "hgrn": (scanned.HGRN, {}),
    "rglru": (scanned.RGLRU, {}),
    "lru": (scanned.LRU, {}),
    "s4d": (scanned.S4D, {}),
    "s5": (scanned.S5, {}),
    "indrnn": (scanned.IndRNN, {}),
}
ENDS = 2
"""Places of a sequence besides its symbols: a beginning and an end."""
_BETWEEN: dict[str, Connections] = {"residual": "residual", "highway": "highway", "dense": "dense"}
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
}
_GATED = {"swiglu": F.silu, "geglu": ACTIVATIONS["gelu-tanh"]}


def make_cell(s: RecurrentStack, inputs: int, hidden: int | None = None) -> Cell:
    """The recurrent cell that ``cell`` names or makes, from ``inputs`` to ``hidden`` values (if None, those of the settings),
    with the variants that are set."""
    hidden = s.hidden if hidden is None else hidden
    if isinstance(s.cell, Part):
        if s.connections == "shortcut":
            raise SettingsError(
                [f"connections = 'shortcut' cannot be put round the own cell {s.cell}; leave it out."]
            )
        return own_cell(s.cell, inputs, hidden)
    kind, options = _CELLS["lstm" if s.cell in BLOCKS else s.cell]  # a decoder goes on from vectors
    variants = {key: getattr(s, key) for key, usual in LSTM_ONLY.items() if getattr(s, key) != usual}
    options = {**options, **variants}
    if s.cell == "slstm":
        options["heads"] = state_heads(s)
    if s.connections == "shortcut":
        return Shortcut(inputs, hidden, cell=kind, by=s.skip, **options)
    return kind(inputs, hidden, **options)


def own_cell(part: Part, inputs: int, hidden: int) -> Cell:
    """What a user's class or function makes of ``(inputs, hidden)``: a `Cell` of these widths."""
    cell = part.object(inputs, hidden)
    if not isinstance(cell, Cell):
        raise SettingsError([f"cell = {part} must make an an.nn.Cell, but made a {type(cell).__name__}."])
    if (cell.inputs, cell.hidden) != (inputs, hidden):
        made_of = f"{cell.inputs} and {cell.hidden}"
        raise SettingsError(
            [f"cell = {part} was called with widths {inputs} and {hidden}, but made {made_of}."]
        )
    return cell


def make_recurrent(s: RecurrentStack, inputs: int, *, bidirectional: bool, **noise: Any) -> Recurrent:
    """``layers`` recurrent layers with dropout between them; ``noise`` is more that `Recurrent` takes."""
    return Recurrent(
        make_cell(s, inputs),
        layers=s.layers,
        bidirectional=bidirectional,
        dropout=s.dropout,
        zoneout=s.zoneout,
        connections=_BETWEEN.get(s.connections, "plain") if s.layers > 1 else "plain",
        **noise,
    )


def make_reader(
    s: RecurrentStack, inputs: int, *, bidirectional: bool, **noise: Any
) -> Recurrent | linear.LinearStack:
    """What reads a sequence: recurrent layers, or recurrences in residual blocks as ``cell`` and ``blocks`` say."""
    if not in_blocks(s):
        return make_recurrent(s, inputs, bidirectional=bidirectional, **noise)
    for key in ("weight_dropout", "variational"):
        if noise.get(key):
            raise SettingsError([f"{key} has no place in blocks (cell = '{s.cell}'); leave it out."])
    wide = s.hidden * (
        1 + (s.cell in SCANNED)
    )  # a vector whose columns never mix remembers little: have more of them
    cell = None if s.cell in BLOCKS else make_cell(s, s.hidden, wide)
    return make_blocks(s, inputs, cell, bidirectional=bidirectional)


def make_positions(s: TransformerStack, places: int) -> Sinusoidal | Learned | None:
    """What is added to vectors to say where they are; ``places``: how many there are at most."""
    if s.positions == "sinusoidal":
        kind = {"halves": getattr(s, "sine_halves", False), "spread": getattr(s, "sine_spread", False)}
        return Sinusoidal(s.hidden, first=s.first_position, **kind)
    if s.positions != "learned":
        return None
    return Learned(s.hidden, (s.max_positions or places) + s.first_position, first=s.first_position)


def self_attention(s: TransformerStack, *, both: bool = True) -> MultiHead:
    """Attention of a sequence to itself, which may know distances and be narrowed to a window; ``both``: to both sides."""
    within: Rotary | Alibi | Distances | None = None
    if buckets := getattr(s, "distance_buckets", 0):
        within = Distances(s.heads, buckets=buckets, limit=s.distance_limit, both=both)  # type: ignore[attr-defined]
    if s.positions in ("rotary", "alibi"):
        within = (
            Rotary(base=s.rotary_base, share=s.rotary_share) if s.positions == "rotary" else Alibi(s.heads)
        )
    kind = NormedMultiHead if s.qk_norm else MultiHead
    return kind(
        s.hidden,
        s.heads,
        positions=within,
        window=s.attention_window or None,
        **_attention_options(s),
    )


def cross_attention(s: TransformerStack) -> MultiHead:
    """Attention to another sequence or to the places of a picture, which know by themselves where they are."""
    return MultiHead(s.hidden, s.heads, **_attention_options(s))


def _attention_options(s: TransformerStack) -> dict[str, Any]:
    return {
        "kv_heads": s.kv_heads or None,
        "bias": s.biases != "none",
        "outward_bias": s.biases in ("all", "attention"),
        "head_width": getattr(s, "head_width", 0) or None,
        "scaled": getattr(s, "scaled_scores", True),
    }


def make_feedforward(s: TransformerStack) -> nn.Module:
    """The position-wise network that ``activation`` names."""
    if s.activation in _GATED:
        return transformer.SwiGLU(s.hidden, s.feedforward, activation=_GATED[s.activation])
    return transformer.FeedForward(
        s.hidden, s.feedforward, activation=ACTIVATIONS[s.activation], bias=s.biases == "all"
    )


def make_norm(s: TransformerStack) -> transformer.Norm:
    """What normalises, as ``norm`` and ``norm_eps`` say."""
    return transformer.norm_of(s.norm, s.norm_eps)


def encoder_layer(s: TransformerStack, *, grid: bool = False) -> transformer.EncoderLayer:
    """Self-attention and feed-forward; dropout where the paper has it, after sublayers and embeddings.

    ``grid``: over the places of a picture, which have two directions and vectors of their own to say where they are.
    """
    return transformer.EncoderLayer(
        cross_attention(s) if grid else self_attention(s),
        make_feedforward(s),
        dropout=s.dropout,
        norm_first=s.norm_first,
        norm=make_norm(s),
        parallel=s.parallel,
    )


def decoder_layer(s: TransformerStack) -> transformer.DecoderLayer:
    """Self-attention, attention to what was read, and feed-forward; dropout as in `encoder_layer`."""
    return transformer.DecoderLayer(
        self_attention(s, both=False),
        cross_attention(s),
        make_feedforward(s),
        dropout=s.dropout,
        norm_first=s.norm_first,
        norm=make_norm(s),
    )


def decoder_stack(s: TransformerStack) -> transformer.TransformerDecoder:
    """``decoder_layers`` of `decoder_layer`, or ``layers``."""
    return transformer.TransformerDecoder(decoder_layer(s), getattr(s, "decoder_layers", 0) or s.layers)


def own_encoder(task: str, s: Any, embedding: nn.Module, *, dropout: float) -> OwnEncoder | None:
    """The encoder that the user's ``encoder`` makes, or None where the preset's is wanted."""
    if not isinstance(s.encoder, Part):
        return None
    for key in ("init", "embeddings"):
        if getattr(s, key, ""):
            raise SettingsError([f"{key} has no place in encoder = {s.encoder}; leave one of the two out."])
    inputs = width_of(embedding)
    module = made(s.encoder, Spec(task, inputs, 0, s), "encoder")
    return OwnEncoder(embedding, module, inputs=inputs, dropout=dropout)


def recurrent_encoder(
    s: RecurrentStack,
    embedding: nn.Module,
    *,
    bidirectional: bool,
    reverse: bool = False,
    symbols: bool = False,
    dropout: float | None = None,
) -> RecurrentEncoder:
    """Symbols to states ``(batch, time, hidden × directions)`` by recurrent layers; ``dropout`` is that of the vectors of
    symbols, where it differs from the layers'; with ``symbols`` these vectors follow the states."""
    layers = make_reader(s, width_of(embedding), bidirectional=bidirectional)
    noise = s.dropout if dropout is None else dropout
    return RecurrentEncoder(embedding, layers, dropout=noise, reverse=reverse, symbols=symbols)


def transformer_encoder(
    s: TransformerStack,
    embedding: nn.Module,
    *,
    places: int,
    causal: bool = False,
    dropout: float | None = None,
    made: Callable[..., TransformerEncoder] = TransformerEncoder,
) -> TransformerEncoder:
    """Symbols to states ``(batch, time, hidden)`` by self-attention; the embedding must have width ``hidden``, and
    there are at most so many ``places``. ``dropout`` is that of the vectors of symbols, where it differs from the layers';
    ``made``: what makes the encoder of its parts."""
    stack = transformer.TransformerEncoder(encoder_layer(s), s.layers)
    return made(
        embedding,
        stack,
        positions=make_positions(s, places),
        dropout=s.dropout if dropout is None else dropout,
        causal=causal,
        **({"mix": True} if getattr(s, "mix", False) else {}),
        **entrance(s),
    )


def entrance(s: TransformerStack) -> dict[str, Any]:
    """What else a Transformer has before its first layer, for `TransformerEncoder`."""
    return {"types": s.token_types, "norm": make_norm(s)(s.hidden) if s.embedding_norm else None}


def frame_network(s: FrameSettings, features: int, width: int) -> DenseFrames | ConvolvedFrames | None:
    """What reads each frame of ``features`` numbers by itself, as ``frontend`` says; None where nothing does."""
    if s.frontend == "none":
        return None
    return (
        DenseFrames(features, width)
        if s.frontend == "dense"
        else ConvolvedFrames(features, width, s.frame_size)
    )


def picture_encoder(
    s: PictureSettings,
    width: int,
    *,
    patches: bool = False,
    stack: transformer.TransformerEncoder | None = None,
    gain: float = 1.0,
    eye: Any = None,
) -> PictureEncoder:
    """Pictures to annotations ``(batch, places, width)`` by a residual network (for ``gain`` see `ResidualBlock`), or by a
    map of patches; ``eye`` is a published model that sees in their place."""
    if eye is not None:
        made_of: PictureEncoder = eye.build(width)
        return made_of
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
