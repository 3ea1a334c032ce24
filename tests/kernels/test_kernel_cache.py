"""X2, F2: The cache of compiled kernels: only what this user (or root) wrote is ever run."""

from __future__ import annotations

import importlib
import inspect
import os
import shutil
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import anaphora
from anaphora.native import c as compiler
from anaphora.native import cache as kernel_cache

SOURCE = "int answer(void){return %d;}"
STRANGER = 54321
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can act as another user")
with_compiler = pytest.mark.skipif(compiler.compiler() is None, reason="no C compiler here")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ANAPHORA_CACHE", str(tmp_path / "mine"))
    return tmp_path / "mine"


def test_where_the_cache_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANAPHORA_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert kernel_cache.folder() == tmp_path / "xdg" / "anaphora" / "kernels"
    monkeypatch.setenv("ANAPHORA_CACHE", str(tmp_path / "mine"))
    folder = kernel_cache.folder()
    assert folder == tmp_path / "mine" / "kernels"
    assert [stat.S_IMODE(p.stat().st_mode) for p in (folder, folder.parent)] == [0o700, 0o700]


def _expect_private(message: str) -> None:
    with pytest.warns(UserWarning, match=message) as said:
        folder = kernel_cache.folder()
    assert len(said) == 1
    assert folder.parent == Path(kernel_cache.tempfile.gettempdir())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_cache_others_can_write_is_not_used(home: Path) -> None:
    (home / "kernels").mkdir(parents=True)
    for folder in (home / "kernels", home):
        for mode in (0o770, 0o707, 0o1777):
            folder.chmod(mode)
            if folder == home and mode & stat.S_ISVTX:
                kernel_cache.folder()  # like /tmp: nobody can replace what we own in it
            else:
                _expect_private(
                    f"ANAPHORA_CACHE={home} is not used, because other users can write to {folder};"
                )
        folder.chmod(0o700)
    assert kernel_cache.folder() == home / "kernels"


def test_a_cache_that_is_a_link_or_a_file_is_not_used(home: Path, tmp_path: Path) -> None:
    home.mkdir()
    (tmp_path / "real").mkdir(mode=0o700)
    (home / "kernels").symlink_to(tmp_path / "real")
    _expect_private(f"{home}/kernels is a symbolic link")
    (home / "kernels").unlink()
    (home / "kernels").write_text("")
    _expect_private(f"{home}/kernels is not a directory")
    shutil.rmtree(home)
    home.symlink_to(home)
    _expect_private("loop of symbolic links")


