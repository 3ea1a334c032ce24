"""E8, B11: Signals end every command in order, and the exit code says which one did."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from anaphora.cli.catalog import COMMANDS
from anaphora.cli.main import anaphora, run

SIGNALS = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]


@pytest.fixture(autouse=True)
def usual():
    """Handlers as a shell leaves them; nothing of what a command sets stays."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS[:2]}
    yield
    for number, handler in before.items():
        assert signal.getsignal(number) == signal.SIG_DFL
        signal.signal(number, handler)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_tidies_up_when_a_signal_ends_it(name, monkeypatch, tmp_path, capsys):
    """A new command is among them by itself: what runs below `run` ends as with Ctrl-C, wherever it is."""
    command = anaphora.get_command(click.Context(anaphora), name)
    assert command is not None
    for number in SIGNALS:
        begun = tmp_path / f"{name}-{number}"

        def work(*given: Any, number: int = number, begun: Path = begun) -> None:
            begun.write_text("")
            try:
                os.kill(os.getpid(), number)
                signal.pause()
            finally:
                begun.unlink()

        with monkeypatch.context() as changed:
            changed.setattr(command, "invoke", work)
            changed.setattr(command, "make_context", lambda *given, **more: click.Context(command))
            changed.setattr(type(anaphora), "get_command", lambda *given: command)
            assert run([name]) == 128 + number
        assert not begun.exists()
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "Traceback" not in said


def test_nohup_is_respected(monkeypatch):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    command = anaphora.get_command(click.Context(anaphora), "models")
    monkeypatch.setattr(command, "invoke", lambda *given: os.kill(os.getpid(), signal.SIGHUP))
    assert run(["models"]) == 0
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


SERVED = """
import asyncio, os, signal, sys
import uvicorn
from anaphora.web.listening import Patient, Server, listen

number = int(sys.argv[1])
signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)

class Ending(Server):
    async def end(self):
        print("in order", flush=True)

async def serve():
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    while not server.started:
        await asyncio.sleep(0.001)
    os.kill(os.getpid(), number)
    await serving

listening = listen(0)
server = Ending(uvicorn.Config(lambda *given: None, http=Patient, lifespan="off", log_level="critical"))
asyncio.run(serve())
print("what follows", flush=True)
"""


@pytest.mark.parametrize("number", SIGNALS)
def test_what_follows_a_server_is_done_whatever_signal_ends_it(number):
    """uvicorn raised the signal again, before the trainings of the studio were ended.

    In a process of its own: signals need its main thread, where tests of the page leave a loop running in this one.
    """
    pytest.importorskip("uvicorn")
    done = subprocess.run(
        [sys.executable, "-c", SERVED, str(int(number))], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.splitlines() == ["in order", "what follows"], done.stderr
    assert done.returncode == 0, done.stderr
