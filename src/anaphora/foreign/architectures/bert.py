"""BERT (Devlin et al. 2019): norms after the sublayers and after the embeddings, learned positions, two token types."""

from __future__ import annotations

from typing import Any

from anaphora.foreign.architectures.parts import ACTIVATIONS, LAYER, PLAIN, SIZES, affine, joined, untied
from anaphora.foreign.hows import BIAS, QKV, SAME, SCORES, VECTORS, Identity
from anaphora.foreign.mapping import Architecture, Field, Head, Rule, Values


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
