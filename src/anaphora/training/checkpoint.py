"""Checkpoints: after the first, a whole and verified one exists at every instant.

Written aside into ``.tmp-…``, each file fsynced, ``manifest.json`` (sizes, sha256, format) last, then the
folder fsynced, renamed to ``step-00001234``, the parent fsynced, and only then are older ones removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from anaphora.errors import RunError
from anaphora.files import faults, is_folder, parse_json, read_bytes
from anaphora.files.parsing import canonical
from anaphora.files.schemas import problem
from anaphora.files.writing import make_inner_folder, remove, rename, sync_folder, write_synced, writing
from anaphora.training.schemas import ExportFacts, Manifest, State
from anaphora.training.sharding import joined
from anaphora.training.weights import first_not_finite, unpack

FORMAT = 1
_LARGEST_JSON = 1 << 26
STATE_FORMAT = 1
MANIFEST = "manifest.json"
_PART = re.compile(r"([a-z]+)-(\d+)-of-(\d+)")  # what one of several processes wrote


class Unusable(Exception):  # noqa: N818  (not an error for users: a reason to take the one before)
    """Why a checkpoint cannot be used."""


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint in memory."""

    path: Path
    step: int
    state: dict[str, Any]
    tensors: dict[str, dict[str, Tensor]]  # by part: model, optimizer, and where used ema, objective
    best: bytes | None  # the best weights so far, as the bytes of model.safetensors


@dataclass(frozen=True)
class Skipped:
    """A checkpoint that was passed over, and why."""

    path: Path
    reason: str


class CheckpointFolder:
    """The ``checkpoints/`` of a run."""

    def __init__(self, path: Path):
        self.path = path

    def save(
        self,
        step: int,
        files: Iterable[tuple[str, bytes]],
        *,
        keep: int,
        also: Collection[int] = frozenset(),
    ) -> Path:
        """Write the checkpoint of ``step`` and then remove all but the ``keep`` newest up to it and those of ``also``.

        ``files`` yields (name, content) one at a time, so that only one has to be in memory.
        """
        aside = self.begin()
        return self.complete(aside, step, files, {}, keep=keep, also=also)

    def begin(self) -> Path:
        """A folder in which a checkpoint is written aside."""
        with writing(self.path, kept=self.kept()):
            make_inner_folder(self.path)
            aside = self.path / f".tmp-{uuid.uuid4().hex}"
            make_inner_folder(aside, synced=False)
        return aside

    def complete(
        self,
        aside: Path,
        step: int,
        files: Iterable[tuple[str, bytes]],
        listed: Mapping[str, Any],
        *,
        keep: int,
        also: Collection[int] = frozenset(),
    ) -> Path:
        """`save` what is in ``aside`` already, as ``listed``, with ``files`` in addition."""
        with writing(self.path, kept=self.kept()):
            try:
                self._fill(aside, step, files, listed)
                final = self.path_of(step)
                if os.path.lexists(
                    final
                ):  # one that was found damaged on resume, else we would have gone on from it
                    rename(final, self.path / f".tmp-{uuid.uuid4().hex}")
                rename(aside, final)
            except BaseException:
                remove(aside)
                raise
            faults.point("checkpoint.renamed")
            sync_folder(self.path)
            faults.point("checkpoint.durable")
            self._prune(step, keep, also)
        return final

    def newest(
        self, accept: Callable[[Checkpoint], None] = lambda checkpoint: None
    ) -> tuple[Checkpoint | None, list[Skipped]]:
        """The newest checkpoint that verifies, and those passed over.

        ``accept`` may raise ``Unusable`` to refuse one for a reason of its own, such as another model's shapes.
        """
        skipped = []
        for _, path in sorted(self.steps(), reverse=True):
            try:
                checkpoint = read(path)
                accept(checkpoint)
            except Unusable as reason:
                skipped.append(Skipped(path, str(reason)))
            else:
                return checkpoint, skipped
        return None, skipped

    def steps(self) -> Iterator[tuple[int, Path]]:
        """(step, folder) of each checkpoint, verified or not."""
        if is_folder(self.path):
            for path in self.path.glob("step-*"):
                with contextlib.suppress(ValueError):
                    yield int(path.name.removeprefix("step-")), path

    def _fill(
        self, aside: Path, step: int, files: Iterable[tuple[str, bytes]], listed: Mapping[str, Any]
    ) -> None:
        everything = dict(listed)
        for name, content in files:
            everything |= write_listed(aside, name, content)
        manifest = {"format": FORMAT, "step": step, "files": everything}
        manifest["sha256"] = hashlib.sha256(canonical(manifest).encode()).hexdigest()
        write_synced(aside / MANIFEST, canonical(manifest).encode())
        faults.point("checkpoint.manifest")
        sync_folder(aside)

    def path_of(self, step: int) -> Path:
        """The folder of the checkpoint of ``step``, whether it is there or not."""
        return self.path / name_of(step)

    def remove_after(self, step: int) -> list[int]:
        """Remove the checkpoints of later steps, the newest first, and wait until that is on the disk; their steps."""
        later = sorted((entry for entry in self.steps() if entry[0] > step), reverse=True)
        with writing(self.path, kept=self.kept()):
            for _, path in later:
                self._remove(path)
                sync_folder(self.path)
        return [number for number, _ in later]

    def _remove(self, path: Path) -> None:
        # First out of sight in one step, so that a crash cannot leave half a checkpoint under its name.
        gone = self.path / f".tmp-{uuid.uuid4().hex}"
        rename(path, gone)
        faults.point("checkpoint.pruned")
        remove(gone)

    def _prune(self, step: int, keep: int, also: Collection[int]) -> None:
        old = sorted((entry for entry in self.steps() if entry[0] <= step), reverse=True)[keep:]
        for number, path in old:
            if number not in also:
                self._remove(path)
        for aside in self.path.glob(".tmp-*"):
            remove(aside)

    def kept(self) -> str:
        steps = [step for step, _ in self.steps()]
        return (
            f"the checkpoint of step {max(steps)} is untouched" if steps else "no checkpoint was written yet"
        )


