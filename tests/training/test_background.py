"""C7, C3: checkpoints written in the background: what is written is the state of its step, and errors are not lost."""

from __future__ import annotations

import errno
import os
import signal
import threading

import pytest
import torch
from training_toy import Heard, finish, outcome, toy_trainer

from anaphora.errors import RunError
from anaphora.files import faults
from anaphora.training import checkpoint, saving
from anaphora.training.background import Background
from anaphora.training.checkpoint import CheckpointFolder
from anaphora.training.journal import read_journal
from anaphora.training.run import RunFolder

BACKGROUND = {"save_in_background": True, "steps": 30}


@pytest.fixture(autouse=True)
def _count_passages_anew(monkeypatch):
    monkeypatch.setattr(faults, "_passages", {})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    finish(folder, steps=30, keep=9)
    return folder


def test_the_run_is_the_same_and_the_end_waits(tmp_path, whole):
    heard = Heard()
    finish(tmp_path / "run", reporter=heard, keep=9, **BACKGROUND)
    assert outcome(tmp_path / "run") == outcome(whole)
    assert heard.saved_steps == [5, 10, 15, 20, 25, 30]
    for step in heard.saved_steps:
        mine = checkpoint.read(CheckpointFolder(tmp_path / "run" / "checkpoints").path_of(step))
        other = checkpoint.read(CheckpointFolder(whole / "checkpoints").path_of(step))
        assert mine.best == other.best
        assert {**mine.state, "settings": 0} == {**other.state, "settings": 0}
        for part, tensors in other.tensors.items():
            assert all(torch.equal(mine.tensors[part][name], value) for name, value in tensors.items())
    noted = [line for line in read_journal(tmp_path / "run" / "timings.jsonl") if line.get("event") == "save"]
    assert [line["of_step"] for line in noted] == heard.saved_steps


def test_a_slow_disk_gets_the_state_of_the_step(tmp_path, whole, monkeypatch):
    """The writer is held until two more steps have changed every weight: the copy must not have changed."""
    moved, real = threading.Event(), saving.save

    def late(run, state, **options):
        if state.step == 5:
            assert moved.wait(30)
        return real(run, state, **options)

    class Watch(Heard):
        def stepped(self, tick):
            if tick.step == 7:
                moved.set()

    monkeypatch.setattr(saving, "save", late)
    finish(tmp_path / "run", reporter=Watch(), keep=9, ema=0.0, **BACKGROUND)
    mine = checkpoint.read(CheckpointFolder(tmp_path / "run" / "checkpoints").path_of(5))
    other = checkpoint.read(CheckpointFolder(whole / "checkpoints").path_of(5))
    for part, tensors in other.tensors.items():
        assert all(torch.equal(mine.tensors[part][name], value) for name, value in tensors.items())
    assert mine.state["standing"] == other.state["standing"]
    assert mine.state["journals"] == other.state["journals"]


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
@pytest.mark.parametrize(
    ("point", "passage"), [("checkpoint.manifest", 2), ("replace.written", 1), ("write.chunk", 9)]
)
def test_an_error_of_the_writer_ends_the_run_with_the_same_sentence(
    tmp_path, whole, monkeypatch, error, point, passage
):
    texts = []
    for background in (False, True):
        folder = tmp_path / str(background) / "run"
        folder.parent.mkdir()
        monkeypatch.setattr(faults, "_passages", {})
        with monkeypatch.context() as patch:
            patch.setenv("ANAPHORA_FAULT", f"{point}:{passage}:{error}")
            with pytest.raises(RunError) as caught:
                finish(folder, **{**BACKGROUND, "save_in_background": background})
        texts.append(str(caught.value).replace(str(folder), "RUN"))
        assert os.strerror(getattr(errno, error)).lower() in texts[-1]
        assert not list(folder.glob("**/.tmp-*"))
        assert not (folder / "lock").exists()
        finish(folder, **{**BACKGROUND, "save_in_background": background})
        assert outcome(folder) == outcome(whole)
    assert texts[0] == texts[1]


