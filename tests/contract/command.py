"""The ``anaphora`` command, called in this process, as it is installed."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from unittest import mock


@dataclass(frozen=True)
class Ended:
    """What a command came to."""

    code: int
    out: str
    err: str

    @property
    def records(self) -> list[Any]:
        """The lines of JSON that were printed."""
        return [json.loads(line) for line in self.out.splitlines()]


def command(*words: object, folder: Path | None = None) -> Ended:
    """Run ``anaphora WORDS`` in a folder."""
    (point,) = entry_points(group="console_scripts", name="anaphora")
    main, out, err = point.load(), io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder or Path.cwd()),
        mock.patch.object(sys, "argv", ["anaphora", *map(str, words)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return Ended(code, out.getvalue(), err.getvalue())


def done(*words: object, folder: Path | None = None) -> Ended:
    """The same for a command that must succeed."""
    ended = command(*words, folder=folder)
    assert ended.code == 0, f"anaphora {' '.join(map(str, words))}: {ended.err}"
    return ended
