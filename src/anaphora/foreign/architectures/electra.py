"""ELECTRA (Clark et al. 2020), where the vectors of symbols are as wide as the layers: BERT with heads of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anaphora.foreign.architectures.bert import BERT, CLASSES, EMBEDDED
from anaphora.foreign.architectures.bert import derive as of_bert
from anaphora.foreign.architectures.parts import affine, untied
from anaphora.foreign.hows import BIAS, SCORES
from anaphora.foreign.mapping import Head, Rule, UnmappedError, Values


def _derive(config: Values) -> dict[str, Any]:
    width = config.get("embedding_size", 128)
    if width != config["hidden_size"]:
        raise UnmappedError(f"embedding_size = {width} beside hidden_size = {config['hidden_size']}")
    return of_bert(config)


def _complete(s: Values) -> dict[str, Any]:
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
    derive=_derive,
    complete=_complete,
)
