"""What Marian, Pegasus, BART and mBART share: the layers of an encoder and a decoder, and the settings of both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from anaphora.data.tokenizers.vocabularies import NEVER
from anaphora.foreign.architectures.parts import ACTIVATIONS, PLAIN, affine, joined, untied
from anaphora.foreign.hows import NO_BIAS, QKV, Symbols
from anaphora.foreign.mapping import Architecture, Field, Head, Rule, UnmappedError, Values
from anaphora.nn.positions import Sinusoidal

SOURCE = Symbols(embedded=True)
TARGET = Symbols(embedded=True, target=True)
SCORES = Symbols(target=True)
_BIAS = Symbols(missing=NEVER, target=True, row=True)
_TABLES = tuple(f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder"))


def shared(s: Values) -> bool:
    """Whether one table of vectors serves both sides."""
    return bool(s["shares"])


def apart(s: Values) -> bool:
    return not s["shares"]


def _attention(theirs: str, ours: str) -> tuple[Rule, ...]:
    return (
        *joined(tuple(f"{theirs}.{one}_proj" for one in "qkv"), f"{ours}.inward", QKV),
        *affine(f"{theirs}.out_proj", f"{ours}.outward"),
    )


def _norms(theirs: str, ours: str, setting: str) -> tuple[Rule, ...]:
    return tuple(
        Rule(f"model.{side}.{theirs}.{part}", f"{side}.{ours}.{part}", when=lambda s: bool(s[setting]))
        for side in ("encoder", "decoder")
        for part in ("weight", "bias")
    )


def _side(side: str, number: str) -> tuple[Rule, ...]:
    theirs, ours = f"model.{side}.layers.{number}.", f"{side}.stack.layers.{number}."
    return (
        Rule(
            f"model.{side}.embed_positions.weight",
            f"{side}.positions.weight",
            when=lambda s: s["positions"] == "learned",
        ),
        *_attention(theirs + "self_attn", ours + "attention"),
        *affine(theirs + "self_attn_layer_norm", ours + "around_attention.norm"),
        *affine(theirs + "fc1", ours + "feedforward.first"),
        *affine(theirs + "fc2", ours + "feedforward.second"),
        *affine(theirs + "final_layer_norm", ours + "around_feedforward.norm"),
    )


RULES = (
    Rule("model.shared.weight", "encoder.embedding.weight", SOURCE, shared),
    Rule("model.encoder.embed_tokens.weight", "encoder.embedding.weight", SOURCE, apart),
    Rule("model.decoder.embed_tokens.weight", "decoder.embedding.weight", TARGET, apart),
    Rule("lm_head.weight", "decoder.output.weight", SCORES, untied),
    Rule("final_logits_bias", "decoder.output.bias", _BIAS),
    *_norms("layernorm_embedding", "norm", "embedding_norm"),
    *_side("encoder", "{i}"),
    *_side("decoder", "{j}"),
    *_attention("model.decoder.layers.{j}.encoder_attn", "decoder.stack.layers.{j}.cross_attention"),
    *affine(
        "model.decoder.layers.{j}.encoder_attn_layer_norm",
        "decoder.stack.layers.{j}.around_cross_attention.norm",
    ),
    *_norms("layer_norm", "stack.norm", "norm_first"),
)
FIELDS = (
    Field("vocab_size", "symbols"),
    Field("d_model", "hidden"),
    Field("encoder_layers", "layers"),
    Field("encoder_attention_heads", "heads"),
    Field("encoder_ffn_dim", "feedforward"),
    Field("max_position_embeddings", "max_positions", default=1024),
    Field("activation_function", "activation", ACTIVATIONS, "gelu"),
    Field("scale_embedding", "embedding_scale", default=False),
)
ALIKE: Values = {
    "kv_heads": 0,
    "head_width": 0,
    "scaled_scores": True,
    "distance_buckets": 0,
    "shrunk_output": False,
    "shared_vectors": False,
}
FIXED: Values = {
    **{key: value for key, value in PLAIN.items() if key != "embedding_scale"},
    **ALIKE,
    "norm_eps": 1e-5,
    "positions": "learned",
}
SILENT = ("embed_tokens.weight", "lm_head.weight", "embed_positions.weight", "model.shared.weight")
SPECIAL = (("<pad>",), ("<unk>",), ("<s>",), ("</s>",))


def derive(config: Values) -> dict[str, Any]:
    """Settings of both sides; a decoder may have fewer layers, and all else must be equal."""
    for name in ("attention_heads", "ffn_dim"):
        one, other = config[f"encoder_{name}"], config[f"decoder_{name}"]
        if one != other:
            raise UnmappedError(f"decoder_{name} = {other} beside encoder_{name} = {one}")
    tie = config.get("tie_word_embeddings", True)
    shares = bool(config.get("share_encoder_decoder_embeddings", True)) and bool(tie)
    reading, writing = config["encoder_layers"], config["decoder_layers"]
    return {
        "tie": tie,
        "joint": shares,
        "shares": shares,
        "decoder_layers": 0 if writing == reading else writing,
        "dropout": config.get("dropout", 0.1),
        "input_dropout": config.get("dropout", 0.1),
        "max_tokens": config.get("max_position_embeddings", 1024) - 2,
    }


def derive_sines(config: Values) -> dict[str, Any]:
    """The same for those whose positions are a table of sines, all before the cosines, that need not be stored; one that is
    stored and something else is a learned one."""
    stored = config.get("_tensors", {})
    table = Sinusoidal(config["d_model"], halves=True)
    sines = all(
        torch.allclose(stored[name].float(), table.table(len(stored[name]), torch.empty(0)), atol=1e-5)
        for name in _TABLES
        if name in stored
    )
    return derive(config) | ({"positions": "sinusoidal", "sine_halves": True} if sines else {})


def complete(s: Values) -> dict[str, Any]:
    return {
        "decoder_layers": s["decoder_layers"] or s["layers"],
        "decoder_attention_heads": s["heads"],
        "decoder_ffn_dim": s["feedforward"],
        "num_hidden_layers": s["layers"],
        "tie_word_embeddings": s["tie"],
        "is_encoder_decoder": True,
    }


# ----------------------------------------------------------------------------
# Marian (Junczys-Dowmunt et al. 2018): the Transformer as published, norms after the sublayers, sines before cosines.


def _complete(s: Values) -> dict[str, Any]:
    return complete(s) | {
        "decoder_vocab_size": s.get("target_symbols", s["symbols"]),
        "share_encoder_decoder_embeddings": s["shares"],
    }


MARIAN = Architecture(
    model_type="marian",
    prefix="",
    body=(),
    heads={"MarianMTModel": Head("translate", RULES, {"model": "transformer"})},
    fields=FIELDS,
    fixed={**FIXED, "norm_first": False},
    silent=SILENT,
    special=SPECIAL,
    derive=derive_sines,
    complete=_complete,
)


# ----------------------------------------------------------------------------
# Pegasus (Zhang et al. 2020): an encoder-decoder that normalises first, and after the last layers.

PEGASUS = replace(
    MARIAN,
    model_type="pegasus",
    heads={"PegasusForConditionalGeneration": Head("translate", RULES, {"model": "transformer"})},
    fixed={**FIXED, "norm_first": True},
    complete=complete,
)


# ----------------------------------------------------------------------------
# BART (Lewis et al. 2020) and mBART (Liu et al. 2020): learned positions that count from 2, and a norm of the symbols' vectors.

_LEARNED = {**FIXED, "embedding_norm": True, "first_position": 2}

BART = Architecture(
    model_type="bart",
    prefix="",
    body=(),
    heads={"BartForConditionalGeneration": Head("translate", RULES, {"model": "transformer"})},
    fields=FIELDS,
    fixed={**_LEARNED, "norm_first": False},
    needs={"normalize_before": (False,), "add_final_layer_norm": (False,), "normalize_embedding": (True,)},
    silent=SILENT,
    special=SPECIAL,
    derive=derive,
    complete=complete,
)
MBART = replace(
    BART,
    model_type="mbart",
    heads={"MBartForConditionalGeneration": Head("translate", RULES, {"model": "transformer"})},
    fixed={**_LEARNED, "norm_first": True},
    needs={"normalize_before": (True,), "add_final_layer_norm": (True,), "normalize_embedding": (True,)},
)


# ----------------------------------------------------------------------------
# M2M-100 (Fan et al. 2021) and NLLB (Costa-jussà et al. 2022): norms before the sublayers, sines that count from 2, and a
# symbol for each language before the source and at the beginning of the output.

_RULES = (
    *(rule for rule in RULES if rule.ours != "decoder.output.bias"),
    Rule((), "decoder.output.bias", NO_BIAS),
)


def _derive(config: Values) -> dict[str, Any]:
    """Positions count from the one behind the number of <pad>, as in fairseq."""
    return derive(config) | {"first_position": int(config.get("pad_token_id", 1)) + 1}


M2M_100 = replace(
    MBART,
    model_type="m2m_100",
    heads={"M2M100ForConditionalGeneration": Head("translate", _RULES, {"model": "transformer"})},
    fields=(
        *FIELDS[:-2],
        Field("activation_function", "activation", ACTIVATIONS, "relu"),
        Field("scale_embedding", "embedding_scale", default=True),
    ),
    fixed={
        **{key: value for key, value in FIXED.items() if key != "first_position"},
        "norm_first": True,
        "positions": "sinusoidal",
        "sine_halves": True,
        "sine_spread": True,
    },
    needs={},
    derive=_derive,
    silent=(*SILENT, "embed_positions.weights"),
)
MANY = ("m2m_100",)
"""Types whose models translate between many languages."""
