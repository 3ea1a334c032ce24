"""GPT-2 and the decoders that follow it."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch.nn import functional as F

from anaphora.foreign.architectures.parts import (
    ACTIVATIONS,
    LAYER,
    PLAIN,
    SIZES,
    affine,
    joined,
    rope,
    untied,
)
from anaphora.foreign.hows import NO_BIAS, QKV, SCORES, TRANSPOSED, VECTORS, ByHead
from anaphora.foreign.mapping import Architecture, Field, Head, Rule, UnmappedError, Values
from anaphora.foreign.published import PublishedModule
from anaphora.foreign.rules import Zero
from anaphora.foreign.weights import Weights
from anaphora.models.language import Language, TransformerBody
from anaphora.nn import EncoderLayer, FeedForward, TransformerEncoder
from anaphora.nn.attention import MultiHead
from anaphora.nn.embedding import Embedding, Output
from anaphora.nn.positions import Learned

# ----------------------------------------------------------------------------
# GPT-2 (Radford et al. 2019): norms first, learned positions, matrices stored as ``(inputs, outputs)``.


def _derive_gpt2(config: Values) -> dict[str, Any]:
    return {
        "feedforward": config.get("n_inner") or 4 * config["n_embd"],
        "context": config.get("n_positions", 1024),
        "tie": config.get("tie_word_embeddings", True),
    }


def _complete_gpt2(s: Values) -> dict[str, Any]:
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
    derive=_derive_gpt2,
    complete=_complete_gpt2,
)


# ----------------------------------------------------------------------------
# OPT (Zhang et al. 2022): learned positions that count from 2, norms before or after the sublayers.


def _before(s: Values) -> bool:
    return bool(s["norm_first"])


def _derive_opt(config: Values) -> dict[str, Any]:
    if config.get("word_embed_proj_dim", config["hidden_size"]) != config["hidden_size"]:
        raise UnmappedError(
            f"word_embed_proj_dim = {config['word_embed_proj_dim']} beside hidden_size = {config['hidden_size']}"
        )
    places = config.get("max_position_embeddings", 2048)
    return {"context": places, "tie": config.get("tie_word_embeddings", True)}


def _complete_opt(s: Values) -> dict[str, Any]:
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
    derive=_derive_opt,
    complete=_complete_opt,
)


# ----------------------------------------------------------------------------
# GPT-NeoX (Black et al. 2022; Pythia): rotary positions, sublayers side by side, queries, keys and values by head.

_BY_HEAD = ByHead()


def _derive_gpt_neox(config: Values) -> dict[str, Any]:
    more = {
        "tie": config.get("tie_word_embeddings", False),
        "context": config.get("max_position_embeddings", 2048),
    }
    found = rope(config)
    if "rotary_pct" not in config and "partial_rotary_factor" not in (config.get("rope_parameters") or {}):
        found["rotary_share"] = 0.25  # what transformers takes where nothing is said
    return found | more


def _complete_gpt_neox(s: Values) -> dict[str, Any]:
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
    derive=_derive_gpt_neox,
    complete=_complete_gpt_neox,
)


# ----------------------------------------------------------------------------
# minGPT (Karpathy) as llm-viz publishes it (GitHub bbycroft/llm-viz, ``public/gpt-nano-sort-model.json``): it sorts six letters.


def _build(given: Weights) -> Language:
    """GPT-2's layers: ``m(symbols)`` ``(batch, time)`` -> logits ``(batch, time, symbols)``; the heads are those of its config."""
    width, heads, places = (int(given.config[key]) for key in ("n_embd", "n_head", "block_size"))
    symbols, layers = int(given.config["vocab_size"]), int(given.config["n_layer"])
    for name, shape in (
        ("wte", (symbols, width)),
        ("wpe", (places, width)),
    ):  # before memory is taken for them
        if given.tensors[f"transformer.{name}.weight"].shape != shape:
            raise ValueError(f"its {name} is not {shape}")
    if not 0 < layers <= len(given.tensors):
        raise ValueError(f"n_layer = {layers}")
    layer = EncoderLayer(
        MultiHead(width, heads),
        FeedForward(width, 4 * width, activation=partial(F.gelu, approximate="tanh")),
        norm_first=True,
    )
    body = TransformerBody(
        Embedding(symbols, width),
        TransformerEncoder(layer, layers),
        positions=Learned(width, places),
        context=places,
    )
    return Language(body, Output(width, symbols))


def _rules(m: Language) -> tuple[Rule, ...]:
    found = [
        Rule("transformer.wte.weight", "body.embedding.weight"),
        Rule("transformer.wpe.weight", "body.positions.weight"),
        *affine("transformer.ln_f", "body.stack.norm"),
        Rule("lm_head.weight", "output.weight"),
        Rule((), "output.bias", Zero(m.output.symbols)),
    ]
    for i in range(len(m.body.stack.layers)):
        theirs, ours = f"transformer.h.{i}.", f"body.stack.layers.{i}."
        found += [
            *affine(theirs + "ln_1", ours + "around_attention.norm"),
            *affine(theirs + "attn.c_attn", ours + "attention.inward"),
            *affine(theirs + "attn.c_proj", ours + "attention.outward"),
            *affine(theirs + "ln_2", ours + "around_feedforward.norm"),
            *affine(theirs + "mlp.c_fc", ours + "feedforward.first"),
            *affine(theirs + "mlp.c_proj", ours + "feedforward.second"),
        ]
    return tuple(found)


MIN_GPT = PublishedModule(
    "llm-viz",
    (
        "transformer.wte.weight",
        "transformer.wpe.weight",
        "transformer.h.0.attn.c_attn.weight",
        "lm_head.weight",
    ),
    _build,
    _rules,
    silent=(".attn.bias",),
    needs=("n_embd", "n_head", "n_layer", "block_size", "vocab_size"),
)
