"""The runs below some folders, each under an opaque id: a page never names a path.

A run may come from a stranger or be half written. So each is read by itself, within bounds (`anaphora.files`), and one
that cannot be read is listed as broken; the others are listed as ever. What was read is kept until a file changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from anaphora.errors import RunError
from anaphora.files import parse_json, read_bytes, read_tail
from anaphora.probe.history import Ending, ending
from anaphora.training.film import frames
from anaphora.training.lock import read_holder
from anaphora.training.run import RunFolder

DEEPEST = 4
"""How many folders below a given one a run may lie."""
MOST_RUNS = 20_000
MOST_FOLDERS = 100_000
"""Folders looked into before the search gives up, so that a home directory cannot hold it up."""
_BIGGEST_CONFIG = 1 << 20
_TAIL = 1 << 16
"""Bytes at the end of a journal among which the last dev measures are looked for."""
_LONGEST_REASON = 300
_LISTED = ("config.json", "metrics.jsonl", "model.safetensors", "lock")
_PLACES = {name: place for place, name in enumerate(_LISTED)}

Stamp = tuple[tuple[int, int], ...]
Stats = tuple[os.stat_result | None, ...]


@dataclass(frozen=True)
class Run:
    """One run folder."""

    id: str
    name: str
    where: str | Path
    frame: int | None = None
    """The step of its film that is looked at; None: the weights that it keeps."""

    @property
    def shown(self) -> str:
        """Its name, with the step that is looked at."""
        return self.name if self.frame is None else f"{self.name} at step {self.frame}"

    @property
    def path(self) -> Path:
        return Path(self.where)

    def facts(self) -> dict[str, Any]:
        """What the list of runs shows; of a run that cannot be read, why in ``broken``."""
        path = os.fspath(self.where)
        return (_facts(path, _stats(path, _LISTED)) or {}) | {"id": self.id, "name": self.name}

    def stamp(self) -> Stamp:
        """Times and sizes of the journals: something new happened when they differ."""
        return _stamp(_stats(os.fspath(self.where), ("metrics.jsonl", "samples.jsonl")))


class _Seen(NamedTuple):
    """A folder with a ``config.json``, as its files were at ``stamp``; ``facts`` are None where it holds no run."""

    stamp: Stamp
    facts: dict[str, Any] | None


class Runs:
    """All runs below ``folders``; looked for again whenever they are listed."""

    def __init__(self, folders: Sequence[Path]):
        self._folders = [folder.resolve() for folder in folders]
        for folder in self._folders:
            if not folder.is_dir():
                raise RunError(f"{folder} is not a folder; give one that holds runs.")
        self._known: dict[str, Run] = {}
        self._seen: dict[str, _Seen] = {}

    def all(self) -> list[Run]:
        """The runs there are now, by name."""
        found: dict[str, Run] = {}
        seen: dict[str, _Seen] = {}
        for folder in map(os.fspath, self._folders):
            for path in self._run_folders(folder, seen):
                key = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
                known = self._known.get(key)
                name = path[len(folder) :].lstrip("/") or os.path.basename(path)
                found[key] = known or Run(key, _shown(name), path)
        self._known, self._seen = found, seen
        return sorted(found.values(), key=lambda run: run.name)

    def list(self) -> list[dict[str, Any]]:
        """What is shown of every run; files that have not changed are not read again."""
        shown = []
        for run in self.all():
            facts = self._seen[os.fspath(run.where)].facts or {}
            if facts["training"] and not _is_locked(run.path / "lock"):  # the process may have died since
                facts = facts | {"training": False}
            shown.append({**facts, "id": run.id, "name": run.name})
        return shown

    def stamps(self) -> dict[str, Stamp]:
        """The stamp of every run that is known."""
        return {key: run.stamp() for key, run in list(self._known.items())}

    def get(self, key: str) -> Run:
        """The run with this id, or a RunError. ``ID@120`` is what it was at step 120: the frame of its film there or, where that
        was not kept, the one before it."""
        key, _, step = key.partition("@")
        if step:
            return _at(self.get(key), step)
        if key not in self._known:
            self.all()
        if key not in self._known:
            raise RunError("there is no such run any more; choose another.")
        return self._known[key]

    def _run_folders(self, folder: str, seen: dict[str, _Seen]) -> Iterator[str]:
        """Folders with a config.json of ours, at most so deep; links are not followed."""
        looked = found = 0
        waiting = [(folder, 0)]
        while waiting and looked < MOST_FOLDERS and found < MOST_RUNS:
            here, depth = waiting.pop()
            looked += 1
            try:
                with os.scandir(here) as entries:
                    stats, inside = _look(entries)
            except OSError:
                continue
            if self._holds_run(here, stats, seen):
                found += 1
                yield here
            elif depth < DEEPEST:
                waiting += [(os.path.join(here, name), depth + 1) for name in inside]

    def _holds_run(self, here: str, stats: Stats, seen: dict[str, _Seen]) -> bool:
        config = stats[0]
        if config is None or stat.S_ISDIR(config.st_mode):
            return False
        stamp = _stamp(stats)
        known = self._seen.get(here)
        if known is None or known.stamp != stamp:
            known = _Seen(stamp, _facts(here, stats))
        seen[here] = known
        return known.facts is not None


def _at(run: Run, step: str) -> Run:
    there = frames(RunFolder(run.path))
    if not there or not (step.isascii() and step.isdigit() and len(step) < 13):
        raise RunError(f"{run.name} has no film of its training; it is kept by the setting film.")
    frame = max((one for one in there if one <= int(step)), default=there[0])
    return replace(run, id=f"{run.id}@{frame}", frame=frame)


def _look(entries: Iterable[os.DirEntry[str]]) -> tuple[Stats, Sequence[str]]:
    """The files of a run among ``entries``, in the order of `_LISTED`, and the folders that are not hidden."""
    stats: list[os.stat_result | None] = [None] * len(_LISTED)
    inside = []
    for entry in entries:
        name = entry.name
        if name in _PLACES:
            try:  # noqa: SIM105  (suppress() takes longer than the look)
                stats[_PLACES[name]] = entry.stat(follow_symlinks=False)
            except OSError:
                pass
        elif not name.startswith(".") and entry.is_dir(follow_symlinks=False):
            inside.append(name)
    return tuple(stats), inside


def _stats(folder: str, names: Sequence[str]) -> Stats:
    found: list[os.stat_result | None] = []
    for name in names:
        try:
            found.append(os.stat(os.path.join(folder, name), follow_symlinks=False))
        except (OSError, ValueError):
            found.append(None)
    return tuple(found)


def _stamp(stats: Stats) -> Stamp:
    """(time, size) of each file that is there, (0, 0) of one that is not."""
    return tuple([(0, 0) if one is None else (one.st_mtime_ns, one.st_size) for one in stats])


def _facts(path: str, stats: Stats) -> dict[str, Any] | None:
    """What is shown of one run, its name apart; None where the config.json is another program's.

    One that cannot be read counts as ours, unless it is no JSON and nothing else of a run lies beside it.
    """
    broken = ""
    config: dict[str, Any] = {}
    try:
        config = _config(path, _is_plain(stats[0]))
        if "task" not in config:
            return None
    except (OSError, ValueError) as error:
        beside = any(map(_is_plain, stats[1:3]))
        if isinstance(error, ValueError) and not beside:
            return None
        broken = f"config.json cannot be read ({_reason(error)})"
    settings = config.get("settings")
    settings = settings if isinstance(settings, dict) else {}
    dev: dict[str, Any] = {"dev": {}, "step": None}
    _, metrics, weights, lock = stats
    if metrics is not None:
        try:
            dev = _last_dev(f"{path}/metrics.jsonl", _is_plain(metrics)) or dev
        except OSError as error:
            broken = broken or f"metrics.jsonl cannot be read ({_reason(error)})"
    steps = settings.get("steps")
    steps = steps if type(steps) is int else None
    ended = None if metrics is None else _ending(f"{path}/timings.jsonl", steps)
    return {
        "task": _text(config.get("task")),
        "model": _text(settings.get("model")),
        "broken": broken[:_LONGEST_REASON],
        "measures": {_text(k): v for k, v in list(dev["dev"].items())[:50] if isinstance(v, int | float)},
        "step": ended.step if ended else dev["step"],
        "steps": ended.steps if ended else steps,
        "ended": ended.how if ended else "",
        "trained": _is_plain(weights),
        "training": lock is not None and lock.st_size > 0 and _is_locked(Path(path, "lock")),
        "changed": max([int(one.st_mtime) for one in (*stats[:3], stats[0]) if one is not None]),
    }


def _is_plain(facts: os.stat_result | None) -> bool:
    return facts is not None and stat.S_ISREG(facts.st_mode)


def _config(path: str, looked: bool) -> dict[str, Any]:
    content = read_bytes(f"{path}/config.json", most=_BIGGEST_CONFIG, follow=False, looked=looked)
    document = parse_json(content)
    return document if isinstance(document, dict) else {}


def _last_dev(path: str, looked: bool) -> dict[str, Any] | None:
    """The last line with dev measures at the end of a journal."""
    tail = read_tail(path, _TAIL, follow=False, looked=looked)
    end = len(tail)
    while (place := tail.rfind(b'"dev"', 0, end)) >= 0:
        begin = tail.rfind(b"\n", 0, place) + 1
        stop = tail.find(b"\n", place)
        end = begin
        try:
            found = parse_json(tail[begin : stop if stop >= 0 else len(tail)])
        except ValueError:
            continue
        if isinstance(found, dict) and isinstance(found.get("dev"), dict) and type(found.get("step")) is int:
            return found
    return None


def _ending(path: str, steps: int | None) -> Ending | None:
    """How far the training came, from the end of its journal of times."""
    try:
        lines = read_tail(path, _TAIL, follow=False).splitlines()
    except OSError:
        return None
    found = []
    for line in lines:
        with contextlib.suppress(ValueError):
            found.append(parse_json(line))
    return ending([line for line in found if isinstance(line, dict)], steps or 0)


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