def test_an_error_is_raised_at_the_next_step_not_at_the_end(tmp_path, monkeypatch):
    monkeypatch.setenv("ANAPHORA_FAULT", "checkpoint.manifest:1:ENOSPC")
    (tmp_path / "run").mkdir()
    settings = {**BACKGROUND, "steps": 10_000, "save_every": 5, "valid_every": 10_000}
    with pytest.raises(RunError, match="no space left on device"):
        toy_trainer(tmp_path / "run", **settings).run()


def test_ctrl_c_waits_for_the_checkpoint(tmp_path, whole):
    class Press(Heard):
        def stepped(self, tick):
            if tick.step == 13:
                os.kill(os.getpid(), signal.SIGINT)

    (tmp_path / "run").mkdir()
    heard = Press()
    result = toy_trainer(tmp_path / "run", reporter=heard, **BACKGROUND).run()
    assert result.stopped == "interrupted"
    assert CheckpointFolder(tmp_path / "run" / "checkpoints").newest()[0].step == result.steps == 13
    assert heard.saved_steps[-1] == 13
    finish(tmp_path / "run", **BACKGROUND)
    assert outcome(tmp_path / "run") == outcome(whole)


def test_ctrl_c_twice_leaves_the_checkpoint_before(tmp_path, whole, monkeypatch):
    real, pressed = saving.save, threading.Event()

    def late(run, state, **options):
        if state.step == 10:
            assert pressed.wait(30)
        return real(run, state, **options)

    class Press(Heard):
        def stepped(self, tick):
            if tick.step == 12:
                for _ in range(2):
                    os.kill(os.getpid(), signal.SIGINT)

    (tmp_path / "run").mkdir()
    trainer = toy_trainer(tmp_path / "run", reporter=Press(), **BACKGROUND)
    abandon = trainer.keeper.abandon
    monkeypatch.setattr(trainer.keeper, "abandon", lambda: (abandon(), pressed.set()))
    monkeypatch.setattr(saving, "save", late)
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    assert CheckpointFolder(tmp_path / "run" / "checkpoints").newest()[0].step == 5
    assert not list((tmp_path / "run").glob("**/.tmp-*"))
    assert not (tmp_path / "run" / "lock").exists()
    finish(tmp_path / "run", **BACKGROUND)
    assert outcome(tmp_path / "run") == outcome(whole)


def test_the_lock_is_held_while_the_writer_writes(tmp_path, monkeypatch):
    """Training fails while a checkpoint is being written: the folder is freed only after it."""
    real, held = saving.save, []

    def late(run, state, **options):
        failed.wait(30)
        held.append((RunFolder(tmp_path / "run").path / "lock").exists())
        return real(run, state, **options)

    failed = threading.Event()

    class Fails(Heard):
        def stepped(self, tick):
            if tick.step == 7:
                failed.set()
                raise ZeroDivisionError

    (tmp_path / "run").mkdir()
    monkeypatch.setattr(saving, "save", late)
    with pytest.raises(ZeroDivisionError):
        toy_trainer(tmp_path / "run", reporter=Fails(), **BACKGROUND).run()
    assert held == [True]
    assert CheckpointFolder(tmp_path / "run" / "checkpoints").newest()[0].step == 5


def test_jobs_are_done_in_order_and_few_wait():
    line, done, go = Background(), [], threading.Event()
    line.add(lambda: (go.wait(30), done.append(0)))
    line.add(lambda: done.append(1))
    third = threading.Thread(target=lambda: line.add(lambda: done.append(2)))
    third.start()
    third.join(0.2)
    assert third.is_alive()  # it waits for room
    go.set()
    third.join(30)
    line.finish()
    assert done == [0, 1, 2]


def test_after_an_error_nothing_more_is_done():
    line, done, go = Background(), [], threading.Event()

    def fail():
        go.wait(30)
        raise ValueError("full")

    line.add(fail)
    line.add(lambda: done.append(1))
    go.set()
    line.settle()
    assert line.failed
    for ask in (line.check, line.finish, lambda: line.add(lambda: done.append(2))):
        with pytest.raises(ValueError, match="full"):
            ask()
    assert done == []
