"""One process per run folder: a lock that a crash cannot leave behind."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

from anaphora.errors import RunError
from anaphora.files import open_plain, parse_json, read_bytes
from anaphora.files.writing import discard, remove_file, writing

_LARGEST_PID = 1 << 31


@dataclass(frozen=True)
class Holder:
    """The process that a lock names: host, pid and the process's start time, because pids are used again."""

    host: str
    pid: int
    started: str | None

    @classmethod
    def here(cls) -> Holder:
        return cls(socket.gethostname(), os.getpid(), _started(os.getpid()))

    @classmethod
    def parse(cls, content: bytes) -> Holder | None:
        """The holder that a lock file names, or None where it names none."""
        try:
            given = parse_json(content)
            host, pid, started = given["host"], given["pid"], given["started"]
        except (ValueError, TypeError, LookupError):
            return None
        sound = isinstance(host, str) and type(pid) is int and isinstance(started, str | None)
        return cls(host, pid, started) if sound and 0 < pid < _LARGEST_PID else None

    @property
    def lives(self) -> bool:
        """Whether the process runs on this host; of another host nothing is known, so it counts as living."""
        if self.host != socket.gethostname():
            return True
        return self.started is not None and _started(self.pid) == self.started


class Lock:
    """Held through ``flock``, which the kernel drops when the process ends, however it ends.

    So when it can be taken, the last holder is gone, whatever host the file names: a container that was killed has
    another name when it comes back. Only where the file system has no ``flock`` does the name in the file decide.
    """

    def __init__(self, path: Path):
        self.path = path
        self._descriptor: int | None = None

    def take(self) -> None:
        """Take the lock, or refuse with a sentence that names the holder."""
        with writing(self.path):
            descriptor = self._open()
            try:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, json.dumps(asdict(Holder.here())).encode() + b"\n", 0)
            except BaseException:
                os.close(descriptor)
                raise
        self._descriptor = descriptor

    def release(self) -> None:
        """Give it back; the file goes away."""
        if self._descriptor is None:
            return
        discard(self.path)
        os.close(self._descriptor)
        self._descriptor = None

    def _open(self) -> int:
        while True:
            descriptor = open_plain(self.path, os.O_RDWR | os.O_CREAT, follow=False)
            try:
                self._exclude_others(descriptor)
                # Between open and flock the last holder may have removed the file we opened.
                mine, there = os.fstat(descriptor), os.lstat(self.path)
                if mine.st_ino == there.st_ino and mine.st_nlink == 1:
                    return descriptor
                if (
                    mine.st_ino == there.st_ino
                ):  # it has a second name elsewhere, where nothing may be written
                    remove_file(self.path)
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def _exclude_others(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = Holder.parse(os.pread(descriptor, 4096, 0))
            locked = error.errno in (errno.EWOULDBLOCK, errno.EAGAIN)
            if locked or (holder is not None and holder.lives):
                raise self._refusal(holder) from None

    def _refusal(self, holder: Holder | None) -> RunError:
        who = f"process {holder.pid} on {holder.host}" if holder else "another process"
        return RunError(
            f"{self.path.parent}: {who} is training in this folder; wait for it or stop it"
            f" (if it is gone, remove {self.path})."
        )


def read_holder(path: Path) -> Holder | None:
    """Who a lock file names; None where there is none or it cannot be read."""
    try:
        return Holder.parse(read_bytes(path, most=4096, follow=False))
    except OSError:
        return None


def _started(pid: int) -> str | None:
    """When a process started, as boot id and clock ticks since boot; None where it does not run."""
    try:
        boot = read_bytes("/proc/sys/kernel/random/boot_id").decode().strip()
        # the name in parentheses may itself hold spaces and parentheses, so count from the last one
        fields = read_bytes(f"/proc/{pid}/stat").decode(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    state, ticks = fields[0], fields[19]
    return None if state in "ZX" else f"{boot}:{ticks}"
