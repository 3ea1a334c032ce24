"""The Vision Transformer (Dosovitskiy et al. 2021) and DeiT (Touvron et al. 2021), whose second vector before the squares is
trained by a teacher's answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anaphora.foreign.architectures.bert import attention_names
from anaphora.foreign.architectures.parts import ACTIVATIONS, LAYER, affine, joined
from anaphora.foreign.hows import BARE, BARE_VECTORS, QKV, SAME, SQUARES
from anaphora.foreign.mapping import Architecture, Field, Head, Rule, UnmappedError, Values

_LAYER = "encoder.layer.{i}."


def _side(config: Values, name: str, usual: int) -> tuple[int, int]:
    value = config.get(name, usual)
    rows, columns = (value, value) if isinstance(value, int) else value
    return int(rows), int(columns)


def _derive(config: Values) -> dict[str, Any]:
    rows, columns = _side(config, "image_size", 224)
    side, other = _side(config, "patch_size", 16)
    if side != other:
        raise UnmappedError(f"patch_size = {config['patch_size']!r}")
    if rows % side or columns % side:
        raise UnmappedError(f"image_size = {config['image_size']!r} beside patch_size = {side}")
    return {"patch": side, "rows": rows, "columns": columns}


def _complete(s: Values) -> dict[str, Any]:
    size = s["rows"] if s["rows"] == s["columns"] else [s["rows"], s["columns"]]
    return {"image_size": size, "patch_size": s["patch"], "encoder_stride": s["patch"]}


def _body(tokens: tuple[str, ...]) -> tuple[Rule, ...]:
    return (
        Rule(tuple(f"embeddings.{one}" for one in tokens), "first", BARE_VECTORS),
        Rule("embeddings.position_embeddings", "positions.weight", BARE),
        *affine("embeddings.patch_embeddings.projection", "embedding", SQUARES),
        *affine(_LAYER + "layernorm_before", LAYER + "around_attention.norm"),
        *joined(attention_names(_LAYER + "attention.attention"), LAYER + "attention.inward", QKV),
        *affine(_LAYER + "attention.output.dense", LAYER + "attention.outward"),
        *affine(_LAYER + "layernorm_after", LAYER + "around_feedforward.norm"),
        *affine(_LAYER + "intermediate.dense", LAYER + "feedforward.first"),
        *affine(_LAYER + "output.dense", LAYER + "feedforward.second"),
        Rule("layernorm.weight", "stack.norm.weight", SAME),
        Rule("layernorm.bias", "stack.norm.bias", SAME),
    )


VIT = Architecture(
    model_type="vit",
    prefix="vit.",
    body=_body(("cls_token",)),
    heads={
        "ViTForImageClassification": Head(
            "classify", affine("classifier", "output"), {"model": "vit", "pooling": "first"}
        ),
        "ViTModel": Head("see", (), {"model": "vit", "pooling": "first"}, bare=True),
    },
    fields=(
        Field("hidden_size", "hidden"),
        Field("num_hidden_layers", "layers"),
        Field("num_attention_heads", "heads"),
        Field("intermediate_size", "feedforward"),
        Field("num_channels", "channels", default=3),
        Field("hidden_act", "activation", ACTIVATIONS, "gelu"),
        Field("layer_norm_eps", "norm_eps", default=1e-12),
    ),
    fixed={"norm_first": True, "positions": "learned", "kv_heads": 0, "class_tokens": 1},
    needs={"qkv_bias": (True,)},
    silent=("pooler.dense.weight", "pooler.dense.bias", "embeddings.mask_token"),
    derive=_derive,
    complete=_complete,
)
DEIT = replace(
    VIT,
    model_type="deit",
    prefix="deit.",
    body=_body(("cls_token", "distillation_token")),
    heads={
        "DeiTForImageClassification": VIT.heads["ViTForImageClassification"],
        "DeiTModel": VIT.heads["ViTModel"],
    },
    fixed={**VIT.fixed, "class_tokens": 2},
)
