"""Inputs as they are given from Python, and outputs that are no numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from anaphora.errors import DataError


def given_list(inputs: Iterable[Any]) -> list[Any]:
    """The inputs as a list; a single text is an error."""
    if isinstance(inputs, str):
        raise DataError("predict takes a list of texts: write [text] for a single one.")
    if not isinstance(inputs, Iterable):
        raise DataError(f"predict takes a list of inputs, not a {type(inputs).__name__}.")
    return list(inputs)


def given_texts(inputs: Iterable[Any]) -> list[str]:
    """As `given_list`, where each has to be a text."""
    found = given_list(inputs)
    for number, text in enumerate(found, start=1):
        if not isinstance(text, str):
            raise DataError(f"input {number} is a {type(text).__name__}, not a text; give a list of str.")
    return found


def check_finite(outputs: Iterable[Any], what: str = "input") -> None:
    """A `DataError` for the first output that holds NaN or infinity."""
    for number, output in enumerate(outputs, start=1):
        if not np.isfinite(output).all():
            raise DataError(
                f"{what} {number}: the prediction is not a finite number; are values of the input far beyond those of "
                "training?"
            )
