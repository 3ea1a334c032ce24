"""X5, F5: files of a checkpoint with sound checksums and unsound content: damaged, the field is named, the one before used."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from test_checkpoint import reseal
from training_toy import Heard, finish, toy_trainer

from anaphora.errors import RunError
from anaphora.training import weights
from anaphora.training.checkpoint import CheckpointFolder, Unusable, _state
from anaphora.training.journal import read_journal
from anaphora.training.run import RunFolder
from anaphora.training.verify import verify_run
from anaphora.training.weights import KEY, load_weights, pack, unpack
from hostile_json import changed, places, variants


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resealed") / "run"
    finish(folder, steps=10, ema=0.9)
    return folder


@pytest.fixture
def run(original, tmp_path):
    shutil.copytree(original, tmp_path / "run")
    return tmp_path / "run"


def rewritten(run, name, content: bytes):
    newest = run / "checkpoints" / "step-00000010"
    (newest / name).write_bytes(content)
    reseal(newest)
    return newest


def refusal(work, *given):
    try:
        work(*given)
    except (Unusable, RunError) as reason:
        return str(reason)
    return None


def resumed(run):
    """The step that a run goes on from, and what it warned of."""
    heard = Heard()
    trainer = toy_trainer(run, steps=12, ema=0.9, reporter=heard)
    return trainer.resume(), heard.warned


def test_every_field_of_the_state(run):
    """Every place missing or of another type: refused with its name, or harmless; never anything else."""
    state = json.loads((run / "checkpoints" / "step-00000010" / "state.json").read_text())
    refused = 0
    for what, document in variants(state):
        reason = refusal(_state, json.dumps(document).encode())
        if reason:
            refused += 1
            assert what.split(" ")[0] in reason or "format" in reason, (what, reason)
    free = ("settings", "made_with")  # compared with the present ones, not used
    required = sum(path[0] not in free for path in places(state))
    assert refused > 8 * required


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("standing", "step"), 5),
        (("standing", "step"), "10"),
        (("standing", "best", "value"), None),
        (("standing", "surprise"), 1),
        (("health", "settings"), {}),
        (("scale", "factor"), 0.0),
        (("batches", "position"), "x"),
        (("batches",), {"another": 1}),
        (("journals", "metrics", "bytes"), -1),
        (("made_with", "world"), 0),
        (("progress",), []),
    ],
)
def test_an_unsound_state_is_passed_over_by_resume_and_named_by_verify(run, path, value):
    state = json.loads((run / "checkpoints" / "step-00000010" / "state.json").read_text())
    rewritten(run, "state.json", json.dumps(changed(state, path, value)).encode())
    step, warned = resumed(run)
    assert step == 5
    assert "step-00000010: skipped" in warned[0]
    if path != ("batches",):  # what the batches of a task call their position is theirs
        (verdict,) = [one for one in verify_run(RunFolder(run)) if one.name.endswith("step-00000010")]
        assert verdict.state == "damaged"
        assert "state.json" in verdict.detail
        assert ".".join(path[:2]) in verdict.detail


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"format": 1' * 2000,
        b"\xff",
        b"null",
        b"[]",
        b"1e999",
        b'{"format": 12345678901234567890123}',
    ],
)
@pytest.mark.parametrize("name", ["manifest.json", "state.json"])
def test_json_that_no_program_of_ours_wrote(run, name, content):
    newest = run / "checkpoints" / "step-00000010"
    (newest / name).write_bytes(content)
    if name != "manifest.json":
        reseal(newest)
    found, skipped = CheckpointFolder(run / "checkpoints").newest()
    assert found.step == 5
    assert name in skipped[0].reason
    assert any(one.state == "damaged" for one in verify_run(RunFolder(run)))


def tensors_of(run, part):
    return load_weights(run / "checkpoints" / "step-00000010" / f"{part}.safetensors")


@pytest.mark.parametrize("part", ["model", "optimizer", "ema"])
@pytest.mark.parametrize("how", ["shape", "dtype", "gone", "more", "step", "scalar"])
def test_tensors_that_do_not_fit_are_passed_over(run, part, how):
    tensors, facts = tensors_of(run, part)
    name = sorted(name for name, value in tensors.items() if value.ndim)[0]
    if how == "shape":
        tensors[name] = torch.zeros(3, 3, 3)
    elif how == "dtype":
        tensors[name] = tensors[name].to(torch.int8)
    elif how == "gone":
        del tensors[name]
        if part == "optimizer":
            tensors = {"no.such.parameter/exp_avg": torch.zeros(1)}
    elif how == "more":
        tensors["another/one"] = torch.zeros(1)
    elif how == "step":
        facts = {"step": 7}
    elif how == "scalar":
        tensors[name] = torch.zeros((), dtype=torch.int64)
    rewritten(run, f"{part}.safetensors", pack(tensors, facts=facts))
    step, warned = resumed(run)
    assert step == 5, warned
    assert "skipped" in warned[0]


def test_every_field_of_the_note_and_the_facts(run):
    tensors, facts = load_weights(run / "model.safetensors")
    count = 0
    for what, document in variants(facts):
        (run / "model.safetensors").write_bytes(pack(tensors, facts=document))
        verdict = verify_run(RunFolder(run))[0]
        if verdict.state == "damaged":
            count += 1
            assert what.split(" ")[0].split(".")[0] in verdict.detail or "config.json" in verdict.detail, what
    assert count > 20
    header, body = split(pack(tensors, facts=facts))
    for what, document in variants(json.loads(header["__metadata__"][KEY])):
        header["__metadata__"][KEY] = json.dumps(document)
        with pytest.raises(RunError, match=r"model\.safetensors: .*damaged"):
            unpack(join(header, body), where="model.safetensors")
        assert what


def split(data):
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def join(header, body):
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + body


def test_a_note_that_ties_what_is_not_there(run):
    """The note's own hash is right: another program wrote it."""
    tensors, facts = load_weights(run / "model.safetensors")
    header, body = split(pack(tensors, facts=facts))
    kept = {name: tensors[name] for name in header if name != "__metadata__"}
    for tied in ({"a": "nowhere"}, {next(iter(kept)): next(iter(kept))}):
        head = {"format": 1, "facts": facts, "tied": tied}
        note = weights.canonical({**head, "sha256": weights._digest(head, kept)})
        header["__metadata__"][KEY] = note
        with pytest.raises(RunError, match="damaged \\(its note ties"):
            unpack(join(header, body), where="x")


def test_lines_of_journals(run):
    """Every field of a metrics line of another type is named with its line, or harmless."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    count = 0
    for line in lines:
        for what, document in variants(line):
            (run / "metrics.jsonl").write_text(json.dumps(lines[0]) + "\n" + json.dumps(document) + "\n")
            reason = refusal(lambda: list(read_journal(run / "metrics.jsonl")))
            if reason:
                count += 1
                assert "metrics.jsonl:2: " in reason
                assert what.split(" ")[0].split(".")[0] in reason
    assert count > 50
