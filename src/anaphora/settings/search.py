"""Settings of searching for the best output."""

from __future__ import annotations

from pydantic import Field

from anaphora.settings.base import Settings


class SearchSettings(Settings):
    beam: int = Field(5, ge=1, le=1000, description="Hypotheses kept at each step; 1 is greedy.")
    length_penalty: float = Field(
        1.0,
        ge=0,
        le=10,
        allow_inf_nan=False,
        description="α in score = log p / lengthᵅ; 0 prefers short outputs, 1 is the mean per symbol.",
    )
    max_length: int = Field(
        0, ge=0, description="Most symbols in an output; 0 = 3 × the source’s symbols + 20."
    )
