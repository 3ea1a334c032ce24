"""What is to be predicted: one class, several classes, or a number; learned from the labels of the training data."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anaphora.data.numeric import LARGEST, is_number
from anaphora.errors import DataError
from anaphora.files.schemas import checked

SEPARATOR = "|"
"""Between the labels of an example that has several; ``-`` alone says that it has none."""
NONE = "-"
USUAL_THRESHOLD = 0.5
"""Of several labels those are given that are at least so probable, where nothing chooses another threshold."""
Numbers = np.ndarray[Any, np.dtype[np.float64]]
FEW_NUMBERS = 20
"""Up to so many different numbers, such as ratings from 0.5 to 5, may well be classes."""
UNKNOWN = -1
"""Stands for a label that the training data do not have; such an example counts as a mistake."""


@dataclass(frozen=True)
class Targets:
    """``kind`` is class, classes or number; ``names`` the classes in order; ``mean`` and ``scale`` those of numbers.

    A number y is learned as (y − mean)/scale, so that the loss does not depend on its unit.
    """

    kind: str
    names: tuple[str, ...] = ()
    mean: float = 0.0
    scale: float = 1.0
    labels: str = "str"
    """The type of the labels in Python: str, int, float or bool; names are their texts."""

    @classmethod
    def learn(cls, kind: str, labels: Sequence[str]) -> Targets:
        """What the labels of the training data say, or a `DataError` when nothing can be learned from them."""
        if kind == "number":
            values = cls(kind)._numbers(labels)
            scale = float(values.std())
            if scale == 0 and values.min() != values.max():
                raise DataError(
                    "the numbers to learn differ by too little to compute with; use a smaller unit."
                )
            if scale == 0:
                raise DataError(
                    f"All {len(labels)} training examples have the number {labels[0]}; there is nothing to learn."
                )
            return cls(kind, mean=float(values.mean()), scale=scale)
        names = _sorted(
            {name for label in labels for name in (split(label) if kind == "classes" else [label])}
        )
        if len(names) < (2 if kind == "class" else 1):
            only = f"the label {names[0]}" if names else "no label"
            many = (
                f"All {len(labels)} training examples have"
                if len(labels) > 1
                else "The only training example has"
            )
            raise DataError(f"{many} {only}; a classifier needs at least two classes.")
        if kind == "class" and len(labels) > 20 and len(names) > len(labels) / 2:
            raise DataError(
                f"The {len(labels)} examples have {len(names)} different labels ({names[0]}, {names[1]} …), so this is hardly "
                'the column of the labels; name it (--target-field), or set target="number" to predict a number.'
            )
        _warn_of_alike(names)
        if kind == "class":
            _warn_of_several(names)
            _warn_of_numbers(names)
        return cls(kind, tuple(names))

    @property
    def size(self) -> int:
        """How many values a model gives: one per class, or one number."""
        return max(1, len(self.names))

    def encode(self, labels: Sequence[str]) -> np.ndarray[Any, Any]:
        """class: ``(n,)`` int64; classes: ``(n, K)`` of 0 and 1; number: ``(n,)``, standardised.

        A class that training does not know becomes `UNKNOWN`, or is left out of several classes.
        """
        if self.kind == "number":
            return ((self._numbers(labels) - self.mean) / self.scale).astype(np.float32)
        place = {name: i for i, name in enumerate(self.names)}
        if self.kind == "class":
            return np.array([place.get(name, UNKNOWN) for (name,) in self.parts(labels)], dtype=np.int64)
        found = np.zeros((len(labels), len(self.names)), dtype=np.float32)
        for row, names in enumerate(self.parts(labels)):
            for name in names:
                if name in place:
                    found[row, place[name]] = 1
        return found

    def parts(self, labels: Sequence[str]) -> list[list[str]]:
        """The classes that each label names, as training wrote them: ``1.0`` is 1 where that is a class."""
        own = set(self.names)
        known = {label: split(label) if self.kind == "classes" else [label] for label in set(labels)}
        for names in known.values():
            for place, name in enumerate(names):
                if name not in own and is_number(name) and math.isfinite(float(name)):
                    value = float(name)
                    spelled = (str(int(value)) if value.is_integer() else "", str(value))
                    names[place] = next((one for one in spelled if one in own), name)
        return [known[label] for label in labels]

    def judged(self, labels: Sequence[str]) -> tuple[np.ndarray[Any, Any], tuple[str, ...]]:
        """Return labels as `encode` does and what they are called, where answers are measured: a class that training does not
        know has a number behind those of training, so that no answer is right there."""
        if self.kind == "number":
            return self.encode(labels), self.names
        given = self.parts(labels)
        unseen = sorted({name for names in given for name in names} - {*self.names})
        names = (*self.names, *unseen)
        return Targets(self.kind, names, labels=self.labels).encode(labels), names

    def numbers(self, outputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Outputs ``(n, 1)`` of a model as the numbers they stand for, ``(n,)``."""
        return outputs[:, 0].astype(np.float64) * self.scale + self.mean

    def probabilities(self, scores: Numbers) -> Numbers:
        """softmax over the classes of scores ``(n, K)``, or σ of each where there may be several: ``(n, K)``."""
        if self.kind == "classes":
            return np.exp(-np.logaddexp(0, -scores))
        shifted = np.exp(scores - scores.max(1, keepdims=True))
        found: Numbers = shifted / shifted.sum(1, keepdims=True)
        return found

    def answers(self, scores: Numbers, threshold: float) -> Numbers:
        """The most probable class ``(n,)``, a table of 0 and 1 ``(n, K)``, or the numbers ``(n,)``."""
        if self.kind == "number":
            return self.numbers(scores)
        if self.kind == "classes":
            return (self.probabilities(scores) >= threshold).astype(np.float64)
        best: Numbers = scores.argmax(1)
        return best

    def labelled(self, found: Numbers) -> list[Any]:
        """Answers as they are given in Python: a label, a list of labels or a number for each."""
        if self.kind == "number":
            return [float(value) for value in found]
        names = self.values
        if self.kind == "class":
            return [names[int(i)] for i in found]
        return [[name for name, there in zip(names, row, strict=True) if there] for row in found]

    def to_json(self) -> dict[str, Any]:
        kept = {"kind": self.kind, "names": list(self.names), "mean": self.mean, "scale": self.scale}
        return kept if self.labels == "str" else kept | {"labels": self.labels}

    @property
    def values(self) -> list[Any]:
        """The classes in the type they had when they were given."""
        if self.labels == "bool":
            return [name == "True" for name in self.names]
        turn: type = {"int": int, "float": float}.get(self.labels, str)
        return [turn(name) for name in self.names]

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Targets:
        """What `to_json` wrote; a ValueError where it is something else."""
        found = checked(cls, given)
        if found.kind not in ("class", "classes", "number") or (found.kind != "number" and not found.names):
            raise ValueError(f"kind: {found.kind[:20]!r} with {len(found.names)} names")
        if found.labels not in ("str", "int", "float", "bool"):
            raise ValueError(f"labels: {found.labels[:20]!r} is no type of labels")
        _ = found.values  # a name that is no such value is a ValueError
        if not (math.isfinite(found.mean) and math.isfinite(found.scale) and found.scale > 0):
            raise ValueError("scale: a number above 0 is needed")
        return found

    def _numbers(self, labels: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float64]]:
        try:
            values = np.array([float(label) for label in labels])
        except ValueError:
            wrong = next(i for i, label in enumerate(labels) if not is_number(label))
            raise DataError(
                f"Example {wrong + 1} has the label {labels[wrong][:40]!r}, which is no number; correct it, or set "
                'target="class".'
            ) from None
        if not np.isfinite(values).all():
            wrong = int(np.flatnonzero(~np.isfinite(values))[0])
            raise DataError(f"Example {wrong + 1} has the label {labels[wrong]}; numbers must be finite.")
        if (np.abs(values) > LARGEST).any():
            wrong = int(np.argmax(np.abs(values)))
            raise DataError(
                f"Example {wrong + 1} has the label {labels[wrong]}, too large to compute with; use a larger unit."
            )
        return values


