"""E1, B10, B11: a folder of a stranger, in which every module has a namesake, and every way this package starts a process there.

`CANARIES` lists the places of the source that start one; a place that is not listed fails the tests, and so does any
other way to start a process.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from anaphora import processes
from anaphora.errors import AnaphoraError
from anaphora.native import c as compiler
from anaphora.studio.runs import Run
from anaphora.studio.starting import Starter
from warm_command import commands_folder

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "anaphora"
RUN = ROOT / "tests" / "contract" / "kept" / "0.2.0" / "classify-text-lstm"
FORBIDDEN = {
    "subprocess", "multiprocessing", "torch.multiprocessing", "pty", "webbrowser", "ctypes.util", "runpy",
    "concurrent.futures.process", "pexpect", "sh",
}  # fmt: skip
CALLS = re.compile(
    r"^(system|popen|fork|forkpty|startfile|posix_spawnp?|spawn[lv]p?e?|exec[lv]p?e?|processor"
    r"|create_subprocess_(exec|shell)|subprocess_(exec|shell)|ProcessPoolExecutor)$"
)
NAMED = re.compile(
    rf"\b(?:{'|'.join(sorted(one.removeprefix('torch.').split('.')[0] for one in FORBIDDEN))}|{CALLS.pattern[2:-2]})\b"
)
"""In the text of every module that could start one; the others need no parsing."""
ALLOWED = {
    ("tasks/bulk/worker.py", "multiprocessing.connection"): "a pipe to a process that `processes` started",
    ("tasks/bulk/workers.py", "multiprocessing.connection"): "the other end of that pipe",
    ("nn/recurrent_operator.py", "torch.multiprocessing.reductions"): "a weak reference to a storage",
    (
        "native/cuda.py",
        "ctypes.util",
    ): "asks the loader of the system where a library is, by a fixed name",
    ("native/isa.py", "processor"): "asks uname; no file of a folder is read",
    ("cli/health.py", "processor"): "the same",
}
CANARIES = {
    "tasks/bulk/workers.py": "test_workers_of_predict_import_nothing_from_the_working_folder",
    "serving/supervisor.py": "test_workers_of_serve_import_nothing_from_the_working_folder",
    "studio/starting.py": "test_what_the_studio_starts_imports_nothing_from_the_folders_of_runs",
    "native/c.py": "test_the_compiler_takes_nothing_from_the_working_folder",
    "cli/commands/studio.py": "test_the_token_of_the_studio_is_not_in_the_arguments_of_the_browser",
    "cli/commands/learn.py": "test_a_page_without_a_secret_is_opened_by_its_address",
}
pytestmark = pytest.mark.xdist_group("processes")


# ---------------------------------------------------------------------- the places, from the source
def test_nothing_else_starts_a_process() -> None:
    found = set()
    for path in SOURCE.rglob("*.py"):
        name, text = path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8")
        if name == "processes.py" or not NAMED.search(text):
            continue
        for node in ast.walk(ast.parse(text)):
            said = []
            if isinstance(node, ast.Import):
                said = [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                said = [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
                found |= {(name, one.name) for one in node.names if CALLS.match(one.name)}
            elif isinstance(node, ast.Attribute) and CALLS.match(node.attr):
                found.add((name, node.attr))
            found |= {
                (name, one if one.startswith(module + ".") else module)
                for one in said
                for module in FORBIDDEN
                if one == module or one.startswith(module + ".")
            }
    found = {
        (name, what)
        for name, what in found
        if not any(w.startswith(what + ".") for n, w in found if n == name)
    }
    found = {(name, re.sub(r"(connection|reductions)\..*", r"\1", what)) for name, what in found}
    found = {(name, re.sub(r"(ctypes\.util)\..*", r"\1", what)) for name, what in found}
    assert found == set(ALLOWED)


def test_every_place_that_starts_one_has_its_canary() -> None:
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(r"processes\.(start|run)\(|import open_page", path.read_text(encoding="utf-8"))
    }
    assert found == set(CANARIES)
    assert set(CANARIES.values()) <= set(globals())


# ---------------------------------------------------------------------- a stranger's folder
@pytest.fixture(scope="module")
def namesakes() -> dict[str, str]:
    """A module for every name that can be imported at the top; each writes down that it ran."""
    names = {
        *sys.stdlib_module_names,
        *packages_distributions(),
        *(name.partition(".")[0] for name in sys.modules),
    }
    source = "import os\nwith open({mark!r}, 'a') as file:\n    file.write(__name__ + ' ')\n"
    return {f"{name}.py": source for name in names if name.isidentifier() and name != "__main__"}


@pytest.fixture
def plant(namesakes: dict[str, str], tmp_path: Path) -> Iterator[Callable[[Path], Path]]:
    """Fills folders with namesakes; afterwards none of them may have run."""
    mark = tmp_path / "canary"

    def filled(folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for name, source in namesakes.items():
            (folder / name).write_text(source.format(mark=str(mark)))
        return folder

    yield filled
    assert not mark.exists(), f"ran: {mark.read_text()[:200]}"


@pytest.fixture
def stranger(plant: Callable[[Path], Path], tmp_path: Path) -> Path:
    return plant(tmp_path / "stranger")


def command(*words: str) -> list[str]:
    """The command as installed, or one that forks at once."""
    warm = commands_folder()
    return [str((warm or Path(sys.executable).parent) / "anaphora"), *words]


def environment(**more: str) -> dict[str, str]:
    """One in which the working folder stands in every search path, as an empty or a relative entry."""
    return {**os.environ, "PYTHONPATH": f":{SOURCE.parent}:.", "OMP_NUM_THREADS": "1", **more}


def test_the_canary_sings(stranger: Path, tmp_path: Path) -> None:
    """A child that is started in another way does run the files of the folder."""
    subprocess.run([sys.executable, "-c", "import click"], cwd=stranger, check=False)
    mark = tmp_path / "canary"
    assert "click" in mark.read_text()
    mark.unlink()


def test_workers_of_predict_import_nothing_from_the_working_folder(stranger: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "texts.txt", tmp_path / "out.txt"
    source.write_text("a b\nb a\n" * 1000)
    words = ["predict", str(RUN), str(source), "--workers", "2", "--out", str(out)]
    ended = subprocess.run(
        command(*words),
        cwd=stranger,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert len(out.read_text().splitlines()) == 2000


def test_workers_of_serve_import_nothing_from_the_working_folder(stranger: Path) -> None:
    words = command("serve", str(RUN), "--device", "cpu", "--workers", "2", "--port", "0")
    with subprocess.Popen(
        words, cwd=stranger, env=environment(), stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        said = ""
        while not re.search(r"at https?://", said):
            line = server.stderr.readline()
            assert line, said
            said += line
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=120)


@pytest.mark.parametrize(
    "way",
    ["plan", pytest.param("start", marks=pytest.mark.slow), pytest.param("resume", marks=pytest.mark.slow)],
)
def test_what_the_studio_starts_imports_nothing_from_the_folders_of_runs(
    plant: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    runs = plant(tmp_path / "given") / "runs"
    plant(runs)
    monkeypatch.setenv("PYTHONPATH", f":{SOURCE.parent}:.")
    monkeypatch.setattr(sys, "path", ["", str(runs.parent), *sys.path])
    monkeypatch.setattr("anaphora.studio.starting.PLAN_SECONDS", 500.0)  # on a busy machine
    monkeypatch.chdir(runs.parent)
    starter = Starter(runs, allowed=True)
    order = {
        "task": "classify",
        "data": "parity",
        "model": "lstm",
        "name": "first",
        "settings": {"steps": 2, "hidden": 4},
    }
    try:
        if way == "plan":
            assert starter.plan(order)["plan"]["settings"]["steps"] == 2
            return
        if way == "start":
            starter.start(order)
        else:
            shutil.copytree(RUN, runs / "first")
            starter.resume(Run("first", "first", runs / "first"))
        until(lambda: starter.facts()["trainings"][0]["code"] is not None)
        assert starter.facts()["trainings"][0]["code"] == 0
    finally:
        starter.close()


def until(happened: Callable[[], bool]) -> None:
    for _ in range(1200):
        if happened():
            return
        time.sleep(0.1)
    raise AssertionError("it did not happen within two minutes")


@pytest.mark.skipif(compiler.compiler() is None, reason="there is no C compiler")
def test_the_compiler_takes_nothing_from_the_working_folder(
    stranger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither headers, by an empty entry of CPATH, nor programs, by an empty entry of PATH."""
    for name in ("math.h", "stdint.h", "string.h", "stddef.h"):
        (stranger / name).write_text("#error taken from the working folder\n")
    for name in ("cc", "gcc", "clang", "as", "ld"):
        (stranger / name).write_text(f"#!/bin/sh\necho {name} >> {tmp_path / 'canary'}\nexit 1\n")
        (stranger / name).chmod(0o755)
    monkeypatch.chdir(stranger)
    monkeypatch.setenv("CPATH", ":")
    monkeypatch.setenv("COMPILER_PATH", ":.")
    monkeypatch.setenv("PATH", f":.:{os.environ['PATH']}")
    monkeypatch.setenv("ANAPHORA_CACHE", str(tmp_path / "cache"))
    compiler.compiler.cache_clear()
    compiler._version.cache_clear()
    try:
        library = compiler.load("#include <math.h>\nint canary_answer(void) { return 42; }\n", "canary")
        assert library.canary_answer() == 42
    finally:
        compiler.compiler.cache_clear()
        compiler._version.cache_clear()


