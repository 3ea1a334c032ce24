"""Memory that runs out and packages that are missing: one sentence, exit code 2, never "a fault of Anaphora"."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import numpy as np
import pytest

from anaphora.cli.failures import EXTRAS, FAULT, MISTAKE, guarded

ROOM = 3 << 29  # bytes: torch alone maps about one gibibyte


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        np._core._exceptions._ArrayMemoryError((1 << 40,), np.dtype(float)),
        SystemError("<built-in method run> returned NULL without setting an exception"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("std::bad_alloc"),
        RuntimeError("can't start new thread"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        OSError("libllvmlite.so: failed to map segment from shared object"),
        OSError(12, "Cannot allocate memory"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_memory_that_runs_out_is_told_as_such(capsys, error):
    def work():
        raise error

    assert guarded(work, debug=False) == MISTAKE
    said = capsys.readouterr().err
    assert "memory" in said
    assert "fault of Anaphora" not in said
    assert said.count("\n") == 1


def test_memory_that_runs_out_while_another_error_is_made(capsys):
    def work():
        try:
            raise MemoryError
        except MemoryError:
            raise SystemError("error return") from None

    assert guarded(work, debug=False) == MISTAKE
    assert "memory ran out" in capsys.readouterr().err


def test_memory_that_runs_out_while_numba_loads_its_compiler(capsys):
    """llvmlite replaces the loader's error by one without its reason."""

    def work():
        try:
            ctypes_error = "libllvmlite.so: failed to map segment from shared object"
            raise OSError(ctypes_error)
        except OSError:
            raise OSError("Could not find/load shared object file 'libllvmlite.so'")  # noqa: B904

    assert guarded(work, debug=False) == MISTAKE
    assert "memory ran out" in capsys.readouterr().err


def test_any_fault_of_a_process_with_little_memory_is_put_down_to_it(capsys, monkeypatch):
    """A library of which only a part could be loaded fails in any way: here a module has lost a name."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (3 << 28, 3 << 28))

    def work():
        raise AttributeError("partially initialized module 'torch' has no attribute 'Tensor'")

    assert guarded(work, debug=False) == MISTAKE
    said = capsys.readouterr().err
    assert "may use 768 MiB of memory only (ulimit -v)" in said
    assert "fault of Anaphora" not in said
    assert said.count("\n") == 1


def test_other_errors_are_still_ours(capsys):
    for error in (SystemError("bad argument"), RuntimeError("x"), OSError("x"), ImportError("cannot import name 'x'"), ModuleNotFoundError("x", name="anaphora.x")):  # fmt: skip

        def work(error=error):
            raise error

        assert guarded(work, debug=False) == FAULT
        assert "fault of Anaphora" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "what"),
    [(module, f"anaphora[{extra}]") for extra, modules in EXTRAS.items() for module in sorted(modules)]
    + [("sacrebleu", "--force-reinstall anaphora"), ("pyarrow.parquet", "anaphora[tables]")],
)
def test_a_missing_package_is_named_with_its_extra(capsys, module, what):
    def work():
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    assert guarded(work, debug=False) == MISTAKE
    assert f"pip install '{what}'" in capsys.readouterr().err


HIDDEN = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hide())
from anaphora.cli import main
sys.exit(main.run({words!r}))
"""


def command(words, *, hidden=(), limit=None):
    """The command in a process of its own, without some packages or with little memory."""

    def bounded():
        if limit:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    return subprocess.run(
        [sys.executable, "-c", HIDDEN.format(hidden=set(hidden), words=list(words))],
        capture_output=True, text=True, preexec_fn=bounded, timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "hidden", "extra"),
    [
        (["studio", "."], {"starlette", "uvicorn"}, "studio"),
        (["train", "classify", "a.parquet"], {"pyarrow"}, "tables"),
    ],
)
def test_commands_without_an_extra_name_it(tmp_path, monkeypatch, words, hidden, extra):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.parquet").write_bytes(b"PAR1xxxxPAR1")
    done = command(words, hidden=hidden)
    assert done.returncode == MISTAKE
    assert f"anaphora[{extra}]" in done.stderr
    assert "fault of Anaphora" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("room", [1 << 28, 1 << 29, 3 << 28, 1 << 30, ROOM])
def test_a_process_with_little_memory_ends_with_a_sentence(tmp_path, monkeypatch, room):
    """However little there is: no traceback, no "fault of Anaphora"."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tsv").write_text("a\tb\n" * 2000)
    words = [
        "train",
        "translate",
        "a.tsv",
        "-o",
        "run",
        "--steps",
        "2",
        "--hidden",
        "4000",
        "--batch-tokens",
        "100000",
    ]
    done = command(words, limit=room)
    assert done.returncode != 0
    assert "fault of Anaphora" not in done.stderr
