"""The run folder: where everything about one training is kept."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anaphora.errors import RunError
from anaphora.files import is_folder, parse_json, read_bytes
from anaphora.files.writing import (
    check_place,
    folder_for,
    make_folder,
    make_inner_folder,
    reading,
    remove,
    remove_file,
    remove_if_empty,
    rename,
    replace_file,
    writing,
)
from anaphora.training.checkpoint import CheckpointFolder, is_checkpoint
from anaphora.training.lock import Lock, read_holder
from anaphora.training.schemas import ExportFacts
from anaphora.training.weights import check_facts, load_weights, seal

_LONGEST_CONFIG = 1 << 26
_FILES = (
    "config.json",
    "tokenizer.json",
    "learnt.json",
    "model.safetensors",
    "base.safetensors",
    "metrics.jsonl",
    "samples.jsonl",
    "timings.jsonl",
    "bad-batches.jsonl",
    "README.md",
)


class RunFolder:
    """A folder with ``config.json``, ``model.safetensors``, ``metrics.jsonl``, ``checkpoints/`` …

    The constructor touches nothing: use ``create`` for a new run and ``open`` for an existing one.
    """

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.tokenizer = self.path / "tokenizer.json"
        self.learnt = self.path / "learnt.json"
        self.model = self.path / "model.safetensors"
        self.base = self.path / "base.safetensors"
        self.metrics = self.path / "metrics.jsonl"
        self.samples = self.path / "samples.jsonl"
        self.timings = self.path / "timings.jsonl"
        self.bad_batches = self.path / "bad-batches.jsonl"
        self.card = self.path / "README.md"
        self.checkpoints = self.path / "checkpoints"
        self.film = self.path / "film"
        self._replaced = self.path / ".tmp-replaced"
        self._lock = Lock(self.path / "lock")
        self._held = 0

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    @classmethod
    def create(cls, path: Path | str, *, force: bool = False) -> RunFolder:
        """A new, empty run. A folder that has something in it is refused; with ``force`` an older run in it is
        removed (only files with a run's names, and not while another process trains there)."""
        run = cls(path)
        there = run.check_free(force=force)
        with writing(run.path):
            make_folder(run.path)
        with run.lock():
            if there:
                with writing(run.path):
                    run._clear()
            run.sweep()
        return run

    @contextlib.contextmanager
    def begun(self, *, force: bool = False) -> Iterator[None]:
        """A new run, made as by ``create`` and locked for the block. If the block fails before there is anything to keep,
        all that it wrote is removed, and the folder too if it is new, so that the next try finds what this one found: with
        ``force`` also the older run, which is only set aside until the first step begins.

        Logged steps, weights and checkpoints are kept. So is a run that was interrupted, since ``resume`` can go on with it.
        """
        there, leftovers = self.check_free(force=force), self._only_prepared()
        with folder_for(self.config), self.lock():
            self.sweep()
            with writing(self.path):
                if leftovers:
                    self._clear()
                elif there:
                    self._set_aside()
            before = set() if leftovers else self._entries()
            try:
                yield
            except BaseException as error:
                refused = isinstance(error, Exception) and not self._has_progress()
                if refused or not self.exists():
                    self._withdraw(before)
                    self._put_back()
                raise
            remove(self._replaced)

    def _has_progress(self) -> bool:
        """Whether training has left anything that is lost with the folder."""
        journals = (self.metrics, self.samples, self.bad_batches)
        return self.has_checkpoints() or any(os.path.lexists(path) for path in (self.model, *journals))

    def _entries(self) -> set[Path]:
        """What lies in the folder and in the folders that a training makes in it."""
        folders = [self.path, *filter(is_folder, self._folders())]
        return {entry for folder in folders for entry in folder.iterdir()}

    def _withdraw(self, before: set[Path]) -> None:
        """Remove what a training has written since ``before``; files with other names stay."""
        for entry in self._entries() - before:
            own = entry.name in _FILES or entry.name.startswith(".tmp-")
            if own or (entry.parent != self.path and is_folder(entry.parent)):
                remove(entry)
        for folder in self._folders():
            if folder not in before:
                remove_if_empty(folder)

    def _set_aside(self) -> None:
        """Move an older run out of sight, whole or not at all. `sweep`, with which training begins, removes it for good."""
        try:
            for entry in self._of_a_run():
                aside = self._replaced / entry.relative_to(self.path)
                make_folder(aside.parent)
                rename(entry, aside)
        except BaseException:
            self._put_back()
            raise
        self._drop_empty_film()

    def _put_back(self) -> None:
        for folder in (
            self._replaced,
            self._replaced / self.checkpoints.name,
            self._replaced / self.film.name,
        ):
            for entry in folder.iterdir() if is_folder(folder) else ():
                if entry.name in _FILES or folder != self._replaced:
                    back = self.path / entry.relative_to(self._replaced)
                    make_inner_folder(back.parent)
                    rename(entry, back)
        remove(self._replaced)

    def _folders(self) -> tuple[Path, ...]:
        return self.checkpoints, self.film, self.path / "data"

    def check_free(self, *, force: bool = False) -> bool:
        """Refuse what ``create`` refuses, without touching anything; returns whether there is something to replace."""
        if self.path.exists() and not self.path.is_dir():
            raise RunError(f"{self.path}: is a file, not a folder; choose another place for the run.")
        check_place(self.path)
        there = bool(self._names() - {"lock"})
        if force and there and self._of_a_run() and not self._is_ours():
            raise RunError(
                f"{self.path}: holds files that anaphora did not write, and --force replaces runs alone; choose another folder."
            )
        if there and not force and not self._only_prepared():
            what = "already holds a run" if self.exists() else "is not empty"
            remedy = f"continue it with `anaphora resume {self.path}`, " if self.exists() else ""
            over = "overwrite it" if self.exists() else "write into it"
            raise RunError(
                f"{self.path}: {what}; {remedy}choose another folder, or {over} with --force (force=True in Python)."
            )
        return there

    def _is_ours(self) -> bool:
        """Return True if a file of the folder shows by its content that a training or `save` wrote it."""
        if read_holder(self.path / "lock") is not None:
            return True
        with contextlib.suppress(OSError, ValueError, AttributeError):
            document = parse_json(read_bytes(self.config, most=_LONGEST_CONFIG, follow=False))
            if {"format", "anaphora", "task"} <= document.keys():
                return True
        with contextlib.suppress(OSError, RunError):
            return bool(seal(self.model))
        return any(is_checkpoint(path) for _, path in CheckpointFolder(self.checkpoints).steps())

    def _names(self) -> set[str]:
        return {entry.name for entry in self.path.iterdir()} if self.path.is_dir() else set()

    def _only_prepared(self) -> bool:
        """Whether a process that was killed before it wrote ``config.json`` left all that is there."""
        left = {name for name in self._names() if not name.startswith(".tmp-")} - {"lock", "data", *_FILES}
        return not left and not self.exists() and read_holder(self.path / "lock") is not None

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """An existing run."""
        run = cls(path)
        if not run.path.is_dir():
            raise RunError(
                f"{run.path}: there is no such folder; give the folder of a run (train -o FOLDER)."
            )
        if not run.exists():
            raise RunError(
                f"{run.path}: not a run: it has no config.json; give the folder that `train -o` named."
            )
        return run

    def exists(self) -> bool:
        """Whether there is a run in the folder."""
        return self.config.is_file() or self.model.is_file() or self.has_checkpoints()

    def has_checkpoints(self) -> bool:
        return is_folder(self.checkpoints) and any(self.checkpoints.glob("step-*"))

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes out; may be nested. ``RunError`` names the process that holds it."""
        if self._held == 0:
            self._check_folders()
            self._lock.take()
        self._held += 1
        try:
            yield
        finally:
            self._held -= 1
            if self._held == 0:
                self._lock.release()

    def _check_folders(self) -> None:
        """A link in place of a folder leads out of the run; nothing is written or removed there."""
        for folder in self._folders():
            if folder.is_symlink():
                raise RunError(
                    f"{folder}: is a link, not a folder; put the folder itself there and try again."
                )

    def write(self, name: str, text: str) -> None:
        """Write a file of the folder in one step."""
        with writing(self.path / name):
            replace_file(self.path / name, text.encode())

    def read_text(self, name: str) -> str:
        path = self.path / name
        with reading(path):
            return read_bytes(path, follow=False).decode("utf-8")

    def load_model(self, device: torch.device | str = "cpu") -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The verified ``(tensors, facts)`` of ``model.safetensors``, which must belong to this folder's files."""
        tensors, facts = load_weights(self.model, device)
        check_facts(ExportFacts, facts, self.model)
        self.check_files(facts)
        return tensors, facts

    def check_learnt(self) -> None:
        """Refuse what was learned besides weights where it is not what the weights name, if they can be read."""
        facts: dict[str, Any] = {}
        with contextlib.suppress(RunError):
            facts = load_weights(self.model)[1]
            check_facts(ExportFacts, facts, self.model)
        self.check_files(facts, changed=frozenset({self.config.name}))

    def check_files(self, facts: Mapping[str, Any], *, changed: frozenset[str] = frozenset()) -> None:
        """Refuse a folder whose files are not those that weights with these ``facts`` name, except those that may
        have ``changed``; without facts nothing is known and nothing refused."""
        if "files" not in facts:
            return
        mine, named = self.fingerprints(), dict(facts["files"])
        for name in sorted(mine.keys() | named.keys()):
            if name in mine and (name in changed or mine[name] == named.get(name)):
                continue
            state = "is missing" if name not in mine else "is not the one these weights were trained with"
            other = ""
            if name == self.config.name and self.has_checkpoints():
                other = f", or train on with it: `anaphora resume {self.path}`"
            raise RunError(f"{self.path / name}: {state}; put the original back{other}.")

    def fingerprints(self) -> dict[str, str]:
        """sha256 of ``config.json``, ``tokenizer.json`` and ``learnt.json``, where they are, and the one that
        ``base.safetensors`` says of itself: weights name what they belong to."""
        found = {}
        for path in (self.config, self.tokenizer, self.learnt):
            if os.path.lexists(path):
                with reading(path):
                    found[path.name] = hashlib.sha256(read_bytes(path, follow=False)).hexdigest()
        if os.path.lexists(self.base):
            with reading(self.base):
                found[self.base.name] = seal(self.base)
        return found

    def load_base(self) -> dict[str, Tensor]:
        """The verified weights that never moved, which ``model.safetensors`` and checkpoints leave out."""
        return load_weights(self.base)[0]

    def learnt_names(self) -> list[str]:
        """The files that hold what was learned besides weights: those that are there, else the usual one."""
        there = [path.name for path in (self.tokenizer, self.learnt) if path.is_file()]
        return there or [self.tokenizer.name]

    def sweep(self) -> None:
        """Remove what interrupted writes left behind."""
        for folder in (self.path, self.checkpoints, self.film):
            for entry in folder.glob(".tmp-*") if folder.is_dir() else ():
                remove(entry)

    def _of_a_run(self) -> list[Path]:
        """The files and folders of a training in this folder, and nothing else that lies there."""
        steps = [folder.glob("step-*") for folder in (self.checkpoints, self.film) if is_folder(folder)]
        files = [self.path / name for name in _FILES]
        return [
            *(path for path in files if os.path.lexists(path)),
            *(entry for found in steps for entry in found),
        ]

    def _clear(self) -> None:
        for entry in self._of_a_run():
            if entry.parent == self.path:
                remove_file(entry)
            else:
                remove(entry)
        self._drop_empty_film()

    def _drop_empty_film(self) -> None:
        remove_if_empty(self.film)
