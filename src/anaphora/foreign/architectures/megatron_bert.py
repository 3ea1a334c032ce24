"""Megatron-BERT (Shoeybi et al. 2019): BERT with norms before the sublayers, one after the last, none on the embeddings."""

from __future__ import annotations

from anaphora.foreign.architectures.bert import BERT, CLASSES, EMBEDDED, POOLER, attention_names
from anaphora.foreign.architectures.parts import LAYER, affine, joined
from anaphora.foreign.hows import QKV
from anaphora.foreign.mapping import Architecture, Head

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
