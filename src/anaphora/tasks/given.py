"""Inputs of a search as they are given from Python, and sentences about those that cannot be used."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from anaphora.inference.session import NotFiniteError
from anaphora.kinds.kind import given_inputs
from anaphora.kinds.text import texts_of
from anaphora.search._hypothesis import NotANumberError

X = TypeVar("X")
Y = TypeVar("Y")


def given_texts(texts: Iterable[str], learnt: Mapping[str, Any]) -> list[str]:
    """The texts as a list, out of what `given_inputs` takes."""
    return texts_of(given_inputs(texts, learnt))


def named_when_not_finite(
    search: Callable[[Sequence[X]], list[Y]], inputs: Sequence[X], numbers: Iterable[int] | None = None
) -> list[Y]:
    """``search(inputs)``, an output for each; where its numbers overflow, a `NotFiniteError` with the number of the first
    such input (from 1; ``numbers`` where several belong to one).

    A search stops at the first NaN, whichever of its rows has it, so they are then searched one by one.
    """
    try:
        return search(inputs)
    except NotANumberError as error:
        for number, one in zip(numbers or itertools.count(1), inputs, strict=False):
            try:
                search([one])
            except NotANumberError:
                raise NotFiniteError(f"input {number}") from error
        raise
