"""Parquet and Arrow (Feather) files: read a group of rows at a time, so that a file of any size fits."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

from anaphora.data.sources.formats import Format
from anaphora.data.sources.sheet import Hints, ObjectSheet, Sheet, leaves
from anaphora.errors import DataError
from anaphora.files import limits, streamed

BATCH = 1024
"""Rows that are made into Python objects at a time."""
BUFFER = 1 << 20
"""Bytes of a column that are read from the file at a time."""
PARQUET, ARROW = b"PAR1", b"ARROW1"


def _open(path: str | Path, folder: Path | None, hints: Hints) -> Sheet:
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
    return ObjectSheet(str(path), leaves(first), lambda: _sound(path), kind=kind, form=kind.capitalize())


def _sound(path: str | Path) -> Iterator[Any]:
    import pyarrow

    try:
        yield from _rows(path)
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        reason = str(error).splitlines()[0][:120].rstrip(".")
        raise DataError(f"{path} is damaged ({reason}); make it again.") from None


def _rows(path: str | Path) -> Iterator[dict[str, Any]]:
    with streamed(path) as file:
        packed, allowed = os.fstat(file.fileno()).st_size, limits()

        def bound(size: int) -> None:
            if reason := allowed.excess(size, packed):
                raise DataError(f"{path}: {reason}.")

        total = 0
        with contextlib.closing(_batches(file, _magic(path), bound)) as batches:
            for batch in batches:
                total += sum(map(_unpacked, batch.columns))
                bound(total)
                yield from batch.to_pylist()


def _unpacked(column: Any) -> int:
    """Bytes, at least, of a column once each of its rows is a value of its own: one text may stand for a million rows."""
    import pyarrow
    import pyarrow.compute

    kind = column.type
    if pyarrow.types.is_dictionary(kind):
        words = column.dictionary
        if pyarrow.types.is_string(words.type) or pyarrow.types.is_large_string(words.type):
            sizes = pyarrow.compute.binary_length(words).take(column.indices)
            return int(pyarrow.compute.sum(sizes).as_py() or 0)
        return len(column) * max(1, int(words.nbytes) // max(1, len(words)))
    if pyarrow.types.is_run_end_encoded(kind):
        return len(column) * int(column.values.nbytes) // max(1, len(column.values))
    return int(column.nbytes)


def _batches(file: Any, magic: bytes, bound: Callable[[int], None]) -> Generator[Any, None, None]:
    """Groups of rows; ``bound`` is called with the bytes that a file says it unpacks to before any are."""
    if magic == PARQUET:
        import pyarrow.parquet

        # a buffer, or pyarrow reads all of a column's part of a group at once, however large the group is
        table = pyarrow.parquet.ParquetFile(file, pre_buffer=False, buffer_size=BUFFER)
        about = table.metadata
        bound(sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups)))
        yield from table.iter_batches(BATCH, use_threads=False)
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
