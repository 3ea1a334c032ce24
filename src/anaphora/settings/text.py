"""Settings of reading and tokenizing text."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from anaphora.settings.base import Settings
from anaphora.settings.own import Own


class InputColumn(Settings):
    """Which column of a table is the input of ``predict``."""

    source_field: str | None = Field(
        None,
        description="Column of a CSV or JSONL file that holds the input; by default the one the model was trained on.",
    )


class BadInput(Settings):
    """What ``predict`` does with a file that cannot be read."""

    bad_rows: Literal["strict", "skip"] = Field(
        "strict",
        description="What to do with an input that cannot be read: stop and name it, or leave it out and count.",
    )


class HoldoutSettings(Settings):
    """What becomes dev data, in every task."""

    holdout: float = Field(
        0,
        ge=0,
        allow_inf_nan=False,
        description="What becomes dev data where none are given: a share below 1 (0.1), or a count from 1 on (500). 0 = a "
        "twentieth of the examples, at most 1000; of running text and of series the last tenth.",
    )

    @field_validator("holdout")
    @classmethod
    def _share_or_count(cls, value: float) -> float:
        if value > 1 and value % 1:
            raise ValueError("it must be a share below 1 or a whole number of examples")
        return value


class TokenizerSettings(Settings):
    """A tokenizer of the user's own."""

    tokenizer: Annotated[str, Own(objects=True)] = Field(
        "auto",
        description="How texts become symbols: auto learns it as `tokens` says. Or your own: a tokenizer.json of the "
        "`tokenizers` library (a path, or such an object), or a function that cuts a text into pieces, of which the "
        "vocab_size most frequent are kept.",
    )


class TextSettings(TokenizerSettings):
    """How texts are read and become symbols."""

    tokens: Literal["char", "word", "bpe"] = Field(
        "bpe",
        description="What one symbol is: a character, a word between spaces, or a piece learned by byte pair "
        "encoding (needs no list of words and knows no unknown word).",
    )
    vocab_size: int = Field(
        8000,
        ge=8,
        description="Most symbols in the vocabulary. For bpe fewer means shorter pieces; for words the rest becomes <unk>.",
    )
    lowercase: bool = Field(False, description="Fold text to lower case before tokenizing.")
    max_tokens: int = Field(
        256,
        ge=2,
        description="Longer training examples are left out (and counted); longer inputs at prediction are cut, with a warning.",
    )
    bad_rows: Literal["strict", "skip"] = Field(
        "strict",
        description="What to do with a broken row (wrong columns, broken UTF-8, an empty side): stop and name it, "
        "or skip it and report how many were skipped, and why.",
    )


class SidesSettings(TextSettings):
    """Texts that become others: each side may have symbols of its own kind."""

    joint: bool = Field(
        False,
        description="One vocabulary for source and target (needed to tie their embeddings) instead of one each. "
        "lstm-attention assumes it for words with tags, and for up to 5 000 pairs of which a part is copied.",
    )
    source_tokens: Literal["", "char", "word", "bpe", "char+tags"] = Field(
        "",
        description="What one symbol of the source is, where not what `tokens` says. char+tags: a character, but each tag of a word "
        "(`go V;PST`) is one symbol.",
    )
    target_tokens: Literal["", "char", "word", "bpe"] = Field(
        "", description="What one symbol of the target is, where not what `tokens` says."
    )
    target_tokenizer: Annotated[str, Own(objects=True)] = Field(
        "", description="A tokenizer of your own for the target, where it is another than that of the source."
    )

    @model_validator(mode="after")
    def _sides_fit(self) -> Self:
        for key, own in (("source_tokens", self.tokenizer), ("target_tokens", self.target_tokenizer)):
            value = getattr(self, key)
            if value and (own or "auto") != "auto":
                raise ValueError(f"{key} = {value!r} has no place beside a tokenizer of your own")
        tagged = (self.source_tokens, self.target_tokens) == ("char+tags", "char")
        for key in ("source_tokens", "target_tokens", "target_tokenizer"):
            if getattr(self, key) and self.joint and not (tagged and key != "target_tokenizer"):
                raise ValueError(
                    f"{key} = {getattr(self, key)!r} is for one side, but joint = true makes one vocabulary of both: set "
                    "joint = false"
                )
        return self
