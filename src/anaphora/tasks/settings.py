"""All settings of each task, put together from the glossary."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from anaphora.settings import SearchSettings, Seq2SeqSettings, TextSettings, TrainingSettings
from anaphora.settings.network import transformer_problem
from anaphora.settings.search import search_problem


class TranslatorSettings(TextSettings, Seq2SeqSettings, TrainingSettings, SearchSettings):
    model: str = Field("lstm-attention", description="The preset: `anaphora models` lists them.")
    metric: Literal["chrf", "bleu", "exact_match", "loss"] = Field(
        "chrf",
        description="The dev measure that decides which weights are best. chrF also tells outputs of few words apart, "
        "where BLEU is 0 for lack of four-word sequences.",
    )
    bleu_tokenize: Literal["13a", "none", "intl", "char", "zh"] = Field(
        "13a",
        description="How sacrebleu splits text before counting; `none` for text that is tokenized already.",
    )
    valid_examples: int = Field(
        1000, ge=1, description="Most dev examples decoded at each evaluation while training."
    )

    @model_validator(mode="after")
    def _shapes_fit(self) -> TranslatorSettings:
        problem = transformer_problem(self.hidden, self.heads) if self.model == "transformer" else None
        problem = problem or search_problem(self)
        if problem:
            raise ValueError(problem)
        if self.model.endswith("-attention") and self.attention == "dot" and self.bidirectional:
            raise ValueError(
                "attention = 'dot' needs states and annotations of one width, but both directions give "
                f"annotations of {2 * self.hidden} and states of {self.hidden}: "
                "set bidirectional = false, or attention = 'bilinear'"
            )
        return self


class TranslateOptions(SearchSettings):
    """What ``predict`` takes: how to search, and how many outputs to give."""

    n_best: int = Field(1, ge=1, le=1000, description="Outputs given for each input, best first.")
