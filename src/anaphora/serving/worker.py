"""One worker process of `supervisor`: ``python -P -m anaphora.serving.worker`` with its order on standard input."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from pathlib import Path

from anaphora.errors import AnaphoraError
from anaphora.files import parse_json
from anaphora.files.writing import remove

_alone = threading.Event()
"""Set when the supervisor is gone, which would have removed the folder of counts."""


def main() -> int:
    """Serve until SIGTERM, or until the supervisor is gone; the exit code."""
    order = parse_json(_line())
    if order.pop("trust"):
        from anaphora.settings.own import trust_parts

        trust_parts()
    from anaphora.serving.limits import Limits
    from anaphora.serving.serve import serve

    listening = socket.socket(fileno=order.pop("socket"))
    folders = {name: Path(folder) for name, folder in order.pop("folders").items()}
    limits = Limits(**order.pop("limits"))
    tls = order.pop("tls")

    def ready() -> None:
        os.write(1, b"ready\n")
        threading.Thread(target=_follow, daemon=True).start()

    try:
        serve(listening, folders, limits, tls=tuple(tls) if tls else None, ready=ready, **order)
    except AnaphoraError as error:
        os.write(2, f"anaphora: {error}\n".encode())
        return 2
    finally:
        if _alone.is_set():
            remove(Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]))
    return 0


def _line() -> bytes:
    """The first line of standard input, read without a buffer: a thread waits for its end when the process ends."""
    found = b""
    while not found.endswith(b"\n") and (piece := os.read(0, 1 << 16)):
        found += piece
    return found


def _follow() -> None:
    """End with the supervisor, whose end of our standard input closes with it."""
    while os.read(0, 1000):
        pass
    _alone.set()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
