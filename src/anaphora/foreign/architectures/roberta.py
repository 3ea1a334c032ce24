"""RoBERTa (Liu et al. 2019): BERT whose positions count from 2, with heads of other names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anaphora.foreign.architectures.bert import BERT, CLASSES, EMBEDDED
from anaphora.foreign.architectures.parts import affine, untied
from anaphora.foreign.hows import BIAS, SCORES
from anaphora.foreign.mapping import Field, Head, Rule, Values

_FIRST = 2  # the position after that of <pad>, which is 1


def _derive(config: Values) -> dict[str, Any]:
    places = config.get("max_position_embeddings", 514) - _FIRST
    tie = config.get("tie_word_embeddings", True)
    return {"max_positions": places, "context": places - 1, "max_tokens": places - 2, "tie": tie}


def _complete(s: Values) -> dict[str, Any]:
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
    derive=_derive,
    complete=_complete,
)
