"""DistilBERT (Sanh et al. 2019): half of BERT's layers, no token types."""

from __future__ import annotations

from typing import Any

from anaphora.foreign.architectures.bert import CLASSES, EMBEDDED, SPECIAL
from anaphora.foreign.architectures.parts import ACTIVATIONS, LAYER, PLAIN, affine, joined, untied
from anaphora.foreign.hows import BIAS, QKV, SCORES, VECTORS
from anaphora.foreign.mapping import Architecture, Field, Head, Rule, Values


def _derive(config: Values) -> dict[str, Any]:
    places = config.get("max_position_embeddings", 512)
    return {"context": places - 1, "max_tokens": places - 2, "tie": config.get("tie_word_embeddings", True)}


def _complete(s: Values) -> dict[str, Any]:
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
    derive=_derive,
    complete=_complete,
)
