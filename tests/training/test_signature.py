"""Signed runs: what `verify --key` finds, and what a stranger without the key cannot do."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from anaphora.cli import main
from anaphora.errors import RunError
from anaphora.tasks.verify import verify_run
from anaphora.training.run import RunFolder
from anaphora.training.signature import NAME, Key, check, sign

GOLDEN = Path(__file__).parents[1] / "tasks" / "golden_runs" / "format-1"


@pytest.fixture
def run(tmp_path):
    shutil.copytree(GOLDEN, tmp_path / "run")
    return RunFolder(tmp_path / "run")


@pytest.fixture
def key(tmp_path):
    (tmp_path / "key").write_text("0123456789abcdef0123456789abcdef\n")
    return tmp_path / "key"


def found(run, key):
    return dict(check(run, key)[1])


def test_a_signed_run_is_as_it_was_signed(run, key):
    signed = sign(run, key)
    assert set(signed.files) == {
        path.relative_to(GOLDEN).as_posix() for path in GOLDEN.rglob("*") if path.is_file()
    } - {"lock"}
    assert found(run, key) == {}
    assert all(finding.fine for finding in verify_run(run.path, key=key))
    assert sign(run, key) == signed  # the signature is not among what it signs


def test_each_change_is_named(run, key):
    sign(run, key)
    (run.path / "samples.jsonl").write_text("{}\n")
    (run.path / "checkpoints" / "extra").write_text("x")
    run.card.unlink(missing_ok=True)
    run.metrics.unlink()
    changed = found(run, key)
    assert changed["metrics.jsonl"] == "was removed after the run was signed"
    assert changed["checkpoints/extra"] == "was added after the run was signed"
    assert changed["samples.jsonl"].split(" after")[0] in ("was added", "was changed")
    with run.config.open("a") as file:
        file.write(" ")
    assert found(run, key)["config.json"] == "was changed after the run was signed"


def test_wrong_key_missing_and_changed_signatures(run, key, tmp_path):
    assert "is not signed" in found(run, key)[NAME]
    sign(run, key)
    other = tmp_path / "other"
    other.write_text("another secret of some length")
    assert "another key" in found(run, other)[NAME]
    path = run.path / NAME
    whole = json.loads(path.read_text())
    for change, reason in {
        "signature": "does not fit the key",
        "files": "does not fit the key",
    }.items():
        document = json.loads(json.dumps(whole))
        if change == "signature":
            document["signature"] = "0" * 64
        else:  # a stranger exchanges a file and its hash
            document["files"]["config.json"][0] = "f" * 64
        path.write_text(json.dumps(document))
        assert reason in found(run, key)[NAME]
    for field, wrong in [("files", []), ("files", {"a": [1, 2]}), ("signature", 5), ("format", 2), ("algorithm", "none"), ("key", None), ("more", 1)]:  # fmt: skip
        path.write_text(json.dumps({**whole, field: wrong}))
        assert "is damaged" in found(run, key)[NAME]
    path.write_text("[" * 100_000)
    assert "nested too deeply" in found(run, key)[NAME]
    path.unlink()
    path.symlink_to(key)
    assert "is a link" in found(run, key)[NAME]


def test_links_and_pipes_in_a_run_are_not_signed(run, key):
    os.mkfifo(run.path / "pipe")
    with pytest.raises(RunError, match=r"pipe: cannot be read \(is a named pipe"):
        sign(run, key)
    (run.path / "pipe").unlink()
    sign(run, key)
    (run.path / "link").symlink_to("/etc/passwd")
    assert "is a link" in found(run, key)[NAME]


@pytest.mark.parametrize(
    ("content", "reason"), [(b"short\n", "too short"), (b"x" * 5000, "no such file of more than"), (None, "no such file or directory")]
)  # fmt: skip
def test_keys_that_are_none(tmp_path, content, reason):
    if content is not None:
        (tmp_path / "key").write_bytes(content)
    with pytest.raises(RunError, match=reason):
        Key.read(tmp_path / "key")


def test_a_key_inside_the_run_is_refused(run, key):
    shutil.copy(key, run.path / "key")
    with pytest.raises(RunError, match="lies inside the run"):
        sign(run, run.path / "key")


def test_a_run_that_trains_is_not_signed(run, key):
    with RunFolder(run.path).lock(), pytest.raises(RunError, match="lock"):
        sign(run, key)


def test_the_secret_is_in_no_file_and_no_repr(run, key):
    sign(run, key)
    assert "0123456789abcdef" not in (run.path / NAME).read_text()
    assert "0123456789abcdef" not in repr(Key.read(key))


def test_the_commands(run, key, capsys, tmp_path):
    assert main.run(["sign", str(run.path), "--key", str(key)]) == 0
    assert "with the key" in capsys.readouterr().out
    assert main.run(["verify", str(run.path), "--key", str(key), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["signed"] is True
    run.card.write_text("something else")
    assert main.run(["verify", str(run.path), "--key", str(key), "--json"]) == 2
    report = json.loads(capsys.readouterr().out)
    assert report["signed"] is False
    assert "README.md" in [f["file"] for f in report["files"] if not f["fine"]]
    assert main.run(["verify", str(run.path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["signed"] is None
    assert "not checked" in report["files"][0]["text"]
    for words in (["sign", str(run.path)], ["verify", str(run.path), "--key", str(tmp_path / "none")]):
        assert main.run(words) == 2
