"""A disk that fails, and one that loses power: what `os` is asked to do below a folder, counted, refused or recorded.

`Failing` fails the n-th call, as SQLite's tests do. `Recording` writes down every change; `crashes` then makes the folder
as it may look after a power loss at any of them: data and names that were not synced may be there, or not, in any
combination.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHANGING = ("open", "write", "pwrite", "ftruncate", "fsync", "rename", "replace", "unlink", "mkdir", "rmdir")
LOOKING = ("read", "pread", "stat", "lstat", "fstat", "scandir", "listdir")


class _Calls:
    """Takes the place of functions of `os` while inside; what concerns other folders passes through."""

    names: tuple[str, ...] = CHANGING

    def __init__(self, root: Path):
        self.root = os.path.realpath(root)
        self.real = {name: getattr(os, name) for name in (*CHANGING, *LOOKING)}
        self.one_at_a_time = threading.RLock()  # a call and the note of it, also when two threads write

    def __enter__(self):
        for name in self.names:
            setattr(os, name, self._wrapped(name))
        return self

    def __exit__(self, *_: Any) -> None:
        for name in self.names:
            setattr(os, name, self.real[name])

    def _wrapped(self, name: str):
        def call(*given: Any, **options: Any) -> Any:
            path = self._path(given[0] if given else ".", options)
            if path is None:
                return self.real[name](*given, **options)
            with self.one_at_a_time:
                return self.called(name, path, given, options)

        return call

    def _path(self, target: Any, options: dict[str, Any]) -> str | None:
        """The path below the root that a call is about."""
        if isinstance(target, int):
            with contextlib.suppress(OSError):
                path = os.readlink(f"/proc/self/fd/{target}").removesuffix(" (deleted)")
                return path if path.startswith(self.root) else None
            return None
        path = os.fsdecode(target)
        if (folder := options.get("dir_fd") or options.get("src_dir_fd")) is not None:
            path = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), path)
        path = os.path.join(os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path))
        return path if path.startswith(self.root) else None

    def called(self, name: str, path: str, given: tuple[Any, ...], options: dict[str, Any]) -> Any:
        raise NotImplementedError


class Failing(_Calls):
    """Fails the ``number``-th call (from 1; 0: none) with ``error``, or writes half of it where that is None."""

    names = (*CHANGING, *LOOKING)

    def __init__(self, root: Path, number: int = 0, error: int | None = None):
        super().__init__(root)
        self.number, self.error, self.count = number, error, 0
        self.failed = ""

    def called(self, name: str, path: str, given: tuple[Any, ...], options: dict[str, Any]) -> Any:
        self.count += 1
        if self.count == self.number:
            self.failed = name
            if self.error is not None:
                raise OSError(self.error, os.strerror(self.error), path)
            if name in ("write", "pwrite") and len(given[1]) > 1:
                given = (given[0], bytes(given[1])[: len(given[1]) // 2], *given[2:])
            elif name in ("read", "pread") and given[1] > 1:
                given = (given[0], given[1] // 2 + 1, *given[2:])
        return self.real[name](*given, **options)


class Recording(_Calls):
    """Keeps a log of changes: of names in folders and of content, each by the number of its file."""

    def __init__(self, root: Path):
        super().__init__(root)
        self.log: list[tuple[Any, ...]] = []
        self.names_in: dict[int, dict[str, int]] = {0: {}}  # folders by number; 0 is the root
        self.content: dict[int, bytearray] = {}
        self.opened: dict[int, tuple[int, bool]] = {}  # descriptor: file, whether it appends
        self.place: dict[int, int] = {}

    def note(self, *what: Any) -> None:
        self.log.append(what)

    def called(self, name: str, path: str, given: tuple[Any, ...], options: dict[str, Any]) -> Any:
        before = self.content_size(given[0]) if name in ("write", "pwrite") else 0
        there = os.path.lexists(path) if name == "open" else True
        done = self.real[name](*given, **options)
        if name == "open":
            self._open(path, given[1], done, there)
        elif name in ("write", "pwrite") and given[0] in self.opened:
            file, appends = self.opened[given[0]]
            at = given[2] if name == "pwrite" else before if appends else self.place.get(given[0], 0)
            data = bytes(given[1])[:done]
            self.place[given[0]] = at + done
            kept = self.content[file]
            kept.extend(bytes(max(0, at + done - len(kept))))
            kept[at : at + done] = data
            self.note("write", file, at, data)
        elif name == "ftruncate" and given[0] in self.opened:
            file = self.opened[given[0]][0]
            del self.content[file][given[1] :]
            self.note("truncate", file, given[1])
        elif name == "fsync" and given[0] in self.opened:
            self.note("sync", self.opened[given[0]][0])
        elif name == "mkdir":
            folder, entry = self._find(path)
            number = self._new(folder, entry)
            self.names_in[number] = {}
            self.note("folder", number)
            self.note("name", folder, [(entry, number)])
        elif name in ("unlink", "rmdir"):
            folder, entry = self._find(path)
            self.names_in[folder].pop(entry)
            self.note("name", folder, [(entry, None)])
        elif name in ("rename", "replace"):
            folder, entry = self._find(path)
            other, target = self._find(
                os.path.realpath(os.path.dirname(given[1])) + "/" + os.path.basename(given[1])
            )
            assert folder == other, "a rename to another folder is not modelled"
            number = self.names_in[folder].pop(entry)
            self.names_in[folder][target] = number
            self.note("name", folder, [(entry, None), (target, number)])
        return done

    def content_size(self, descriptor: int) -> int:
        return len(self.content[self.opened[descriptor][0]]) if descriptor in self.opened else 0

    def _find(self, path: str) -> tuple[int, str]:
        folder = 0
        *parts, entry = os.path.relpath(path, self.root).split("/")
        for part in parts:
            folder = self.names_in[folder][part]
        return folder, entry

    def _new(self, folder: int, entry: str) -> int:
        number = 1 + max([*self.names_in, *self.content])
        self.names_in[folder][entry] = number
        return number

    def _open(self, path: str, flags: int, descriptor: int, there: bool) -> None:
        self.opened.pop(descriptor, None)
        if os.path.realpath(path) == self.root:
            self.opened[descriptor] = (0, False)
            return
        folder, entry = self._find(path)
        if not there:
            number = self._new(folder, entry)
            self.content[number] = bytearray()
            self.note("name", folder, [(entry, number)])
        number = self.names_in[folder].get(entry)
        if number is not None:
            self.opened[descriptor] = (number, bool(flags & os.O_APPEND))
            self.place[descriptor] = 0


def crashes(
    log: list[tuple[Any, ...]], points: range, place: Path, seed: int
) -> Iterator[tuple[int, str, Path, Any]]:
    """(point, how, folder, last mark) for power losses after each of ``points`` changes, each in five ways."""
    names: dict[int, dict[str, int]] = {0: {}}  # what is on the disk for sure
    waiting: dict[int, list[list[tuple[str, int | None]]]] = {0: []}
    safe: dict[int, bytes] = {}
    now: dict[int, bytearray] = {}
    mark: Any = None
    wanted = set(points)
    for point, (kind, *what) in enumerate(log, start=1):
        if kind == "mark":
            mark = what[0]
        elif kind == "name":
            waiting.setdefault(what[0], []).append(what[1])
            for _, number in what[1]:
                if number is not None:
                    (
                        names.setdefault(number, {}),
                        waiting.setdefault(number, []),
                        now.setdefault(number, bytearray()),
                    )
        elif kind == "write":
            file, at, data = what
            now[file].extend(bytes(max(0, at + len(data) - len(now[file]))))
            now[file][at : at + len(data)] = data
        elif kind == "truncate":
            del now[what[0]][what[1] :]
        elif kind == "sync":
            safe[what[0]] = bytes(now.get(what[0], b""))
            for change in waiting.get(what[0], []):
                _apply(names[what[0]], change)
            waiting[what[0]] = []
        if point not in wanted:
            continue
        for how in ("kept", "lost", "names only", "data only", "some"):
            draw = random.Random(f"{seed}/{point}")
            folder = place / "crashed"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            _build(folder, 0, names, waiting, safe, now, how, draw, _folders(log))
            yield point, how, folder, mark


def _folders(log: list[tuple[Any, ...]]) -> set[int]:
    return {entry[1] for entry in log if entry[0] == "folder"}


def _apply(names: dict[str, int], change: list[tuple[str, int | None]]) -> None:
    for entry, number in change:
        if number is None:
            names.pop(entry, None)
        else:
            names[entry] = number


def _build(folder, number, names, waiting, safe, now, how, draw, folders) -> None:
    found = dict(names[number])
    for change in waiting.get(number, []):
        if how in ("kept", "names only") or (how == "some" and draw.random() < 0.5):
            _apply(found, change)
    for entry, inside in found.items():
        if inside in folders:
            (folder / entry).mkdir()
            _build(folder / entry, inside, names, waiting, safe, now, how, draw, folders)
            continue
        sure, written = safe.get(inside, b""), bytes(now.get(inside, b""))
        content = written if how in ("kept", "data only") else sure
        if how == "some":
            choices = [sure, written]
            if written.startswith(sure):  # appended to: what was synced stays, the rest is torn or zeros
                choices += [
                    written[: draw.randint(len(sure), len(written))],
                    sure + bytes(len(written) - len(sure)),
                ]
            content = draw.choice(choices)
        (folder / entry).write_bytes(content)
