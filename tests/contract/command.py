"""The ``anaphora`` command, called in this process, as it is installed."""

from __future__ import annotations

import contextlib
import io
import json
import re
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


LONGEST = 160
"""Characters of a message."""


def refusal(message: str, *names: str, folder: Path | None = None) -> None:
    """One sentence that says all these (patterns), and names nothing that the user never made."""
    assert len(message.splitlines()) == 1, message
    assert len(message) <= LONGEST, f"{len(message)} characters: {message}"
    assert "went wrong inside" not in message, message
    assert "anaphora-" not in message, message  # a temporary folder
    assert folder is None or str(folder) not in message, message  # the file was given without it
    for name in names:
        assert re.search(name, message), f"{name} is not in: {message}"
