"""What ``predict`` was asked to listen to, and how it answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.asked import check_readable, line_batches, list_lines
from anaphora.data.audio.files import AUDIO_ENDINGS
from anaphora.data.audio.recordings import Item
from anaphora.data.audio.recordings_readers import ROOMS, as_item
from anaphora.data.files import beside
from anaphora.data.sources.arrays import ENDINGS
from anaphora.data.sources.formats import format_of
from anaphora.data.sources.roles import SPOKEN
from anaphora.errors import DataError

LISTS = (".tsv", ".txt", ".lst")


def items_of(m: Any, inputs: Any, *, skip: bool = False) -> Iterator[Item]:
    """The recordings that the `Transcriber` ``m`` is given: a name as in `sources`, or a list of files and arrays. With ``skip`` without
    those that cannot be read."""
    if _is_one(inputs):
        raise DataError("predict takes a list of recordings: write [recording] for a single one.")
    if not isinstance(inputs, Iterable | Path):
        raise DataError(f"predict takes a list of recordings, not a {type(inputs).__name__}.")
    given = sources(m, inputs) if isinstance(inputs, str | Path) else list(inputs)
    for number, x in enumerate(given, start=1):
        try:
            yield as_item(x, f"input {number}", m.ear_.rate)
        except DataError:
            if not skip:
                raise


def sources(m: Any, name: str | Path) -> list[Path]:
    """The files that ``name`` means to the `Transcriber` ``m``: itself; those of a folder, by name; or those of a list (``.tsv``,
    ``.txt``, or standard input for ``-``, or a table with a column of paths), one per line, paths counting from the list's folder,
    further columns not mattering."""
    path, learnt = Path(name), m.recipe_.trained_on
    if path.is_dir():
        endings = (*AUDIO_ENDINGS, *ENDINGS)
        found = sorted(file for file in path.iterdir() if file.suffix.lower() in endings)
        if not found:
            raise DataError(
                f"{name} is a folder without recordings ({', '.join(endings)}); name another one."
            )
        return found
    if str(name) == "-" or path.suffix.lower() in LISTS or _is_list(m, path):
        batches = list_lines(str(name), SPOKEN[:1], learnt) if str(name) != "-" else line_batches("-")
        lines = [line for batch in batches for line in batch if line.strip()]
        if not lines:
            raise DataError(f"{name} names no recordings; write one path per line.")
        folder = Path() if str(name) == "-" else path.parent
        return [beside(folder, line.split("\t")[0].strip(), ROOMS, AUDIO_ENDINGS) for line in lines]
    check_readable(str(path))
    return [path]


def _is_one(inputs: Any) -> bool:
    """Whether a recording was given in place of a list of them: samples ``(n,)``, or a pair of them and their rate."""
    if isinstance(inputs, tuple) and len(inputs) == 2 and isinstance(inputs[1], int | float | np.number):
        return True
    return isinstance(inputs, np.ndarray) and inputs.ndim == 1 and inputs.dtype != object


def _is_list(m: Any, path: Path) -> bool:
    """Whether a table names recordings; a CSV file does where the model hears sound or its training data were such a list, and holds
    frames otherwise."""
    learnt = m.recipe_.trained_on.get("of", m.recipe_.trained_on)
    form = format_of(path)
    if form is None or path.suffix.lower() in (".npy", *AUDIO_ENDINGS):
        return False
    return form.name != "csv" or m.ear_.kind == "audio" or "source_field" in learnt
