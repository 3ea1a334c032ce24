"""What a classifier reads, as numbers: texts by a tokenizer, vectors and pictures by their mean and scale; all learned."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from pydantic import FiniteFloat, PositiveInt

from anaphora.data.batches.pooled import Input
from anaphora.data.contexts import Context
from anaphora.data.ngrams import NGramSet
from anaphora.data.resampling import Fit
from anaphora.data.sources.arrays import Array, as_sequence, picture_size
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import DataError
from anaphora.files.schemas import checked

Features = Callable[[Array, str], Array]
"""The user's own: of a sequence and what to call it in a sentence."""


@dataclass(frozen=True)
class TextInputs:
    """Texts as symbol ids."""

    tokenizer: Tokenizer
    begin: int | None = None
    """The symbol put before each text, where a language model that is taken over began with one."""
    end: bool = True
    """Whether the </s> after each text is read."""
    context: tuple[Context, ...] = ()
    """The language models that give vectors in context."""
    kind = "text"

    @property
    def sizes(self) -> dict[str, int]:
        return {"symbols": self.tokenizer.size}

    def encode(self, given: Sequence[Any], scan: str) -> list[Input]:
        return [np.array(ids, dtype=np.int32) for ids in self.tokenizer.encode_batch(_texts(given))]

    @property
    def framing(self) -> dict[str, Any]:
        """What the model has to know besides sizes."""
        return {"begin": self.begin, "end": self.end, "context": self.context}

    def to_json(self) -> dict[str, Any]:
        context = [asdict(one) for one in self.context]
        return {"kind": self.kind, "begin": self.begin, "end": self.end, "context": context}

    @classmethod
    def from_json(cls, tokenizer: Tokenizer, given: dict[str, Any]) -> TextInputs:
        """As written by `to_json`; older runs hold nothing but their kind."""
        begin = given.get("begin")
        if begin is not None and not 0 <= checked(int, begin) < tokenizer.size:
            raise ValueError(f"begin: {begin} is no symbol of the tokenizer")
        context = checked(tuple[Context, ...], given.get("context", []))
        return cls(tokenizer, begin, checked(bool, given.get("end", True)), context)


@dataclass(frozen=True)
class NGramInputs:
    """Texts as the ids of their n-grams, each once."""

    grams: NGramSet
    kind = "ngrams"

    @property
    def sizes(self) -> dict[str, int]:
        return {"symbols": self.grams.size}

    def encode(self, given: Sequence[Any], scan: str) -> list[Input]:
        return [self.grams.encode(text) for text in _texts(given)]

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **asdict(self.grams)}

    @classmethod
    def from_json(cls, given: dict[str, Any], packed: bytes | None = None) -> NGramInputs:
        """As written by `to_json`; ``packed``: the n-grams themselves, where `NGramSet.packed` holds them."""
        grams = checked(NGramSet, {name: value for name, value in given.items() if name != "kind"})
        return cls(grams if packed is None else grams.with_packed(packed))


