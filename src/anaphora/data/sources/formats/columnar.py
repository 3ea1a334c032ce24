"""Parquet and Arrow (Feather) files: read a group of rows at a time, so that a file of any size fits."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

from anaphora.data.sources.formats import Format
from anaphora.data.sources.table import Hints, ObjectTable, Table, leaves
from anaphora.errors import DataError
from anaphora.files import streamed

BATCH = 1024
"""Rows that are made into Python objects at a time."""
PARQUET, ARROW = b"PAR1", b"ARROW1"


def _open(path: str | Path, folder: Path | None, hints: Hints) -> Table:
    try:
        import pyarrow
    except ImportError:
        raise DataError(
            f"{path}: reading Parquet and Arrow needs pyarrow; install it with `pip install anaphora[tables]`."
        ) from None
    try:
        first = next(_rows(path), None)
    except FileNotFoundError:
        raise DataError(f"{path} cannot be read: No such file or directory; check the path.") from None
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        reason = str(getattr(error, "strerror", None) or error).splitlines()[0][:120].rstrip(".")
        raise DataError(f"{path} is damaged or no Parquet or Arrow file ({reason}); make it again.") from None
    if first is None:
        raise DataError(f"{path} has no rows; give a file with at least one.")
    kind = "parquet" if _magic(path) == PARQUET else "arrow"
    return ObjectTable(str(path), leaves(first), lambda: _sound(path), kind=kind, form=kind.capitalize())


def _sound(path: str | Path) -> Iterator[Any]:
    import pyarrow

    try:
        yield from _rows(path)
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        reason = str(error).splitlines()[0][:120].rstrip(".")
        raise DataError(f"{path} is damaged ({reason}); make it again.") from None


def _rows(path: str | Path) -> Iterator[dict[str, Any]]:
    with streamed(path) as file, contextlib.closing(_batches(file, _magic(path))) as batches:
        for batch in batches:
            yield from batch.to_pylist()


def _batches(file: Any, magic: bytes) -> Generator[Any, None, None]:
    if magic == PARQUET:
        import pyarrow.parquet

        yield from pyarrow.parquet.ParquetFile(file, pre_buffer=False).iter_batches(BATCH, use_threads=False)
        return
    import pyarrow.ipc

    reader = pyarrow.ipc.open_file(file)
    for number in range(reader.num_record_batches):
        batch = reader.get_batch(number)
        batch.validate(
            full=True
        )  # offsets of a hostile file lead out of its buffers, and pyarrow follows them
        for start in range(0, batch.num_rows, BATCH):
            yield batch.slice(start, BATCH)


def _magic(path: str | Path) -> bytes:
    with streamed(path) as file:
        return file.read(4)


FORMAT = Format(
    "columnar",
    (".parquet", ".pq", ".arrow", ".feather"),
    _open,
    magic=(PARQUET, ARROW),
    about="Parquet or Arrow",
)
