"""Files that appear when they are complete, or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from anaphora.errors import DataError


@contextmanager
def written_whole(path: Path) -> Iterator[IO[str]]:
    """A text file to write to; it takes its place at ``path`` at the end of the block, synced to the disk, and leaves
    nothing behind if the block fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=f".{path.stem}-", encoding="utf-8", delete=False, newline="\n"
        ) as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        raise DataError(
            f"{path} cannot be written: {error.strerror or error}; free space or choose another folder."
        ) from None
