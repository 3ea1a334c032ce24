"""BERT and the encoders that follow it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anaphora.foreign.architectures.parts import ACTIVATIONS, LAYER, PLAIN, SIZES, affine, joined, untied
from anaphora.foreign.hows import BIAS, QKV, SAME, SCORES, VECTORS, Identity
from anaphora.foreign.mapping import Architecture, Field, Head, Rule, UnmappedError, Values

# ----------------------------------------------------------------------------
# BERT (Devlin et al. 2019): norms after the sublayers and after the embeddings, learned positions, two token types.


def attention_names(prefix: str) -> tuple[str, ...]:
    return tuple(f"{prefix}.{one}" for one in ("query", "key", "value"))


POOLER = affine("bert.pooler.dense", "pooling.linear")
CLASSES = affine("classifier", "output")
EMBEDDED = (Rule((), "output.weight", Identity()), Rule((), "output.bias", Identity(matrix=False)))
"""Of an `Embedder`, whose last layer theirs do not have."""
SPECIAL = (("[MASK]",), ("[UNK]",), ("[CLS]",), ("[SEP]",))
"""A hidden symbol is our <pad> inside a row, so [MASK] stands there; [PAD] is a symbol that no text has."""


def derive(config: Values) -> dict[str, Any]:
    """How long inputs may be: positions less <s>, and for texts less </s>."""
    places = config.get("max_position_embeddings", 512)
    return {"context": places - 1, "max_tokens": places - 2, "tie": config.get("tie_word_embeddings", True)}


def complete(s: Values) -> dict[str, Any]:
    return {"tie_word_embeddings": s["tie"]}


BERT = Architecture(
    model_type="bert",
    prefix="bert.",
    body=(
        Rule("embeddings.word_embeddings.weight", "embedding.weight", VECTORS),
        Rule("embeddings.position_embeddings.weight", "positions.weight"),
        Rule("embeddings.token_type_embeddings.weight", "types", SAME, lambda s: bool(s["token_types"])),
        *affine("embeddings.LayerNorm", "norm"),
        *joined(attention_names("encoder.layer.{i}.attention.self"), LAYER + "attention.inward", QKV),
        *affine("encoder.layer.{i}.attention.output.dense", LAYER + "attention.outward"),
        *affine("encoder.layer.{i}.attention.output.LayerNorm", LAYER + "around_attention.norm"),
        *affine("encoder.layer.{i}.intermediate.dense", LAYER + "feedforward.first"),
        *affine("encoder.layer.{i}.output.dense", LAYER + "feedforward.second"),
        *affine("encoder.layer.{i}.output.LayerNorm", LAYER + "around_feedforward.norm"),
    ),
    heads={
        "BertForMaskedLM": Head(
            "language",
            (
                *affine("cls.predictions.transform.dense", "transform.linear"),
                *affine("cls.predictions.transform.LayerNorm", "transform.norm"),
                Rule("cls.predictions.decoder.weight", "output.weight", SCORES, untied),
                Rule("cls.predictions.bias", "output.bias", BIAS),
                Rule("cls.predictions.decoder.bias", "output.bias", BIAS, untied),  # the one that counts then
            ),
            {"model": "masked", "output_transform": True},
        ),
        "BertForSequenceClassification": Head(
            "classify", (*POOLER, *CLASSES), {"model": "transformer", "pooling": "first-tanh"}
        ),
        "BertForTokenClassification": Head("tag", CLASSES, {"model": "transformer", "characters": "none"}),
        "BertModel": Head("embed", EMBEDDED, {"model": "transformer", "pooling": "mean"}, bare=True),
    },
    fields=(
        *SIZES,
        Field("intermediate_size", "feedforward"),
        Field("max_position_embeddings", "max_positions", default=512),
        Field("type_vocab_size", "token_types", default=2),
        Field("hidden_act", "activation", ACTIVATIONS, "gelu"),
        Field("layer_norm_eps", "norm_eps", default=1e-12),
    ),
    fixed={
        **{key: value for key, value in PLAIN.items() if key != "token_types"},
        "norm_first": False,
        "embedding_norm": True,
        "positions": "learned",
        "kv_heads": 0,
    },
    needs={
        "position_embedding_type": ("absolute",),
        "is_decoder": (False,),
        "add_cross_attention": (False,),
    },
    silent=(
        "position_ids",
        "cls.predictions.decoder.weight",
        "cls.predictions.decoder.bias",
        "cls.seq_relationship.weight",
        "cls.seq_relationship.bias",
        "pooler.dense.weight",
        "pooler.dense.bias",
    ),
    special=SPECIAL,
    derive=derive,
    complete=complete,
)


# ----------------------------------------------------------------------------
# Megatron-BERT (Shoeybi et al. 2019): BERT with norms before the sublayers, one after the last, none on the embeddings.

MEGATRON_BERT = Architecture(
    model_type="megatron-bert",
    prefix="bert.",
    body=(
        *BERT.body[:3],  # the embeddings without their norm
        *affine("encoder.layer.{i}.attention.ln", LAYER + "around_attention.norm"),
        *joined(attention_names("encoder.layer.{i}.attention.self"), LAYER + "attention.inward", QKV),
        *affine("encoder.layer.{i}.attention.output.dense", LAYER + "attention.outward"),
        *affine("encoder.layer.{i}.ln", LAYER + "around_feedforward.norm"),
        *affine("encoder.layer.{i}.intermediate.dense", LAYER + "feedforward.first"),
        *affine("encoder.layer.{i}.output.dense", LAYER + "feedforward.second"),
        *affine("encoder.ln", "stack.norm"),
    ),
    heads={
        "MegatronBertForMaskedLM": BERT.heads["BertForMaskedLM"],
        "MegatronBertForSequenceClassification": Head(
            "classify", (*POOLER, *CLASSES), {"model": "transformer", "pooling": "first-tanh"}
        ),
        "MegatronBertForTokenClassification": Head(
            "tag", CLASSES, {"model": "transformer", "characters": "none"}
        ),
        "MegatronBertModel": Head("embed", EMBEDDED, {"model": "transformer", "pooling": "mean"}, bare=True),
    },
    fields=BERT.fields,
    fixed={**BERT.fixed, "norm_first": True, "embedding_norm": False},
    needs=BERT.needs,
    silent=BERT.silent,
    special=BERT.special,
    derive=BERT.derive,
    complete=BERT.complete,
)


# ----------------------------------------------------------------------------
# ELECTRA (Clark et al. 2020), where the vectors of symbols are as wide as the layers: BERT with heads of its own.


def _derive_electra(config: Values) -> dict[str, Any]:
    width = config.get("embedding_size", 128)
    if width != config["hidden_size"]:
        raise UnmappedError(f"embedding_size = {width} beside hidden_size = {config['hidden_size']}")
    return derive(config)


def _complete_electra(s: Values) -> dict[str, Any]:
    return {"embedding_size": s["hidden"], "tie_word_embeddings": s["tie"]}


ELECTRA = replace(
    BERT,
    model_type="electra",
    prefix="electra.",
    heads={
        "ElectraForMaskedLM": Head(
            "language",
            (
                *affine("generator_predictions.dense", "transform.linear"),
                *affine("generator_predictions.LayerNorm", "transform.norm"),
                Rule("generator_lm_head.weight", "output.weight", SCORES, untied),
                Rule("generator_lm_head.bias", "output.bias", BIAS),
            ),
            {"model": "masked", "output_transform": True},
        ),
        "ElectraForSequenceClassification": Head(
            "classify",
            (*affine("classifier.dense", "pooling.linear"), *affine("classifier.out_proj", "output")),
            {"model": "transformer", "pooling": "first-gelu"},
        ),
        "ElectraForTokenClassification": Head("tag", CLASSES, {"model": "transformer", "characters": "none"}),
        "ElectraModel": Head("embed", EMBEDDED, {"model": "transformer", "pooling": "mean"}, bare=True),
    },
    silent=("position_ids", "generator_lm_head.weight"),
    derive=_derive_electra,
    complete=_complete_electra,
)


# ----------------------------------------------------------------------------
# RoBERTa (Liu et al. 2019): BERT whose positions count from 2, with heads of other names.

_FIRST = 2  # the position after that of <pad>, which is 1


def _derive_roberta(config: Values) -> dict[str, Any]:
    places = config.get("max_position_embeddings", 514) - _FIRST
    tie = config.get("tie_word_embeddings", True)
    return {"max_positions": places, "context": places - 1, "max_tokens": places - 2, "tie": tie}


def _complete_roberta(s: Values) -> dict[str, Any]:
    return {
        "max_position_embeddings": s["max_positions"] + _FIRST,
        "tie_word_embeddings": s["tie"],
        "pad_token_id": _FIRST - 1,  # positions follow from it
    }


ROBERTA = replace(
    BERT,
    model_type="roberta",
    prefix="roberta.",
    heads={
        "RobertaForMaskedLM": Head(
            "language",
            (
                *affine("lm_head.dense", "transform.linear"),
                *affine("lm_head.layer_norm", "transform.norm"),
                Rule("lm_head.decoder.weight", "output.weight", SCORES, untied),
                Rule("lm_head.bias", "output.bias", BIAS),
                Rule("lm_head.decoder.bias", "output.bias", BIAS, untied),  # the one that counts then
            ),
            {"model": "masked", "output_transform": True},
        ),
        "RobertaForSequenceClassification": Head(
            "classify",
            (*affine("classifier.dense", "pooling.linear"), *affine("classifier.out_proj", "output")),
            {"model": "transformer", "pooling": "first-tanh"},
        ),
        "RobertaForTokenClassification": Head("tag", CLASSES, {"model": "transformer", "characters": "none"}),
        "RobertaModel": Head("embed", EMBEDDED, {"model": "transformer", "pooling": "mean"}, bare=True),
    },
    fields=tuple(
        Field("layer_norm_eps", "norm_eps", default=1e-5) if one.ours == "norm_eps" else one
        for one in BERT.fields
        if one.ours != "max_positions"
    ),
    fixed={**BERT.fixed, "first_position": _FIRST},
    needs={**BERT.needs, "pad_token_id": (1,)},
    silent=(
        "position_ids",
        "lm_head.decoder.weight",
        "lm_head.decoder.bias",
        "pooler.dense.weight",
        "pooler.dense.bias",
    ),
    special=(("<mask>",), ("<unk>",), ("<s>",), ("</s>",)),
    derive=_derive_roberta,
    complete=_complete_roberta,
)


# ----------------------------------------------------------------------------
# DistilBERT (Sanh et al. 2019): half of BERT's layers, no token types.


def _derive_distilbert(config: Values) -> dict[str, Any]:
    places = config.get("max_position_embeddings", 512)
    return {"context": places - 1, "max_tokens": places - 2, "tie": config.get("tie_word_embeddings", True)}


def _complete_distilbert(s: Values) -> dict[str, Any]:
    return {"tie_word_embeddings": s["tie"]}


_LAYER = "transformer.layer.{i}."

DISTILBERT = Architecture(
    model_type="distilbert",
    prefix="distilbert.",
    body=(
        Rule("embeddings.word_embeddings.weight", "embedding.weight", VECTORS),
        Rule("embeddings.position_embeddings.weight", "positions.weight"),
        *affine("embeddings.LayerNorm", "norm"),
        *joined(tuple(f"{_LAYER}attention.{one}_lin" for one in "qkv"), LAYER + "attention.inward", QKV),
        *affine(_LAYER + "attention.out_lin", LAYER + "attention.outward"),
        *affine(_LAYER + "sa_layer_norm", LAYER + "around_attention.norm"),
        *affine(_LAYER + "ffn.lin1", LAYER + "feedforward.first"),
        *affine(_LAYER + "ffn.lin2", LAYER + "feedforward.second"),
        *affine(_LAYER + "output_layer_norm", LAYER + "around_feedforward.norm"),
    ),
    heads={
        "DistilBertForMaskedLM": Head(
            "language",
            (
                *affine("vocab_transform", "transform.linear"),
                *affine("vocab_layer_norm", "transform.norm"),
                Rule("vocab_projector.weight", "output.weight", SCORES, untied),
                Rule("vocab_projector.bias", "output.bias", BIAS),
            ),
            {"model": "masked", "output_transform": True},
        ),
        "DistilBertForSequenceClassification": Head(
            "classify",
            (*affine("pre_classifier", "pooling.linear"), *CLASSES),
            {"model": "transformer", "pooling": "first-relu"},
        ),
        "DistilBertForTokenClassification": Head(
            "tag", CLASSES, {"model": "transformer", "characters": "none"}
        ),
        "DistilBertModel": Head("embed", EMBEDDED, {"model": "transformer", "pooling": "mean"}, bare=True),
    },
    fields=(
        Field("vocab_size", "symbols"),
        Field("dim", "hidden"),
        Field("n_layers", "layers"),
        Field("n_heads", "heads"),
        Field("hidden_dim", "feedforward"),
        Field("max_position_embeddings", "max_positions", default=512),
        Field("activation", "activation", ACTIVATIONS, "gelu"),
    ),
    fixed={
        **PLAIN,
        "norm_eps": 1e-12,
        "norm_first": False,
        "embedding_norm": True,
        "positions": "learned",
        "kv_heads": 0,
    },
    silent=("position_ids", "vocab_projector.weight"),
    special=SPECIAL,
    derive=_derive_distilbert,
    complete=_complete_distilbert,
)
