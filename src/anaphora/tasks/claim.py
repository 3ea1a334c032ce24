"""Whose a folder is: what ``demo`` and ``study`` wrote they may replace, anything else they may not."""

from __future__ import annotations

from pathlib import Path

from anaphora.errors import RunError
from anaphora.files import read_bytes
from anaphora.files.writing import writing


def claim(folder: Path, command: str) -> None:
    """Mark ``folder`` as written by ``anaphora COMMAND``; refuse one in which others have put something.

    It is marked before anything else is written, so that the next run may replace one that was stopped.
    """
    mark, text = folder / command, f"A {command} run: `anaphora {command}` may replace this folder.\n"
    with writing(folder):
        if mark.is_file() and read_bytes(mark) == text.encode():
            return
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RunError(
                f"{folder}: is not empty, and `anaphora {command}` did not write it; choose another folder with -o."
            )
        folder.mkdir(parents=True, exist_ok=True)
        mark.write_text(text, encoding="utf-8")
