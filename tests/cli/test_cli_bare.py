"""S10: a bare machine: no extras, no network, no home folder, packages that cannot be written to, odd paths."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import anaphora
from anaphora.cli.failures import EXTRAS

BARE = """
import os, sys

HIDDEN, CLOSED = {hidden!r}, tuple({closed!r})

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

def watch(event, given):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "urllib.Request"):
        sys.stderr.write(f"NETWORK {{event}} {{given}}\\n")
    writes = event == "open" and isinstance(given[2], int) and given[2] & WRITING
    if writes or event in ("os.mkdir", "os.rename", "os.remove", "os.truncate", "tempfile.mkstemp"):
        if isinstance(given[0], str) and os.path.abspath(given[0]).startswith(CLOSED):
            raise OSError(30, "Read-only file system", given[0])

sys.meta_path.insert(0, Hide())
sys.addaudithook(watch)
from anaphora.cli import main
for words in {commands!r}:
    code = main.run(words)
    if code:
        sys.exit(code)
"""
OTHERS = {"sklearn", "psutil", "hypothesis", "playwright"}


def bare(commands: list[list[str]], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Commands in one process that has nothing but what the core depends on."""
    closed = [str(Path(anaphora.__file__).parent), str(Path(os.__file__).parent)]
    hidden = {module for modules in EXTRAS.values() for module in modules} | OTHERS
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-c", BARE.format(hidden=hidden, closed=closed, commands=commands)],
        cwd=folder, capture_output=True, text=True, timeout=300,
        env={**kept, "HOME": "/dev/null", "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip


TINY = ["--steps", "2", "--set", "device=cpu", "--set", "valid_every=2"]
TEXTS = "a b\tb a\nb\tb\na\ta\nb a\ta b\n" * 4


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    folder = tmp_path / "Ünï cödé, with spaces & 'quotes'"
    folder.mkdir()
    (folder / "a file.tsv").write_text(TEXTS, encoding="utf-8")
    (folder / "in put.txt").write_text("a b\nb\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("locale", ["C", pytest.param("C.UTF-8", marks=pytest.mark.slow)])
def test_train_look_and_predict(odd: Path, locale: str) -> None:
    run = "ein Lauf ü"
    train = ["train", "translate", "a file.tsv", "-o", run, "--model", "lstm", "--set", "hidden=8", *TINY]
    done = bare([train, ["verify", run], ["predict", run, "in put.txt"]], odd, LC_ALL=locale)
    assert done.returncode == 0, done.stderr
    assert "NETWORK" not in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stdout.splitlines()) >= 2
    assert (odd / run / "model.safetensors").exists()


def test_compiled_models_without_a_place_for_their_code(odd: Path) -> None:
    """numba keeps what it compiled beside the package or in the home folder, and raises where it can do neither."""
    (odd / "text.txt").write_text("a b a b c\nb a c\n" * 20, encoding="utf-8")
    train = ["train", "language", "text.txt", "-o", "run", "--model", "ngram", "--valid", "text.txt"]
    done = bare([train, ["score", "run", "text.txt"]], odd)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "NETWORK" not in done.stderr


def test_what_needs_an_extra_names_it_in_one_sentence(odd: Path) -> None:
    done = bare([["studio", "."]], odd)
    assert done.returncode == 2
    assert "anaphora[studio]" in done.stderr
    assert done.stderr.count("\n") == 1
