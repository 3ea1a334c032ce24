"""Sequences of vectors and pictures as a model reads them: scaled by what the training data were."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from pydantic import Field, FiniteFloat, PositiveInt

from anaphora.data.asked import Asked
from anaphora.data.asked_vectors import sequence_batches
from anaphora.data.batches.pooled import padded_inputs
from anaphora.data.labelled_targets import Targets
from anaphora.data.resampling import Fit
from anaphora.data.sources.arrays import Array, as_sequence, picture_size
from anaphora.errors import DataError
from anaphora.files.schemas import checked
from anaphora.kinds.doors import UNLIMITED, Bounds, array_of, drawn, numbers_of, picture_of
from anaphora.kinds.kind import Arrays, Encoded, InputKind

Features = Callable[[Array, str], Array]
"""The user's own: of a sequence and what to call it in a sentence."""


@dataclass(frozen=True)
class VectorInputs(InputKind):
    """Vectors as (x − mean)/scale, feature by feature; pictures channel by channel, all of one ``size``."""

    mean: Array
    scale: Array
    size: tuple[int, int] | None = None
    """Rows and columns of a picture; None for sequences."""
    features: Features | None = field(default=None, compare=False)
    """What the user makes of each sequence, by its name, before it is scaled."""
    fit: Fit | None = None
    """How pictures of other sizes are brought to ``size``; None: they are an error."""
    scan: str = field(default="rows", compare=False)
    """How an array becomes a sequence, as the setting says: its rows, its pixels, or a whole picture."""
    kind: ClassVar[str] = "vectors"
    name: ClassVar[str] = "vectors"
    schema: ClassVar[Any] = Annotated[list[list[float]], Field(description="Numbers (time, features).")]

    @classmethod
    def learn(cls, sequences: Sequence[Array], how: str, own: Features | None = None) -> VectorInputs:
        """Mean and standard deviation of the training data; a feature that never changes is only shifted."""
        if own is not None:
            sequences = [own(x, f"example {i}") for i, x in enumerate(sequences, start=1)]
            return replace(cls.learn(sequences, how), features=own)
        size = sequences[0].shape[:2] if sequences[0].ndim == 3 else None
        features = sequences[0].shape[-1]
        if how == "none":
            return cls.unscaled(features, size)
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

    @classmethod
    def unscaled(cls, features: int, size: tuple[int, int] | None = None) -> VectorInputs:
        """Vectors as they are."""
        return cls(np.zeros(features, np.float32), np.ones(features, np.float32), size)

    @property
    def sizes(self) -> dict[str, int]:
        if self.size is None:
            return {"features": len(self.mean)}
        return {"rows": self.size[0], "columns": self.size[1], "channels": len(self.mean)}

    def encode(self, cells: Sequence[Any]) -> list[Encoded]:
        return [(self.seen(x, f"input {i}") - self.mean) / self.scale for i, x in enumerate(cells, start=1)]

    def seen(self, x: Any, name: str) -> Array:
        """Return an input as the model sees it, before it is scaled; a `DataError` that begins with ``name`` where it has not the
        form of those of training."""
        found = self._seen(x, name)
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

    def _seen(self, x: Any, name: str) -> Array:
        found = as_sequence(x, name, scan=self.scan)
        if self.fit is not None and self.size is not None:
            found = self.fit(found, self.size, name)
        return found if self.features is None else self.features(found, name)

    def collate(self, rows: Sequence[Encoded]) -> Arrays:
        """Vectors ``(batch, time, features)`` or pictures ``(batch, rows, columns, channels)``."""
        table, lengths = padded_inputs(rows)
        return {"vectors" if self.size is None else "pictures": table, "lengths": lengths}

    def reading(self, scan: str) -> Self:
        """Return the same for arrays that are scanned so."""
        return replace(self, scan=scan)

    def from_json(self, given: Any, where: str, bounds: Bounds) -> Array:
        """Return a sequence or a picture out of lists of numbers."""
        return as_sequence(numbers_of(given, where), where, scan=self.scan)

    def from_bytes(self, content: bytes, where: str, bounds: Bounds) -> Array:
        """Return a sequence out of an ``.npy`` file, or the pixels of a picture."""
        npy = content.startswith(b"\x93NUMPY")
        found = array_of(content, where) if npy else picture_of(content, where, None, bounds.pixels)
        return as_sequence(found, where, scan=self.scan)

    def from_file(self, source: str, learnt: Mapping[str, Any], field: str | None) -> Iterator[list[Asked]]:
        for batch in sequence_batches(source, self.seen, self.scan):
            yield [Asked(x, str) for x in batch]

    def from_text(self, line: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        return typed_numbers(line)

    def example(self, draw: Random, length: int, most: int = UNLIMITED) -> Array:
        """Return random numbers of the shape of training; those of a picture from 0 to 255 where pictures are brought to one size."""
        features = len(self.mean)
        found = drawn(draw, (*self.size, features) if self.size else (min(length, most), features))
        if self.fit is not None:
            found = np.rint(255 * np.abs(np.tanh(found)))
        return found.astype(np.float32)

    def to_facts(self) -> dict[str, Any]:
        size: dict[str, Any] = {} if self.size is None else {"size": list(self.size)}
        size |= {} if self.fit is None else {"fit": self.fit.to_json()}
        return {"kind": self.kind, "mean": _shortest(self.mean), "scale": _shortest(self.scale), **size}

    @classmethod
    def from_facts(cls, given: dict[str, Any], features: Features | None = None) -> VectorInputs:
        """As written by `to_facts`; ``features`` are the user's own."""
        mean, scale = (checked(list[FiniteFloat], given[name]) for name in ("mean", "scale"))
        size = checked(tuple[PositiveInt, PositiveInt], given["size"]) if "size" in given else None
        if not mean or len(mean) != len(scale) or min(scale) <= 0:
            raise ValueError("scale: a number above 0 for each feature is needed")
        fit = checked(Fit, given["fit"]) if "fit" in given else None
        return cls(np.array(mean, np.float32), np.array(scale, np.float32), size, features, fit)


@dataclass(frozen=True)
class FrameReader:
    """Frames to numbers, scaled as the training data ask for, and what the labels of frames are."""

    inputs: VectorInputs
    targets: Targets
    letters = None

    def read(self, sequences: Sequence[Any]) -> list[Array]:
        """An array ``(time, features)`` for each sequence."""
        return self.inputs.encode(sequences)

    def to_json(self) -> dict[str, Any]:
        return {"inputs": self.inputs.to_facts(), "targets": self.targets.to_json()}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> FrameReader:
        """What `to_json` wrote; a ValueError or LookupError where it is something else."""
        return cls(VectorInputs.from_facts(given["inputs"]), Targets.from_json(given["targets"]))


def typed_numbers(text: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return numbers that were typed, (time, columns): a line for each step, columns with commas or spaces between."""
    rows = []
    for number, line in enumerate(filter(str.strip, text.replace(";", "\n").splitlines()), start=1):
        try:
            rows.append([float(word) for word in line.replace(",", " ").split()])
        except ValueError:
            raise DataError(
                f"line {number} of the input is not numbers; type a line for each step, with spaces between columns."
            ) from None
    if not rows or len({len(row) for row in rows}) > 1:
        raise DataError("the input must be lines of numbers, each with as many as the others.")
    return np.array(rows)


def _shortest(values: Array) -> list[float]:
    """Decimals from which the same float32 is read again."""
    return [float(str(value)) for value in values]
