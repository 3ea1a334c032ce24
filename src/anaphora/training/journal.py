"""Append-only files of one JSON object per line, which a resumed run continues at the byte it had reached."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from anaphora.errors import RunError
from anaphora.training.durable import writing


class Journal:
    """``metrics.jsonl`` and its like. ``mark()`` is what a checkpoint keeps, ``rewind(mark)`` goes back to it."""

    def __init__(self, path: Path):
        self.path = path
        self._descriptor: int | None = None  # the file is made when there is something to write
        self._bytes = 0
        self._digest = hashlib.sha256()

    def open(self, mark: Mapping[str, Any] | None = None) -> str | None:
        """Open for appending at ``mark`` (None: from the start), dropping what was written after it.

        Returns a sentence when the file no longer holds what it held at ``mark``, else None.
        """
        reached, content = int(mark["bytes"]) if mark else 0, b""
        with writing(self.path):
            if self.path.exists():
                self._descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND)
                content = os.pread(self._descriptor, reached, 0)
                os.ftruncate(self._descriptor, len(content))
        self._bytes, self._digest = len(content), hashlib.sha256(content)
        if mark and self.mark() != dict(mark):
            return f"{self.path}: its first {reached} bytes are not those that were written; the history is incomplete."
        return None

    def open_whole(self) -> None:
        """Open for appending after everything that is there, less a line cut off by a crash."""
        content = self.path.read_bytes() if self.path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        self.open({"bytes": len(whole), "sha256": hashlib.sha256(whole).hexdigest()})

    def append(self, line: Mapping[str, Any]) -> None:
        """Add one line. Numbers that are not finite become null, which every JSON reader knows."""
        data = (json.dumps(_plain(line), ensure_ascii=False, allow_nan=False) + "\n").encode()
        with writing(self.path):
            if self._descriptor is None:
                self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            try:
                rest = memoryview(data)
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
            except OSError:
                with contextlib.suppress(OSError):  # no half line, where the disk still lets us
                    os.ftruncate(self._descriptor, self._bytes)
                raise
        self._bytes += len(data)
        self._digest.update(data)

    def mark(self) -> dict[str, Any]:
        """Where the file stands and the hash of all before."""
        return {"bytes": self._bytes, "sha256": self._digest.hexdigest()}

    def sync(self) -> None:
        """Wait until all lines are on the disk."""
        if self._descriptor is not None:
            with writing(self.path):
                os.fsync(self._descriptor)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def read_journal(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a journal; a last line cut off by a crash is left out."""
    if not path.exists():
        return
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                return
            try:
                read = json.loads(line)
            except (ValueError, RecursionError):
                read = None
            if not isinstance(read, dict):
                raise RunError(
                    f"{path}:{number}: not a line of a journal, so the file is damaged; restore it from a copy."
                )
            yield read


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
