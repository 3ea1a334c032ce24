"""Marian (Junczys-Dowmunt et al. 2018): the Transformer as published, norms after the sublayers, sines before cosines."""

from __future__ import annotations

from typing import Any

from anaphora.foreign.architectures import encoder_decoder as parts
from anaphora.foreign.mapping import Architecture, Head, Values


def _complete(s: Values) -> dict[str, Any]:
    return parts.complete(s) | {
        "decoder_vocab_size": s.get("target_symbols", s["symbols"]),
        "share_encoder_decoder_embeddings": s["shares"],
    }


MARIAN = Architecture(
    model_type="marian",
    prefix="",
    body=(),
    heads={"MarianMTModel": Head("translate", parts.RULES, {"model": "transformer"})},
    fields=parts.FIELDS,
    fixed={**parts.FIXED, "norm_first": False},
    silent=parts.SILENT,
    special=parts.SPECIAL,
    derive=parts.derive_sines,
    complete=_complete,
)
