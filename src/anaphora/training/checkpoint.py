"""Checkpoints: after the first, a whole and verified one exists at every instant.

Written aside into ``.tmp-…``, each file fsynced, ``manifest.json`` (sizes, sha256, format) last, then the
folder fsynced, renamed to ``step-00001234``, the parent fsynced, and only then are older ones removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from anaphora.errors import RunError
from anaphora.training import faults
from anaphora.training.durable import sync_folder, write_synced, writing
from anaphora.training.weights import canonical, first_not_finite, unpack

FORMAT = 1
MANIFEST = "manifest.json"


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

    def save(self, step: int, files: Iterable[tuple[str, bytes]], *, keep: int) -> Path:
        """Write the checkpoint of ``step`` and then remove all but the ``keep`` newest up to it.

        ``files`` yields (name, content) one at a time, so that only one has to be in memory.
        """
        with writing(self.path, kept=self.kept()):
            if not self.path.is_dir():
                self.path.mkdir()
                sync_folder(self.path.parent)
            aside = self.path / f".tmp-{uuid.uuid4().hex}"
            try:
                aside.mkdir()
                self._fill(aside, step, files)
                final = self.path / name_of(step)
                if final.exists():  # one that was found damaged on resume, else we would have gone on from it
                    os.rename(final, self.path / f".tmp-{uuid.uuid4().hex}")
                os.rename(aside, final)
            except BaseException:
                shutil.rmtree(aside, ignore_errors=True)
                raise
            faults.point("checkpoint.renamed")
            sync_folder(self.path)
            faults.point("checkpoint.durable")
            self._prune(step, keep)
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
        if self.path.is_dir():
            for path in self.path.glob("step-*"):
                with contextlib.suppress(ValueError):
                    yield int(path.name.removeprefix("step-")), path

    def _fill(self, aside: Path, step: int, files: Iterable[tuple[str, bytes]]) -> None:
        listed = {}
        for name, content in files:
            write_synced(aside / name, content)
            listed[name] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            faults.point("checkpoint.file")
        manifest = {"format": FORMAT, "step": step, "files": listed}
        manifest["sha256"] = hashlib.sha256(canonical(manifest).encode()).hexdigest()
        write_synced(aside / MANIFEST, canonical(manifest).encode())
        faults.point("checkpoint.manifest")
        sync_folder(aside)

    def _prune(self, step: int, keep: int) -> None:
        old = sorted((entry for entry in self.steps() if entry[0] <= step), reverse=True)[keep:]
        for _, path in old:
            # First out of sight in one step, so that a crash cannot leave half a checkpoint under its name.
            gone = self.path / f".tmp-{uuid.uuid4().hex}"
            os.rename(path, gone)
            faults.point("checkpoint.pruned")
            shutil.rmtree(gone, ignore_errors=True)
        for aside in self.path.glob(".tmp-*"):
            shutil.rmtree(aside, ignore_errors=True)

    def kept(self) -> str:
        steps = [step for step, _ in self.steps()]
        return (
            f"the checkpoint of step {max(steps)} is untouched" if steps else "no checkpoint was written yet"
        )


def name_of(step: int) -> str:
    return f"step-{step:08d}"


def read(path: Path) -> Checkpoint:
    """Read and verify one checkpoint, or raise ``Unusable`` with the reason."""
    files = verify(path)
    try:
        state = json.loads(files.pop("state.json"))
    except (KeyError, ValueError):
        raise Unusable("state.json is missing or not JSON") from None
    best = files.pop("best.safetensors", None)
    tensors = {}
    for name, content in files.items():
        part = name.removesuffix(".safetensors")
        try:
            tensors[part], _ = unpack(content, where=name)
        except RunError as error:
            raise Unusable(str(error).rstrip(".")) from None
    if not {"model", "optimizer"} <= set(tensors):
        raise Unusable("the model's or the optimizer's file is missing")
    for part, values in tensors.items():
        bad = first_not_finite(values)
        if bad is not None:
            raise Unusable(f"{part}.safetensors: {bad} holds NaN or infinity")
    return Checkpoint(path, int(path.name.removeprefix("step-")), state, tensors, best)


def verify(path: Path) -> dict[str, bytes]:
    """The files of a checkpoint by name, each equal to what the manifest says; else ``Unusable``."""
    manifest = _manifest(path)
    if name_of(int(manifest["step"])) != path.name:
        raise Unusable(f"its manifest is that of step {manifest['step']}")
    contents = {}
    for name, expected in manifest["files"].items():
        content = _read_regular(path / name)
        if len(content) != expected["bytes"]:
            raise Unusable(f"{name} has {len(content)} bytes instead of {expected['bytes']}")
        if hashlib.sha256(content).hexdigest() != expected["sha256"]:
            raise Unusable(f"{name} is damaged (sha256 differs from the manifest)")
        contents[name] = content
    return contents


def _manifest(path: Path) -> dict[str, Any]:
    content = _read_regular(path / MANIFEST)
    try:
        manifest = json.loads(content)
        version = manifest["format"]
        if isinstance(version, int) and version > FORMAT:
            raise Unusable(f"written in format {version} by a newer anaphora; this one reads up to {FORMAT}")
        sealed = manifest.pop("sha256")
        intact = (
            hashlib.sha256(canonical(manifest).encode()).hexdigest() == sealed
            and canonical({**manifest, "sha256": sealed}).encode() == content
            and all(Path(name).name == name for name in manifest["files"])
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        intact = False
    if not intact:
        raise Unusable(f"{MANIFEST} is damaged")
    return dict(manifest)


def _read_regular(path: Path) -> bytes:
    """A plain file's content; links are refused, because they may point at what another process changes."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise Unusable(f"{path.name} is not a plain file")
        return path.read_bytes()
    except FileNotFoundError:
        raise Unusable(f"{path.name} is missing") from None
    except OSError as error:
        raise Unusable(f"{path.name} cannot be read ({error.strerror})") from None
