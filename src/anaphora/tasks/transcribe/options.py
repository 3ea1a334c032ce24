"""What ``predict`` and ``score`` of a transcriber take. Nothing here imports torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from anaphora.settings import Settings


class TranscribeOptions(Settings):
    """How recordings are read and texts searched for."""

    beam: int = Field(
        0,
        ge=0,
        le=1000,
        description="Beginnings of the text kept while searching; 1 is greedy; 0 = 8, or 64 with a lexicon.",
    )
    n_best: int = Field(1, ge=1, le=1000, description="Texts given for each recording, the best first.")
    lexicon: str = Field(
        "",
        description="The words that may come out: a file with a word per line, or word⇥symbols; or train, for the words of "
        "the training transcripts. Without it anything may be spelled.",
    )
    lm: str = Field(
        "",
        description="A language model over words: an ARPA file, or the run of a LanguageModel. It needs a lexicon, which is "
        "train where none is given.",
    )
    lm_weight: float = Field(
        0.5, ge=0, allow_inf_nan=False, description="What log p of the language model counts in the score."
    )
    word_bonus: float = Field(
        0.0,
        allow_inf_nan=False,
        description="Added to the score for every word; above 0 against words that are swallowed.",
    )
    window: float = Field(
        30.0,
        gt=0,
        allow_inf_nan=False,
        description="Recordings of more seconds are read in windows of this length.",
    )
    overlap: float = Field(
        8.0,
        ge=0,
        allow_inf_nan=False,
        description="Seconds that neighbouring windows share; half of it at each end is heard only as context.",
    )
    bad_rows: Literal["strict", "skip"] = Field(
        "strict",
        description="What to do with a recording that cannot be read: stop and name it, or leave it out and count.",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> TranscribeOptions:
        if self.overlap >= self.window:
            raise ValueError(f"overlap = {self.overlap:g} must be less than window = {self.window:g}")
        if self.word_bonus and not (self.lexicon or self.lm):
            raise ValueError("word_bonus is about words: give a lexicon, or lexicon = train")
        if self.beam and self.n_best > self.beam:
            raise ValueError(f"n_best = {self.n_best} needs a beam at least as wide, not {self.beam}")
        return self
