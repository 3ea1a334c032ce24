"""Texts as a model reads them: symbols of a tokenizer, or n-grams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from random import Random
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from anaphora.data.asked import Asked, asked_batches
from anaphora.data.batches.pooled import padded_inputs
from anaphora.data.contexts import Context
from anaphora.data.ngrams import NGramSet
from anaphora.data.tokenizers import Tokenizer, sound_text
from anaphora.errors import DataError
from anaphora.files.schemas import checked
from anaphora.kinds.doors import UNLIMITED, Bounds
from anaphora.kinds.kind import Arrays, Encoded, InputKind


class Texts(InputKind):
    """A text, whatever a model makes of it."""

    name = "text"
    unit = "symbols"
    textual = True
    schema: ClassVar[Any] = Annotated[str, Field(description="A text.")]

    def collate(self, rows: Sequence[Encoded]) -> Arrays:
        table, lengths = padded_inputs(rows)
        return {"symbols": table, "lengths": lengths}

    def from_json(self, given: Any, where: str, bounds: Bounds) -> str:
        """Return a text; nothing is cut into symbols yet."""
        if not isinstance(given, str):
            raise DataError(f"{where} is not a text; give texts in quotes.")
        if not bounds.blank and not given.strip():
            raise DataError(f"{where} is empty; give at least one symbol.")
        return bounds.text(given, where)

    def from_bytes(self, content: bytes, where: str, bounds: Bounds) -> str:
        return self.from_json(text_of(content, where), where, bounds)

    def from_file(self, source: str, learnt: Mapping[str, Any], field: str | None) -> Iterator[list[Asked]]:
        return asked_batches(source, learnt, field)

    def from_text(self, line: str) -> str:
        return line

    @property
    def words(self) -> list[str]:
        """Words of which examples are made."""
        return list("abcdefgh")

    def example(self, draw: Random, length: int, most: int = UNLIMITED) -> str:
        return " ".join(draw.choices(self.words, k=max(1, min(length, most // 4))))


@dataclass(frozen=True)
class TextInputs(Texts):
    """Texts as symbol ids."""

    tokenizer: Tokenizer
    begin: int | None = None
    """The symbol put before each text, where a language model that is taken over began with one."""
    end: bool = True
    """Whether the </s> after each text is read."""
    context: tuple[Context, ...] = ()
    """The language models that give vectors in context."""
    kind: ClassVar[str] = "text"

    @property
    def sizes(self) -> dict[str, int]:
        return {"symbols": self.tokenizer.size}

    def encode(self, cells: Sequence[Any]) -> list[Encoded]:
        return [np.array(ids, dtype=np.int32) for ids in self.tokenizer.encode_batch(texts_of(cells))]

    def length(self, x: str) -> int:
        return len(self.tokenizer.encode(x))

    @cached_property
    def words(self) -> list[str]:
        """Symbols of the vocabulary that are words."""
        spelled = [self.tokenizer.decode([symbol]).strip() for symbol in range(min(self.tokenizer.size, 300))]
        return [word for word in spelled if word.isalnum()] or ["a", "b"]

    @property
    def framing(self) -> dict[str, Any]:
        """What the model has to know besides sizes."""
        return {"begin": self.begin, "end": self.end, "context": self.context}

    def to_facts(self) -> dict[str, Any]:
        context = [asdict(one) for one in self.context]
        return {"kind": self.kind, "begin": self.begin, "end": self.end, "context": context}

    @classmethod
    def from_facts(cls, tokenizer: Tokenizer, given: dict[str, Any]) -> TextInputs:
        """As written by `to_facts`; older runs hold nothing but their kind."""
        begin = given.get("begin")
        if begin is not None and not 0 <= checked(int, begin) < tokenizer.size:
            raise ValueError(f"begin: {begin} is no symbol of the tokenizer")
        context = checked(tuple[Context, ...], given.get("context", []))
        return cls(tokenizer, begin, checked(bool, given.get("end", True)), context)


@dataclass(frozen=True)
class NGramInputs(Texts):
    """Texts as the ids of their n-grams, each once."""

    grams: NGramSet
    kind: ClassVar[str] = "ngrams"

    @property
    def sizes(self) -> dict[str, int]:
        return {"symbols": self.grams.size}

    def encode(self, cells: Sequence[Any]) -> list[Encoded]:
        return [self.grams.encode(sound_text(text)) for text in texts_of(cells)]

    def to_facts(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self.grams)}

    @classmethod
    def from_facts(cls, given: dict[str, Any], packed: bytes | None = None) -> NGramInputs:
        """As written by `to_facts`; ``packed``: the n-grams themselves, where `NGramSet.packed` holds them."""
        grams = checked(NGramSet, {name: value for name, value in given.items() if name != "kind"})
        return cls(grams if packed is None else grams.with_packed(packed))


def text_of(content: bytes, where: str) -> str:
    """Return the text of a file, without its last line break; a `DataError` for one that is not UTF-8."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{where} is not UTF-8 text (byte {error.start + 1}); save it as UTF-8.") from None
    return text.removesuffix("\n").removesuffix("\r")


def texts_of(given: Sequence[Any]) -> list[str]:
    """Return the inputs, where each is a text."""
    for number, text in enumerate(given, start=1):
        if not isinstance(text, str):
            raise DataError(f"input {number} is a {type(text).__name__}, not a text; give a list of str.")
    return list(given)
