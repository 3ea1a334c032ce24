"""GPT-2 (Radford et al. 2019): norms first, learned positions, matrices stored as ``(inputs, outputs)``."""

from __future__ import annotations

from typing import Any

from anaphora.foreign.architectures.parts import ACTIVATIONS, LAYER, PLAIN, affine, untied
from anaphora.foreign.hows import NO_BIAS, SCORES, TRANSPOSED, VECTORS
from anaphora.foreign.mapping import Architecture, Field, Head, Rule, Values


def _derive(config: Values) -> dict[str, Any]:
    return {
        "feedforward": config.get("n_inner") or 4 * config["n_embd"],
        "context": config.get("n_positions", 1024),
        "tie": config.get("tie_word_embeddings", True),
    }


def _complete(s: Values) -> dict[str, Any]:
    return {"n_inner": s["feedforward"], "n_ctx": s["max_positions"], "tie_word_embeddings": s["tie"]}


GPT2 = Architecture(
    model_type="gpt2",
    prefix="transformer.",
    body=(
        Rule("wte.weight", "embedding.weight", VECTORS),
        Rule("wpe.weight", "positions.weight"),
        *affine("h.{i}.ln_1", LAYER + "around_attention.norm"),
        *affine("h.{i}.attn.c_attn", LAYER + "attention.inward", TRANSPOSED),
        *affine("h.{i}.attn.c_proj", LAYER + "attention.outward", TRANSPOSED),
        *affine("h.{i}.ln_2", LAYER + "around_feedforward.norm"),
        *affine("h.{i}.mlp.c_fc", LAYER + "feedforward.first", TRANSPOSED),
        *affine("h.{i}.mlp.c_proj", LAYER + "feedforward.second", TRANSPOSED),
        *affine("ln_f", "stack.norm"),
    ),
    heads={
        "GPT2LMHeadModel": Head(
            "language",
            (Rule("lm_head.weight", "output.weight", SCORES, untied), Rule((), "output.bias", NO_BIAS)),
            {"model": "transformer"},
        ),
    },
    fields=(
        Field("vocab_size", "symbols"),
        Field("n_embd", "hidden"),
        Field("n_layer", "layers"),
        Field("n_head", "heads"),
        Field("n_positions", "max_positions", default=1024),
        Field("activation_function", "activation", ACTIVATIONS, "gelu_new"),
        Field("layer_norm_epsilon", "norm_eps", default=1e-5),
    ),
    fixed={**PLAIN, "norm_first": True, "positions": "learned", "kv_heads": 0},
    needs={
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
    },
    silent=(".attn.bias", ".attn.masked_bias", "lm_head.weight"),
    special=(("<pad>", "[PAD]"), ("<unk>",), ("<s>", "<|startoftext|>"), ("<|endoftext|>", "</s>")),
    derive=_derive,
    complete=_complete,
)
