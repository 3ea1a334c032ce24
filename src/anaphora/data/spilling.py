"""Files that appear when they are complete, or not at all: what is given from Python, kept for a resume."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from anaphora.errors import DataError
from anaphora.files.writing import make_folder, replacing


def save_arrays(path: Path, **arrays: Any) -> None:
    """An ``.npz`` file of ``arrays``."""
    with written_whole(path, binary=True) as file:
        np.savez(file, **arrays)


@contextmanager
def written_whole(path: Path, *, binary: bool = False) -> Iterator[IO[Any]]:
    """A file to write to (text, unless it is ``binary``); it takes its place at ``path`` at the end of the block, synced
    to the disk, and leaves nothing behind if the block fails."""
    try:
        make_folder(path.parent)
        with replacing(path, text=not binary) as file:
            yield file
    except OSError as error:
        raise DataError(
            f"{path} cannot be written: {error.strerror or error}; free space or choose another folder."
        ) from None
