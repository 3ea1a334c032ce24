"""Pegasus (Zhang et al. 2020): an encoder-decoder that normalises first, and after the last layers."""

from __future__ import annotations

from dataclasses import replace

from anaphora.foreign.architectures import encoder_decoder as parts
from anaphora.foreign.architectures.marian import MARIAN
from anaphora.foreign.mapping import Head

PEGASUS = replace(
    MARIAN,
    model_type="pegasus",
    heads={"PegasusForConditionalGeneration": Head("translate", parts.RULES, {"model": "transformer"})},
    fixed={**parts.FIXED, "norm_first": True},
    complete=parts.complete,
)
