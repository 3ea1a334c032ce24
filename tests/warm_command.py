"""Processes forked from one that has imported torch already: `popen` starts them, `commands_folder` puts ``anaphora`` on a path.

Every call is a process of its own, with its own id, signals and exit status. It is forked from a server that holds the packages
we depend on and our own modules, but has run nothing. That spares the seconds which importing takes. With
ANAPHORA_TEST_ALL=1, as in ``make test-all``, every process is started again.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from sweeps import SHORT, shorten_corpora

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
"""The first sets what must be set before torch is imported. Several processes of torch import ``torch._dynamo``, for a second."""
ASKING = """\
#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({place!r})
    order = json.dumps([["-m", "anaphora", *sys.argv[1:]], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(asked, [len(order).to_bytes(8, "big")], [0, 1, 2])
    asked.sendall(order)
    code = int(asked.makefile().read().split()[1])
    sys.exit(code if code >= 0 else 128 - code)
"""


@functools.cache
def commands_folder() -> Path | None:
    """A folder to put on the path, whose ``anaphora`` starts at once; None where forking torch is not safe."""
    if sys.platform != "linux" or os.environ.get("ANAPHORA_TEST_ALL"):
        return None
    made = tempfile.TemporaryDirectory(prefix="warm-")
    folder = Path(made.name)
    place = str(folder / "socket")
    script = folder / "anaphora"
    script.write_text(ASKING.format(python=sys.executable, place=place))
    script.chmod(0o700)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ends = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    server = subprocess.Popen([sys.executable, __file__, place], env=environment, **ends)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"

    def end() -> None:
        server.kill()
        server.communicate()
        made.cleanup()

    atexit.register(end)
    return folder


def popen(words: list[str], **options: Any) -> subprocess.Popen[str]:
    """``Popen([python, *words], text=True, **options)`` with pipes, forked where it can be; words: ``-m anaphora …``, ``-c CODE …`` or a script."""
    folder = commands_folder()
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    if folder is None:
        return subprocess.Popen([sys.executable, *words], **piped)
    return Forked(words, folder / "socket", **piped)


def run(words: list[str], given: str = "", **options: Any) -> subprocess.CompletedProcess[str]:
    """Like ``subprocess.run([python, *words], input=given, capture_output=True, text=True)``."""
    process = popen(words, stdin=subprocess.PIPE, **options)
    out, err = process.communicate(given, timeout=600)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def start_group(
    words: list[str], world: int, cwd: Path | None = None, *, apart: float = 0.0, **environment: str
) -> list[subprocess.Popen[str]]:
    """The processes torchrun would start, without its launcher's seconds; each so many seconds after the one before."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    processes = []
    for rank in map(str, range(world)):
        time.sleep(apart if processes else 0.0)
        env = {**os.environ, **shared, "RANK": rank, "LOCAL_RANK": rank, **environment}
        processes.append(popen(words, cwd=cwd, env=env))
    return processes


def end_after_death(processes: list[subprocess.Popen[str]]) -> tuple[list[int], list[tuple[str, str]]]:
    """What torchrun does when the first process dies: it ends the others. Their codes, and what they wrote."""
    processes[0].wait(timeout=300)
    for process in processes[1:]:
        process.kill()
    return end_group(processes)


def end_group(processes: list[subprocess.Popen[str]]) -> tuple[list[int], list[tuple[str, str]]]:
    """Their codes, and what they wrote."""
    results = [process.communicate(timeout=300) for process in processes]
    return [process.returncode for process in processes], results


class Forked(subprocess.Popen[str]):
    """A process that the server forks. It is no child of ours, so its end is read from the server's connection."""

    def __init__(self, words: list[str], place: Path, **options: Any):
        self._place = str(place)
        super().__init__(words, **options)

    def _execute_child(self, words: Any, *rest: Any) -> None:
        _, _, _, _, cwd, env, _, _, _, *ends = rest
        order = json.dumps(
            [words, str(cwd or os.getcwd()), dict(os.environ if env is None else env)]
        ).encode()
        with open(os.devnull, "r+b") as nothing:
            streams = [nothing.fileno() if end == -1 else end for end in (ends[0], ends[3], ends[5])]
            self._server = socket.socket(socket.AF_UNIX)
            self._server.connect(self._place)
            socket.send_fds(self._server, [len(order).to_bytes(8, "big")], streams)
            self._server.sendall(order)
        self._close_pipe_fds(*ends[:6])  # type: ignore[attr-defined]
        self._said = self._server.makefile()
        self.pid = int(self._said.readline())
        self._child_created = True

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        return self._ended(0.0)

    def _wait(self, timeout: float | None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._server], [], [], timeout)[0]:
            self.returncode = int(self._said.readline() or -signal.SIGKILL)
            self._said.close()
            self._server.close()
        return self.returncode


# ---------------------------------------------------------------------- the server
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
    signal.signal(signal.SIGCHLD, _reap)
    print("ready", flush=True)
    while (
        listening in select.select([listening, sys.stdin], [], [])[0]
    ):  # stdin ends with the process of the tests
        asking, _ = listening.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listening.close()
            _watch(asking)
            os._exit(0)  # nothing here needs the second that taking torch apart would cost
        asking.close()


def _reap(*_: object) -> None:
    """Wait for the watchers that have ended, so that their processor time counts as the tests' own."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _watch(asking: socket.socket) -> None:
    """Run one order in a process of its own; report its id and its end, or end it when the caller has gone."""
    size, streams, _, _ = socket.recv_fds(asking, 8, 3)
    order = b""
    while len(order) < int.from_bytes(size, "big"):
        order += asking.recv(1 << 16)
    words, folder, environment = json.loads(order)
    pid = os.fork()
    if pid == 0:
        asking.close()
        code = _run(words, folder, environment, streams)
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    for stream in streams:  # so that a pipe ends when the command closes it
        os.close(stream)
    asking.sendall(f"{pid}\n".encode())
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            asking.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
            return
        if select.select([asking], [], [], 0.02)[0]:  # only the end of the connection can come
            os.kill(pid, signal.SIGTERM)


def _run(words: list[str], folder: str, environment: dict[str, str], streams: list[int]) -> int:
    """The exit code of ``python WORDS``."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = (open(n, mode, closefd=False) for n, mode in enumerate("rww"))  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    random.seed()  # not the server's numbers
    if os.environ.pop(SHORT, ""):
        shorten_corpora()
    try:
        if words[:2] == ["-m", "anaphora"]:
            from anaphora.cli.main import main

            sys.argv = ["anaphora", *words[2:]]
            main()
        elif words[0] == "-c":
            sys.argv, sys.path[0] = ["-c", *words[2:]], ""
            exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
        else:
            sys.argv, sys.path[0] = words, str(Path(words[0]).parent)
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


if __name__ == "__main__":
    serve(sys.argv[1])
