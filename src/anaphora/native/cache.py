"""The cache of compiled kernels: files that other users could have written are never run.

The folder is ``ANAPHORA_CACHE``/kernels, else ``XDG_CACHE_HOME``/anaphora/kernels, else ~/.cache/anaphora/kernels, else
anaphora-UID/kernels among the temporary files. It is used only if no other user but root could have put something there:
every directory on its path belongs to this user or to root and cannot be written by others (above it, a sticky
directory such as /tmp may be), and so do its files. Where none of these can be trusted or made, this process uses a
folder of its own, removed when it ends.

A file's name ends with a hash of its bytes, and it is put in place by one rename: several processes may build the same
kernel at once, and none ever loads half a file or a damaged one.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shutil
import stat
import sys
import tempfile
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MOST_LINKS = 40  # symbolic links followed on the way to the folder; more are a loop


def folder() -> Path:
    """The folder kernels are kept in; made if need be."""
    wanted = os.environ.get("ANAPHORA_CACHE")
    if wanted:
        kernels = Path(wanted).absolute() / "kernels"
        wrong = _unsafe(kernels)
        if wrong is None:
            return kernels
        warnings.warn(
            f"ANAPHORA_CACHE={wanted} is not used, because {wrong}; kernels are compiled again in every process "
            "until it names a folder that only you can write.",
            stacklevel=3,
        )
        return _private()
    for base in (_user_cache(), Path(tempfile.gettempdir()) / f"anaphora-{os.getuid()}"):
        if base is not None and _unsafe(base / "kernels") is None:
            return base / "kernels"
    return _private()


def _user_cache() -> Path | None:
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):  # the XDG specification: a relative path is ignored
        return Path(base) / "anaphora"
    try:
        return Path.home() / ".cache" / "anaphora"
    except RuntimeError:  # no HOME, and the user is unknown: a container with an arbitrary UID
        return None


@cache
def _private() -> Path:
    """A folder of this process alone, removed at its end."""
    made, owner = tempfile.mkdtemp(prefix="anaphora-"), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # not in a child that was forked off
            shutil.rmtree(made, ignore_errors=True)

    atexit.register(remove)
    return Path(made)


# ---------------------------------------------------------------------- trust
def _unsafe(target: Path) -> str | None:
    """Make the directory ``target`` and those above it where they are missing; return what is wrong with its path.

    Each part is made first and checked afterwards: a directory another user made in between does not pass.
    """
    at, ahead, links = Path(target.anchor), list(target.parts[1:]), 0
    try:
        wrong = _unsafe_part(at, os.lstat(at), last=not ahead)
        while wrong is None and ahead:
            at = at / ahead.pop(0)
            if not os.path.lexists(at):
                with contextlib.suppress(
                    FileExistsError
                ):  # what another process made is checked all the same
                    os.mkdir(at, 0o700)
            facts = os.lstat(at)
            wrong = _unsafe_part(at, facts, last=not ahead)
            if wrong is None and stat.S_ISLNK(facts.st_mode):
                links += 1
                if links > _MOST_LINKS:
                    return f"{at} is part of a loop of symbolic links"
                onto = Path(os.path.normpath(at.parent / os.readlink(at)))
                at, ahead = Path(onto.anchor), [*onto.parts[1:], *ahead]
    except OSError as error:
        return f"{at} cannot be used ({error.strerror})"
    return wrong


def _unsafe_part(path: Path, facts: os.stat_result, last: bool) -> str | None:
    """What is wrong with one directory or symbolic link on the path of the cache."""
    link = stat.S_ISLNK(facts.st_mode)
    if not link and not stat.S_ISDIR(facts.st_mode):
        return f"{path} is not a directory"
    if link and last:
        return f"{path} is a symbolic link"
    if not _trusted_owner(facts):
        return f"{path} belongs to another user"
    sticky = facts.st_mode & stat.S_ISVTX and not last
    if not link and facts.st_mode & _OTHERS_WRITE and not sticky:
        return f"other users can write to {path}"
    return None


def _trusted_owner(facts: os.stat_result) -> bool:
    return facts.st_uid in (os.getuid(), 0)


def read(path: Path) -> bytes | None:
    """The bytes of a file that no other user could have written; None for any other, or where it cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode) or facts.st_mode & _OTHERS_WRITE or not _trusted_owner(facts):
            return None
        with open(handle, "rb", closefd=False) as file:
            return file.read()
    except OSError:
        return None
    finally:
        os.close(handle)


# ---------------------------------------------------------------------- files
def fingerprint(data: bytes) -> str:
    """What the name of a file in the cache ends with."""
    return hashlib.sha256(data).hexdigest()[:32]


def found(stem: str, suffix: str) -> Iterator[tuple[Path, bytes]]:
    """The sound files of this stem, with their bytes: trusted, and the bytes are those the name promises."""
    places = [folder(), *([_private()] if _private.cache_info().currsize else [])]
    for place in places:
        try:
            names = sorted(name for name in os.listdir(place) if name.startswith(f"{stem}-"))
        except OSError:
            continue
        for name in names:
            body = read(place / name) if name.endswith(suffix) else None
            if body is not None and name == f"{stem}-{fingerprint(body)}{suffix}":
                yield place / name, body


def put(body: bytes, stem: str, suffix: str) -> Path:
    """Write a file by one rename; raises OSError where neither the cache nor a private folder can be written."""
    name = f"{stem}-{fingerprint(body)}{suffix}"
    try:
        return _put(body, folder() / name)
    except OSError:  # a full disk, or a cache that may only be read
        return _put(body, _private() / name)


def _put(body: bytes, path: Path) -> Path:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".building-")  # mode 0600
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(body)
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


@cache
def module_of(text: str) -> ModuleType:
    """The module of this text, kept with the other compiled kernels: Triton reads a kernel's text from its file, so it needs one."""
    name = f"anaphora_steps_{hashlib.sha256(text.encode()).hexdigest()[:32]}"
    path = next((path for path, _ in found(name, ".py")), None)
    if path is None:
        path = put(text.encode(), name, ".py")
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # Triton looks it up
    # Not imported: Python would keep byte code of its own beside the file, and run what it finds there.
    exec(compile(text, str(path), "exec"), module.__dict__)
    return module
