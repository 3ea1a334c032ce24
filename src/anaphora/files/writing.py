"""Writing files so that a crash at any instant leaves either the old content or the new, never a mixture."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from anaphora.errors import RunError
from anaphora.files import Refused, faults

_CHUNK = 1 << 20
_REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some of your quota",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f)",
    errno.EROFS: "make it writable",
    errno.EACCES: "make it writable",
    errno.EPERM: "make it writable",
    errno.ENOENT: "put the folder back",
    errno.ENOTDIR: "move the file that stands in its place",
    errno.EEXIST: "move the file that stands in its place",
}


@contextlib.contextmanager
def writing(path: Path, *, kept: str = "") -> Iterator[None]:
    """Turn an ``OSError`` inside into one sentence; ``kept`` says what is still there."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        remedy = _REMEDIES.get(error.errno or 0, "see to it")
        if isinstance(error, Refused):
            remedy = "move it away"
        tail = f"; {kept}" if kept else ""
        raise RunError(f"{path}: cannot be written ({reason}); {remedy} and try again{tail}.") from error


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn an ``OSError`` inside, or text that is not UTF-8, into one sentence."""
    try:
        yield
    except FileNotFoundError:
        raise RunError(f"{path}: there is no such file; the run is incomplete.") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
        raise RunError(f"{path}: cannot be read ({reason}); restore it from a copy of the run.") from error


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file and wait until it is on the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view[:_CHUNK]) :]
            faults.point("write.chunk")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, and wait until their names are on the disk."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in missing:
        sync_folder(folder.parent)


def check_place(path: Path) -> None:
    """Notice before the work that a new ``path`` could not be made after it: the folders above it are there, or can be made."""
    if path.exists():
        return
    above = next((folder for folder in path.parents if folder.exists()), Path())
    if not above.is_dir():
        raise RunError(f"{path}: cannot be written ({above} is not a folder); choose another place.")
    if not os.access(above, os.W_OK | os.X_OK):
        raise RunError(f"{path}: cannot be written (permission denied in {above}); choose another place.")


@contextlib.contextmanager
def folder_for(path: Path) -> Iterator[None]:
    """Make the folders above ``path`` that are missing; if the block fails, those that are still empty go again."""
    missing = [folder for folder in path.parents if not folder.exists()]
    with writing(path):
        make_folder(path.parent)
    try:
        yield
    except BaseException:
        for folder in missing:  # the innermost first
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def replace_file(path: Path, data: bytes) -> None:
    """Give ``path`` new content in one step: aside, fsync, rename, fsync of the folder."""
    aside = path.with_name(f".tmp-{uuid.uuid4().hex}")
    try:
        write_synced(aside, data)
        faults.point("replace.written")
        os.replace(aside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            aside.unlink(missing_ok=True)
        raise
    faults.point("replace.renamed")
    sync_folder(path.parent)