def write_listed(folder: Path, name: str, content: bytes) -> dict[str, Any]:
    """Write a file of a checkpoint; what the manifest says of it, by its name."""
    write_synced(folder / name, content)
    faults.point("checkpoint.file")
    return {name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}}


def is_checkpoint(path: Path) -> bool:
    """Return True if the manifest in a folder is one that `CheckpointFolder` wrote."""
    with contextlib.suppress(Unusable):
        return is_folder(path) and bool(_manifest(path))
    return False


def name_of(step: int) -> str:
    return f"step-{step:08d}"


def read(path: Path) -> Checkpoint:
    """Read and verify one checkpoint, or raise ``Unusable`` with the reason."""
    files = verify(path)
    state, step = _state(files.pop("state.json", b"")), int(path.name.removeprefix("step-"))
    if state["standing"]["step"] != step:
        raise Unusable(f"state.json: standing.step is {state['standing']['step']}")
    best = files.pop("best.safetensors", None)
    if best is not None:
        _, facts = _unpacked("best.safetensors", best)
        if reason := problem(ExportFacts, facts):
            raise Unusable(f"best.safetensors: facts.{reason}")
    tensors = {}
    divided: dict[str, dict[tuple[int, int], tuple[dict[str, Tensor], Any]]] = {}
    for name, content in files.items():
        found, facts = _unpacked(name, content)
        if facts.get("step") != step:
            raise Unusable(f"{name} is not that of step {step}")
        part = name.removesuffix(".safetensors")
        if of := _PART.fullmatch(part):
            divided.setdefault(of[1], {})[int(of[2]), int(of[3])] = found, facts.get("shapes")
        else:
            tensors[part] = found
    for part, pieces in divided.items():
        tensors[part] = _whole(part, pieces)
    if not {"model", "optimizer"} <= set(tensors):
        raise Unusable("the model's or the optimizer's file is missing")
    for part, values in tensors.items():
        bad = first_not_finite(values)
        if bad is not None:
            raise Unusable(f"{part}.safetensors: {bad} holds NaN or infinity")
    return Checkpoint(path, step, state, tensors, best)


