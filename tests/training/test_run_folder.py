"""C5: the folder itself."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
from pathlib import Path

import pytest
import torch

from anaphora.errors import RunError
from anaphora.files.writing import rename
from anaphora.training.journal import Journal, read_journal
from anaphora.training.lock import _started
from anaphora.training.run import RunFolder
from anaphora.training.weights import save_weights
from warm_command import popen

CONFIG = '{"format": 1, "anaphora": "0.2.0", "task": "toy"}'

HOLD = """
import sys, time
from anaphora.training.run import RunFolder
with RunFolder(sys.argv[1]).lock():
    print("held", flush=True)
    time.sleep(600)
"""


def test_create_and_open(tmp_path):
    run = RunFolder.create(tmp_path / "a" / "b")
    assert run.path.is_dir()
    assert not list(run.path.iterdir())
    with pytest.raises(RunError, match="not a run: it has no config"):
        RunFolder.open(run.path)
    run.write("config.json", '{"ü": 1}')
    assert RunFolder.open(run.path).read_text("config.json") == '{"ü": 1}'
    with pytest.raises(RunError, match="no such folder"):
        RunFolder.open(tmp_path / "c")


def test_a_run_is_not_overwritten_by_accident(tmp_path):
    run = RunFolder.create(tmp_path / "run")
    run.write("config.json", "{}")
    with pytest.raises(RunError, match="already holds a run; continue it with `anaphora resume"):
        RunFolder.create(run.path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(
        RunError, match=r"is not empty; .* write into it with --force \(force=True in Python\)"
    ):
        RunFolder.create(tmp_path / "mine")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is a file"):
        RunFolder.create(tmp_path / "file")


def test_force_removes_a_run_and_nothing_else(tmp_path):
    run = RunFolder.create(tmp_path / "run")
    run.write("config.json", CONFIG)
    run.write("notes.txt", "keep me")
    (run.checkpoints / "step-00000005").mkdir(parents=True)
    (run.checkpoints / "mine").mkdir()
    RunFolder.create(run.path, force=True)
    assert sorted(os.listdir(run.path)) == ["checkpoints", "notes.txt"]
    assert os.listdir(run.checkpoints) == ["mine"]


def write_all(run):
    """What a training has written before its first step."""
    run.write("config.json", CONFIG)
    run.write("timings.jsonl", "{}\n")
    for folder in (run.film, run.path / "data"):
        folder.mkdir(exist_ok=True)
        (folder / "step-00000000.safetensors").write_text("")


def refuse(run, error=ValueError, then=lambda run: None, **how):
    def work():
        write_all(run)
        then(run)
        raise error

    with pytest.raises(error), run.begun(**how):
        work()


def test_a_training_that_is_refused_before_its_first_step_leaves_nothing(tmp_path):
    run = RunFolder(tmp_path / "a" / "b")
    refuse(run)
    assert not list(tmp_path.iterdir())
    run.path.mkdir(parents=True)
    refuse(run)
    assert run.path.is_dir()  # it was there before
    assert not list(run.path.iterdir())


def contents(folder):
    return {path.relative_to(folder): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_refused_training_with_force_puts_the_older_run_back(tmp_path):
    run = RunFolder(tmp_path / "run")
    with run.begun():
        write_all(run)
        run.write("model.safetensors", "years of work")
        (run.checkpoints / "step-00000005").mkdir(parents=True)
        (run.checkpoints / "step-00000005" / "state.json").write_text("{}")
        run.write("notes.txt", "mine")
    before = contents(run.path)
    seen = []
    refuse(run, force=True, then=lambda run: seen.append(run.model.exists()))
    assert seen == [False]  # it was out of sight
    assert contents(run.path) == before
    early = (KeyboardInterrupt, lambda run: run.config.unlink())
    refuse(run, *early, force=True)
    assert contents(run.path) == before


def test_an_older_run_that_cannot_be_set_aside_stays_whole(tmp_path, monkeypatch):
    run = RunFolder(tmp_path / "run")
    with run.begun():
        write_all(run)
        run.write("model.safetensors", "years of work")
    before, moved = contents(run.path), []

    def failing(path, target):
        moved.append(path.name)
        if len(moved) == 2:
            raise OSError(errno.EACCES, "Permission denied", str(path))
        return rename(path, target)

    monkeypatch.setattr("anaphora.training.run.rename", failing)
    with pytest.raises(RunError, match=r"(?i)permission denied"), run.begun(force=True):
        pass
    assert contents(run.path) == before


def test_the_older_run_is_gone_once_training_begins_or_has_ended(tmp_path):
    run = RunFolder(tmp_path / "run")
    for work in (run.sweep, lambda: None):  # by steps, which begin with a sweep, and in one go
        with run.begun(force=True):
            run.write("model.safetensors", "old")
            run.write("config.json", CONFIG)
        with run.begun(force=True):
            work()
            run.write("config.json", CONFIG)
        assert sorted(os.listdir(run.path)) == ["config.json"]


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "README.md", "model.safetensors", "base.safetensors"]
)
@pytest.mark.parametrize("content", ["years of work", "{}", '{"task": "fill-mask", "format": "pt"}', "[1]"])
def test_force_replaces_no_files_of_others_that_have_the_names_of_a_run(tmp_path, name, content):
    """Many models of other programs are a config.json, a tokenizer.json and a model.safetensors."""
    (tmp_path / name).write_text(content)
    (tmp_path / "checkpoints" / "step-1").mkdir(parents=True)
    run = RunFolder(tmp_path)
    with pytest.raises(RunError, match="files that anaphora did not write"):
        RunFolder.create(tmp_path, force=True)
    with pytest.raises(RunError, match="files that anaphora did not write"), run.begun(force=True):
        pass
    assert contents(tmp_path) == {Path(name): content}


def test_a_training_that_is_refused_leaves_what_was_there(tmp_path):
    run = RunFolder(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "rows.tsv").write_text("years of work")
    (tmp_path / "thesis.txt").write_text("years of work")
    refuse(run, force=True, then=lambda run: run.write("by-a-callback.txt", ""))
    assert sorted(os.listdir(tmp_path)) == ["by-a-callback.txt", "data", "thesis.txt"]
    assert os.listdir(tmp_path / "data") == ["rows.tsv"]
    with pytest.raises(RunError, match="is not empty"), run.begun():
        pass
    assert (tmp_path / "thesis.txt").exists()


@pytest.mark.parametrize(
    "progress", ["metrics.jsonl", "bad-batches.jsonl", "model.safetensors", "checkpoints/step-00000005"]
)
def test_a_training_that_fails_after_its_first_steps_keeps_its_folder(tmp_path, progress):
    run = RunFolder(tmp_path / "run")
    refuse(run, then=lambda run: (run.path / progress).mkdir(parents=True))
    assert run.exists()
    assert (run.path / progress).exists()


def test_an_interrupted_run_is_kept_once_resume_can_begin_it(tmp_path):
    run = RunFolder(tmp_path / "run")
    refuse(run, KeyboardInterrupt)
    assert run.exists()
    early = RunFolder(tmp_path / "early")
    refuse(early, KeyboardInterrupt, lambda run: run.config.unlink())
    assert not early.path.exists()


def test_what_a_kill_left_before_the_config_goes_with_the_next_refusal(tmp_path):
    run = RunFolder(tmp_path / "run")
    write_all(run.create(run.path))
    run.config.unlink()
    (run.film / "step-00000000.safetensors").unlink()
    run.film.rmdir()
    (run.path / "lock").write_text(json.dumps({"host": "killed", "pid": 1, "started": "x:1"}))
    refuse(run)
    assert not list(run.path.iterdir())


def test_weights_must_belong_to_the_config_beside_them(tmp_path):
    run = RunFolder.create(tmp_path / "run")
    run.write("config.json", "{}")
    save_weights(run.model, {"w": torch.zeros(1)}, facts={"files": run.fingerprints()})
    assert run.load_model()[0]["w"].tolist() == [0.0]
    run.write("config.json", '{"hidden": 512}')
    with pytest.raises(RunError, match=r"config.json: is not the one these weights were trained with"):
        run.load_model()
    run.config.unlink()
    with pytest.raises(RunError, match=r"config.json: is missing"):
        run.load_model()


def test_the_lock_can_be_nested_and_goes_away(tmp_path):
    run = RunFolder(tmp_path)
    with run.lock(), run.lock():
        holder = json.loads((tmp_path / "lock").read_text())
        assert holder == {"host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid())}
        with (
            pytest.raises(RunError, match=f"process {os.getpid()} on .* is training in this folder"),
            RunFolder(tmp_path).lock(),
        ):
            pass
    assert not list(tmp_path.iterdir())


def test_another_process_is_refused_until_the_holder_is_killed(tmp_path):
    process = popen(["-c", HOLD, str(tmp_path)])
    try:
        assert process.stdout.readline() == "held\n"
        with pytest.raises(RunError, match=f"process {process.pid} on "), RunFolder(tmp_path).lock():
            pass
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert (tmp_path / "lock").exists()  # left behind …
    with RunFolder(tmp_path).lock():  # … and no obstacle
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


def test_stale_locks(tmp_path):
    lock = tmp_path / "lock"
    here = socket.gethostname()
    stale = [
        {"host": here, "pid": os.getpid(), "started": "an earlier boot:1"},  # the pid was used again
        {"host": here, "pid": 2**22 + 1, "started": _started(os.getpid())},  # nobody
    ]
    for text in [*map(json.dumps, stale), "", "{", "[]", '{"pid": 1}']:
        lock.write_text(text)
        with RunFolder(tmp_path).lock():
            pass
    odd = [{"host": here, "pid": pid, "started": "x:1"} for pid in (10**30, -1, 0, "7", None, 1.5, True)]
    elsewhere = {"host": "a-pod-that-was-killed", "pid": 1, "started": "x:1"}  # flock proves that it is gone
    for holder in [*odd, elsewhere]:
        lock.write_text(json.dumps(holder))
        with RunFolder(tmp_path).lock():
            pass


def test_without_flock_the_name_in_the_file_decides(tmp_path, monkeypatch):
    def unsupported(descriptor, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    lock = tmp_path / "lock"
    for living in (
        {"host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid())},
        {"host": "elsewhere", "pid": 1, "started": "x:1"},
    ):
        lock.write_text(json.dumps(living))
        with pytest.raises(RunError, match=r"if it is gone, remove .*lock"), RunFolder(tmp_path).lock():
            pass
    lock.write_text(json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "started": "before:1"}))
    with RunFolder(tmp_path).lock():
        pass


def test_sweep_removes_what_a_crash_left(tmp_path):
    run = RunFolder.create(tmp_path / "run")
    (run.path / ".tmp-1").write_text("half")
    (run.checkpoints / ".tmp-2").mkdir(parents=True)
    (run.checkpoints / ".tmp-2" / "model.safetensors").write_text("half")
    run.write("config.json", "{}")
    run.sweep()
    assert sorted(os.listdir(run.path)) == ["checkpoints", "config.json"]
    assert os.listdir(run.checkpoints) == []


def test_a_journal_goes_back_to_its_mark(tmp_path):
    path = tmp_path / "j.jsonl"
    journal = Journal(path)
    assert journal.open() is None
    assert not path.exists()  # made when there is something to say
    journal.append({"step": 1, "loss": 0.1, "text": "ü"})
    mark = journal.mark()
    journal.append({"step": 2, "loss": float("nan")})
    journal.close()
    assert list(read_journal(path)) == [{"step": 1, "loss": 0.1, "text": "ü"}, {"step": 2, "loss": None}]
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(b'{"step": 3, "lo')
    assert len(list(read_journal(path))) == 2  # the torn line is left out
    again = Journal(path)
    assert again.open(mark) is None
    again.append({"step": 2, "loss": float("inf")})
    again.close()
    assert path.read_bytes() == whole


def test_a_journal_notices_that_its_past_was_changed(tmp_path):
    path = tmp_path / "j.jsonl"
    journal = Journal(path)
    journal.open()
    journal.append({"step": 1})
    mark = journal.mark()
    journal.close()
    for damage in (b'{"step": 7}\n', b'{"st', b""):
        path.write_bytes(damage)
        again = Journal(path)
        assert "are not those that were written" in again.open(mark)
        again.close()


def test_a_journal_continues_after_the_last_whole_line(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": 1}\n{"a": ')
    journal = Journal(path)
    journal.open_whole()
    journal.append({"a": 2})
    journal.close()
    assert path.read_text() == '{"a": 1}\n{"a": 2}\n'


def test_a_broken_line_is_named(tmp_path):
    (tmp_path / "m.jsonl").write_text('{"a": 1}\n{"a": \n{"a": 2}\n')
    with pytest.raises(RunError, match=r"m.jsonl:2: not a line of a journal"):
        list(read_journal(tmp_path / "m.jsonl"))
