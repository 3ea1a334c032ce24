"""Settings of beginning with what was learnt before instead of from nothing."""

from __future__ import annotations

from pydantic import Field

from anaphora.settings.base import Settings


class PretrainedSettings(Settings):
    init: str = Field(
        "",
        description="Run folder of a language model whose symbols, sizes and weights the model begins with "
        "(Dai & Le 2015, GPT, BERT); several, separated by commas, give contextual vectors instead (ELMo).",
    )
    embeddings: str = Field(
        "",
        description="Word vectors to begin with: a word2vec file (text or binary) or a saved model of an.Word2Vec, "
        "an.GloVe …; words without one begin at random.",
    )
    causal: bool = Field(
        False,
        description="Every place of a Transformer sees only the places before it, as in GPT; a language model that "
        "init names decides it.",
    )
