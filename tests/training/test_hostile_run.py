"""X1, F1: a run folder from a stranger, some of whose files are links, pipes, folders or sockets."""

from __future__ import annotations

import os
import shutil
import socket

import pytest
import torch
from training_toy import finish, toy_trainer

from anaphora.errors import RunError
from anaphora.training.checkpoint import CheckpointFolder
from anaphora.training.journal import read_journal
from anaphora.training.run import RunFolder
from anaphora.training.verify import verify_run
from anaphora.training.weights import load_weights, pack

APPENDED = ["lock", "metrics.jsonl", "samples.jsonl", "timings.jsonl", "bad-batches.jsonl"]
PRECIOUS = b'{"step": 1}\nyears of work'


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile") / "run"
    finish(folder, steps=10)
    return folder


@pytest.fixture
def run(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("name", APPENDED)
def test_a_link_is_refused_and_its_target_keeps_every_byte(run, tmp_path, name):
    target = tmp_path / "thesis.txt"
    target.write_bytes(PRECIOUS)
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(target)
    with pytest.raises(
        RunError, match=rf"{name}: cannot be written \(is a link, not a plain file\); move it"
    ):
        finish(run, steps=20)
    assert target.read_bytes() == PRECIOUS
    (run / name).unlink()
    (run / name).symlink_to(tmp_path / "not-there-yet")
    with pytest.raises(RunError, match="is a link"):
        finish(run, steps=20)
    assert not (tmp_path / "not-there-yet").exists()


@pytest.mark.parametrize("name", APPENDED)
@pytest.mark.parametrize("kind", ["named pipe", "folder", "socket"])
def test_what_is_no_file_is_refused_at_once(run, name, kind, monkeypatch):
    (run / name).unlink(missing_ok=True)
    if kind == "named pipe":
        os.mkfifo(run / name)
    elif kind == "folder":
        (run / name).mkdir()
    else:
        monkeypatch.chdir(run)  # the name of a socket is short
        with socket.socket(socket.AF_UNIX) as opened:
            opened.bind(name)
    with pytest.raises(RunError, match=rf"{name}: cannot be written \(is a {kind}"):
        finish(run, steps=20)


@pytest.mark.parametrize("name", APPENDED)
def test_a_second_name_elsewhere_keeps_its_content(run, tmp_path, name):
    if not (run / name).exists():
        (run / name).write_bytes(b'{"step": 1, "indices": []}\n')
    os.link(run / name, tmp_path / "backup")
    before = (tmp_path / "backup").read_bytes()
    finish(run, steps=20)
    assert (tmp_path / "backup").read_bytes() == before
    assert name == "lock" or (run / name).exists()


@pytest.mark.parametrize("name", ["checkpoints", "data"])
def test_a_folder_that_leads_out_is_refused(run, tmp_path, name):
    outside = tmp_path / "outside"
    (outside / ".tmp-mine").mkdir(parents=True)
    shutil.rmtree(run / name, ignore_errors=True)
    (run / name).symlink_to(outside)
    with pytest.raises(RunError, match=rf"{name}: is a link, not a folder"):
        finish(run, steps=20)
    assert os.listdir(outside) == [".tmp-mine"]


def test_a_checkpoint_that_is_a_link_is_passed_over_and_later_removed_alone(run, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    (run / "checkpoints" / "step-00000010").rename(elsewhere)
    (run / "checkpoints" / "step-00000010").symlink_to(elsewhere)
    found, skipped = CheckpointFolder(run / "checkpoints").newest()
    assert found.step == 5
    assert "link" in skipped[0].reason
    kept = sorted(os.listdir(elsewhere))
    finish(run, steps=20)
    assert sorted(os.listdir(elsewhere)) == kept
    assert not (run / "checkpoints" / "step-00000010").is_symlink()
    assert not list((run / "checkpoints").glob(".tmp-*"))


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_weights_that_are_no_file_neither_hang_nor_load(run, tmp_path, kind):
    model = run / "model.safetensors"
    model.rename(tmp_path / "weights")
    os.mkfifo(model) if kind == "pipe" else model.symlink_to(tmp_path / "weights")
    with pytest.raises(RunError, match="cannot be read \\(is a"):
        load_weights(model)
    assert verify_run(RunFolder(run))[0].state == "damaged"
    finish(run, steps=10)  # puts the export back
    assert load_weights(model)[1]["step"] == 10


@pytest.mark.parametrize("name", ["manifest.json", "model.safetensors", "state.json"])
def test_a_pipe_inside_a_checkpoint_is_passed_over(run, name):
    path = run / "checkpoints" / "step-00000010" / name
    path.unlink()
    os.mkfifo(path)
    found, skipped = CheckpointFolder(run / "checkpoints").newest()
    assert found.step == 5
    assert f"{name} cannot be read (is a named pipe" in skipped[0].reason


def test_reading_a_journal_follows_no_link(run, tmp_path):
    (tmp_path / "secret").write_bytes(b'{"step": 1}\n')
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").symlink_to(tmp_path / "secret")
    with pytest.raises(RunError, match="is a link"):
        list(read_journal(run / "metrics.jsonl"))


def test_a_journal_of_one_endless_line_is_not_held_in_memory(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with path.open("wb") as file:
        file.truncate(1 << 30)  # a gibibyte of zeros that takes no room
    with pytest.raises(RunError, match=r"metrics.jsonl:1: not a line of a journal"):
        list(read_journal(path))


def test_weights_of_a_checkpoint_are_no_export(run):
    shutil.copy(run / "checkpoints" / "step-00000010" / "model.safetensors", run / "model.safetensors")
    verdict = verify_run(RunFolder(run))[0]
    assert (verdict.state, "facts.files" in verdict.detail) == ("damaged", True)
    with pytest.raises(RunError, match=r"facts\.files"):
        RunFolder(run).load_model()


def test_weights_belong_to_a_tokenizer_or_to_none(tmp_path):
    """X7: a tokenizer put beside weights that name none is not theirs."""
    run = RunFolder.create(tmp_path / "run")
    run.write("config.json", "{}")
    run.model.write_bytes(pack({"w": torch.zeros(1)}, facts={"files": run.fingerprints(), "step": 1}))
    run.load_model()
    run.write("tokenizer.json", "{}")
    with pytest.raises(RunError, match=r"tokenizer.json: is not the one these weights were trained with"):
        run.load_model()
    run.model.write_bytes(pack({"w": torch.zeros(1)}, facts={"step": 1}))
    with pytest.raises(RunError, match=r"model.safetensors: damaged \(facts.files: field required\)"):
        run.load_model()


def test_a_run_that_was_only_prepared_can_be_trained(tmp_path):
    """Nothing but the lock of a killed process is there."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "lock").write_text('{"host": "gone", "pid": 1, "started": null}')
    RunFolder.create(tmp_path / "run")
    toy_trainer(tmp_path / "run", steps=2).run()


def test_a_run_killed_before_its_config_needs_no_force(tmp_path):
    (tmp_path / "run" / "data").mkdir(parents=True)
    for name, content in {"tokenizer.json": "{}", "data/train.npz": "half", ".tmp-1": "half"}.items():
        (tmp_path / "run" / name).write_text(content)
    with pytest.raises(RunError, match="is not empty"):  # nothing says that a run of ours left it
        RunFolder.create(tmp_path / "run")
    (tmp_path / "run" / "lock").write_text('{"host": "gone", "pid": 1, "started": null}')
    (tmp_path / "run" / "thesis.txt").write_text("years of work")
    with pytest.raises(RunError, match="is not empty"):
        RunFolder.create(tmp_path / "run")
    (tmp_path / "run" / "thesis.txt").unlink()
    RunFolder.create(tmp_path / "run")
    assert sorted(os.listdir(tmp_path / "run")) == ["data"]
