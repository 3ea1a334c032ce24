"""What the tables of several architectures share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anaphora.foreign.hows import SAME, How
from anaphora.foreign.mapping import Field, Rule, UnmappedError, Values

ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu_fast": "gelu-tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""Their names of activations, and ours; of several that are the same, the first is written."""
PLAIN: Mapping[str, Any] = {
    "norm": "layer",
    "biases": "all",
    "parallel": False,
    "embedding_scale": False,
    "embedding_norm": False,
    "token_types": 0,
    "first_position": 0,
    "attention_window": 0,
}
"""Settings of a Transformer as most have them."""
SIZES = (
    Field("vocab_size", "symbols"),
    Field("hidden_size", "hidden"),
    Field("num_hidden_layers", "layers"),
    Field("num_attention_heads", "heads"),
)
"""The sizes of a Transformer under the names that most configs have for them."""
LAYER = "stack.layers.{i}."


def affine(theirs: str, ours: str, weight: How = SAME, bias: How = SAME) -> tuple[Rule, Rule]:
    """A weight and a bias."""
    return (
        Rule(f"{theirs}.weight", f"{ours}.weight", weight),
        Rule(f"{theirs}.bias", f"{ours}.bias", bias),
    )


def joined(theirs: tuple[str, ...], ours: str, how: How) -> tuple[Rule, Rule]:
    """Several maps of theirs that are one of ours, with their biases."""
    return (
        Rule(tuple(f"{name}.weight" for name in theirs), f"{ours}.weight", how),
        Rule(tuple(f"{name}.bias" for name in theirs), f"{ours}.bias", how),
    )


def untied(s: Values) -> bool:
    """Whether the output layer has a matrix of its own."""
    return not s["tie"]


def rope(config: Values) -> dict[str, Any]:
    """The settings of rotary positions; transformers 5 has them in one object, earlier versions side by side."""
    found = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = found.get("rope_type", found.get("type", "default"))
    if kind != "default":
        raise UnmappedError(f"rope_type = {kind!r}")
    base = _first(10000.0, found.get("rope_theta"), config.get("rope_theta"), config.get("rotary_emb_base"))
    names = ("partial_rotary_factor", "rotary_pct")
    share = _first(1.0, found.get(names[0]), *(config.get(name) for name in names))
    return {"rotary_base": base, "rotary_share": share}


def _first(default: float, *values: Any) -> float:
    return float(next((value for value in values if value is not None), default))