@dataclass(frozen=True)
class VectorInputs:
    """Vectors as (x − mean)/scale, feature by feature; pictures channel by channel, all of one ``size``."""

    mean: Array
    scale: Array
    size: tuple[int, int] | None = None
    """Rows and columns of a picture; None for sequences."""
    features: Features | None = field(default=None, compare=False)
    """What the user makes of each sequence, by its name, before it is scaled."""
    fit: Fit | None = None
    """How pictures of other sizes are brought to ``size``; None: they are an error."""
    kind = "vectors"

    @classmethod
    def learn(cls, sequences: Sequence[Array], how: str, own: Features | None = None) -> VectorInputs:
        """Mean and standard deviation of the training data; a feature that never changes is only shifted."""
        if own is not None:
            sequences = [own(x, f"example {i}") for i, x in enumerate(sequences, start=1)]
            return replace(cls.learn(sequences, how), features=own)
        size = sequences[0].shape[:2] if sequences[0].ndim == 3 else None
        features = sequences[0].shape[-1]
        if how == "none":
            return cls(np.zeros(features, np.float32), np.ones(features, np.float32), size)
        axis = 0 if how == "features" else None
        sequences = [x.reshape(-1, features) for x in sequences]
        steps = sum(len(x) for x in sequences)
        count = steps if how == "features" else steps * features
        mean = sum(x.sum(axis, dtype=np.float64) for x in sequences) / count
        spread = sum(((x - mean) ** 2).sum(axis, dtype=np.float64) for x in sequences) / count
        scale = np.sqrt(np.where(spread > 1e-12, spread, 1.0))
        return cls(
            np.broadcast_to(mean, features).astype(np.float32),
            np.broadcast_to(scale, features).astype(np.float32),
            size,
        )

    @property
    def sizes(self) -> dict[str, int]:
        if self.size is None:
            return {"features": len(self.mean)}
        return {"rows": self.size[0], "columns": self.size[1], "channels": len(self.mean)}

    def encode(self, given: Sequence[Any], scan: str) -> list[Input]:
        return [
            (self.seen(x, f"input {i}", scan) - self.mean) / self.scale for i, x in enumerate(given, start=1)
        ]

    def seen(self, x: Any, name: str, scan: str) -> Array:
        """Return an input as the model sees it, before it is scaled; a `DataError` that begins with ``name`` where it has not the
        form of those of training."""
        found = self._seen(x, name, scan)
        if self.size is not None and found.shape != (shape := (*self.size, len(self.mean))):
            raise DataError(
                f"{name} has {picture_size(found.shape)} where the model was trained on pictures with "
                f"{picture_size(shape)}; bring it to that size."
            )
        if found.shape[-1] != len(self.mean):
            raise DataError(
                f"{name} has {found.shape[-1]} features where the model was trained on {len(self.mean)}; give the same."
            )
        return found

    def _seen(self, x: Any, name: str, scan: str) -> Array:
        found = as_sequence(x, name, scan=scan)
        if self.fit is not None and self.size is not None:
            found = self.fit(found, self.size, name)
        return found if self.features is None else self.features(found, name)

    def to_json(self) -> dict[str, Any]:
        size: dict[str, Any] = {} if self.size is None else {"size": list(self.size)}
        size |= {} if self.fit is None else {"fit": self.fit.to_json()}
        return {"kind": self.kind, "mean": _shortest(self.mean), "scale": _shortest(self.scale), **size}

    @classmethod
    def from_json(cls, given: dict[str, Any], features: Features | None = None) -> VectorInputs:
        mean, scale = (checked(list[FiniteFloat], given[name]) for name in ("mean", "scale"))
        size = checked(tuple[PositiveInt, PositiveInt], given["size"]) if "size" in given else None
        if not mean or len(mean) != len(scale) or min(scale) <= 0:
            raise ValueError("scale: a number above 0 for each feature is needed")
        fit = checked(Fit, given["fit"]) if "fit" in given else None
        return cls(np.array(mean, np.float32), np.array(scale, np.float32), size, features, fit)


Inputs = TextInputs | NGramInputs | VectorInputs


def cut(inputs: list[Input], longest: int, what: str = "inputs") -> list[Input]:
    """Inputs of at most ``longest`` steps, with a warning that counts those that were longer; ``what`` it calls them."""
    long = sum(len(x) > longest for x in inputs)
    if long:
        warnings.warn(
            f"{long} of {len(inputs)} {what} were longer than max_tokens = {longest} and were cut",
            stacklevel=4,
        )
    return [x[:longest] for x in inputs]


def _texts(given: Sequence[Any]) -> list[str]:
    for number, text in enumerate(given, start=1):
        if not isinstance(text, str):
            raise DataError(f"input {number} is a {type(text).__name__}, not a text; give a list of str.")
    return list(given)


def _shortest(values: Array) -> list[float]:
    """Decimals from which the same float32 is read again."""
    return [float(str(value)) for value in values]
