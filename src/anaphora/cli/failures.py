"""What a failure looks like: one sentence on stderr and an exit code; a traceback only with ``--debug``."""

from __future__ import annotations

import contextlib
import errno
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TextIO

import click

from anaphora.cli.output import one_line, say, silence
from anaphora.cli.processes import first_to_say
from anaphora.errors import AnaphoraError, SettingsError, out_of_memory
from anaphora.files import clause

FINE, FAULT, MISTAKE, INTERRUPTED = 0, 1, 2, 130
EXTRAS = {
    "studio": {"starlette", "uvicorn", "anyio", "h11"},
    "serve": {"prometheus_client", "websockets", "python_multipart"},
    "audio": {"soundfile", "cffi"},
    "image": {"PIL"},
    "export": {"onnx", "onnxscript", "onnxruntime"},
    "tables": {"pandas", "polars", "pyarrow", "zstandard"},
}
"""Extra → modules that come with it."""


LEAST_ROOM = 2 << 30
"""Bytes of address space that torch and the other libraries map before there is a model."""


def _room() -> int:
    """Bytes that this process may map; a large number where there is no limit."""
    try:
        import resource
    except ImportError:  # Windows
        return sys.maxsize
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit


class Ended(BaseException):
    """A signal asks the command to end; whatever it has begun is tidied up on the way out."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Within, SIGTERM and a closed terminal (SIGHUP) end what the main thread does as Ctrl-C does; a second one ends it at once.

    Commands that save or drain first (`train`, `serve`, `studio`) take the signals themselves while they do.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise Ended(number)

    numbers = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = {
        number: signal.signal(number, end)
        for number in numbers
        if signal.getsignal(number) is not signal.SIG_IGN  # nohup means it
    }
    try:
        yield
    finally:
        for number, usual in before.items():
            signal.signal(number, usual)


def guarded(work: Callable[[], object], *, debug: bool) -> int:
    """Do ``work`` and return the exit code: 0 fine, 1 our fault, 2 the user's or the world's, 130 Ctrl-C, 128 + its number another
    signal."""
    try:
        with _ended_by_signals():
            returned = work()
    except Ended as ended:
        say(f"anaphora: stopped by {signal.Signals(ended.number).name}.")
        return 128 + ended.number
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except (KeyboardInterrupt, click.Abort):
        say("anaphora: stopped.")
        return INTERRUPTED
    except BrokenPipeError:
        silence(sys.stdout)
        return FINE
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _tell(error, debug=debug)
    return returned if isinstance(returned, int) else FINE


def show_warnings_as_sentences() -> None:
    """Library warnings reach the user as a sentence, without file names and source lines."""

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        ours = Path(filename).is_relative_to(Path(__file__).parents[1])
        if ours and issubclass(category, UserWarning):  # what libraries warn each other of is not for users
            say(f"anaphora: note: {str(message).rstrip('.')}.")

    warnings.showwarning = show


def _tell(error: Exception, *, debug: bool) -> int:
    mistake = _mistake(error)
    if mistake:
        text = "\n".join(map(one_line, mistake))
        if first_to_say(text):
            say(f"anaphora: {text}")
        return MISTAKE
    first = one_line((str(error).strip().splitlines() or [""])[0])
    if (room := _room()) < LEAST_ROOM:  # libraries that cannot be loaded whole fail in any way
        say(
            f"anaphora: this process may use {room >> 20} MiB of memory only (ulimit -v), and failed ({type(error).__name__}: "
            f"{first}); allow it at least {LEAST_ROOM >> 30} GiB."
        )
        return MISTAKE
    if own := _own_part(error):
        say(
            f"anaphora: {own}: your own part failed ({type(error).__name__}: {first}); --debug shows how it was called."
        )
        return MISTAKE
    if not debug:
        say(f"anaphora: something went wrong inside ({type(error).__name__}: {first}).")
        say("This is a fault of Anaphora. The same command with --debug shows where it happened.")
    return FAULT


def _own_part(error: Exception) -> str:
    """The line of the user's own module in which an error arose, or of what that line called; nothing where none took part."""
    from anaphora.settings.own import IMPORTED  # imports pydantic, which plain usage need not wait for

    frames = traceback.extract_tb(error.__traceback__)
    own = [f"{frame.filename}:{frame.lineno}" for frame in frames if frame.filename in IMPORTED]
    return own[-1] if own else ""


def _mistake(error: Exception) -> list[str]:
    """The lines that tell of a mistake of the user's or a fault of the world's; none where the fault is ours."""
    if isinstance(error, click.UsageError):
        return _usage(error)
    if isinstance(error, click.ClickException):
        return [error.format_message()]
    if isinstance(error, SettingsError) and len(error.problems) > 1:
        return [f"{len(error.problems)} mistakes in the settings:", *(f"  {p}" for p in error.problems)]
    if isinstance(error, AnaphoraError):
        return [str(error)]
    if isinstance(error, OSError) and error.errno is not None:
        return [_outside(error)]
    if isinstance(error, ModuleNotFoundError) and (missing := _missing(error.name or "")):
        return [missing]
    if out_of_memory(error):
        return [
            "memory ran out; lower batch_tokens, raise accumulate to work in smaller parts, or make the model "
            "smaller (hidden, layers)."
        ]
    return []


def _missing(name: str) -> str:
    """What to install for a module that is not there; nothing where it is one of ours, which is our fault."""
    package = name.partition(".")[0]
    if package in ("", "anaphora"):
        return ""
    extra = next((extra for extra, modules in EXTRAS.items() if package in modules), None)
    what = f"anaphora[{extra}]" if extra else "--force-reinstall anaphora"
    return f"the package {package} is missing; install it with `pip install '{what}'`."


def _usage(error: click.UsageError) -> list[str]:
    message = error.format_message()
    if isinstance(error, click.MissingParameter):
        message = f"{' '.join(message.split()).rstrip('.')}."  # click lists choices on lines of their own
        message = _missing_words(error) or message
    path = error.ctx.command_path if error.ctx else "anaphora"
    hint = f"`{path} --help` shows how it is used."
    if isinstance(error, click.NoSuchOption) and error.ctx and error.ctx.command.name == "train":
        key = error.option_name.lstrip("-").replace("-", "_")
        from anaphora.cli.words import setting_names  # imports pydantic, which plain usage need not wait for

        if key in setting_names():
            return [f"{error.option_name} is not an option but {key} is a setting: write --set {key}=VALUE."]
    if message[1:2].islower():  # not a word in capitals, such as DATA
        message = message[0].lower() + message[1:]
    return [message, hint]


def _missing_words(error: click.MissingParameter) -> str:
    """All words that a command wants where it takes many of one kind: click gives the first to the last kind, and misses the wrong one."""
    if error.ctx is None or error.param is None or error.param.nargs != -1:
        return ""
    wanted = [str(one.metavar) for one in error.ctx.command.params if isinstance(one, click.Argument)]
    return f"words are missing: it takes {' '.join(wanted)}." if len(wanted) > 1 else ""


def _outside(error: OSError) -> str:
    name = f"{error.filename}: " if error.filename else ""
    reason = error.strerror or str(error)
    if error.errno == errno.ENOSPC:
        return f"{name}the disk is full; free some space and run the command again."
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{name}{reason.lower()}; choose a place you may read and write."
    return f"{name}{clause(error)}."
