"""Trainings that a page starts, stops and resumes: each is a process with the command that the page shows."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anaphora import processes
from anaphora.errors import AnaphoraError, DataError, RunError
from anaphora.files import clause, is_folder, parse_json, read_tail
from anaphora.files.writing import make_inner_folder, open_replaced, write_new
from anaphora.studio.orders import UPLOADS, catalogue, check_file, read_order, shown
from anaphora.studio.runs import Run
from anaphora.training.lock import read_holder

MOST_AT_ONCE = 1
MOST_KEPT = 20
"""Trainings that ended and are still listed."""
BIGGEST_FILE = 32 << 20
MOST_FILES = 20
PATIENCE = 30.0
"""Seconds that trainings have to finish their step and save when the studio ends."""
PLAN_SECONDS = 40.0
_TAIL = 4000


@dataclass
class Training:
    """One process; ``run`` is the name of its run."""

    run: str
    command: str
    log: Path
    process: processes.Process
    begun: float = field(default_factory=time.time)
    stopping: bool = False

    def facts(self) -> dict[str, Any]:
        code = self.process.poll()
        said = ""
        with contextlib.suppress(OSError):
            said = read_tail(self.log, _TAIL).decode(errors="replace")
        state = "stopping" if self.stopping and code is None else "training" if code is None else "ended"
        return {
            "run": self.run,
            "command": self.command,
            "state": state,
            "code": code,
            "said": said,
            "begun": self.begun,
        }


class Starter:
    """Starts trainings below ``folder``, at most ``most`` at a time; without ``allowed`` it only says what the command is.

    Nothing outside of ``folder`` is written: runs go right into it, dropped files and what trainings say into hidden folders of it.
    """

    def __init__(self, folder: Path, *, allowed: bool, most: int = MOST_AT_ONCE):
        self.folder, self.allowed, self.most = folder.resolve(), allowed, most
        self._trainings: list[Training] = []
        self._lock = threading.Lock()

    def facts(self) -> dict[str, Any]:
        """What the page shows: whether it may start anything, what there is to choose, files, trainings."""
        with self._lock:
            listed = [training.facts() for training in reversed(self._trainings)]
        return {
            "allowed": self.allowed,
            "most": self.most,
            "biggest": BIGGEST_FILE,
            "tasks": catalogue(),
            "files": self.files(),
            "trainings": listed,
        }

    def command(self, given: Mapping[str, Any]) -> dict[str, str]:
        """The command of an order."""
        return {"command": shown(read_order(given, self.folder).words(self.folder), self.folder)}

    def resuming(self, run: Run) -> dict[str, str]:
        """The command that goes on with a run."""
        return {"command": shown(["resume", str(run.path)], self.folder)}

    def plan(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """What ``--dry-run`` says: data, sizes and settings, or the sentence why it cannot be."""
        self._check_allowed()
        words = [*read_order(given, self.folder).words(self.folder), "--dry-run", "--json"]
        try:
            done = processes.run(_argv(words), timeout=PLAN_SECONDS, cwd=self.folder.parent)
        except processes.TimeoutExpired:
            raise AnaphoraError(
                f"the plan took more than {PLAN_SECONDS:g} seconds; use the command."
            ) from None
        if done.returncode:
            raise DataError(_sentence(done.stderr))
        found = parse_json(done.stdout)
        assert isinstance(found, dict)
        return {"plan": found, "command": shown(words[:-1], self.folder)}

    def start(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Begin a training; returns its facts."""
        self._check_allowed()
        order = read_order(given, self.folder)
        return self._begin(order.name, order.words(self.folder))

    def resume(self, run: Run) -> dict[str, Any]:
        """Go on with a run of this folder that was stopped."""
        self._check_allowed()
        path = run.path.resolve()
        if not path.is_relative_to(self.folder):
            raise RunError(f"{run.name} does not lie below {self.folder.name}; resume it with its command.")
        holder = read_holder(path / "lock")
        if holder is not None and holder.lives:
            raise RunError(f"{run.name} is being trained already.")
        return self._begin(run.name, ["resume", str(path)])

    def stop(self, name: str) -> dict[str, Any]:
        """Ask a training to finish its step, save and end; asked again it is ended at once."""
        self._check_allowed()
        with self._lock:
            for training in self._trainings:
                if training.run == name and training.process.poll() is None:
                    again, training.stopping = training.stopping, True
                    _signal(training.process, signal.SIGKILL if again else signal.SIGTERM)
                    return training.facts()
        raise RunError("no such training was started here.")

    def keep(self, name: str, content: bytes) -> dict[str, Any]:
        """Keep a dropped file; returns the list of files."""
        self._check_allowed()
        check_file(name)
        folder = self.folder / UPLOADS
        if len(content) > BIGGEST_FILE:
            raise DataError(f"the file is larger than {BIGGEST_FILE >> 20} MiB; use the command.")
        if len(self.files()) >= MOST_FILES:
            raise DataError(f"there are {MOST_FILES} files already; remove some of {UPLOADS}.")
        try:
            make_inner_folder(folder)
            write_new(folder / name, content)  # one that is there stays: a run may need it to be resumed
        except FileExistsError:
            raise DataError(f"there is a file {name} already; give it another name.") from None
        except OSError as error:
            raise DataError(f"{name} cannot be written: {UPLOADS} {clause(error)}.") from None
        return {"files": self.files()}

    def files(self) -> list[str]:
        """The names of dropped files."""
        if not is_folder(self.folder / UPLOADS):
            return []
        try:
            with os.scandir(self.folder / UPLOADS) as entries:
                return sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
        except OSError:
            return []

    def close(self, patience: float = PATIENCE) -> None:
        """End all trainings: each finishes its step and saves, within ``patience`` seconds together."""
        with self._lock:
            living = [one.process for one in self._trainings if one.process.poll() is None]
        for process in living:
            _signal(process, signal.SIGTERM)
        deadline = time.monotonic() + patience
        for process in living:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except processes.TimeoutExpired:
                _signal(process, signal.SIGKILL)
                process.wait()

    def _begin(self, name: str, words: Sequence[str]) -> dict[str, Any]:
        with self._lock:
            living = [one for one in self._trainings if one.process.poll() is None]
            if len(living) >= self.most:
                raise AnaphoraError(f"{living[0].run} is being trained; stop it first, or wait.")
            logs = self.folder / ".studio"
            try:
                make_inner_folder(logs)
                log = logs / f"{name.replace('/', '-')[:80]}.log"
                with os.fdopen(open_replaced(log), "wb") as out:
                    process = processes.start(
                        _argv(words),
                        stdin=processes.DEVNULL,
                        stdout=out,
                        stderr=processes.STDOUT,
                        cwd=self.folder.parent,
                        start_new_session=True,  # Ctrl-C ends the studio, which then ends its trainings in order
                    )
            except OSError as error:
                raise AnaphoraError(f"the training cannot be started (.studio {clause(error)}).") from None
            ended = [one for one in self._trainings if one.process.poll() is not None]
            self._trainings = [*living, *ended[-MOST_KEPT:]]
            self._trainings.append(Training(name, shown(words, self.folder), log, process))
            return self._trainings[-1].facts()

    def _check_allowed(self) -> None:
        if not self.allowed:
            raise AnaphoraError(
                "this page only shows commands; `anaphora studio --allow-training` lets it run them."
            )


def _argv(words: Sequence[str]) -> list[str]:
    return processes.python("-m", "anaphora", *words)


def _signal(process: processes.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def _sentence(said: bytes) -> str:
    """What the command said when it refused, without its own name before it."""
    text = said.decode(errors="replace").strip()
    return text.removeprefix("anaphora: ").removeprefix("error: ")[-1000:] or "the command refused."
