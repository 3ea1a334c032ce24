"""A file of answers that a killed run continues: what it then holds equals, byte for byte, what one run writes.

``answers.txt`` appears when all is answered. Until then ``answers.txt.part`` holds the answers so far, and
``answers.txt.journal`` says of what, and up to which input and byte they are on the disk for sure:

    {"format": 1, "of": {model, options, form …}}
    {"inputs": 40960, "digest": sha256 of them, "bytes": 1300456, "sha256": of the file so far, "bad": 0}
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np

from anaphora.errors import DataError, RunError
from anaphora.files import faults, parse_json, read_bytes
from anaphora.files.unpacking import check_unpacked
from anaphora.files.writing import check_place, discard, folder_for, open_kept, rename, sync_folder, writing
from anaphora.tasks.bulk.windows import Item

FORMAT = 1
EVERY = 1.0
"""Seconds between two marks: what a killed run does again, at most."""
_CHUNK = 1 << 20


class OutFile:
    """Answers on their way into ``path``; use as a context manager, which leaves the file to be continued on an error.

        with OutFile(path, {"model": digest}) as out:
            for items, answers, whole in bulk.answers(out.rest(items), first=out.inputs + 1):
                out.write(items, encode(answers))
            out.finish()

    ``of`` names all that the answers depend on besides the inputs. Raises a `RunError` where the file exists (unless
    ``replace``), where it was begun with another ``of``, or where another process writes it; a `DataError` from `rest` where
    the inputs are not those it was begun with. ``anew`` begins again. ``head`` begins the file.
    """

    def __init__(
        self,
        path: str | Path,
        of: Mapping[str, Any],
        *,
        anew: bool = False,
        replace: bool = False,
        head: bytes = b"",
        every: float = EVERY,
    ):
        self.path = Path(path)
        if self.path.is_dir():
            raise RunError(f"{self.path}: is a folder; name a file.")
        check_unpacked(path)
        self.part = self.path.with_name(self.path.name + ".part")
        self.journal = self.path.with_name(self.path.name + ".journal")
        self.inputs = self.bad = 0
        self.complete = False
        """Whether everything was written before; `rest` then has no items."""
        self._of = json.loads(json.dumps(dict(of)))
        self._anew, self._replace, self._head, self._every = anew, replace or anew, head, every
        self._digest, self._sha = hashlib.sha256(), hashlib.sha256()
        self._mark: dict[str, Any] = {}
        self._passed = 0
        self._held: list[bytes] = []
        self._written = 0
        self._next = 0.0
        self._files: contextlib.ExitStack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        check_place(self.path)
        with contextlib.ExitStack() as files:
            files.enter_context(folder_for(self.path))
            with writing(self.journal):
                self._log = _opened(self.journal, files)
            try:
                fcntl.flock(self._log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunError(f"{self.path}: another process is writing this file; wait for it.") from None
            lines = [] if self._anew else self._lines()
            if lines and lines[0].get("of") != self._of:
                raise RunError(
                    f"{self.part}: was begun with {_difference(lines[0].get('of'), self._of)}; "
                    "put that back, or begin again with --force."
                )
            begun = bool(lines) and self.part.exists()
            self.complete = not begun and self.path.exists() and bool(lines) and "done" in lines[-1]
            if self.path.exists() and not (begun or self.complete or self._replace):
                discard(self.journal)
                raise RunError(f"{self.path}: exists already; name another file, or replace it with --force.")
            if self.complete:  # only the journal was left of a run that wrote everything
                self.inputs, self.bad = int(lines[-1]["inputs"]), int(lines[-1].get("bad", 0))
            else:
                files.push(self._forget)
                with writing(self.part):
                    self._begin(files, lines if begun else [])
            self._files = files.pop_all()
        return self

    def _lines(self) -> list[dict[str, Any]]:
        """What the journal says, without a last line that was cut off."""
        text = read_bytes(self.journal, follow=False)
        whole = text[: text.rfind(b"\n") + 1].splitlines()
        try:
            lines = [parse_json(line) for line in whole]
            if lines and lines[0]["format"] != FORMAT:
                raise ValueError("another format")
            for mark in lines[1:]:
                _ = int(mark["inputs"]), int(mark["bytes"]), str(mark["digest"]), str(mark["sha256"])
        except (ValueError, LookupError, TypeError):
            raise RunError(f"{self.journal}: is damaged; begin again with --force.") from None
        return lines

    def _begin(self, files: contextlib.ExitStack, lines: list[dict[str, Any]]) -> None:
        """Go on at the last mark; without one from the start."""
        self._out = _opened(self.part, files)
        self._written = len(self._head)  # which is not hashed: it is written again in the end
        if len(lines) > 1:
            self._mark = lines[-1]
            self.inputs, self.bad = int(self._mark["inputs"]), int(self._mark.get("bad", 0))
            reached = int(self._mark["bytes"])
            while self._written < reached and (
                block := os.pread(self._out, min(_CHUNK, reached - self._written), self._written)
            ):
                self._sha.update(block)
                self._written += len(block)
            if self._sha.hexdigest() != self._mark["sha256"]:
                raise RunError(
                    f"{self.part}: its first {reached} bytes are not those that were written; begin again with --force."
                )
            os.ftruncate(self._out, reached)
            log = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        else:
            os.ftruncate(self._out, 0)
            _write(self._out, self._head)
            log = json.dumps({"format": FORMAT, "of": self._of}).encode() + b"\n"
        os.ftruncate(self._log, 0)
        os.lseek(self._log, 0, os.SEEK_SET)
        _write(self._log, log)
        os.lseek(self._out, self._written, os.SEEK_SET)
        sync_folder(self.path.absolute().parent)
        self._next = time.monotonic() + self._every

    def rest(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items that are not answered yet, after those that are were compared with what was answered."""
        if self.complete:
            return
        found = iter(items)
        while self._passed < self.inputs:
            one = next(found, None)
            if one is None:
                raise DataError(
                    f"{self.part}: {self.inputs} inputs were answered, but there are only {self._passed} now; "
                    "put them back, or begin again with --force."
                )
            self._pass(one)
        yield from found

    def _pass(self, one: Item) -> None:
        self._digest.update(fingerprint(one.given))
        self._passed += 1
        if self._passed == self.inputs and self._mark and self._digest.hexdigest() != self._mark["digest"]:
            raise DataError(
                f"{self.part}: the first {self.inputs} inputs are not those that were answered; "
                "put them back, or begin again with --force."
            )

    def write(self, items: Iterable[Item], data: bytes, bad: int = 0) -> None:
        """Add the answers to ``items``; those of items that were answered before are left out."""
        for one in items:
            again = self._passed < self.inputs
            self._pass(one)
        if again:
            return
        self.inputs, self.bad = self._passed, self.bad + bad
        self._put(data)
        if time.monotonic() >= self._next:
            self._commit()

    def _put(self, data: bytes) -> None:
        with writing(self.part, kept="what was answered is kept"):
            _write(self._out, data)
        self._sha.update(data)
        self._written += len(data)
        faults.point("predict.written")

    def _commit(self, **more: Any) -> None:
        mark = {
            "inputs": self.inputs,
            "digest": self._digest.hexdigest(),
            "bytes": self._written,
            "sha256": self._sha.hexdigest(),
            "bad": self.bad,
            **more,
        }
        with writing(self.journal, kept="what was answered is kept"):
            os.fsync(self._out)
            faults.point("predict.synced")
            _write(self._log, json.dumps(mark).encode() + b"\n")
            os.fsync(self._log)
        faults.point("predict.marked")
        self._next = time.monotonic() + self._every

    def finish(self, head: bytes = b"") -> None:
        """Give the file its name; ``head`` takes the place of its first bytes."""
        if not self.complete:
            self._commit(done=True)
            with writing(self.part):
                self._name(head)
        discard(self.journal)

    def _name(self, head: bytes) -> None:
        os.pwrite(self._out, head, 0)
        os.fsync(self._out)
        faults.point("predict.done")
        rename(self.part, self.path)
        faults.point("predict.renamed")
        sync_folder(self.path.absolute().parent)

    def __exit__(self, *failed: Any) -> None:
        self._files.__exit__(*failed)

    def _forget(self, *failed: Any) -> None:
        """Leave nothing behind where the work failed before the first answer: there is nothing to go on from."""
        if failed[0] is not None and not self.inputs:
            for path in (self.part, self.journal):
                discard(path)


def fingerprint(given: Any) -> bytes:
    """Bytes that tell an input from every other."""
    if isinstance(given, np.ndarray):
        return repr((given.dtype.str, given.shape)).encode() + np.ascontiguousarray(given).tobytes()
    text = repr(given).encode(errors="surrogatepass")
    return len(text).to_bytes(8, "big") + text


def _opened(path: Path, files: contextlib.ExitStack) -> int:
    descriptor = open_kept(path)
    files.callback(os.close, descriptor)
    return descriptor


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _difference(before: Any, now: Mapping[str, Any]) -> str:
    before = before if isinstance(before, dict) else {}
    names = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    return ", ".join(f"another {name}" for name in names) or "something else"
