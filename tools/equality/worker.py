"""Run cases with the anaphora that is on the path: ``worker.py`` reads orders from stdin, one line of JSON each.

The process imports and does nothing else. It forks for every case, and that process forks for every part of the case, so
that none sees what another left in memory, and none pays the seconds of importing. What a part returned, what it printed and
what it warned of are written as JSON into the file that the order names.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:1] = [str(HERE.parent), str(HERE.parents[1] / "tests" / "contract")]  # not the folder of this file

import anaphora  # noqa: E402, I001  (sets what must be set before torch is imported)
import torch  # noqa: E402

from cases import CLASSES  # noqa: E402
from command import command  # noqa: E402

from equality import plain  # noqa: E402

LIMIT = 300
"""Seconds for one part."""
PACKAGES = (
    "cffi",
    "numba",
    "pydantic",
    "rich.console",
    "sacrebleu",
    "safetensors.torch",
    "starlette.applications",
    "tokenizers",
    "torch._dynamo",
    "uvicorn",
    "websockets",
)
Part = Callable[[], Any]


def main() -> None:
    """Answer orders until stdin ends, several at once: a line with the result's name and the exit code for each."""
    torch.set_num_threads(1)
    answers = os.dup(1)
    os.dup2(2, 1)  # what a case prints on its own is no answer
    for name in PACKAGES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for name in CLASSES.values():  # what a program that uses them, or the command, imports
        getattr(anaphora, name)
    command("--help")
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        order = json.loads(line)
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _ended(partial(_watch, order, answers))


def _watch(order: dict[str, str], answers: int) -> None:
    """Run one case in a process group of its own, and report how it ended."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        with open(order["result"] + ".words", "w") as words:
            os.dup2(words.fileno(), 1)
            os.dup2(words.fileno(), 2)
        _ended(lambda: run(order["case"], Path(order["folder"]), Path(order["result"])))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # whatever the case left behind
    os.write(answers, f"{json.dumps([order['result'], code])}\n".encode())


def _ended(call: Callable[[], object]) -> None:
    """End a forked process with what ``call()`` does; taking torch apart would cost a second."""
    code = 1
    try:
        call()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run(name: str, folder: Path, result: Path) -> None:
    """Run every part of a case in a folder, one after another."""
    from equality.cases import parts_of

    os.chdir(folder)
    found = {}
    for part, call in parts_of(name):
        begun, clock = _used(), time.monotonic()
        found[part] = forked(call, result.with_suffix(".part"))
        found[part]["seconds"] = round(_used() - begun, 2)
        found[part]["wall"] = round(time.monotonic() - clock, 2)
    result.write_text(json.dumps(found, ensure_ascii=False), encoding="utf-8")


def _used() -> float:
    """Seconds of CPU that the parts have taken so far."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def forked(call: Part, place: Path) -> dict[str, Any]:
    """Return what ``call()`` comes to in a process of its own."""
    place.unlink(missing_ok=True)
    pid = os.fork()
    if pid == 0:
        _ended(lambda: place.write_text(json.dumps(watched(call), ensure_ascii=False), encoding="utf-8"))
    deadline = time.monotonic() + LIMIT
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return {"failed": f"no end within {LIMIT} seconds"}
        time.sleep(0.005)
    if (code := os.waitstatus_to_exitcode(status)) != 0:
        return {"failed": f"ended with {code}"}
    found: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    return found


def watched(call: Part) -> dict[str, Any]:
    """Return the value of ``call()``, its words and its warnings; a failure is a value, too, with its type and text."""
    printed = io.StringIO()
    found: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", UserWarning)
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            try:
                found["value"] = plain.plain(call())
            except Exception as error:
                found["failed"] = plain.text(f"{type(error).__name__}: {error}")
                found["where"] = [plain.text(line) for line in traceback.format_exc().splitlines()[-8:]]
    found["printed"] = plain.said(printed.getvalue())
    found["warned"] = sorted({_warning(one) for one in warned if issubclass(one.category, UserWarning)})
    return found


def _warning(one: warnings.WarningMessage) -> str:
    """Its text, and the file that it points at if that is the caller's own."""
    place = "" if "site-packages" in one.filename or "anaphora" in one.filename else Path(one.filename).name
    return f"{one.category.__name__} {place}: {plain.text(str(one.message))}"


if __name__ == "__main__":
    main()