def test_several_processes_of_a_training_import_nothing_from_the_working_folder(
    stranger: Path, tmp_path: Path
) -> None:
    """As docs/guides/scale.md starts them: the command, and not a module that Python looks for in the folder."""
    words = [
        str(Path(sys.executable).parent / "torchrun"),
        "--standalone",
        "--no-python",
        "--nproc-per-node",
        "2",
    ]
    train = ["train", "classify", "parity", "--model", "lstm", "--set", "hidden=4", "--set", "steps=2"]
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    path = os.pathsep.join((str(Path(command()[0]).parent), clean["PATH"]))
    ended = subprocess.run(
        [*words, "anaphora", *train, "-o", str(tmp_path / "run"), "--device", "cpu"],
        cwd=stranger, env={**clean, "PATH": path, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-2000:]


def test_numba_takes_no_settings_from_the_working_folder(tmp_path: Path) -> None:
    """They could name a cache, whose objects are unpickled and run."""
    (tmp_path / ".numba_config.yaml").write_text("cache_dir: /planted\n")
    asked = "{}import numba; import yaml; print(numba.config.CACHE_DIR or 'none', yaml.safe_load('1'))"
    ours = "from anaphora.native.jit import numba; "
    for before, found in (("", "/planted 1"), (ours, "none 1")):
        words = processes.python("-c", asked.format(before))
        assert processes.run(words, timeout=300.0, cwd=tmp_path, text=True).stdout.split("\n")[0] == found


def test_only_one_module_imports_numba() -> None:
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(r"^\s*(import numba|from numba)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert found == {"native/jit.py"}


# ---------------------------------------------------------------------- the browser
@pytest.fixture
def browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A browser that writes down its arguments, and the page that it was given."""
    script, said = tmp_path / "browser", tmp_path / "said"
    script.write_text(
        f"#!{sys.executable}\nimport sys, os, stat, json, urllib.parse\n"
        "place = urllib.parse.unquote(urllib.parse.urlsplit(sys.argv[1]).path)\n"
        "there = sys.argv[1].startswith('file:') and os.path.isfile(place)\n"
        "found = [sys.argv[1:], open(place).read() if there else '', os.stat(os.path.dirname(place)).st_mode if there else 0]\n"
        f"open({str(said) + '.part'!r}, 'w').write(json.dumps(found)); os.rename({str(said) + '.part'!r}, {str(said)!r})\n"
    )
    script.chmod(0o755)
    monkeypatch.setenv("BROWSER", str(script))
    import webbrowser

    monkeypatch.setattr(webbrowser, "_tryorder", None)
    return said


def test_the_token_of_the_studio_is_not_in_the_arguments_of_the_browser(browser: Path) -> None:
    """B10."""
    processes.open_page("http://127.0.0.1:1/#token=s3cr&t")
    until(browser.exists)
    words, page, mode = json.loads(browser.read_text())
    assert not any("s3cr" in word for word in words)
    assert "http://127.0.0.1:1/#token=s3cr&amp;t" in page
    assert stat.S_IMODE(mode) == 0o700  # of its folder


def test_a_page_without_a_secret_is_opened_by_its_address(browser: Path) -> None:
    processes.open_page("file:///somewhere/index.html")
    until(browser.exists)
    assert json.loads(browser.read_text())[0] == ["file:///somewhere/index.html"]


# ---------------------------------------------------------------------- the door itself
def test_a_program_is_named_by_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="absolute"):
        processes.start(["ls"])
    with pytest.raises(ValueError, match="absolute"):
        processes.run(["./ls"], timeout=1.0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tool").write_text("#!/bin/sh\n")
    (tmp_path / "tool").chmod(0o755)
    monkeypatch.setenv("PATH", f":.:{os.environ['PATH']}")
    assert processes.program("tool") is None
    assert processes.program("./tool") is None
    assert processes.program("sh") in ("/bin/sh", "/usr/bin/sh")
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(AnaphoraError, match="Python"):
        processes.python("-m", "anaphora")


def test_search_paths_of_a_child_do_not_depend_on_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setattr(sys, "path", ["", ".", str(tmp_path), str(own), *sys.path])
    monkeypatch.setenv("LD_LIBRARY_PATH", ":/nowhere:lib")
    monkeypatch.setenv("CPATH", ":")
    asked = "import os, sys, json; print(json.dumps([sys.path, dict(os.environ)]))"
    done = processes.run(processes.python("-c", asked), timeout=60.0, environment={"MORE": "1"})
    path, variables = json.loads(done.stdout)
    assert str(tmp_path) not in path
    assert "" not in path
    assert str(own) in path  # an absolute entry of PYTHONPATH stays
    assert (variables["LD_LIBRARY_PATH"], variables["MORE"]) == ("/nowhere", "1")
    assert "CPATH" not in variables


def test_a_killed_predict_leaves_no_copy_of_the_model(tmp_path: Path) -> None:
    """B11: its workers remove what it leaves behind, however it ends."""
    source, scratch = tmp_path / "texts.txt", tmp_path / "tmp"
    scratch.mkdir()
    source.write_text("a b a b\n" * 200_000)
    words = processes.python("-m", "anaphora", "predict", str(RUN), str(source), "--workers", "2")
    own = {**os.environ, "TMPDIR": str(scratch), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(words, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as predicting:
        until(lambda: any(scratch.glob("anaphora-predict-*/model/model.safetensors")))
        predicting.kill()
        predicting.wait()
    until(lambda: not list(scratch.iterdir()))


@pytest.mark.parametrize("number", [pytest.param(signal.SIGKILL, marks=pytest.mark.slow), signal.SIGHUP])
def test_a_killed_server_leaves_no_counts(tmp_path: Path, number: int) -> None:
    """B11: what its workers counted goes with the last of them."""
    words = processes.python(
        "-m", "anaphora", "serve", str(RUN), "--device", "cpu", "--workers", "2", "--port", "0"
    )
    own = {**os.environ, "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(words, env=own, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        while "at http" not in server.stderr.readline():
            assert server.poll() is None
        assert list(tmp_path.glob("anaphora-metrics-*"))
        server.send_signal(number)
        server.communicate(timeout=120)
    until(lambda: not list(tmp_path.iterdir()))
