"""Two channels: results on stdout, talk on stderr. Colour only for a terminal, and never under NO_COLOR."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

import click


def command_name() -> str:
    """What to type to run this command again: ``anaphora``, or where it lies when it is not on the path."""
    if shutil.which("anaphora"):
        return "anaphora"
    by_module = os.path.basename(sys.argv[0]) != "anaphora"
    program = sys.executable if by_module else sys.argv[0]
    near = os.path.relpath(program)
    return (program if near.startswith("..") else near) + (" -m anaphora" if by_module else "")


def say(text: str = "", *, newline: bool = True) -> None:
    """Write to the person at the terminal, on stderr. Once its reader has gone, the command goes on in silence."""
    try:
        click.echo(text, err=True, nl=newline, color=colour_for(sys.stderr))
    except OSError:  # `2>&1 | head`, a terminal that was closed, a full disk behind `2> log`
        silence(sys.stderr)


def result(text: str = "") -> None:
    """A result: what a program after the pipe may read, on stdout."""
    click.echo(text, color=colour_for(sys.stdout))


def emit(document: Any, *, indent: int | None = 2) -> None:
    """One JSON document on stdout. Numbers that JSON does not have (inf, nan) become null."""
    click.echo(json.dumps(plain(document), indent=indent, ensure_ascii=False, allow_nan=False))


def silence(stream: TextIO) -> None:
    """Write what ``stream`` still holds, and what follows, to nowhere: its reader has gone."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (OSError, ValueError):
        return


def plain(value: Any) -> Any:
    """``value`` in JSON's own types; paths and other objects become text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # a scalar of numpy or torch
        return plain(value.item())
    return str(value)


def one_line(text: str, most: int = 1000) -> str:
    """A sentence with names of unknown origin in it: nothing that drives a terminal, and no more than can be read."""
    shown = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    return shown if len(shown) <= most else f"{shown[: most // 2]} … {shown[-most // 2 :]}"


def heading(text: str) -> str:
    return click.style(text, bold=True)


def faint(text: str) -> str:
    return click.style(text, dim=True)


def number(value: Any) -> str:
    """12345678 → "12 345 678", 0.001 → "0.001", 1e-05 → "1e-05"; other values as they are."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return word(value)
    return f"{value:,}".replace(",", " ") if isinstance(value, int) else f"{value:g}"


def word(value: Any) -> str:
    """A value as it is written in TOML and ``--set``: true, not True."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def table(rows: Sequence[Sequence[str]], *, indent: int = 2, gap: int = 2) -> str:
    """Columns, the last of which is wrapped to the terminal's width."""
    if not rows:
        return ""
    widths = [max(len(click.unstyle(row[column])) for row in rows) for column in range(len(rows[0]) - 1)]
    before = indent + sum(widths) + gap * len(widths)
    room = max(24, width() - before)
    lines = []
    for row in rows:
        cells = "".join(
            cell + " " * (size + gap - len(click.unstyle(cell)))
            for cell, size in zip(row, widths, strict=False)
        )
        last = [row[-1]] if "\x1b" in row[-1] else textwrap.wrap(row[-1], room) or [""]
        lines.append((" " * indent + cells + last[0]).rstrip())
        lines.extend(" " * before + line for line in last[1:])
    return "\n".join(lines)


def wrapped(text: str, *, first: str = "") -> str:
    """``text`` in lines as wide as the terminal, further ones a little to the right; ``first`` is its first word as it is shown."""
    lines = textwrap.wrap(text, width(), subsequent_indent="    ", drop_whitespace=True)
    whole = "\n".join(lines)
    return first + whole[len(click.unstyle(first)) :] if first else whole


def width() -> int:
    """Columns to write in: the terminal's, at most 110, so that lines stay readable."""
    return min(shutil.get_terminal_size((100, 24)).columns, 110)


def colour_for(stream: TextIO) -> bool:
    """Whether escape sequences may be written to this stream."""
    return stream.isatty() and may_colour()


def may_colour() -> bool:
    """False where the user (NO_COLOR) or the terminal asks for plain text."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
