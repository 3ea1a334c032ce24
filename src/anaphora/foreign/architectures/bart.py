"""BART (Lewis et al. 2020) and mBART (Liu et al. 2020): learned positions that count from 2, and a norm of the symbols' vectors."""

from __future__ import annotations

from dataclasses import replace

from anaphora.foreign.architectures import encoder_decoder as parts
from anaphora.foreign.mapping import Architecture, Head

_LEARNED = {**parts.FIXED, "embedding_norm": True, "first_position": 2}

BART = Architecture(
    model_type="bart",
    prefix="",
    body=(),
    heads={"BartForConditionalGeneration": Head("translate", parts.RULES, {"model": "transformer"})},
    fields=parts.FIELDS,
    fixed={**_LEARNED, "norm_first": False},
    needs={"normalize_before": (False,), "add_final_layer_norm": (False,), "normalize_embedding": (True,)},
    silent=parts.SILENT,
    special=parts.SPECIAL,
    derive=parts.derive,
    complete=parts.complete,
)
MBART = replace(
    BART,
    model_type="mbart",
    heads={"MBartForConditionalGeneration": Head("translate", parts.RULES, {"model": "transformer"})},
    fixed={**_LEARNED, "norm_first": True},
    needs={"normalize_before": (True,), "add_final_layer_norm": (True,), "normalize_embedding": (True,)},
)
