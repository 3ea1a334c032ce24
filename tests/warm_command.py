"""The ``anaphora`` command out of a process that has imported torch already: `commands_folder` puts it on a path.

Every call is a process of its own, forked from one that holds the packages we depend on and our own modules, but has
run nothing. That spares the seconds which importing takes; the README and ``make test-all`` call the command as installed.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGES = (
    "anaphora",
    "torch",
    "torch._dynamo",
    "numba",
    "numpy",
    "pydantic",
    "rich.console",
    "tokenizers",
    "safetensors.torch",
    "sacrebleu",
    "anaphora.cli.main",
)
"""The first sets what must be set before torch is imported. Every optimizer of torch imports ``torch._dynamo``, for a second."""
ASKING = """\
#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({place!r})
    order = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(asked, [len(order).to_bytes(8, "big")], [0, 1, 2])
    asked.sendall(order)
    sys.exit(int(asked.recv(16) or b"1"))
"""


@contextmanager
def commands_folder() -> Iterator[Path]:
    """A folder to put on the path, whose ``anaphora`` starts at once."""
    with tempfile.TemporaryDirectory(prefix="warm-") as name:
        folder = Path(name)
        place = str(folder / "socket")
        script = folder / "anaphora"
        script.write_text(ASKING.format(python=sys.executable, place=place))
        script.chmod(0o700)
        server = subprocess.Popen(
            [sys.executable, __file__, place],
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        assert server.stdout is not None
        try:
            assert server.stdout.readline() == b"ready\n"
            yield folder
        finally:
            server.kill()
            server.communicate()


def serve(place: str) -> None:
    """Wait for orders, and fork one process to watch over each."""
    for name in PACKAGES:
        importlib.import_module(name)
    registry = importlib.import_module("anaphora.tasks.registry")
    for task in registry.TASKS.values():
        importlib.import_module(task.home)
    gc.freeze()  # so that collecting in a fork does not copy all that was imported
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(place)
    listening.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    while True:
        asking, _ = listening.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listening.close()
            _watch(asking)
            os._exit(0)  # nothing here needs the second that taking torch apart would cost
        asking.close()


def _watch(asking: socket.socket) -> None:
    """Run one order in a process of its own; report how it ended, or end it when the caller has gone."""
    size, streams, _, _ = socket.recv_fds(asking, 8, 3)
    order = b""
    while len(order) < int.from_bytes(size, "big"):
        order += asking.recv(1 << 16)
    words, folder, environment = json.loads(order)
    pid = os.fork()
    if pid == 0:
        asking.close()
        code = _run(words, folder, environment, streams)
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    for stream in streams:  # so that a pipe ends when the command closes it
        os.close(stream)
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            asking.sendall(str(code if code >= 0 else 128 - code).encode())
            return
        if select.select([asking], [], [], 0.02)[0]:  # only the end of the connection can come
            os.kill(pid, signal.SIGTERM)


def _run(words: list[str], folder: str, environment: dict[str, str], streams: list[int]) -> int:
    """The exit code of ``anaphora WORDS``."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = (open(n, mode, closefd=False) for n, mode in enumerate("rww"))  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["anaphora", *words]
    from anaphora.cli.main import main

    try:
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(bool(ended.code))


if __name__ == "__main__":
    serve(sys.argv[1])
