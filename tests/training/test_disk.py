"""C3: full disks, limits, vanished folders. One sentence, an exit code, and the old checkpoint untouched."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from training_toy import finish, outcome, toy_trainer

from anaphora.errors import RunError
from anaphora.files import faults
from anaphora.training.checkpoint import CheckpointFolder
from anaphora.training.run import RunFolder
from anaphora.training.weights import load_weights

TOY = Path(__file__).with_name("training_toy.py")


@pytest.fixture(autouse=True)
def _count_passages_anew(monkeypatch):
    monkeypatch.setattr(faults, "_passages", {})


POINTS = ["write.chunk", "checkpoint.file", "checkpoint.manifest", "replace.written", "checkpoint.renamed"]


@pytest.mark.parametrize("error", ["ENOSPC", "EROFS", "EDQUOT", "EIO"])
@pytest.mark.parametrize("point", POINTS)
def test_a_disk_that_fails_at_any_point(tmp_path, monkeypatch, point, error):
    finish(tmp_path / "whole", steps=30)
    folder = tmp_path / "run"
    passage = {"write.chunk": 20, "checkpoint.file": 14, "replace.written": 2}.get(point, 3)
    with monkeypatch.context() as patch:
        patch.setenv("ANAPHORA_FAULT", f"{point}:{passage}:{error}")
        with pytest.raises(RunError) as caught:
            finish(folder, steps=30)
    text = str(caught.value)
    assert os.strerror(getattr(errno, error)).lower() in text
    assert "\n" not in text
    assert text.endswith(" is untouched.")
    good, skipped = CheckpointFolder(folder / "checkpoints").newest()
    assert good.step in (5, 10, 15)
    assert not skipped
    load_weights(folder / "model.safetensors")
    assert not list(folder.glob("**/.tmp-*"))
    assert not (folder / "lock").exists()
    finish(folder, steps=30)  # once there is room again
    assert outcome(folder) == outcome(tmp_path / "whole")


def test_a_limit_on_file_sizes_ends_the_process_with_an_error(tmp_path):
    def limit():
        resource.setrlimit(
            resource.RLIMIT_FSIZE, (2500, 2500)
        )  # enough for weights, not for the optimizer's state

    process = subprocess.run(
        [sys.executable, str(TOY), str(tmp_path / "run"), "steps=20"],
        capture_output=True,
        text=True,
        preexec_fn=limit,
    )
    assert process.returncode != 0
    assert "cannot be written (file too large); raise the limit on file sizes" in process.stderr
    assert not list((tmp_path / "run").glob("**/.tmp-*"))


def test_a_journal_that_cannot_grow_leaves_no_half_line(tmp_path, monkeypatch):
    finish(tmp_path / "run", steps=5)
    real = os.write

    def full(descriptor, data):
        if bytes(data).startswith(b'{"step": 8,'):
            if len(data) > 20:
                return real(descriptor, bytes(data)[:20])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if b"step" not in bytes(data) and b"loss" in bytes(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(RunError, match=r"metrics.jsonl: cannot be written \(no space left on device\)"):
        finish(tmp_path / "run", steps=20)
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes().endswith(b"}\n")


def test_the_folder_vanishes(tmp_path):
    from training_toy import Heard

    class Remover(Heard):
        def stepped(self, tick):
            if tick.step == 7:
                shutil.rmtree(tmp_path / "run")

    (tmp_path / "run").mkdir()
    with pytest.raises(
        RunError, match=r"cannot be written \(no such file or directory\); put the folder back"
    ):
        toy_trainer(tmp_path / "run", reporter=Remover()).run()
    assert not (tmp_path / "run").exists()  # an empty run in its place would only hide the loss


def test_a_file_in_the_place_of_a_folder(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoints").write_text("")
    with pytest.raises(
        RunError, match=r"checkpoints: cannot be written \(is a link or a file, not a folder\)"
    ):
        toy_trainer(tmp_path / "run").run()
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        RunFolder.create(tmp_path / "file" / "run")


def test_a_place_is_checked_where_something_new_is_made(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    monkeypatch.setattr(os, "access", lambda *_: False)  # as root permissions do not bite
    RunFolder(tmp_path / "run").check_free()
    with pytest.raises(RunError, match=r"new/run: cannot be written \(permission denied in"):
        RunFolder(tmp_path / "new" / "run").check_free()


def test_a_read_only_folder(tmp_path, monkeypatch):
    """As root permissions do not bite, so the kernel's answer is played."""
    run = RunFolder.create(tmp_path / "run")
    real = os.open

    def refuse(path, flags, *rest, **more):
        if flags & os.O_CREAT:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return real(path, flags, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(
        RunError, match=r"config.json: cannot be written \(read-only file system\); make it writable"
    ):
        run.write("config.json", "{}")
    with pytest.raises(RunError, match=r"read-only file system"), run.lock():
        pass
