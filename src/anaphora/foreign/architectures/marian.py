"""Marian (Junczys-Dowmunt et al. 2018): the Transformer as published, norms after the sublayers."""

from __future__ import annotations

from anaphora.foreign.architectures import encoder_decoder as parts
from anaphora.foreign.mapping import Architecture, Head

MARIAN = Architecture(
    model_type="marian",
    prefix="",
    body=(),
    heads={
        "MarianMTModel": Head(
            "translate", parts.rules(lambda s: bool(s["shares"])), {"model": "transformer"}
        ),
    },
    fields=parts.FIELDS,
    fixed={**parts.FIXED, "norm_first": False},
    silent=("embed_tokens.weight", "lm_head.weight", "embed_positions.weight", "model.shared.weight"),
    special=parts.SPECIAL,
    derive=parts.derive,
    complete=parts.complete,
)