def kind_of(names: Sequence[str]) -> str:
    """The type of labels of a file, whose cells are texts: ``int`` where all of them are written as whole numbers are, as a data frame of that file
    has them, else ``str``."""
    whole = all(name.isascii() and name.lstrip("-").isdecimal() and str(int(name)) == name for name in names)
    return "int" if whole and names else "str"


def split(label: str) -> list[str]:
    """``"funny|short"`` → funny, short; ``"-"`` → none."""
    parts = [part.strip() for part in label.split(SEPARATOR)]
    return [] if parts == [NONE] else [part for part in parts if part]


def _sorted(names: set[str]) -> list[str]:
    """Numbers in the order of numbers, other names in the order of the alphabet."""
    if all(is_number(name) for name in names):
        return sorted(names, key=lambda name: (float(name), name))
    return sorted(names)


def _warn_of_several(names: Sequence[str]) -> None:
    """A label that is made of others is hardly meant as a class of its own."""
    known = set(names)
    found = next((name for name in names if SEPARATOR in name and known.issuperset(split(name))), None)
    if found is not None:
        warnings.warn(
            f"the label {found!r} is one class here, though its parts are labels too; set target=classes if an example may "
            "have several",
            stacklevel=3,
        )


def _warn_of_numbers(names: Sequence[str]) -> None:
    """Many numbers with fractions are hardly meant as classes."""
    if len(names) <= FEW_NUMBERS or not all(map(is_number, names)):
        return
    if not all(float(name).is_integer() for name in names):
        warnings.warn(
            f"the {len(names)} labels are numbers ({names[0]}, {names[1]} …), each of which is a class of its own here; set target=number to predict "
            "a number",
            stacklevel=3,
        )


def _warn_of_alike(names: Sequence[str]) -> None:
    """Labels that only a slip of the hand tells apart are hardly meant as different classes."""
    same: dict[str, list[str]] = {}
    for name in names:
        same.setdefault(" ".join(name.casefold().split()), []).append(name)
    alike = [f"{some[0]!r} and {some[1]!r}" for some in same.values() if len(some) > 1]
    if alike:
        listed = ", ".join(alike[:3]) + (" …" if len(alike) > 3 else "")
        warnings.warn(
            f"labels that differ only in capitals or spaces are different classes here: {listed}",
            stacklevel=3,
        )
