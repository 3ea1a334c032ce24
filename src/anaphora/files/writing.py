"""The one door for writing: what is written below a folder that a user gave is written by this module.

A stranger may have made the folder. So a file is made under a name that cannot be guessed, never through a name that is
there, and takes its place by one rename: no link is followed, no pipe or device is opened, a second name of a file
(a hard link) keeps its content, and a crash at any instant leaves either the old content or the new, never a mixture.
A folder is replaced or removed only where a mark in it, by its content, says that this package made it.
`tests/files/test_writers.py` refuses any other way to write, rename or remove.

`replace_file`, `replacing`
    A file that is there afterwards, whole: of bytes, or written piece by piece.
`write_new`, `write_synced`
    A file that is not there yet.
`open_kept`, `open_replaced`
    Descriptors of files that grow while they are read: journals, locks and logs.
`make_folder`, `make_inner_folder`, `claim`, `replacing_folder`
    Folders.
`remove`, `discard`, `rename`, `copy_files`, `scratch_folder`, `scratch_file`
    The rest.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from anaphora.errors import RunError
from anaphora.files import Refused, faults, is_folder, open_plain, read_bytes, streamed

_CHUNK = 1 << 20
_ASIDE = ".tmp-"
"""How the names begin under which files and folders are made; those that a killed process leaves behind may be removed."""
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


# ---------------------------------------------------------------------- sentences
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


def check_place(path: Path) -> None:
    """Notice before the work that a new ``path`` could not be made after it: the folders above it are there, or can be made."""
    if path.exists():
        return
    above = next((folder for folder in path.parents if folder.exists()), Path())
    if not above.is_dir():
        raise RunError(f"{path}: cannot be written ({above} is not a folder); choose another place.")
    if not os.access(above, os.W_OK | os.X_OK):
        raise RunError(f"{path}: cannot be written (permission denied in {above}); choose another place.")


# ---------------------------------------------------------------------- files
def write_new(path: Path, data: bytes, *, synced: bool = False) -> None:
    """Write a file that is not there yet; ``FileExistsError`` where its name is taken, by a link for example."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view[:_CHUNK]) :]
            if synced:
                faults.point("write.chunk")
        if synced:
            os.fsync(descriptor)
    except BaseException:
        if not synced:  # what is synced stands in a folder that is removed as a whole
            discard(path)
        raise
    finally:
        os.close(descriptor)


def write_synced(path: Path, data: bytes) -> None:
    """Write a file that is not there yet, and wait until it is on the disk."""
    write_new(path, data, synced=True)


def replace_file(path: Path, data: bytes) -> None:
    """Give ``path`` new content in one step: aside, fsync, rename, fsync of the folder."""
    check_replaceable(path)
    aside = _aside(path)
    try:
        write_synced(aside, data)
        faults.point("replace.written")
        os.replace(aside, path)
    except BaseException:
        discard(aside)
        raise
    faults.point("replace.renamed")
    sync_folder(path.parent)


@contextlib.contextmanager
def replacing(path: Path, *, text: bool = False, synced: bool = True) -> Iterator[IO[Any]]:
    """Yield a file to write to, of bytes or of UTF-8 ``text``, which takes the place of ``path`` at the end of the block.

    If the block fails, what was at ``path`` is still there and nothing else is.
    """
    check_replaceable(path)
    aside = _aside(path)
    descriptor = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            if text:
                wrapped = io.TextIOWrapper(file, encoding="utf-8", newline="\n")
                yield wrapped
                wrapped.flush()
                wrapped.detach()
            else:
                yield file
            file.flush()
            if synced:
                os.fsync(file.fileno())
        os.replace(aside, path)
        if synced:
            sync_folder(path.parent)
    except BaseException:
        discard(aside)
        raise


def open_kept(path: Path, flags: int = 0, *, create: bool = True) -> int:
    """Return a descriptor of a file that is changed where it stands: a journal, or answers that are continued.

    A link and what is no plain file are refused. A file that has a second name elsewhere keeps its content there: the
    name at ``path`` becomes one of a copy.
    """
    wanted = os.O_RDWR | flags
    descriptor = open_plain(path, wanted | (os.O_CREAT if create else 0), follow=False)
    if os.fstat(descriptor).st_nlink == 1:
        return descriptor
    os.close(descriptor)
    replace_file(path, read_bytes(path, follow=False))
    return open_plain(path, wanted, follow=False)


def open_replaced(path: Path) -> int:
    """Return a descriptor of a new, empty file in the place of the one at ``path``: a log that is read while it grows."""
    check_replaceable(path)
    aside = _aside(path)
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        os.replace(aside, path)
    except BaseException:
        os.close(descriptor)
        discard(aside)
        raise
    return descriptor


