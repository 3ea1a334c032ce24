"""Named places where a test can make the process die or a write fail. Without the variable nothing happens.

``ANAPHORA_FAULT="checkpoint.manifest:3"`` kills the process (SIGKILL) at the third passage of that point;
``"checkpoint.manifest:3:ENOSPC"`` raises that ``OSError`` there instead.
"""

from __future__ import annotations

import errno
import os
import signal

_passages: dict[str, int] = {}


def point(name: str) -> None:
    """Pass a named place."""
    armed = os.environ.get("ANAPHORA_FAULT")
    if not armed:
        return
    target, _, rest = armed.partition(":")
    if name != target:
        return
    number, _, error = rest.partition(":")
    _passages[name] = _passages.get(name, 0) + 1
    if _passages[name] != int(number or 1):
        return
    if error:
        code = int(getattr(errno, error))
        raise OSError(code, os.strerror(code))
    os.kill(os.getpid(), signal.SIGKILL)
