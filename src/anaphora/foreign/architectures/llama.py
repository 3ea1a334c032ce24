"""Llama, Mistral and Qwen 2: RMSNorm first, rotary positions, grouped heads, SwiGLU, hardly any bias."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anaphora.foreign.architectures.parts import LAYER, PLAIN, SIZES, rope, untied
from anaphora.foreign.hows import GATED, NO_BIAS, SCORES, TURNED_QKV, VECTORS
from anaphora.foreign.mapping import Architecture, Field, Head, Rule, UnmappedError, Values

_PROJECTIONS = tuple(f"layers.{{i}}.self_attn.{one}_proj" for one in "qkv")


def _derive(config: Values) -> dict[str, Any]:
    heads, width = config["num_attention_heads"], config["hidden_size"]
    if (config.get("head_dim") or width // heads) * heads != width:
        raise UnmappedError(f"head_dim = {config['head_dim']} beside hidden_size = {width}")
    shared = config.get("num_key_value_heads") or heads
    return rope(config) | {
        "kv_heads": 0 if shared == heads else shared,
        "context": config.get("max_position_embeddings", 2048),
        "tie": config.get("tie_word_embeddings", False),
    }


def _llama(config: Values) -> dict[str, Any]:
    return _derive(config) | {"biases": "attention" if config.get("attention_bias") else "none"}


def _mistral(config: Values) -> dict[str, Any]:
    window = config.get("sliding_window")
    return _derive(config) | {"attention_window": window - 1 if window else 0}


def _qwen(config: Values) -> dict[str, Any]:
    if config.get("use_sliding_window"):
        raise UnmappedError("use_sliding_window = True")
    return _derive(config)


def _complete(s: Values) -> dict[str, Any]:
    if s["rotary_share"] != 1.0:
        raise UnmappedError(f"rotary_share = {s['rotary_share']} (it must be 1.0)")
    return {
        "rope_parameters": {"rope_type": "default", "rope_theta": s["rotary_base"]},
        "rope_theta": s["rotary_base"],
        "num_key_value_heads": s["kv_heads"] or s["heads"],
        "head_dim": s["hidden"] // s["heads"],
        "max_position_embeddings": s["context"],
        "tie_word_embeddings": s["tie"],
    }


def _complete_llama(s: Values) -> dict[str, Any]:
    if s["biases"] not in ("attention", "none"):
        raise UnmappedError(f"biases = {s['biases']!r} (it must be 'attention' or 'none')")
    if s["attention_window"]:
        raise UnmappedError(f"attention_window = {s['attention_window']} (it must be 0)")
    return _complete(s) | {"attention_bias": s["biases"] == "attention"}


def _complete_mistral(s: Values) -> dict[str, Any]:
    return _complete(s) | {"sliding_window": s["attention_window"] + 1 if s["attention_window"] else None}


def _head(name: str) -> dict[str, Head]:
    rules = (Rule("lm_head.weight", "output.weight", SCORES, untied), Rule((), "output.bias", NO_BIAS))
    return {name: Head("language", rules, {"model": "transformer"})}


LLAMA = Architecture(
    model_type="llama",
    prefix="model.",
    body=(
        Rule("embed_tokens.weight", "embedding.weight", VECTORS),
        Rule("layers.{i}.input_layernorm.weight", LAYER + "around_attention.norm.weight"),
        Rule(tuple(f"{one}.weight" for one in _PROJECTIONS), LAYER + "attention.inward.weight", TURNED_QKV),
        Rule(
            tuple(f"{one}.bias" for one in _PROJECTIONS),
            LAYER + "attention.inward.bias",
            TURNED_QKV,
            lambda s: s["biases"] != "none",
        ),
        Rule("layers.{i}.self_attn.o_proj.weight", LAYER + "attention.outward.weight"),
        Rule(
            "layers.{i}.self_attn.o_proj.bias",
            LAYER + "attention.outward.bias",
            when=lambda s: s["biases"] == "attention",
        ),
        Rule("layers.{i}.post_attention_layernorm.weight", LAYER + "around_feedforward.norm.weight"),
        Rule(
            ("layers.{i}.mlp.gate_proj.weight", "layers.{i}.mlp.up_proj.weight"),
            LAYER + "feedforward.gated.weight",
            GATED,
        ),
        Rule("layers.{i}.mlp.down_proj.weight", LAYER + "feedforward.second.weight"),
        Rule("norm.weight", "stack.norm.weight"),
    ),
    heads=_head("LlamaForCausalLM"),
    fields=(
        *SIZES,
        Field("intermediate_size", "feedforward"),
        Field("hidden_act", "activation", {"silu": "swiglu"}, "silu"),
        Field("rms_norm_eps", "norm_eps", default=1e-6),
    ),
    fixed={
        **{key: value for key, value in PLAIN.items() if key not in ("biases", "attention_window")},
        "norm": "rms",
        "norm_first": True,
        "positions": "rotary",
        "max_positions": 0,
    },
    needs={"mlp_bias": (False,)},
    silent=(".rotary_emb.inv_freq", "lm_head.weight"),
    special=(
        ("<pad>", "<|pad|>", "[PAD]"),
        ("<unk>",),
        ("<s>", "<|begin_of_text|>"),
        ("</s>", "<|endoftext|>", "<|end_of_text|>", "<|im_end|>"),
    ),
    derive=_llama,
    complete=_complete_llama,
)
MISTRAL = replace(
    LLAMA,
    model_type="mistral",
    heads=_head("MistralForCausalLM"),
    fixed={**LLAMA.fixed, "biases": "none"},
    needs={},
    derive=_mistral,
    complete=_complete_mistral,
)
QWEN2 = replace(
    LLAMA,
    model_type="qwen2",
    heads=_head("Qwen2ForCausalLM"),
    fixed={**LLAMA.fixed, "biases": "queries", "attention_window": 0},
    needs={},
    derive=_qwen,
    complete=_complete,
)
