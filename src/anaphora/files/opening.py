"""Opening plain files, and nothing else."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from anaphora.files.bounds import human, limits

_CHUNK = 1 << 24
_SMALL = 1 << 20
_KINDS = (
    (stat.S_ISDIR, "a folder", errno.EISDIR),
    (stat.S_ISLNK, "a link", errno.ELOOP),
    (stat.S_ISFIFO, "a named pipe", errno.EINVAL),
    (stat.S_ISSOCK, "a socket", errno.EINVAL),
    (stat.S_ISCHR, "a device", errno.EINVAL),
    (stat.S_ISBLK, "a device", errno.EINVAL),
)


class Refused(OSError):  # noqa: N818  (it says what the door did)
    """A file that is not opened or read further; ``strerror`` is a clause, ``filename`` the path."""

    def __init__(self, path: str | Path, reason: str, number: int = errno.EINVAL):
        super().__init__(number, reason, str(path))


def open_plain(path: str | Path, flags: int = os.O_RDONLY, *, follow: bool = True, mode: int = 0o644) -> int:
    """A descriptor of a plain file. ``follow=False``, for files of a run folder, refuses a link.

    Looked at before it is opened, because opening a device may already do something, and again afterwards.
    """
    return _opened(path, flags, follow, mode)[0]


def _opened(
    path: str | Path, flags: int, follow: bool, mode: int = 0o644, looked: bool = False
) -> tuple[int, int]:
    """A descriptor and the size of its file; ``looked``: the caller has just seen that it is a plain one."""
    try:
        try:
            if not looked:
                _check(path, os.stat(path, follow_symlinks=follow).st_mode)
        except FileNotFoundError:
            pass  # opening it raises the error, or makes it
        extra = os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        descriptor = os.open(path, flags | extra, mode)
    except ValueError:  # a zero byte or half a character in the name
        raise Refused(path, "its name is not one of a file") from None
    except OSError as error:
        if error.errno == errno.ELOOP and not follow:
            raise Refused(path, "is a link, not a plain file", errno.ELOOP) from None
        raise
    try:
        facts = os.fstat(descriptor)
        _check(path, facts.st_mode)  # of a plain file O_NONBLOCK means nothing
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, facts.st_size


def open_stream(path: str | Path) -> int:
    """A descriptor of a file, a pipe or a terminal, for inputs that are answered as they arrive."""
    try:
        mode = os.stat(path).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
            _check(path, mode)
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except ValueError:
        raise Refused(path, "its name is not one of a file") from None


def read_bytes(
    path: str | Path, *, most: int | None = None, follow: bool = True, looked: bool = False
) -> bytes:
    """The content of a plain file of at most ``most`` bytes (by default what `limits` allows).

    ``looked`` saves a look at a file that the caller has just seen to be plain.
    """
    descriptor, size = _opened(path, os.O_RDONLY, follow, looked=looked)
    try:
        _bound(path, size, most)
        content = bytearray()
        while block := os.read(descriptor, wanted := min(_CHUNK, max(size - len(content), 4095) + 1)):
            content += block
            if len(content) > size:  # it grows while it is read, or says no size (/proc)
                _bound(path, len(content), most)
            elif len(content) == size and len(block) < wanted:
                break
        return bytes(content)
    finally:
        os.close(descriptor)


def read_tail(path: str | Path, most: int, *, follow: bool = True, looked: bool = False) -> bytes:
    """The last ``most`` bytes of a plain file, or all of a shorter one; ``looked`` as in `read_bytes`."""
    descriptor, size = _opened(path, os.O_RDONLY, follow, looked=looked)
    try:
        return os.pread(descriptor, min(most, size + 4096), max(0, size - most))
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def streamed(path: str | Path, *, follow: bool = True) -> Iterator[BinaryIO]:
    """A plain file to be read piece by piece."""
    with os.fdopen(open_plain(path, follow=follow), "rb") as file:
        yield file


def clause(error: OSError) -> str:
    """Why, for the middle of a sentence: ``no such file or directory``, or what the door said."""
    reason = error.strerror or str(error)
    return reason[:1].lower() + reason[1:]


def is_folder(path: Path) -> bool:
    """Whether there is a real folder at ``path``, and not a link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


def _bound(path: str | Path, size: int, most: int | None) -> None:
    if most is not None and size <= most <= _SMALL:
        return  # no limit is so low that it matters, and very many small files are read
    reason = limits().excess(size)
    if most is not None and size > most:
        reason = f"it holds {human(size)}, and no such file of more than {human(most)} is read"
    if reason:
        raise Refused(path, reason, errno.EFBIG)


def _check(path: str | Path, mode: int) -> None:
    if stat.S_ISREG(mode):
        return
    for kind, name, number in _KINDS:
        if kind(mode):
            raise Refused(path, f"is {name}, not a plain file", number)
    raise Refused(path, "is not a plain file")
