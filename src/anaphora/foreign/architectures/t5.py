"""T5 (Raffel et al. 2020), T5 1.1 and mT5: RMSNorm first, no biases, learned numbers for distances added to scores that are
not scaled; the first version divides by √width before an output layer that shares its vectors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from anaphora.foreign.architectures.bart import SCORES, SOURCE
from anaphora.foreign.architectures.parts import PLAIN, untied
from anaphora.foreign.hows import GATED, INNER_QKV, NO_BIAS
from anaphora.foreign.mapping import Architecture, Field, Head, Rule, Values

_GATED = ("geglu", "swiglu")


def _gated(s: Values) -> bool:
    return s["activation"] in _GATED


def _plain(s: Values) -> bool:
    return s["activation"] not in _GATED


def _attention(theirs: str, ours: str, kind: str) -> tuple[Rule, ...]:
    return (
        Rule(tuple(f"{theirs}{kind}.{one}.weight" for one in "qkv"), f"{ours}.inward.weight", INNER_QKV),
        Rule(f"{theirs}{kind}.o.weight", f"{ours}.outward.weight"),
    )


def _feedforward(theirs: str, ours: str) -> tuple[Rule, ...]:
    inside = theirs + "DenseReluDense."
    return (
        Rule(f"{inside}wi.weight", f"{ours}feedforward.first.weight", when=_plain),
        Rule(
            (f"{inside}wi_0.weight", f"{inside}wi_1.weight"), f"{ours}feedforward.gated.weight", GATED, _gated
        ),
        Rule(f"{inside}wo.weight", f"{ours}feedforward.second.weight"),
        Rule(f"{theirs}layer_norm.weight", f"{ours}around_feedforward.norm.weight"),
    )


def _side(side: str, number: str, last: int) -> tuple[Rule, ...]:
    """``last``: which of the sublayers is the feed-forward one."""
    theirs, ours = f"{side}.block.{number}.layer.", f"{side}.stack.layers.{number}."
    return (
        Rule(
            f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
            f"{side}.stack.layers.0.attention.positions.weight",
        ),
        *_attention(f"{theirs}0.", f"{ours}attention", "SelfAttention"),
        Rule(f"{theirs}0.layer_norm.weight", f"{ours}around_attention.norm.weight"),
        *_feedforward(f"{theirs}{last}.", ours),
        Rule(f"{side}.final_layer_norm.weight", f"{side}.stack.norm.weight"),
    )


def _derive(config: Values) -> dict[str, Any]:
    stored = config.get("_tensors", {})
    vectors, output = stored.get("shared.weight"), stored.get("lm_head.weight")
    tie = output is None or (vectors is not None and torch.equal(vectors, output))
    each, heads, width = config.get("d_kv", 64), config["num_heads"], config["d_model"]
    reading = config["num_layers"]
    writing = config.get("num_decoder_layers") or reading
    scaled = config.get("scale_decoder_outputs")
    return {
        "head_width": 0 if each * heads == width else each,
        "decoder_layers": 0 if writing == reading else writing,
        "shrunk_output": config.get("tie_word_embeddings") is not False if scaled is None else scaled,
        "tie": tie,
        "joint": True,
        "shares": True,
        "shared_vectors": not tie,
        "dropout": config.get("dropout_rate", 0.1),
        "input_dropout": config.get("dropout_rate", 0.1),
        "max_tokens": config.get("n_positions", 512) - 1,
    }


def _complete(s: Values) -> dict[str, Any]:
    return {
        "d_kv": s["head_width"] or s["hidden"] // s["heads"],
        "num_decoder_layers": s["decoder_layers"] or s["layers"],
        "scale_decoder_outputs": s["shrunk_output"],
        "tie_word_embeddings": s["shrunk_output"],  # what it means there
        "is_encoder_decoder": True,
    }


T5 = Architecture(
    model_type="t5",
    prefix="",
    body=(),
    heads={
        "T5ForConditionalGeneration": Head(
            "translate",
            (
                Rule("shared.weight", "encoder.embedding.weight", SOURCE),
                Rule("lm_head.weight", "decoder.output.weight", SCORES, untied),
                Rule((), "decoder.output.bias", NO_BIAS),
                *_side("encoder", "{i}", 1),
                *_side("decoder", "{j}", 2),
                *_attention(
                    "decoder.block.{j}.layer.1.",
                    "decoder.stack.layers.{j}.cross_attention",
                    "EncDecAttention",
                ),
                Rule(
                    "decoder.block.{j}.layer.1.layer_norm.weight",
                    "decoder.stack.layers.{j}.around_cross_attention.norm.weight",
                ),
            ),
            {"model": "transformer"},
        )
    },
    fields=(
        Field("vocab_size", "symbols"),
        Field("d_model", "hidden"),
        Field("num_layers", "layers"),
        Field("num_heads", "heads"),
        Field("d_ff", "feedforward"),
        Field(
            "feed_forward_proj",
            "activation",
            {
                "relu": "relu",
                "gelu": "gelu",
                "gelu_new": "gelu-tanh",
                "silu": "silu",
                "gated-gelu": "geglu",
                "gated-gelu_new": "geglu",
                "gated-silu": "swiglu",
            },
            "relu",
        ),
        Field("layer_norm_epsilon", "norm_eps", default=1e-6),
        Field("relative_attention_num_buckets", "distance_buckets", default=32),
        Field("relative_attention_max_distance", "distance_limit", default=128),
    ),
    fixed={
        **PLAIN,
        "norm": "rms",
        "norm_first": True,
        "biases": "none",
        "positions": "none",
        "max_positions": 0,
        "kv_heads": 0,
        "scaled_scores": False,
        "joint": True,
        "shares": True,
    },
    silent=("embed_tokens.weight", "lm_head.weight", "EncDecAttention.relative_attention_bias.weight"),
    special=(("<pad>",), ("<unk>",), (), ("</s>",)),
    derive=_derive,
    complete=_complete,
)


def _derive_mt5(config: Values) -> dict[str, Any]:
    return _derive(config) | {"shrunk_output": False}


MT5 = replace(
    T5,
    model_type="mt5",
    heads={"MT5ForConditionalGeneration": T5.heads["T5ForConditionalGeneration"]},
    fixed={**T5.fixed, "shrunk_output": False},
    derive=_derive_mt5,
)
