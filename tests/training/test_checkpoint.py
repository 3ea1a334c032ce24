"""C4: whatever happens to the newest checkpoint's files, it is noticed and named, and the one before is used."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil

import pytest
import torch
from training_toy import Heard, finish, outcome, toy_trainer

from anaphora.errors import RunError
from anaphora.files.parsing import canonical
from anaphora.training import checkpoint as module
from anaphora.training.checkpoint import CheckpointFolder, Unusable, read, verify
from anaphora.training.verify import verify_run
from anaphora.training.weights import pack


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    finish(folder, steps=20)
    return folder


@pytest.fixture
def run(original, tmp_path):
    shutil.copytree(original, tmp_path / "run")
    return tmp_path / "run"


def newest(run):
    return max((run / "checkpoints").glob("step-*"))


def reseal(checkpoint):
    """A manifest that agrees with the files, as a program other than ours might write."""
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in checkpoint.iterdir()
        if path.name != "manifest.json"
    }
    manifest = {"format": 1, "step": int(checkpoint.name[5:]), "files": files}
    manifest["sha256"] = hashlib.sha256(canonical(manifest).encode()).hexdigest()
    (checkpoint / "manifest.json").write_text(canonical(manifest))


def expect_the_one_before(run, reason):
    found, skipped = CheckpointFolder(run / "checkpoints").newest()
    assert found.step == 15
    assert [one.path.name for one in skipped] == ["step-00000020"]
    assert reason in skipped[0].reason
    assert "\n" not in skipped[0].reason


def test_the_newest_is_used_when_nothing_is_wrong(run):
    found, skipped = CheckpointFolder(run / "checkpoints").newest()
    assert (found.step, skipped) == (20, [])


FILES = ["model.safetensors", "optimizer.safetensors", "best.safetensors", "state.json", "manifest.json"]


@pytest.mark.parametrize("name", FILES)
def test_truncation_at_each_64th(run, name):
    path = newest(run) / name
    content = path.read_bytes()
    for part in range(64):
        path.write_bytes(content[: len(content) * part // 64])
        expect_the_one_before(run, name)


@pytest.mark.parametrize("name", FILES)
def test_flipped_bits(run, name):
    draw = random.Random(name)
    path = newest(run) / name
    content = path.read_bytes()
    for _ in range(200):
        broken = bytearray(content)
        broken[draw.randrange(len(broken))] ^= 1 << draw.randrange(8)
        path.write_bytes(broken)
        with pytest.raises(Unusable):
            verify(newest(run))


@pytest.mark.parametrize("name", FILES)
def test_missing_and_zeroed_files(run, name):
    path = newest(run) / name
    content = path.read_bytes()
    path.write_bytes(bytes(min(4096, len(content))) + content[4096:])
    expect_the_one_before(run, name)
    path.unlink()
    expect_the_one_before(run, f"{name} is missing")


def test_two_files_swapped(run):
    a, b = newest(run) / "model.safetensors", newest(run) / "best.safetensors"
    one, two = a.read_bytes(), b.read_bytes()
    a.write_bytes(two)
    b.write_bytes(one)
    expect_the_one_before(run, "best.safetensors has")


def test_two_checkpoints_swapped(run):
    folder = run / "checkpoints"
    (folder / "step-00000020").rename(folder / "aside")
    (folder / "step-00000015").rename(folder / "step-00000020")
    (folder / "aside").rename(folder / "step-00000015")
    found, skipped = CheckpointFolder(folder).newest()
    assert found is None
    assert [one.reason for one in skipped] == [
        "its manifest is that of step 15",
        "its manifest is that of step 20",
    ]


def test_a_newer_format(run, monkeypatch):
    manifest = json.loads((newest(run) / "manifest.json").read_text())
    (newest(run) / "manifest.json").write_text(canonical({**manifest, "format": 2}))
    expect_the_one_before(run, "format 2 by a newer anaphora")
    monkeypatch.setattr(module, "FORMAT", 2)  # the newer program itself; the seal is still wrong for it
    expect_the_one_before(run, "manifest.json is damaged")


def test_links_are_refused(run):
    path = newest(run) / "model.safetensors"
    path.rename(run / "elsewhere")
    path.symlink_to(run / "elsewhere")
    expect_the_one_before(run, "not a plain file")


def test_a_name_that_leaves_the_folder_is_refused(run):
    manifest = json.loads((newest(run) / "manifest.json").read_text())
    del manifest["sha256"]
    manifest["files"]["../../config.json"] = manifest["files"]["state.json"]
    manifest["sha256"] = hashlib.sha256(canonical(manifest).encode()).hexdigest()
    (newest(run) / "manifest.json").write_text(canonical(manifest))
    expect_the_one_before(run, "manifest.json is damaged")


def test_nan_weights_in_a_sealed_checkpoint(run):
    tensors = read(newest(run)).tensors["model"]
    tensors["middle.bias"][3] = float("nan")
    (newest(run) / "model.safetensors").write_bytes(pack(tensors, facts={"step": 20}))
    reseal(newest(run))
    expect_the_one_before(run, "middle.bias holds NaN or infinity")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.update({"middle.bias": torch.zeros(9)}), "middle.bias is (9,)"),
        (lambda t: t.update({"middle.bias": torch.zeros(8, dtype=torch.float64)}), "float64"),
        (lambda t: t.pop("middle.bias"), "middle.bias is in one of them only"),
        (lambda t: t.update({"more": torch.zeros(1)}), "more is in one of them only"),
    ],
)
def test_a_sealed_checkpoint_of_another_model(run, change, reason):
    tensors = read(newest(run)).tensors["model"]
    change(tensors)
    (newest(run) / "model.safetensors").write_bytes(pack(tensors, facts={"step": 20}))
    reseal(newest(run))
    heard = Heard()
    assert toy_trainer(run, reporter=heard).resume() == 15
    assert reason in heard.warned[0]
    assert "another model" in heard.warned[0]


def test_a_resumed_run_says_what_it_skipped_and_ends_the_same(run, original):
    path = newest(run) / "optimizer.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    heard = Heard()
    finish(run, steps=20, reporter=heard)
    assert len(heard.warned) == 1
    assert "step-00000020: skipped, optimizer.safetensors has" in heard.warned[0]
    assert heard.said[0].endswith("goes on from the checkpoint of step 15.")
    assert outcome(run) == outcome(original)
    assert read(newest(run)).step == 20  # the damaged one was replaced


def test_when_all_are_damaged_nothing_is_trained_over_them(run):
    for checkpoint in (run / "checkpoints").iterdir():
        (checkpoint / "manifest.json").unlink()
    with pytest.raises(RunError, match=r"none of its 2 checkpoints can be used .*manifest.json is missing"):
        toy_trainer(run).resume()


def test_only_the_newest_are_kept(tmp_path):
    finish(tmp_path / "run", keep=3)
    assert sorted(os.listdir(tmp_path / "run" / "checkpoints")) == [f"step-{n:08d}" for n in (50, 55, 60)]


def test_a_damaged_newer_checkpoint_does_not_push_out_good_ones(tmp_path):
    store = CheckpointFolder(tmp_path / "checkpoints")
    for step in (10, 20, 40):
        store.save(step, [("a", b"x")], keep=5)
    (tmp_path / "checkpoints" / "step-00000040" / "a").unlink()
    store.save(30, [("a", b"x")], keep=2)  # went on from 20
    assert sorted(step for step, _ in store.steps()) == [20, 30, 40]


def test_verify_run(run):
    from anaphora.training.run import RunFolder

    verdicts = {v.name: v for v in verify_run(RunFolder(run))}
    assert {v.state for v in verdicts.values()} == {"good"}
    assert set(verdicts) == {
        "model.safetensors",
        "checkpoints/step-00000015",
        "checkpoints/step-00000020",
        "metrics.jsonl",
        "samples.jsonl",
        "timings.jsonl",
    }
    for name in ("model.safetensors", "checkpoints/step-00000015/state.json", "metrics.jsonl"):
        content = bytearray((run / name).read_bytes())
        content[len(content) // 2] ^= 0x80
        (run / name).write_bytes(content)
    verdicts = {v.name: v.state for v in verify_run(RunFolder(run))}
    damaged = {name for name, state in verdicts.items() if state == "damaged"}
    assert damaged == {"model.safetensors", "checkpoints/step-00000015", "metrics.jsonl"}


def test_verify_misses_the_weights_of_a_run_that_has_saved(run):
    from anaphora.training.run import RunFolder

    whole = (run / "model.safetensors").read_bytes()
    (run / "model.safetensors").unlink()
    verdict = verify_run(RunFolder(run))[0]
    assert (verdict.name, verdict.state) == ("model.safetensors", "damaged")
    assert "anaphora resume" in verdict.detail
    finish(run, steps=20)  # resuming a finished run does put them back
    assert (run / "model.safetensors").read_bytes() == whole
    shutil.rmtree(run / "checkpoints")
    (run / "model.safetensors").unlink()
    assert verify_run(RunFolder(run))[0].state == "missing"  # a run that has only begun


def test_the_order_of_a_save_survives_a_power_cut(tmp_path, monkeypatch):
    """What was not fsynced may be lost, so nothing may depend on a write that has not been waited for."""
    events = []

    def name(path):
        return "aside" if os.path.basename(path).startswith(".tmp-") else os.path.basename(path)

    def watch(function, label):
        def watched(*arguments):
            target = (
                os.readlink(f"/proc/self/fd/{arguments[0]}")
                if isinstance(arguments[0], int)
                else arguments[0]
            )
            events.append(f"{label} {name(target)}")
            return function(*arguments)

        return watched

    store = CheckpointFolder(tmp_path / "checkpoints")
    store.save(1, [("a", b"x")], keep=1)
    for label in ("write", "fsync", "rename"):
        monkeypatch.setattr(os, label, watch(getattr(os, label), label))
    store.save(2, [("a", b"x"), ("b", b"y")], keep=1)
    assert events == [
        "write a",
        "fsync a",
        "write b",
        "fsync b",
        "write manifest.json",
        "fsync manifest.json",
        "fsync aside",
        "rename aside",
        "fsync checkpoints",
        "rename step-00000001",  # the old one goes only now
    ]
