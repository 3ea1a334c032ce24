"""Settings of beginning with what was learned before instead of from nothing."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from anaphora.settings.base import Settings


class InitSettings(Settings):
    """The model to begin with, for tasks that take its weights."""

    init: str = Field(
        "",
        description="Run folder of a language model (of a translator: another translator's), or folder of a model of transformers, whose symbols, sizes and weights the model begins with "
        "(Dai & Le 2015, GPT, BERT); several, separated by commas, give contextual vectors instead (ELMo).",
    )

    @property
    def donors(self) -> tuple[str, ...]:
        """The folders that ``init`` names."""
        return tuple(part.strip() for part in self.init.split(",") if part.strip())

    @property
    def donates(self) -> Literal["nothing", "weights", "vectors"]:
        """What the models of ``init`` give."""
        return "weights" if self.donors else "nothing"


class PretrainedSettings(InitSettings):
    init_as: Literal["auto", "weights", "vectors"] = Field(
        "auto",
        description="What becomes of the language models that init names. weights: the model begins with those of one and "
        "changes them; vectors: they stay as they are, and every symbol gets, beside a vector of its own, a learned "
        "mixture of all their layers (ELMo); auto: weights of one, vectors of several.",
    )
    embeddings: str = Field(
        "",
        description="Word vectors to begin with: a word2vec file (text or binary) or a saved model of an.Word2Vec, "
        "an.GloVe …; words without one begin at random.",
    )
    mix: bool = Field(
        False,
        description="Read a learned mixture of all layers of the Transformer that init gives, the vectors of the symbols among "
        "them, γ Σ softmax(s)_l h_l, instead of the highest layer alone (ELMo).",
    )
    causal: bool = Field(
        False,
        description="Every place of a Transformer sees only the places before it, as in GPT; a language model that "
        "init names decides it.",
    )

    @model_validator(mode="after")
    def _begun(self) -> Self:
        if self.mix and self.donates != "weights":
            raise ValueError(
                "mix = true is about the layers of the model that init gives: set init, without vectors"
            )
        return self

    @property
    def donates(self) -> Literal["nothing", "weights", "vectors"]:
        """What the language models of ``init`` give."""
        if not self.donors:
            return "nothing"
        if self.init_as != "auto":
            return self.init_as
        return "weights" if len(self.donors) == 1 else "vectors"
