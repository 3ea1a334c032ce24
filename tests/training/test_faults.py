"""X12, C2, C3: the n-th call to the disk fails, for every n; the power goes at every change. Resume finds a whole state.

Each with checkpoints written at their step and in the background.
"""

from __future__ import annotations

import errno
import functools
import os
import shutil

import pytest
import torch
from fault_disk import Failing, Recording, crashes
from training_toy import Heard, finish, outcome, toy_trainer

from anaphora.errors import AnaphoraError
from anaphora.training.checkpoint import CheckpointFolder
from anaphora.training.run import RunFolder
from anaphora.training.verify import verify_run
from anaphora.training.weights import load_weights
from sweeps import sweep

OPTIONS = {"steps": 6, "save_every": 2, "valid_every": 3, "log_every": 2, "keep": 2, "keep_best": 1}
WAYS = ("at its step", "in the background")
ERRORS = {
    "EIO": errno.EIO,
    "ENOSPC": errno.ENOSPC,
    "EINTR": errno.EINTR,
    "ENOMEM": errno.ENOMEM,
    "short": None,
}


def whole(folder, background=False):
    """The toy run from its beginning, or from where it stands, to its end."""
    RunFolder.create(folder) if not os.path.isdir(folder) else None
    return finish(folder, save_in_background=background, **OPTIONS)


@pytest.fixture(params=WAYS)
def work(request):
    return functools.partial(whole, background=request.param != "at its step")


def score(folder):
    """Everything that only reads."""
    tensors, facts = load_weights(folder / "model.safetensors")
    return {name: value.sum().item() for name, value in tensors.items()}, facts, verify_run(RunFolder(folder))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    whole(folder)
    return folder


@pytest.fixture(scope="module")
def halfway(tmp_path_factory):
    """A run that was interrupted after its second checkpoint."""
    folder = tmp_path_factory.mktemp("halfway") / "run"
    RunFolder.create(folder)

    class Stopper(Heard):
        def saved(self, step, path):
            if step == 4:
                trainer.interrupts.asked = True

    trainer = toy_trainer(folder, reporter=Stopper(), **OPTIONS)
    assert trainer.run().steps in (4, 5)
    return folder


def count(work, folder) -> int:
    with Failing(folder) as disk:
        work(folder)
    return disk.count


def fail_once(work, folder, number, error):
    """What a call that fails does: a sentence, or nothing."""
    problem: Exception | None = None
    with Failing(folder, number, error) as disk:
        try:
            work(folder)
        except (AnaphoraError, OSError) as raised:
            problem = raised
    assert "\n" not in str(problem)
    assert not isinstance(problem, OSError) or problem.filename, "the command needs a name for its sentence"
    return disk.failed


def fail_at(work, start, expected, tmp_path, numbers, error):
    points = 0
    for number in numbers:
        folder = tmp_path / "run"
        shutil.rmtree(folder, ignore_errors=True)
        steps = 0
        if start is not None:
            shutil.copytree(start, folder)
            steps = CheckpointFolder(folder / "checkpoints").newest()[0].step
        if not fail_once(work, folder, number, error):
            break
        points += 1
        kept = CheckpointFolder(folder / "checkpoints").newest()[0] if folder.exists() else None
        assert not steps or (kept is not None and kept.step >= steps), (number, error)
        work(folder)
        assert outcome(folder) == expected, (number, error)
        assert not list(folder.rglob(".tmp-*")), (number, error)
    return points