def check_replaceable(path: Path) -> None:
    """Raise `Refused` where a folder or a device stands at ``path``; a link or a pipe gives way, and is never opened.

    The links of the system that lead to devices and to what this process has open (``/dev/stdout``) stay.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    except ValueError:
        raise Refused(path, "its name is not one of a file") from None
    if stat.S_ISDIR(mode):
        raise Refused(path, "is a folder, not a plain file", errno.EISDIR)
    if stat.S_ISLNK(mode):
        if os.path.realpath(path.parent).startswith(("/proc", "/sys")) or path.parent == Path("/dev"):
            raise Refused(path, "is a link of the system, not a plain file")
    elif stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise Refused(path, "is a device, not a plain file")


def _aside(path: Path) -> Path:
    return path.with_name(f"{_ASIDE}{uuid.uuid4().hex}")


# ---------------------------------------------------------------------- folders
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


def make_inner_folder(path: Path, *, synced: bool = True) -> None:
    """Make a folder in one that a user gave, unless it is there; a link to a folder is refused, as it leads out."""
    with contextlib.suppress(FileExistsError):
        path.mkdir()
        if synced:
            sync_folder(path.parent)
    if not is_folder(path):
        raise Refused(path, "is a link or a file, not a folder", errno.ENOTDIR)


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
            remove_if_empty(folder)
        raise


def claim(folder: Path, command: str, *, mark: str = "") -> None:
    """Mark ``folder`` as written by ``anaphora COMMAND``; refuse one in which others have put something.

    It is marked before anything else is written, so that the next run may replace one that was stopped. The ``mark`` is
    a file with the command's name, or another one.
    """
    place = folder / (mark or command)
    text = f"A {command} run: `anaphora {command}` may replace this folder.\n".encode()
    with writing(folder):
        if place.is_file() and read_bytes(place, most=len(text), follow=False) == text:
            return
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RunError(
                f"{folder}: is not empty, and `anaphora {command}` did not write it; choose another folder with -o."
            )
        make_folder(folder)
        write_new(place, text)


@contextlib.contextmanager
def replacing_folder(place: Path, ours: Callable[[Path], bool], what: str) -> Iterator[Path]:
    """Yield a new folder beside ``place`` to write into, which takes its place at the end of the block.

    What stands there gives way if it is a plain file, an empty folder, or one of which ``ours`` finds, by what is in it,
    that it is ``what`` ("an export"); anything else is refused, and so is a link to a folder.
    """
    _check_gives_way(place, ours, what)
    with tempfile.TemporaryDirectory(prefix=_ASIDE, dir=place.parent) as name:
        folder = Path(name) / "new"
        folder.mkdir()
        yield folder
        _check_gives_way(place, ours, what)
        if os.path.lexists(place):
            os.rename(place, Path(name) / "old")  # gone with the folder around it
        os.rename(folder, place)


def _check_gives_way(place: Path, ours: Callable[[Path], bool], what: str) -> None:
    if place.is_symlink() and place.is_dir():
        raise RunError(f"{place}: is a link to a folder; name the folder itself, or another place.")
    if place.is_dir() and any(place.iterdir()) and not ours(place):
        raise RunError(f"{place} holds something else than {what}; choose another place.")


# ---------------------------------------------------------------------- the rest
def remove(entry: Path) -> None:
    """Remove a file, a link (never what it points to) or a folder, as far as that can be done."""
    if is_folder(entry):
        shutil.rmtree(entry, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            entry.unlink()


def discard(path: Path) -> None:
    """Remove a file or a link, never a folder, as far as that can be done."""
    with contextlib.suppress(OSError):
        path.unlink()


def remove_file(path: Path) -> None:
    """Remove a file or a link; an ``OSError`` where it is there and cannot be removed."""
    path.unlink(missing_ok=True)


def remove_if_empty(folder: Path) -> None:
    """Remove a folder that holds nothing; otherwise, or where it is not there, do nothing."""
    with contextlib.suppress(OSError):
        folder.rmdir()


def rename(path: Path, to: Path) -> None:
    """Give a file or folder another name on the same disk; a file that has it gives way."""
    os.rename(path, to)


def copy_files(folder: Path, to: Path) -> None:
    """Copy the plain files of a folder, and of those in it, into the folder ``to``; links are left out."""
    make_inner_folder(to)
    for path in sorted(folder.iterdir()):
        if is_folder(path):
            copy_files(path, to / path.name)
        elif not path.is_symlink():
            with streamed(path, follow=False) as file, replacing(to / path.name) as copy:
                shutil.copyfileobj(file, copy, _CHUNK)


def scratch_folder(prefix: str = "anaphora-") -> tempfile.TemporaryDirectory[str]:
    """Return a folder of this process alone, under a random name among the temporary files of the system.

    Use it as a context manager, or call ``cleanup()``.
    """
    return tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)


def scratch_file(folder: Path | None = None) -> IO[bytes]:
    """Return a file without a name in ``folder`` (None: the system's), which is gone when it is closed."""
    if folder is not None:
        make_folder(folder)
    return tempfile.TemporaryFile(dir=folder)