def test_a_link_of_our_own_on_the_way_is_followed_and_its_target_checked(home: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    home.symlink_to("real")
    assert kernel_cache.folder() == home / "kernels"
    (tmp_path / "real").chmod(0o777)
    _expect_private(f"other users can write to {tmp_path}/real;")


@as_root
def test_folders_and_links_of_another_user_are_not_used(home: Path, tmp_path: Path) -> None:
    (home / "kernels").mkdir(parents=True, mode=0o700)
    for folder in (home / "kernels", home):
        os.chown(folder, STRANGER, STRANGER)
        _expect_private(f"{folder} belongs to another user")
        os.chown(folder, 0, 0)
    shutil.rmtree(home)
    (tmp_path / "real").mkdir(mode=0o700)
    home.symlink_to("real")
    os.lchown(home, STRANGER, STRANGER)
    _expect_private(f"{home} belongs to another user")


@with_compiler
@pytest.mark.parametrize(
    "planted", ["writable", "link", "directory", pytest.param("stranger", marks=as_root)]
)
def test_a_planted_library_is_never_loaded(home: Path, planted: str, tmp_path: Path) -> None:
    """The name of a file can be right although somebody else wrote it: its hash is of its own bytes."""
    number = 100 + len(planted)
    compiler.load(SOURCE % number, "test")
    (library,) = (home / "kernels").glob("test-*.so")
    compiler.load(SOURCE % 666, "evil")
    evil = next((home / "kernels").glob("evil-*.so")).read_bytes()
    stem = library.stem.rpartition("-")[0]
    library.unlink()
    trap = library.with_name(f"{stem}-{kernel_cache.fingerprint(evil)}.so")
    if planted == "link":
        (tmp_path / "evil.so").write_bytes(evil)
        trap.symlink_to(tmp_path / "evil.so")
    elif planted == "directory":
        trap.mkdir()
    else:
        trap.write_bytes(evil)
        trap.chmod(0o770 if planted == "writable" else 0o700)
        os.chown(trap, STRANGER if planted == "stranger" else -1, -1)
    assert compiler.load(SOURCE % number, "test").answer() == number
    assert len(list(kernel_cache.found(stem, ".so"))) == 1


def test_a_fifo_in_the_cache_does_not_block(home: Path) -> None:
    fifo = kernel_cache.folder() / f"test-{kernel_cache.fingerprint(b'')}.cubin"
    os.mkfifo(fifo, 0o600)
    assert list(kernel_cache.found("test", ".cubin")) == []


@with_compiler
def test_a_cache_that_cannot_be_written_is_replaced_by_a_private_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, put = kernel_cache.folder(), kernel_cache._put

    def full(body: bytes, path: Path) -> Path:
        if path.parent == folder:
            raise OSError(28, "No space left on device")
        return put(body, path)

    monkeypatch.setattr(kernel_cache, "_put", full)
    assert compiler.load(SOURCE % 31, "test").answer() == 31
    assert list(folder.iterdir()) == []
    monkeypatch.setattr(compiler, "_build", lambda *_: pytest.fail("compiled again"))
    assert compiler.load(SOURCE % 31, "test").answer() == 31


PROGRAM = """
import os, pathlib, sys
sys.path.insert(0, {package!r})
from anaphora.native import c as compiler
from anaphora.native import cache
if {uid}:  # this user may not be able to read the package itself
    header = pathlib.Path(os.environ["TMPDIR"], "arithmetic.h")
    header.write_text(compiler.ARITHMETIC.read_text())
    header.chmod(0o644)
    compiler.ARITHMETIC = header
    os.setgid({uid})
    os.setuid({uid})
print(cache.folder())
print(compiler.load("int answer(void){{return 7;}}", "test").answer() if compiler.compiler() else 7)
"""


@pytest.mark.parametrize("uid", [0, pytest.param(STRANGER, marks=as_root)])
def test_without_a_home(tmp_path: Path, uid: int) -> None:
    """No variables at all, and a user without an entry in the table of users, as in many containers."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    for path in (tmp_path, *tmp_path.parents):  # pytest's own folders are closed to others
        if uid and not path.stat().st_mode & 0o001:
            path.chmod(path.stat().st_mode | 0o011)
    temporary.chmod(0o1777)
    package = str(Path(anaphora.__file__).parents[1])
    program = PROGRAM.format(package=package, uid=uid)
    for expected in (temporary / f"anaphora-{uid or os.getuid()}" / "kernels",) * 2:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={
                "TMPDIR": str(temporary),
                "PATH": os.environ["PATH"],
                **({} if uid else {"HOME": "/dev/null"}),
            },
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == [str(expected), "7"]
        assert done.stderr == ""


def test_the_private_folder_goes_with_its_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    package = str(Path(anaphora.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM.format(package=package, uid=0)],
        env={**os.environ, "ANAPHORA_CACHE": str(tmp_path / "file"), "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    folder, answer = done.stdout.split()
    assert (Path(folder).parent, answer) == (tmp_path, "7")
    assert os.listdir(tmp_path) == ["file"]


def test_a_triton_module_is_read_from_the_cache_and_runs_no_stale_byte_code(home: Path) -> None:
    text = "def kernel():\n    return 5\n"
    kernel_cache.module_of.cache_clear()
    module = kernel_cache.module_of(text)
    assert module.kernel() == 5
    assert inspect.getsource(module.kernel) == text  # what Triton compiles
    (path,) = (home / "kernels").iterdir()  # no __pycache__
    assert module.__file__ == str(path)
    kernel_cache.module_of.cache_clear()
    path.chmod(0o666)  # no longer ours alone: written again
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernel_cache.module_of(text)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


CALLED = """
from anaphora.native.jit import njit
STEP = {step}
@njit(cache=True, inline={inline!r})
def step(x):
    return x + STEP
"""
CALLING = """
from anaphora.native.jit import njit
from called_{number} import STEP, step
@njit(cache=True)
def twice(x):
    return step(step(x)) * STEP
"""


@pytest.fixture
def jitted(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A compiled function that calls one of another file, imported as if by a new process from a new copy."""

    def make(step: int, inline: str) -> Any:
        folder = tmp_path / f"copy-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        number = inline
        (folder / f"called_{number}.py").write_text(CALLED.format(step=step, inline=inline))
        (folder / f"calling_{number}.py").write_text(CALLING.format(number=number))
        monkeypatch.syspath_prepend(folder)
        for name in ("called", "calling"):
            sys.modules.pop(f"{name}_{number}", None)
        return importlib.import_module(f"calling_{number}").twice

    return make


@pytest.mark.parametrize("inline", ["never", "always"])
def test_machine_code_of_numba_is_kept_by_what_it_was_made_of(
    jitted: Callable[..., Any], home: Path, inline: str
) -> None:
    first, again = jitted(1, inline), jitted(1, inline)
    assert first(3) == again(3) == 5
    assert (sum(first.stats.cache_hits.values()), sum(again.stats.cache_hits.values())) == (0, 1)
    other = jitted(10, inline)  # the text of the caller is the same
    assert other(3) == 230
    assert sum(other.stats.cache_hits.values()) == 0
    assert stat.S_IMODE(next((home / "kernels").glob("twice-*.nbc")).stat().st_mode) == 0o600


def test_machine_code_of_numba_is_kept_nowhere_if_nothing_can_be_written(
    jitted: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(body: bytes, path: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kernel_cache, "_put", full)
    assert jitted(2, "never")(3) == 14


def test_all_that_compiled_functions_name_decides_under_which_name_they_are_kept() -> None:
    """A value of another kind, such as an array from another file, would be compiled in without a trace in the name."""
    from numba.core.dispatcher import Dispatcher

    from anaphora.native import jit

    plain = (Dispatcher, ModuleType, type, int, float, np.generic, np.dtype)
    found = 0
    for path in Path(anaphora.__file__).parent.rglob("*.py"):
        if "import njit" not in path.read_text(encoding="utf-8"):
            continue
        home = path.relative_to(Path(anaphora.__file__).parent).with_suffix("")
        module = importlib.import_module(".".join(("anaphora", *home.parts)))
        for function in vars(module).values():
            if isinstance(function, Dispatcher):
                found += 1
                values = [
                    function.py_func.__globals__.get(name, 0)
                    for name in jit._names(function.py_func.__code__)
                ]
                assert all(isinstance(value, plain) for value in values), function
    assert found > 60


@with_compiler
@pytest.mark.parametrize(
    "name",
    [
        "models.embeddings.windows",
        "ops.crf",
        "ops.grid",
        "ops.matrix_scan.scan",
        "ops.packed",
        "ops.selective",
        "ops.sound",
        "ops.transducer_sums",
    ],
)
def test_where_there_is_a_compiler_every_library_compiles(name: str) -> None:
    """Else torch operations would do the work without a word, and tests of the library would be left out."""
    library = importlib.import_module(f"anaphora.{name}").library
    assert all(library.functions(dtype) is not None for dtype in library.dtypes)