def sampled(total, most):
    return range(1, total + 1, max(1, total // most))


@pytest.mark.parametrize("error", ERRORS)
def test_some_calls_fail(work, undisturbed, halfway, tmp_path, error):
    """The quick part: some numbers, spread over the whole training and the whole of a resumption."""
    expected = outcome(undisturbed)
    total = count(work, tmp_path / "counted")
    assert fail_at(work, None, expected, tmp_path, sampled(total, sweep(2, 4)), ERRORS[error]) >= 2
    shutil.copytree(halfway, tmp_path / "again")
    total = count(work, tmp_path / "again")
    assert fail_at(work, halfway, expected, tmp_path, sampled(total, sweep(2, 4)), ERRORS[error]) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("start", ["train", "resume"])
def test_every_call_fails(work, undisturbed, halfway, tmp_path, error, start, capsys):
    expected = outcome(undisturbed)
    points = fail_at(
        work, halfway if start == "resume" else None, expected, tmp_path, range(1, 100_000), ERRORS[error]
    )
    assert points > 100
    with capsys.disabled():
        way = WAYS[work.keywords["background"]]
        print(f"\n{start}, {error}, {way}: {points} calls failed in turn, 0 losses")


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("most", [20, pytest.param(10**6, marks=pytest.mark.slow)])
def test_calls_fail_while_a_run_is_only_read(undisturbed, tmp_path, error, most, capsys):
    """Loading gives the right numbers or a sentence; nothing changes on the disk."""
    shutil.copytree(undisturbed, tmp_path / "run")
    before, numbers = outcome(undisturbed), score(undisturbed)[:2]
    total = count(score, tmp_path / "run")
    for number in sampled(total, most):
        found: list[tuple] = []
        read = functools.partial(lambda found, folder: found.append(score(folder)), found)
        assert fail_once(read, tmp_path / "run", number, ERRORS[error])
        assert found == [] or found[0][:2] == numbers
    assert outcome(tmp_path / "run") == before
    if most > total:
        with capsys.disabled():
            print(f"\nreading, {error}: {total} calls failed in turn, 0 wrong numbers")


def recorded(folder, background=False):
    folder.mkdir()
    with Recording(folder) as disk:
        RunFolder.create(folder / "run")
        real = CheckpointFolder.save

        def save(self, step, *given, **options):
            path = real(self, step, *given, **options)
            disk.note("mark", step)
            return path

        CheckpointFolder.save = save
        try:
            finish(folder / "run", save_in_background=background, **OPTIONS)
        finally:
            CheckpointFolder.save = real
    return disk.log


def lose_power(log, points, expected, tmp_path, seed, ends, background=False):
    cases = 0
    for point, how, folder, mark in crashes(log, points, tmp_path, seed):
        cases += 1
        run = folder / "run"
        newest = CheckpointFolder(run / "checkpoints").newest()[0] if run.is_dir() else None
        assert mark is None or (newest is not None and newest.step >= mark), (point, how, mark)
        if (point + cases) % ends == 0:
            heard = Heard()
            run.mkdir(exist_ok=True)
            trainer = toy_trainer(run, reporter=heard, save_in_background=background, **OPTIONS)
            trainer.resume()
            trainer.run()
            assert outcome(run) == expected, (point, how)
            assert not [text for text in heard.warned if "incomplete" in text], (point, how, heard.warned)
    return cases


@pytest.fixture(params=WAYS)
def background(request):
    return request.param != "at its step"


def test_the_recording_is_what_is_on_the_disk(background, tmp_path):
    log = recorded(tmp_path / "disk", background)
    _, how, folder, mark = next(crashes(log, range(len(log), len(log) + 1), tmp_path, 1))
    assert how == "kept"
    assert mark == 6
    there = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    kept = tmp_path / "disk"
    assert there == {path.relative_to(kept): path.read_bytes() for path in kept.rglob("*") if path.is_file()}


def test_the_power_goes_at_some_changes(background, undisturbed, tmp_path):
    log = recorded(tmp_path / "disk", background)
    points = range(1, len(log) + 1, 7)
    assert lose_power(log, points, outcome(undisturbed), tmp_path, 3, 9, background) > 80


@pytest.mark.slow
def test_the_power_goes_at_every_change(background, undisturbed, tmp_path, capsys):
    log = recorded(tmp_path / "disk", background)
    points = range(1, len(log) + 1)
    cases = lose_power(log, points, outcome(undisturbed), tmp_path, 5, 1, background)
    with capsys.disabled():
        print(f"\n{WAYS[background]}: {len(log)} changes, {cases} power losses, 0 losses of a saved state")
