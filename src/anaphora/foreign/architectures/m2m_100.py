"""M2M-100 (Fan et al. 2021) and NLLB (Costa-jussà et al. 2022): norms before the sublayers, sines that count from 2, and a
symbol for each language before the source and at the beginning of the output."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from anaphora.foreign.architectures import encoder_decoder as parts
from anaphora.foreign.architectures.bart import MBART
from anaphora.foreign.architectures.parts import ACTIVATIONS
from anaphora.foreign.hows import NO_BIAS
from anaphora.foreign.mapping import Field, Head, Rule, Values

_RULES = (
    *(rule for rule in parts.RULES if rule.ours != "decoder.output.bias"),
    Rule((), "decoder.output.bias", NO_BIAS),
)


def _derive(config: Values) -> dict[str, Any]:
    """Positions count from the one behind the number of <pad>, as in fairseq."""
    return parts.derive(config) | {"first_position": int(config.get("pad_token_id", 1)) + 1}


M2M_100 = replace(
    MBART,
    model_type="m2m_100",
    heads={"M2M100ForConditionalGeneration": Head("translate", _RULES, {"model": "transformer"})},
    fields=(
        *parts.FIELDS[:-2],
        Field("activation_function", "activation", ACTIVATIONS, "relu"),
        Field("scale_embedding", "embedding_scale", default=True),
    ),
    fixed={
        **{key: value for key, value in parts.FIXED.items() if key != "first_position"},
        "norm_first": True,
        "positions": "sinusoidal",
        "sine_halves": True,
        "sine_spread": True,
    },
    needs={},
    derive=_derive,
    silent=(*parts.SILENT, "embed_positions.weights"),
)
MANY = ("m2m_100",)
"""Types whose models translate between many languages."""
