"""Start other programs: the one place where this package does so.

The files of a working folder may be untrusted. Python would import a ``click.py`` that lies there: ``python -m`` and
``python -c`` put the working folder first on the search path, and an empty or relative entry of PYTHONPATH means the
same. So a child is started with ``-P``, by the absolute path of this interpreter, and no entry of its search paths
depends on a working folder. `tests/test_processes.py` refuses any other way to start a process.
"""

from __future__ import annotations

import contextlib
import html
import os
import shutil
import site
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anaphora.errors import AnaphoraError
from anaphora.files.writing import scratch_folder, write_new

Process = subprocess.Popen[bytes]
DEVNULL, PIPE, STDOUT = subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT
TimeoutExpired = subprocess.TimeoutExpired

_SEARCHED = (
    "PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LIBRARY_PATH", "COMPILER_PATH", "CPATH", "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
)  # fmt: skip
"""Variables that list folders, in which an empty or relative entry means the working folder."""
_HERE = Path(__file__).resolve().parent.parent
_STDLIB = os.path.realpath(os.path.dirname(os.__file__))
_PAGE_SECONDS = 30.0


def python(*words: str) -> list[str]:
    """Return the command of this interpreter that does not search the working folder for modules."""
    if not os.path.isabs(sys.executable or ""):
        raise AnaphoraError(
            "the Python that runs is not known by its path, so no other process can be started."
        )
    return [sys.executable, "-P", *words]


def program(name: str) -> str | None:
    """Return the absolute path of a program that is installed, or None. The working folder is not searched."""
    if os.path.dirname(name):
        return name if os.path.isabs(name) and shutil.which(name) else None
    return shutil.which(name, path=_absolute(os.environ.get("PATH", os.defpath)))


def start(command: Sequence[str], *, environment: Mapping[str, str] | None = None, **options: Any) -> Process:
    """Start a process of its own; ``command`` begins with the absolute path of a program.

    Args:
        command: the program and its arguments, as of `python`; no shell reads them.
        environment: variables that are set besides those of this process.
        **options: of ``subprocess.Popen``: ``cwd``, ``stdin``, ``stdout``, ``stderr``, ``pass_fds``, …
    """
    _check(command)
    return subprocess.Popen(list(command), env=_environment(environment, options.get("cwd")), **options)


def run(
    command: Sequence[str], *, timeout: float, environment: Mapping[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Start a process as `start` does, wait for it, and return what it wrote.

    Raises `TimeoutExpired` where it takes longer than ``timeout`` seconds; it is ended first.
    """
    _check(command)
    return subprocess.run(
        list(command),
        env=_environment(environment, options.get("cwd")),
        timeout=timeout,
        capture_output=True,
        check=False,
        **options,
    )


def open_page(address: str) -> None:
    """Show a page in the user's browser.

    Every user of the machine can read the arguments of a process, so an address with a secret in it (a token behind
    ``#``) is not given to the browser: it gets a private file that leads there, which is removed soon afterwards. A
    thread sees to that.
    """
    import webbrowser

    if "#" in address:
        threading.Thread(target=_open, args=(address,), daemon=True).start()
    else:
        webbrowser.open(address)


def _open(address: str) -> None:
    import webbrowser

    with contextlib.suppress(OSError), scratch_folder("anaphora-page-") as folder:
        page, there = Path(folder) / "open.html", html.escape(address)  # the folder is closed to others
        head = '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
        link = f'<meta http-equiv="refresh" content="0; url={there}"><a href="{there}">Anaphora</a>\n'
        write_new(page, f"{head}{link}".encode())
        webbrowser.open(page.as_uri())
        threading.Event().wait(_PAGE_SECONDS)  # a browser that has yet to start reads it late


def _check(command: Sequence[str]) -> None:
    if not os.path.isabs(command[0]):
        raise ValueError(f"{command[0]} is not the absolute path of a program")


def _environment(more: Mapping[str, str] | None, cwd: str | Path | None) -> dict[str, str]:
    """Return the variables of a child: those of this process, with no search path that depends on a folder."""
    made = {**os.environ, **(more or {})}
    for name in _SEARCHED:
        if name in made:
            made[name] = _absolute(made[name])
            if not made[name]:
                del made[name]
    made["PYTHONSAFEPATH"] = "1"  # for what the child starts in turn
    made["PYTHONPATH"] = os.pathsep.join(_modules(cwd))
    return made


def _absolute(entries: str) -> str:
    return os.pathsep.join(entry for entry in entries.split(os.pathsep) if os.path.isabs(entry))


def _modules(cwd: str | Path | None) -> list[str]:
    """Return the folders of modules that precede Python's own (PYTHONPATH), without any working folder, and ours."""
    left_out = {os.path.realpath(folder) for folder in (os.curdir, cwd or os.curdir)}
    found = []
    for entry in sys.path:
        if os.path.realpath(entry or os.curdir) == _STDLIB:
            break
        if os.path.isabs(entry) and os.path.isdir(entry) and os.path.realpath(entry) not in left_out:
            found.append(entry)
    usual = {*site.getsitepackages(), site.getusersitepackages()}
    return found if str(_HERE) in usual or str(_HERE) in found else [*found, str(_HERE)]
