"""The frame of the command: help without torch, suggestions, exit codes, two channels."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import click
import pytest

from anaphora.cli import failures, main, processes
from anaphora.cli.catalog import COMMANDS, TASK_COMMANDS
from anaphora.errors import AnaphoraError, SettingsError

HEAVY = ("torch", "numpy", "tokenizers", "sacrebleu", "rich")
TELL_IMPORTS = """
import sys
from anaphora.cli.main import run
code = run(sys.argv[1:])
print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)
raise SystemExit(code)
"""


def in_a_process(*arguments, env=None):
    code = TELL_IMPORTS.format(heavy=HEAVY)
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=env)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], [], ["train", "--help"], ["explain", "lr"]])
def test_light_commands_import_nothing_heavy(arguments):
    done = in_a_process(*arguments)
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1] == "[]"
    assert done.stdout


def test_every_command_has_a_help_page_without_torch():
    code = (
        "import sys; from anaphora.cli.main import run\n"
        f"codes = [run([name, '--help']) for name in {list(COMMANDS)!r}]\n"
        f"assert codes == [0] * {len(COMMANDS)}, codes\n"
        f"assert not [name for name in {HEAVY!r} if name in sys.modules]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Examples:") == len(COMMANDS)
    assert done.stdout.count("--json") >= len(COMMANDS)


def test_the_name_of_a_task_is_no_command_but_says_how_to_train_it(capsys):
    from anaphora.tasks.registry import TASKS

    assert set(TASK_COMMANDS) == set(TASKS)
    for task in TASK_COMMANDS:
        assert main.run([task, "x"]) == 2
        assert f"{task} is a task; write `anaphora train {task} DATA`." in capsys.readouterr().err


@pytest.mark.parametrize(("typed", "told"), [("TRAIN", "Did you mean train?"), ("vectors", "'vectors'.\n")])
def test_only_what_is_near_is_suggested(typed, told, capsys):
    assert main.run([typed]) == 2
    assert told in capsys.readouterr().err


def test_names_of_files_neither_drive_the_terminal_nor_fill_it(capsys):
    def work():
        raise AnaphoraError(f"a\n\x1b[31mb\u202e/{'x' * 10**6} does not exist.")

    assert failures.guarded(work, debug=False) == 2
    told = capsys.readouterr().err
    assert told.startswith("anaphora: a\\n\\x1b[31mb\\u202e/xxx")
    assert told.endswith("xxx does not exist.\n")
    assert told.count("\n") == 1
    assert len(told) < 1100


def test_a_name_that_is_no_text_is_told_at_once(capsys):
    assert main.run(["predict", "run\udcff"]) == 2
    told = capsys.readouterr().err
    assert "'run\\udcff' is not UTF-8; rename the file" in told
    assert main.run(["predict", "лес 😀"]) == 2
    assert "лес 😀 does not exist" in capsys.readouterr().err


def test_the_help_of_inspect_names_every_view(capsys):
    from anaphora.views.registry import VIEWS

    assert main.run(["inspect", "--help"]) == 0
    page = capsys.readouterr().out
    named = set(re.findall(r"[a-z]+", page))
    assert [name for name, view in VIEWS.items() if name not in named and view.of != "examples"] == []


def test_processes_that_come_upon_one_mistake_tell_it_once(monkeypatch):
    from torch.distributed import TCPStore

    assert processes.first_to_say("one process alone")
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": "2"}
    for name, value in {**place, "TORCHELASTIC_USE_AGENT_STORE": "True"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(processes, "WAIT", 0.0)
    assert [processes.first_to_say("a"), processes.first_to_say("a"), processes.first_to_say("b")] == [
        True, False, True,
    ]  # fmt: skip
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert processes.first_to_say("a")  # started again, it may be told again
    monkeypatch.setenv("MASTER_PORT", "nowhere")
    assert processes.first_to_say("a")  # better twice than never


def test_completion_imports_nothing_heavy():
    import os

    env = {
        **os.environ,
        "_ANAPHORA_COMPLETE": "bash_complete",
        "COMP_WORDS": "anaphora tr",
        "COMP_CWORD": "1",
    }
    done = in_a_process(env=env)
    assert "train" in done.stdout
    env.update(COMP_WORDS="anaphora train translate x --model tr", COMP_CWORD="5")
    assert "transformer" in in_a_process(env=env).stdout


def test_help_names_the_first_command_and_every_command(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main.run(["--help"]) == 0
    shown = capsys.readouterr()
    assert "anaphora demo" in shown.out
    assert all(line in shown.out for line in COMMANDS.values())
    assert max(map(len, shown.out.splitlines())) <= 110
    assert shown.err == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["trian"], "there is no command 'trian'. Did you mean train?"),
        (["zzzzzz"], "there is no command 'zzzzzz'."),
        (["translate", "x"], "translate is a task; write `anaphora train translate DATA`."),
        (["train"], "missing argument 'TASK'"),
        (["train", "translate"], "anaphora: DATA is missing"),
        (["train", "train.tsv"], "'train.tsv' is not a task (translate, classify,"),
        (["distill", "runs/x"], "anaphora: words are missing: it takes RUN… DATA."),
        (["train", "translate", "x", "--stesp", "3"], "Did you mean"),
        (["train", "translate", "x", "--heads", "3"], "heads is a setting: write --set heads=VALUE."),
        (["train", "translate", "x", "--model", "lstm-atention"], "Did you mean lstm-attention?"),
        (["models", "translte"], "Did you mean translate?"),
        (["explain", "hiden"], "hiden is not a setting. Did you mean hidden?"),
    ],
)
def test_mistakes_are_one_sentence_with_exit_code_2(capsys, arguments, sentence):
    assert main.run(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("anaphora: ")
    assert sentence in shown.err
    assert "Traceback" not in shown.err


def raising(error):
    def work():
        raise error

    return work


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (AnaphoraError("a.tsv:3: no tab."), 2, "anaphora: a.tsv:3: no tab.\n"),
        (SettingsError(["one."]), 2, "anaphora: one.\n"),
        (SettingsError(["one.", "two."]), 2, "anaphora: 2 mistakes in the settings:\n  one.\n  two.\n"),
        (KeyboardInterrupt(), 130, "anaphora: stopped.\n"),
        (click.exceptions.Exit(7), 7, ""),
        (OSError(28, "No space left on device", "runs/x"), 2, "anaphora: runs/x: the disk is full"),
        (
            PermissionError(13, "Permission denied", "runs/x"),
            2,
            "anaphora: runs/x: permission denied; choose",
        ),
        (MemoryError(), 2, "anaphora: memory ran out"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"),
            2,
            "anaphora: memory ran out",
        ),
        (ZeroDivisionError("oh"), 1, "anaphora: something went wrong inside (ZeroDivisionError: oh)."),
    ],
)
def test_exit_codes(capsys, error, code, told):
    assert failures.guarded(raising(error), debug=False) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(told)
    assert "Traceback" not in shown.err


def test_only_our_own_warnings_are_told_and_as_sentences(capsys):
    with warnings.catch_warnings():
        failures.show_warnings_as_sentences()
        warnings.warn_explicit("2 inputs were cut", UserWarning, failures.__file__, 1)
        warnings.warn_explicit("internal chatter", UserWarning, "/elsewhere/torch/x.py", 1)
        warnings.warn_explicit("old name", DeprecationWarning, failures.__file__, 1)
    assert capsys.readouterr().err == "anaphora: note: 2 inputs were cut.\n"


def test_debug_shows_the_traceback_wherever_it_stands(capsys):
    assert main.run(["explain", "hiden", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err
    assert main.run(["--debug", "explain", "hiden"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_a_reader_that_goes_away_is_no_failure():
    code = "import sys; sys.argv[0] = 'anaphora'; from anaphora.cli.main import main; main()"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", '"$0" -c "$1" explain | head -1', sys.executable, code],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_a_training_goes_on_where_nobody_reads_what_it_says(tmp_path):
    """`anaphora train … 2>&1 | head -1` ended with exit code 0 and without a run (border-fault 2)."""
    rows = [
        f"{word} {i}\t{'pos' if word == 'good' else 'neg'}" for i in range(20) for word in ("good", "bad")
    ]
    (tmp_path / "rows.tsv").write_text("\n".join(rows) + "\n")
    code = "import sys; sys.argv[0] = 'anaphora'; from anaphora.cli.main import main; main()"
    words = ["train", "classify", "rows.tsv", "--model", "ngrams", "-o", "run"]
    read, write = os.pipe()
    os.close(read)  # every word is one too many
    done = subprocess.run([sys.executable, "-c", code, *words], stdout=write, stderr=write, cwd=tmp_path)
    os.close(write)
    assert done.returncode == 0
    assert (tmp_path / "run" / "model.safetensors").is_file()


@pytest.mark.parametrize("arguments", [["explain"], ["explain", "lr"], ["models"], ["models", "translate"]])
def test_json_is_one_document_and_nothing_else(capsys, arguments):
    assert main.run([*arguments, "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)
    assert shown.err == ""


def test_no_colour_in_pipes(capsys):
    main.run(["--help"])
    main.run(["models"])
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err


@pytest.mark.parametrize(("variable", "coloured"), [(None, True), ("NO_COLOR", False)])
@pytest.mark.parametrize("arguments", [["--help"], ["models"], ["train", "--help"]])
def test_colour_in_a_terminal_unless_it_is_not_wanted(variable, coloured, arguments):
    import os
    import pty

    env = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    env.update({"TERM": "xterm"}, **({variable: "1"} if variable else {}))
    reader, writer = pty.openpty()
    with os.fdopen(reader, "rb", buffering=0) as terminal:
        process = subprocess.Popen(
            [sys.executable, "-m", "anaphora", *arguments], stdout=writer, stderr=subprocess.DEVNULL, env=env
        )
        os.close(writer)
        shown = b""
        while True:
            try:
                part = terminal.read(4096)
            except OSError:  # Linux says so when the other side has closed
                break
            if not part:
                break
            shown += part
        assert process.wait() == 0
    assert shown
    assert (b"\x1b[" in shown) == (coloured and arguments != ["train", "--help"])


def test_the_next_command_is_one_that_can_be_typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After `make demo` the command lies in .venv/bin, which is not on the path of a newcomer's shell."""
    from anaphora.cli.output import command_name

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setattr("sys.argv", [str(tmp_path / ".venv/bin/anaphora"), "demo"])
    assert command_name() == ".venv/bin/anaphora"
    monkeypatch.setattr("sys.argv", ["/elsewhere/bin/anaphora", "demo"])
    assert command_name() == "/elsewhere/bin/anaphora"
    monkeypatch.setattr("sys.argv", ["/lib/anaphora/__main__.py", "demo"])
    monkeypatch.setattr("sys.executable", str(tmp_path / ".venv/bin/python"))
    assert command_name() == ".venv/bin/python -m anaphora"
    (tmp_path / "nowhere").mkdir()
    (tmp_path / "nowhere/anaphora").touch(mode=0o755)
    assert command_name() == "anaphora"


@pytest.mark.parametrize(
    ("arguments", "page"),
    [
        (["-h"], ["--help"]),
        (["help"], ["--help"]),
        (["help", "train"], ["train", "--help"]),
        (["train", "-h"], ["train", "--help"]),
    ],
)
def test_help_is_found_however_it_is_typed(capsys, arguments, page):
    assert main.run(page) == 0
    expected = capsys.readouterr().out
    assert main.run(arguments) == 0
    assert capsys.readouterr().out == expected


def test_an_unknown_study_names_the_studies(capsys):
    assert main.run(["study", "nosuch"]) == 2
    said = capsys.readouterr().err
    assert (
        "nosuch is not a study (budget, draw, length, memory, positions, recall, scaling, tracking)." in said
    )
    assert "explain" not in said
