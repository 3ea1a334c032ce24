"""An embedder out of its graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from anaphora.data.asked import filled_rows, is_blank
from anaphora.errors import DataError
from anaphora.runtime.given import given_list
from anaphora.runtime.reader import SequenceReader

Vectors = np.ndarray[Any, np.dtype[np.float32]]


class Embedder(SequenceReader):
    """`predict` of an exported `an.Embedder`."""

    def predict(self, inputs: Iterable[Any]) -> Vectors:
        """Return the vectors of inputs, ``(inputs, vector_size)``, each of length 1, and of NaN for a text with nothing in it."""
        items = given_list(inputs)
        for number, x in enumerate(items, start=1):
            if not len(x) and not is_blank(x):
                raise DataError(f"input {number} is empty; give at least one symbol.")
        return filled_rows(items, self._unit, self._outputs)

    def _unit(self, items: list[Any]) -> Vectors:
        found = self._scores(self._read(items))
        lengths = np.sqrt(np.einsum("ij,ij->i", found, found))[:, None]
        return np.asarray(found / np.where(lengths > 0, lengths, 1), dtype=np.float32)
