"""OPT (Zhang et al. 2022): learned positions that count from 2, norms before or after the sublayers."""

from __future__ import annotations

from typing import Any

from anaphora.foreign.architectures.parts import ACTIVATIONS, LAYER, PLAIN, SIZES, affine, joined, untied
from anaphora.foreign.hows import NO_BIAS, QKV, SCORES, VECTORS
from anaphora.foreign.mapping import Architecture, Field, Head, Rule, UnmappedError, Values


def _before(s: Values) -> bool:
    return bool(s["norm_first"])


def _derive(config: Values) -> dict[str, Any]:
    if config.get("word_embed_proj_dim", config["hidden_size"]) != config["hidden_size"]:
        raise UnmappedError(
            f"word_embed_proj_dim = {config['word_embed_proj_dim']} beside hidden_size = {config['hidden_size']}"
        )
    places = config.get("max_position_embeddings", 2048)
    return {"context": places, "tie": config.get("tie_word_embeddings", True)}


def _complete(s: Values) -> dict[str, Any]:
    return {"word_embed_proj_dim": s["hidden"], "tie_word_embeddings": s["tie"]}


OPT = Architecture(
    model_type="opt",
    prefix="model.decoder.",
    body=(
        Rule("embed_tokens.weight", "embedding.weight", VECTORS),
        Rule("embed_positions.weight", "positions.weight"),
        *joined(
            tuple(f"layers.{{i}}.self_attn.{one}_proj" for one in "qkv"), LAYER + "attention.inward", QKV
        ),
        *affine("layers.{i}.self_attn.out_proj", LAYER + "attention.outward"),
        *affine("layers.{i}.self_attn_layer_norm", LAYER + "around_attention.norm"),
        *affine("layers.{i}.fc1", LAYER + "feedforward.first"),
        *affine("layers.{i}.fc2", LAYER + "feedforward.second"),
        *affine("layers.{i}.final_layer_norm", LAYER + "around_feedforward.norm"),
        Rule("final_layer_norm.weight", "stack.norm.weight", when=_before),
        Rule("final_layer_norm.bias", "stack.norm.bias", when=_before),
    ),
    heads={
        "OPTForCausalLM": Head(
            "language",
            (Rule("lm_head.weight", "output.weight", SCORES, untied), Rule((), "output.bias", NO_BIAS)),
            {"model": "transformer"},
        ),
    },
    fields=(
        *SIZES,
        Field("ffn_dim", "feedforward"),
        Field("max_position_embeddings", "max_positions", default=2048),
        Field("do_layer_norm_before", "norm_first", default=True),
        Field("activation_function", "activation", ACTIVATIONS, "relu"),
    ),
    fixed={**PLAIN, "norm_eps": 1e-5, "positions": "learned", "kv_heads": 0, "first_position": 2},
    needs={
        "_remove_final_layer_norm": (False,),
        "enable_bias": (True,),
        "layer_norm_elementwise_affine": (True,),
    },
    silent=("lm_head.weight",),
    special=(("<pad>",), ("<unk>",), ("<s>",), ("</s>",)),
    derive=_derive,
    complete=_complete,
)
