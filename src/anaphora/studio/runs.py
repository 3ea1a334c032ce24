"""The runs below some folders, each under an opaque id: a page never names a path.

A run may come from a stranger or be half written. So each is read by itself, within bounds (`anaphora.files`), and one
that cannot be read is listed as broken; the others are listed as ever. What was read is kept until a file changes.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anaphora.errors import RunError
from anaphora.files import parse_json, read_bytes, streamed
from anaphora.training.lock import read_holder

DEEPEST = 4
"""How many folders below a given one a run may lie."""
MOST_RUNS = 20_000
MOST_FOLDERS = 100_000
"""Folders looked into before the search gives up, so that a home directory cannot hold it up."""
_BIGGEST_CONFIG = 1 << 20
_TAIL = 1 << 16
"""Bytes at the end of a journal among which the last dev measures are looked for."""
_LISTED = ("config.json", "metrics.jsonl", "model.safetensors", "lock")

Stamp = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Run:
    """One run folder."""

    id: str
    name: str
    path: Path

    def facts(self) -> dict[str, Any]:
        """What the list of runs shows; of a run that cannot be read, why in place of its model."""
        try:
            config, broken = _config(self.path), ""
        except (OSError, ValueError) as error:
            config, broken = {}, f"config.json cannot be read ({_reason(error)})"
        settings = config.get("settings")
        settings = settings if isinstance(settings, dict) else {}
        dev: dict[str, Any] = {"dev": {}, "step": None}
        try:
            dev = _last_dev(self.path / "metrics.jsonl") or dev
        except FileNotFoundError:
            pass
        except OSError as error:
            broken = broken or f"metrics.jsonl cannot be read ({_reason(error)})"
        steps = settings.get("steps")
        return {
            "id": self.id,
            "name": self.name,
            "task": "broken" if broken else _text(config.get("task")),
            "model": broken or _text(settings.get("model")),
            "measures": {_text(k): v for k, v in list(dev["dev"].items())[:50] if isinstance(v, int | float)},
            "step": dev["step"],
            "steps": steps if type(steps) is int else None,
            "trained": (self.path / "model.safetensors").is_file(),
            "training": _is_locked(self.path / "lock"),
            "changed": max((when // 10**9 for when, _ in stamp_of(self.path, _LISTED[:3])), default=0),
        }

    def stamp(self) -> Stamp:
        """Times and sizes of the journals: something new happened when they differ."""
        return stamp_of(self.path, ("metrics.jsonl", "samples.jsonl"))


class Runs:
    """All runs below ``folders``; looked for again whenever they are listed."""

    def __init__(self, folders: Sequence[Path]):
        self._folders = [folder.resolve() for folder in folders]
        for folder in self._folders:
            if not folder.is_dir():
                raise RunError(f"{folder} is not a folder; give one that holds runs.")
        self._known: dict[str, Run] = {}
        self._is_run: dict[Path, tuple[Stamp, bool]] = {}
        self._facts: dict[str, tuple[Stamp, dict[str, Any]]] = {}

    def all(self) -> list[Run]:
        """The runs there are now, by name."""
        found: dict[str, Run] = {}
        seen: dict[Path, tuple[Stamp, bool]] = {}
        for folder in self._folders:
            for path in self._run_folders(folder, seen):
                name = _shown(path.relative_to(folder) if path != folder else path.name)
                key = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
                found[key] = Run(key, name, path)
        self._known, self._is_run = found, seen
        return sorted(found.values(), key=lambda run: run.name)

    def list(self) -> list[dict[str, Any]]:
        """What is shown of every run; files that have not changed are not read again."""
        kept: dict[str, tuple[Stamp, dict[str, Any]]] = {}
        for run in self.all():
            stamp = stamp_of(run.path, _LISTED)
            known = self._facts.get(run.id)
            facts = known[1] if known and known[0] == stamp else run.facts()
            facts["training"] = facts["training"] and _is_locked(run.path / "lock")  # it may have died since
            kept[run.id] = stamp, facts
        self._facts = kept
        return [facts for _, facts in kept.values()]

    def stamps(self) -> dict[str, Stamp]:
        """The stamp of every run that is known."""
        return {key: run.stamp() for key, run in list(self._known.items())}

    def get(self, key: str) -> Run:
        """The run with this id, or a RunError."""
        if key not in self._known:
            self.all()
        if key not in self._known:
            raise RunError("there is no such run any more; choose another.")
        return self._known[key]

    def _run_folders(self, folder: Path, seen: dict[Path, tuple[Stamp, bool]]) -> Iterator[Path]:
        """Folders with a config.json of ours, at most so deep; links are not followed."""
        looked = found = 0
        waiting = [(folder, 0)]
        while waiting and looked < MOST_FOLDERS and found < MOST_RUNS:
            here, depth = waiting.pop()
            looked += 1
            try:
                with os.scandir(here) as entries:
                    names = {
                        entry.name: entry.is_dir(follow_symlinks=False)
                        for entry in entries
                        if not entry.name.startswith(".")
                    }
            except OSError:
                continue
            if names.get("config.json") is False and self._holds_run(here, seen):
                found += 1
                yield here
            elif depth < DEEPEST:
                waiting += [(here / name, depth + 1) for name, is_folder in names.items() if is_folder]

    def _holds_run(self, here: Path, seen: dict[Path, tuple[Stamp, bool]]) -> bool:
        stamp = stamp_of(here, ("config.json",))
        known = self._is_run.get(here)
        if known is None or known[0] != stamp:
            known = stamp, _is_run(here)
        seen[here] = known
        return known[1]


def stamp_of(folder: Path, names: Sequence[str]) -> Stamp:
    """(time, size) of each file that is there, (0, 0) of one that is not."""
    found = []
    for name in names:
        try:
            facts = os.stat(os.path.join(folder, name), follow_symlinks=False)
            found.append((facts.st_mtime_ns, facts.st_size))
        except (OSError, ValueError):
            found.append((0, 0))
    return tuple(found)


def _is_run(path: Path) -> bool:
    """Whether a config.json is one of ours, or would be if it could be read: that one is listed as broken."""
    try:
        return "task" in _config(path)
    except OSError:
        return True
    except ValueError:
        return any((path / name).is_file() for name in _LISTED[1:3])


def _config(path: Path) -> dict[str, Any]:
    document = parse_json(read_bytes(path / "config.json", most=_BIGGEST_CONFIG, follow=False))
    return document if isinstance(document, dict) else {}


def _last_dev(path: Path) -> dict[str, Any] | None:
    """The last line with dev measures at the end of a journal."""
    with streamed(path, follow=False) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
        lines = file.read(_TAIL).split(b"\n")
    for line in reversed(lines):
        if b'"dev"' in line:
            try:
                found = parse_json(line)
            except ValueError:
                continue
            if (
                isinstance(found, dict)
                and isinstance(found.get("dev"), dict)
                and type(found.get("step")) is int
            ):
                return found
    return None


def _is_locked(path: Path) -> bool:
    """Whether a living process of this machine says that it trains here."""
    holder = read_holder(path)
    return holder is not None and holder.host == socket.gethostname() and holder.lives


def _text(value: Any) -> str:
    return value[:200] if isinstance(value, str) else ""


def _shown(path: Path | str) -> str:
    """A name that can be sent: bytes of it that are not UTF-8 are spelled out."""
    return os.fsencode(path).decode("utf-8", errors="backslashreplace")


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
