"""One process per run folder: a lock that a crash cannot leave behind."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
from pathlib import Path
from typing import Any

from anaphora.errors import RunError
from anaphora.training.durable import writing


class Lock:
    """Held through ``flock``, which the kernel drops when the process ends, however it ends.

    The file also names the holder (host, pid and the process's start time, because pids are used again), for
    the message, and for file systems where ``flock`` does nothing.
    """

    def __init__(self, path: Path):
        self.path = path
        self._descriptor: int | None = None

    def take(self) -> None:
        """Take the lock, or refuse with a sentence that names the holder."""
        with writing(self.path):
            descriptor = self._open()
        holder = _read(descriptor)
        if holder is not None and _lives(holder):
            os.close(descriptor)
            raise self._refusal(holder)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(_me()).encode() + b"\n", 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Give it back; the file goes away."""
        if self._descriptor is None:
            return
        with contextlib.suppress(OSError):
            self.path.unlink()
        os.close(self._descriptor)
        self._descriptor = None

    def _open(self) -> int:
        while True:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN):
                    holder = _read(descriptor)
                    os.close(descriptor)
                    raise self._refusal(holder) from None
                # no flock on this file system: the holder's name in the file has to do
            # Between open and flock the last holder may have removed the file we opened.
            try:
                if os.stat(self.path).st_ino == os.fstat(descriptor).st_ino:
                    return descriptor
            except FileNotFoundError:
                pass
            os.close(descriptor)

    def _refusal(self, holder: dict[str, Any] | None) -> RunError:
        who = f"process {holder['pid']} on {holder['host']}" if holder else "another process"
        return RunError(
            f"{self.path.parent}: {who} is training in this folder; wait for it or stop it"
            f" (if it is gone, remove {self.path})."
        )


def _me() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid())}


def _read(descriptor: int) -> dict[str, Any] | None:
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
        return holder if {"host", "pid", "started"} <= set(holder) else None
    except (ValueError, TypeError, OSError):
        return None


def _lives(holder: dict[str, Any]) -> bool:
    """Whether the holder still runs; of another host we cannot know, so it counts as living."""
    if holder["host"] != socket.gethostname():
        return True
    return holder["started"] is not None and _started(int(holder["pid"])) == holder["started"]


def _started(pid: int) -> str | None:
    """When a process started, as boot id and clock ticks since boot; None where it does not run."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # the name in parentheses may itself hold spaces and parentheses, so count from the last one
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    state, ticks = fields[0], fields[19]
    return None if state in "ZX" else f"{boot}:{ticks}"