def _whole(part: str, pieces: Mapping[tuple[int, int], tuple[dict[str, Tensor], Any]]) -> dict[str, Tensor]:
    """The tensors of which each process wrote its rows."""
    world = next(iter(pieces))[1]
    if sorted(pieces) != [(rank, world) for rank in range(world)]:
        raise Unusable(f"files of {part} are missing: there are {len(pieces)} of {world}")
    ordered = [pieces[rank, world] for rank in range(world)]
    try:
        return joined([tensors for tensors, _ in ordered], ordered[0][1])
    except (ValueError, LookupError, TypeError, RuntimeError) as error:
        raise Unusable(f"the files of {part} do not fit together ({str(error).splitlines()[0]})") from None


def _state(content: bytes) -> dict[str, Any]:
    try:
        state = parse_json(content, most=_LARGEST_JSON)
    except ValueError as error:
        raise Unusable(f"state.json is missing or not JSON ({error})") from None
    version = state.get("format") if isinstance(state, dict) else None
    if isinstance(version, int) and version != STATE_FORMAT:
        raise Unusable(f"state.json has format {version}, this version reads {STATE_FORMAT}")
    if reason := problem(State, state):
        raise Unusable(f"state.json: {reason}")
    return dict(state)


def _unpacked(name: str, content: bytes) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        return unpack(content, where=name)
    except RunError as error:
        raise Unusable(str(error).rstrip(".")) from None


def verify(path: Path) -> dict[str, bytes]:
    """The files of a checkpoint by name, each equal to what the manifest says; else ``Unusable``."""
    if not is_folder(path):
        raise Unusable("it is not a folder, or a link to one")
    manifest = _manifest(path)
    if name_of(manifest["step"]) != path.name:
        raise Unusable(f"its manifest is that of step {manifest['step']}")
    contents = {}
    for name, expected in manifest["files"].items():
        content = _read_regular(path / name, expected["bytes"])
        if len(content) != expected["bytes"]:
            raise Unusable(f"{name} has {len(content)} bytes instead of {expected['bytes']}")
        if hashlib.sha256(content).hexdigest() != expected["sha256"]:
            raise Unusable(f"{name} is damaged (sha256 differs from the manifest)")
        contents[name] = content
    return contents


def _manifest(path: Path) -> dict[str, Any]:
    content = _read_regular(path / MANIFEST, 1 << 20)
    try:
        manifest = parse_json(content)
        version = manifest.get("format") if isinstance(manifest, dict) else None
        if isinstance(version, int) and version > FORMAT:
            raise Unusable(f"written in format {version} by a newer anaphora; this one reads up to {FORMAT}")
        reason = problem(Manifest, manifest)
    except ValueError as error:
        reason = str(error)
    if reason:
        raise Unusable(f"{MANIFEST} is damaged ({reason})")
    sealed = manifest.pop("sha256")
    intact = (
        hashlib.sha256(canonical(manifest).encode()).hexdigest() == sealed
        and canonical({**manifest, "sha256": sealed}).encode() == content
    )
    if not intact:
        raise Unusable(f"{MANIFEST} is damaged")
    return dict(manifest)


def _read_regular(path: Path, most: int) -> bytes:
    """A plain file's content; links are refused, because they may point at what another process changes."""
    try:
        return read_bytes(path, most=most, follow=False)
    except FileNotFoundError:
        raise Unusable(f"{path.name} is missing") from None
    except OSError as error:
        raise Unusable(f"{path.name} cannot be read ({error.strerror})") from None
