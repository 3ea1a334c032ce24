"""GPT-NeoX (Black et al. 2022; Pythia): rotary positions, sublayers side by side, queries, keys and values by head."""

from __future__ import annotations

from typing import Any

from anaphora.foreign.architectures.parts import ACTIVATIONS, LAYER, PLAIN, SIZES, affine, rope, untied
from anaphora.foreign.hows import NO_BIAS, SCORES, VECTORS, ByHead
from anaphora.foreign.mapping import Architecture, Field, Head, Rule, Values

_BY_HEAD = ByHead()


def _derive(config: Values) -> dict[str, Any]:
    more = {
        "tie": config.get("tie_word_embeddings", False),
        "context": config.get("max_position_embeddings", 2048),
    }
    found = rope(config)
    if "rotary_pct" not in config and "partial_rotary_factor" not in (config.get("rope_parameters") or {}):
        found["rotary_share"] = 0.25  # what transformers takes where nothing is said
    return found | more


def _complete(s: Values) -> dict[str, Any]:
    theirs = {
        "rope_type": "default",
        "rope_theta": s["rotary_base"],
        "partial_rotary_factor": s["rotary_share"],
    }
    return {
        "rope_parameters": theirs,
        "rotary_pct": s["rotary_share"],
        "rotary_emb_base": s["rotary_base"],
        "max_position_embeddings": s["context"],
        "tie_word_embeddings": s["tie"],
    }


GPT_NEOX = Architecture(
    model_type="gpt_neox",
    prefix="gpt_neox.",
    body=(
        Rule("embed_in.weight", "embedding.weight", VECTORS),
        *affine("layers.{i}.input_layernorm", LAYER + "around_attention.norm"),
        *affine("layers.{i}.attention.query_key_value", LAYER + "attention.inward", _BY_HEAD, _BY_HEAD),
        *affine("layers.{i}.attention.dense", LAYER + "attention.outward"),
        *affine("layers.{i}.post_attention_layernorm", LAYER + "around_feedforward.norm"),
        *affine("layers.{i}.mlp.dense_h_to_4h", LAYER + "feedforward.first"),
        *affine("layers.{i}.mlp.dense_4h_to_h", LAYER + "feedforward.second"),
        *affine("final_layer_norm", "stack.norm"),
    ),
    heads={
        "GPTNeoXForCausalLM": Head(
            "language",
            (Rule("embed_out.weight", "output.weight", SCORES, untied), Rule((), "output.bias", NO_BIAS)),
            {"model": "transformer"},
        ),
    },
    fields=(
        *SIZES,
        Field("intermediate_size", "feedforward"),
        Field("hidden_act", "activation", ACTIVATIONS, "gelu"),
        Field("layer_norm_eps", "norm_eps", default=1e-5),
        Field("use_parallel_residual", "parallel", default=True),
    ),
    fixed={
        **{key: value for key, value in PLAIN.items() if key != "parallel"},
        "norm_first": True,
        "positions": "rotary",
        "kv_heads": 0,
        "max_positions": 0,
    },
    needs={"attention_bias": (True,)},
    silent=(".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq", "embed_out.weight"),
    special=(("<|padding|>", "<pad>"), ("<unk>",), ("<s>",), ("<|endoftext|>", "</s>")),
    renamed={"lm_head.weight": "embed_out.weight"},
    derive=_derive,
    complete=_complete,
)
