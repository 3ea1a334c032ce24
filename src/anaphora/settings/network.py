"""Settings of the networks that read a sequence, in groups: a preset names the groups that it uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from anaphora.settings.base import Settings, suggestion, written
from anaphora.settings.own import Own, Part

SCANNED = ("mingru", "minlstm", "gilr", "qrnn", "sru", "hgrn", "rglru", "lru", "s4d", "s5", "indrnn")
"""Cells whose columns never mix from step to step, by name."""
LINEAR = ("retnet", "gla", "mamba", "mamba2", "mlstm", "deltanet", "gated-deltanet", "rwkv4", "rwkv7")
"""Layers with a linear recurrence, by name: their state is a matrix, or wider than their output."""
BLOCKS = (*LINEAR, "xlstm", "griffin")
"""What comes in residual blocks, by name."""
CELLS = (
    *("elman", "irnn", "lstm", "slstm", "gru", "gru-before", "gru-after", "simple-gru", "mgu"),
    *SCANNED,
    *BLOCKS,
)
"""The cells by name; `tasks.parts` makes them."""
LSTM_ONLY: Mapping[str, Any] = {
    "forget": True,
    "forget_bias": 1.0,
    "peephole": False,
    "coupled": False,
    "layer_norm": False,
}
"""The variants that only an LSTM has, at the values with which it is the usual one."""


class EmbeddingSettings(Settings):
    """Symbols as vectors."""

    embedding: int = Field(256, ge=1, description="Width of the symbol vectors.")


class StackSettings(Settings):
    """Layers of one width."""

    hidden: int = Field(256, ge=1, description="Width of the states (Transformer: of the model, d_model).")
    layers: int = Field(1, ge=1, le=64, description="Layers of the network (of encoder and decoder each).")
    dropout: float = Field(
        0.1, ge=0, lt=1, description="Share of values set to zero while training, against overfitting."
    )


def state_heads(s: Any) -> int:
    """How many heads a state has: as set, or the fewest of at most 32 units that divide ``hidden``."""
    least = s.state_heads or -(-s.hidden // 32)
    return next(heads for heads in range(least, s.hidden + 1) if s.hidden % heads == 0)


def in_blocks(s: Any) -> bool:
    """Whether recurrences stand in residual blocks: always those of `BLOCKS`, others with ``blocks``."""
    return s.cell in BLOCKS or bool(s.blocks)


class BlockSettings(Settings):
    """Recurrences in residual blocks."""

    blocks: bool = Field(
        False,
        description="Put each recurrent layer into a residual block with a norm, a convolution over four steps and a "
        "feed-forward network (Feng 2024); cells with a matrix as state always come so.",
    )
    state_heads: int = Field(
        0,
        ge=0,
        le=1024,
        description="Matrices that the state of gla, retnet, mamba2, mlstm, deltanet or rwkv7 consists of, parts of "
        "slstm whose units mix, heads of attention in griffin; must divide `hidden`; 0 = one for every 32 units.",
    )
    mixed_every: int = Field(
        0,
        ge=0,
        le=64,
        description="In cell = griffin every so many blocks is one of local attention (0 = 3, as published), in cell = xlstm "
        "one of sLSTM (0 = 8, as published; 1 = all).",
    )
    state_size: int = Field(
        0,
        ge=0,
        le=1024,
        description="Numbers that each channel of mamba keeps (0 = 16, as published), or rows of each matrix of mamba2 (0 = 64).",
    )
    local_window: int = Field(
        128, ge=1, description="Steps back that the blocks of local attention in cell = griffin see."
    )
    row_dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="In residual blocks: share of the values that a layer reads set to zero while training, the same at every "
        "step of a row (Gal & Ghahramani 2016).",
    )
    signed: bool = Field(
        False,
        description="Let the eigenvalues of deltanet and gated-deltanet reach −1, so that their state can change its sign "
        "(Grazzi 2025): parity needs it.",
    )

    @classmethod
    def problem(cls, s: Any) -> str | None:
        if s.signed and s.cell not in ("deltanet", "gated-deltanet"):
            return f"signed = true belongs to cell = 'deltanet' or 'gated-deltanet', but cell = '{s.cell}'"
        owners = {
            "mixed_every": ("griffin", "xlstm"),
            "local_window": ("griffin",),
            "state_size": ("mamba", "mamba2"),
        }
        for key, cells in owners.items():
            if getattr(s, key) != cls.model_fields[key].default and s.cell not in cells:
                return f"{key} = {getattr(s, key)} belongs to cell = '{cells[0]}', but cell = '{s.cell}'"
        headed = s.cell in BLOCKS or s.cell == "slstm"
        if s.state_heads and not headed:
            return f"state_heads = {s.state_heads} needs a cell whose state is a matrix ({', '.join(BLOCKS)}), but cell = '{s.cell}'"
        if headed and s.state_heads and s.hidden % s.state_heads:
            return f"hidden = {s.hidden} cannot be divided among state_heads = {s.state_heads}"
        if not in_blocks(s):
            if s.row_dropout:
                return f"row_dropout = {s.row_dropout} belongs to recurrences in residual blocks (blocks = true), but cell = '{s.cell}' has none"
            return None
        if s.zoneout or s.connections != "none":
            key = "zoneout" if s.zoneout else "connections"
            return f"{key} = {written(getattr(s, key))} has no place in cell = '{s.cell}', whose blocks are residual already"
        if s.cell in ("retnet", "griffin") and s.hidden // state_heads(s) % 2:
            return f"cell = '{s.cell}' needs an even width per head, not hidden / state_heads = {s.hidden // state_heads(s)}"
        return None


class RecurrentSettings(BlockSettings):
    """Recurrent layers."""

    cell: Annotated[str, Own()] = Field(
        "lstm",
        description="The recurrent cell. gru resets after the product, as PyTorch and cuDNN do (gru-after is the same), "
        "gru-before as published; simple-gru has no reset gate, mgu one gate for both; irnn begins as the identity; slstm has exponential gates. "
        "retnet, gla, mamba, mamba2, mlstm, deltanet, gated-deltanet and rwkv7 are linear in their state, which is a matrix; rwkv4 in "
        "its vectors; "
        "they come in residual blocks, where the network reads a sequence, as griffin (rglru and local attention) and xlstm (mlstm and slstm) do; a decoder "
        "beside them has an LSTM. "
        "Or your own: a Cell class, or a function of (inputs, hidden) that makes a cell.",
        json_schema_extra={"words": list(CELLS)},
    )
    forget: bool = Field(
        True, description="A forget gate in the LSTM; without it c_t = c_{t−1} + i ∘ c̃, as in 1997."
    )
    forget_bias: float = Field(
        1.0,
        allow_inf_nan=False,
        description="What the bias of the LSTM's forget gate starts at: higher remembers longer from the start.",
    )
    peephole: bool = Field(
        False, description="Let the gates of the LSTM see the cell c (Gers & Schmidhuber 2000)."
    )
    coupled: bool = Field(
        False, description="One gate of the LSTM both forgets and takes in: c_t = f ∘ c_{t−1} + (1 − f) ∘ c̃."
    )
    layer_norm: bool = Field(False, description="LayerNorm inside the LSTM's step (Ba 2016).")
    zoneout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of the units that keep their old state at each step while training (Krueger 2017).",
    )
    connections: Literal["none", "residual", "highway", "dense", "shortcut"] = Field(
        "none",
        description="Between layers: residual y + x, highway g∘y + (1−g)∘x, dense (each layer reads all below it); "
        "through time: shortcut, where each step also sees the output `skip` steps back.",
    )
    skip: int = Field(4, ge=2, le=64, description="How many steps connections = shortcut jumps back.")

    @field_validator("cell")
    @classmethod
    def _known(cls, cell: str) -> str:
        if cell not in CELLS and not isinstance(cell, Part):
            raise ValueError(
                f"it must be one of {', '.join(CELLS)}.{suggestion(cell, CELLS, otherwise='')}".rstrip(".")
            )
        return cell

    @classmethod
    def problem(cls, s: Any) -> str | None:
        for key, usual in LSTM_ONLY.items():
            value = getattr(s, key)
            if value != usual and s.cell != "lstm":
                return f"{key} = {written(value)} is a variant of cell = 'lstm', but cell = '{s.cell}'"
        if problem := super().problem(s):
            return problem
        if s.coupled and not s.forget:
            return "coupled = true needs a forget gate: leave forget = true, or coupled = false"
        if not s.forget and s.forget_bias != LSTM_ONLY["forget_bias"]:
            return "forget_bias needs a forget gate: leave forget = true, or leave forget_bias out"
        if s.connections in ("residual", "highway", "dense") and s.layers == 1:
            return (
                f"connections = '{s.connections}' lies between layers, but layers = 1: set layers = 2 or more"
            )
        return None


class DirectionSettings(Settings):
    """Recurrent layers that may read both ways."""

    bidirectional: bool = Field(
        True, description="Read in both directions, so that every place knows the context on both sides."
    )


class TransformerSettings(Settings):
    """Layers of self-attention."""

    heads: int = Field(4, ge=1, description="Attention heads of a Transformer; must divide `hidden`.")
    kv_heads: int = Field(
        0,
        ge=0,
        description="Heads of keys and values, each shared by a group of query heads (Ainslie 2023); must divide `heads`; "
        "0 = as many as heads, 1 = multi-query.",
    )
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "none"] = Field(
        "sinusoidal",
        description="How a Transformer knows places: added sines or learned vectors, rotated queries and keys (rotary), "
        "scores that fall with the distance, the same on both sides (alibi), or not at all. learned ends at the longest training input.",
    )
    attention_window: int = Field(
        0,
        ge=0,
        description="Each place attends to so many places on either side of it (a model that looks back: before it); 0 = "
        "to all.",
    )
    feedforward: int = Field(1024, ge=1, description="Width inside the Transformer's feed-forward layers.")
    activation: Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu", "geglu"] = Field(
        "relu",
        description="Inside the feed-forward layers: relu as published, gelu (BERT), gelu-tanh (GPT-2), silu, or swiglu and "
        "geglu, which are gated (Shazeer 2020) and have three matrices instead of two.",
    )
    norm_first: bool = Field(
        True, description="LayerNorm before each sublayer (steadier) instead of after it (as published)."
    )

    @classmethod
    def problem(cls, s: Any) -> str | None:
        if s.hidden % s.heads and not getattr(s, "head_width", 0):
            return f"hidden = {s.hidden} cannot be divided among heads = {s.heads}"
        if s.positions == "sinusoidal" and s.hidden % 2:
            return f"hidden = {s.hidden} must be even, for sine and cosine positions"
        if s.positions == "rotary" and s.hidden // s.heads % 2:
            return (
                f"positions = 'rotary' needs heads of even width, not hidden / heads = {s.hidden // s.heads}"
            )
        if s.kv_heads and s.heads % s.kv_heads:
            return f"kv_heads = {s.kv_heads} cannot share heads = {s.heads} equally"
        return None


class VariantSettings(Settings):
    """Variants of Transformer blocks, with which models of others are built."""

    norm: Literal["layer", "rms"] = Field(
        "layer",
        description="How a Transformer normalises: LayerNorm, or RMSNorm, which neither centres nor shifts (Llama).",
    )
    norm_eps: float = Field(
        1e-5, gt=0, allow_inf_nan=False, description="ε under the root of a Transformer's norms."
    )
    qk_norm: bool = Field(
        False,
        description="Normalise queries and keys of self-attention by their root mean square, with learned gains, before they are "
        "compared (Henry 2020): attention stays steady at higher learning rates.",
    )
    biases: Literal["all", "attention", "queries", "none"] = Field(
        "all",
        description="Which linear maps of a Transformer's layers have a bias: all, those of attention only, those that make "
        "queries, keys and values (Qwen), or none (Llama). Gated feed-forward layers never have one.",
    )
    parallel: bool = Field(
        False,
        description="Attention and feed-forward layer side by side instead of one after the other (GPT-NeoX).",
    )
    rotary_base: float = Field(
        10000.0, gt=1, allow_inf_nan=False, description="What the slowest of rotary positions follows from."
    )
    rotary_share: float = Field(
        1.0, gt=0, le=1, description="Share of the features of each head that rotary positions turn."
    )
    embedding_scale: bool = Field(
        True,
        description="Multiply the symbols' vectors of a Transformer, or of a recurrent language model, by √width as they are "
        "read. Off for language models where optimizer is sgd or ntasgd: there the vectors' gradients, √width times as long, would take "
        "nearly all of `clip`, and steps of width times the size let them diverge.",
    )
    embedding_norm: bool = Field(
        False,
        description="Normalise the sum of symbols' vectors and positions before the first layer (BERT).",
    )
    token_types: int = Field(
        0,
        ge=0,
        le=64,
        description="Learned vectors for the parts of a pair of texts (BERT); every text here is the first.",
    )
    max_positions: int = Field(
        0,
        ge=0,
        description="How many positions = learned has; 0 = as many as the longest training input. With sines, the most symbols "
        "that a translator writes.",
    )
    first_position: int = Field(
        0,
        ge=0,
        le=16,
        description="Which of the learned positions the first symbol has (RoBERTa and OPT: 2); of a translator also with sines.",
    )

    @classmethod
    def problem(cls, s: Any) -> str | None:
        if s.parallel and not s.norm_first:
            return "parallel = true needs norm_first = true"
        moving = s.rotary_share * s.hidden / s.heads
        if s.positions == "rotary" and s.rotary_share < 1 and (int(moving) % 2 or not int(moving)):
            return (
                f"rotary_share = {s.rotary_share} turns {int(moving)} of the {s.hidden // s.heads} features of a head, but "
                "positions = 'rotary' turns pairs: choose another share"
            )
        limited = s.positions == "sinusoidal" and hasattr(s, "sine_halves")
        if (s.max_positions or s.first_position) and s.positions != "learned" and not limited:
            key = "max_positions" if s.max_positions else "first_position"
            return f"{key} = {getattr(s, key)} is for positions = 'learned', not for '{s.positions}'"
        return None


class RecurrentStack(RecurrentSettings, StackSettings):
    """What recurrent layers are made of."""


class TransformerStack(VariantSettings, TransformerSettings, StackSettings):
    """What a Transformer is made of."""


class NetworkSettings(TransformerStack, DirectionSettings, RecurrentStack, EmbeddingSettings):
    """All of them."""
