"""The runs below some folders, each under an opaque id: a page never names a path."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anaphora.errors import RunError

DEEPEST = 4
"""How many folders below a given one a run may lie."""
MOST_RUNS = 500
MOST_FOLDERS = 20_000
"""Folders looked into before the search gives up, so that a home directory cannot hold it up."""
_BIGGEST_CONFIG = 1 << 20


@dataclass(frozen=True)
class Run:
    """One run folder."""

    id: str
    name: str
    path: Path

    def facts(self) -> dict[str, Any]:
        """What the list of runs shows."""
        config = _config(self.path)
        settings = config.get("settings") if isinstance(config.get("settings"), dict) else {}
        dev = _last_dev(self.path / "metrics.jsonl")
        return {
            "id": self.id,
            "name": self.name,
            "task": str(config.get("task", "")),
            "model": str((settings or {}).get("model", "")),
            "measures": {name: value for name, value in dev["dev"].items() if isinstance(value, int | float)},
            "step": dev["step"],
            "steps": (settings or {}).get("steps"),
            "trained": (self.path / "model.safetensors").is_file(),
            "training": _is_locked(self.path / "lock"),
            "changed": int(_changed(self.path)),
        }

    def stamp(self) -> tuple[int, int]:
        """Sizes of the journals: something new happened when they differ."""
        return _size(self.path / "metrics.jsonl"), _size(self.path / "samples.jsonl")


class Runs:
    """All runs below ``folders``; looked for again whenever they are listed."""

    def __init__(self, folders: Sequence[Path]):
        self._folders = [folder.resolve() for folder in folders]
        for folder in self._folders:
            if not folder.is_dir():
                raise RunError(f"{folder} is not a folder; give one that holds runs.")
        self._known: dict[str, Run] = {}

    def all(self) -> list[Run]:
        """The runs there are now, by name."""
        found: dict[str, Run] = {}
        for folder in self._folders:
            for path in _run_folders(folder):
                name = str(path.relative_to(folder)) if path != folder else path.name
                key = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
                found[key] = Run(key, name, path)
        self._known = found
        return sorted(found.values(), key=lambda run: run.name)

    def get(self, key: str) -> Run:
        """The run with this id, or a RunError."""
        if key not in self._known:
            self.all()
        if key not in self._known:
            raise RunError("there is no such run any more; choose another.")
        return self._known[key]


def _run_folders(folder: Path) -> Iterator[Path]:
    """Folders with a config.json of ours, at most so deep; links are not followed."""
    looked = found = 0
    waiting = [(folder, 0)]
    while waiting and looked < MOST_FOLDERS and found < MOST_RUNS:
        here, depth = waiting.pop()
        looked += 1
        try:
            entries = list(os.scandir(here))
        except OSError:
            continue
        named = any(entry.name == "config.json" and entry.is_file(follow_symlinks=False) for entry in entries)
        if named and "task" in _config(here):
            found += 1
            yield here
            continue
        if depth < DEEPEST:
            waiting += [
                (Path(entry.path), depth + 1)
                for entry in entries
                if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
            ]


def _config(path: Path) -> dict[str, Any]:
    try:
        if _size(path / "config.json") > _BIGGEST_CONFIG:
            return {}
        document = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _last_dev(path: Path) -> dict[str, Any]:
    """The last line with dev measures among the last 64 kB of a journal."""
    none: dict[str, Any] = {"dev": {}, "step": None}
    try:
        with path.open("rb") as file:
            file.seek(max(0, _size(path) - 65_536))
            lines = file.read().split(b"\n")
    except OSError:
        return none
    for line in reversed(lines):
        if b'"dev"' in line:
            try:
                found = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if not isinstance(found, dict):
                continue
            if isinstance(found.get("dev"), dict) and isinstance(found.get("step"), int):
                return found
    return none


def _is_locked(path: Path) -> bool:
    """Whether a living process of this machine says that it trains here."""
    try:
        pid = int(json.loads(path.read_text(encoding="utf-8")).get("pid", 0))
        os.kill(pid, 0)
    except (OSError, ValueError, AttributeError, TypeError):
        return False
    return pid > 0


def _changed(path: Path) -> float:
    times = [0.0]
    for name in ("metrics.jsonl", "model.safetensors", "config.json"):
        try:
            times.append((path / name).stat().st_mtime)
        except OSError:
            continue
    return max(times)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
