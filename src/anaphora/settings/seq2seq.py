"""Settings of encoder-decoder models. Defaults are those of the presets where they name a value."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from anaphora.settings.base import Settings
from anaphora.settings.network import NetworkSettings
from anaphora.settings.seq2seq_variants import PairVariantSettings


class ForcingSettings(Settings):
    """Which symbols a decoder is fed while it is trained."""

    teacher_forcing: float = Field(
        1.0,
        ge=0,
        le=1,
        description="How often the decoder is fed the true previous symbol while training; below 1 it "
        "sometimes gets its own (scheduled sampling).",
    )
    forcing_schedule: Literal["constant", "linear", "exponential", "sigmoid"] = Field(
        "constant",
        description="constant: teacher_forcing from the first step on; else it falls from 1 to teacher_forcing over the "
        "steps of training: in a straight line, fast at first, or slowly, fast and slowly again (inverse sigmoid; "
        "Bengio 2015).",
    )

    @model_validator(mode="after")
    def _falls(self) -> Self:
        if self.forcing_schedule != "constant" and self.teacher_forcing == 1.0:
            raise ValueError(
                f"forcing_schedule = '{self.forcing_schedule}' falls from 1 to teacher_forcing, which is 1: set "
                "teacher_forcing below 1"
            )
        return self


class SmoothingSettings(Settings):
    """Settings of a decoder of symbols."""

    label_smoothing: float = Field(
        0.1, ge=0, lt=1, description="Share of the target probability spread over the whole vocabulary."
    )


class DecoderSettings(ForcingSettings, SmoothingSettings):
    """What every decoder of symbols has."""

    tie: bool = Field(
        True,
        description="Share the target embedding with the output layer, and with the source embedding when "
        "the vocabulary is joint.",
    )


class NoiseSettings(Settings):
    """What makes training of an encoder-decoder harder, so that it fits unseen data better."""

    r_drop: float = Field(
        0.0,
        ge=0,
        allow_inf_nan=False,
        description="α of R-Drop (Wu 2021): each batch is read twice with different dropout, and α times the divergence of the two "
        "predictions, KL in both directions, is added to the loss (5 there); twice the work of a step. 0 = off.",
    )
    bpe_dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="How often each merge of tokens = bpe is left out while training, so that a word is cut into other pieces each "
        "time it is read (BPE-dropout, Provilkov 2020: 0.1); for predictions texts are cut as usual. 0 = off.",
    )
    invented: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of the training words that are invented, others in each pass: the beginning of what a word and its form have "
        "in common comes from another word with the same tags that is inflected alike (Anastasopoulos & Neubig 2019 take random letters). Assumed for words "
        "with tags; needs letters on both sides. 0 = off.",
    )


class AttentionSettings(Settings):
    """How a recurrent decoder looks at what was read."""

    attention: Literal["additive", "dot", "bilinear"] = Field(
        "bilinear",
        description="How a decoder state is compared with an annotation: vᵀtanh(Ws+Uh), s·h, or sᵀWh.",
    )


class Seq2SeqSettings(
    PairVariantSettings, AttentionSettings, NoiseSettings, DecoderSettings, NetworkSettings
):
    """Symbols in, symbols out."""

    reverse_source: bool = Field(
        False,
        description="Feed the source last symbol first (Sutskever 2014): helps models without attention.",
    )
    input_dropout: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of the values of symbols' vectors with their positions set to zero while a Transformer is trained, before "
        "its first layer. Much of it destroys counting: long runs of equal symbols come out one short.",
    )
    input_feeding: bool = Field(
        False,
        description="Feed the attended vector into the next step (Luong 2015). Often a little better, but steps can "
        "no longer be trained all at once, so slower.",
    )
    lexical: bool = Field(
        False,
        description="Let the symbols that are looked at speak for themselves, past the states (Nguyen & Chiang 2018): a map of their "
        "vectors is added before the output layer. A lexicon is learned from fewer pairs, and copying is easy, above all with "
        "joint = true. lstm-attention assumes it for up to 5 000 pairs and for words with tags.",
    )
