"""X3, F3: one odd run is shown as broken, all others as before; bounded reads, a deadline that frees the worker."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import threading
import tracemalloc

import pytest

import own_loop
from anaphora.errors import AnaphoraError
from anaphora.files import opening
from anaphora.probe.history import history
from anaphora.studio import runs as module
from anaphora.studio import worker as work
from anaphora.studio.app import Studio
from anaphora.studio.starting import Starter
from anaphora.studio.worker import Worker

CONFIG = {"format": 1, "task": "translate", "settings": {"model": "lstm", "steps": 40}, "data": {}}
ROW = {"step": 40, "dev": {"bleu": 21.5}, "best": True}


def make(folder, config=CONFIG, rows=(ROW,)):
    os.makedirs(folder)
    with open(
        os.path.join(folder, os.fsencode("config.json") if isinstance(folder, bytes) else "config.json"), "w"
    ) as file:
        file.write(config if isinstance(config, str) else json.dumps(config))
    name = os.path.join(folder, b"metrics.jsonl" if isinstance(folder, bytes) else "metrics.jsonl")
    with open(name, "w") as file:
        file.writelines((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    return folder


def listed(folder):
    """The answer to a page that asks for the runs, by name."""
    answer = own_loop.run(Studio([folder], Starter(folder, allowed=False)).list_runs(None))
    assert answer.status_code == 200
    return {run["name"]: run for run in json.loads(answer.body)}


ODD = {
    "pid": lambda path: (path / "lock").write_text(
        f'{{"host": "{os.uname()[1]}", "pid": {10**30}, "started": "x"}}'
    ),
    "nan steps": lambda path: (path / "config.json").write_text('{"task": "x", "settings": {"steps": NaN}}'),
    "nan value": lambda path: (path / "metrics.jsonl").write_text('{"step": 1, "dev": {"bleu": NaN}}\n'),
    "huge number": lambda path: (path / "metrics.jsonl").write_text('{"step": 1, "dev": {"bleu": 1e999}}\n'),
    "surrogate": lambda path: (path / "config.json").write_text('{"task": "\\ud800", "settings": {}}'),
    "surrogate measure": lambda path: (path / "metrics.jsonl").write_text(
        '{"step": 1, "dev": {"\\udfff": 1}}\n'
    ),
    "deep config": lambda path: (path / "config.json").write_text('{"task": ' + "[" * 100_000),
    "deep metrics": lambda path: (path / "metrics.jsonl").write_text('{"dev": ' + "[" * 60_000 + "\n"),
    "lists": lambda path: (path / "config.json").write_text(
        '{"task": [], "settings": {"model": {}, "steps": []}}'
    ),
    "not utf-8": lambda path: (path / "config.json").write_bytes(b'{"task": "\xff\xfe"}'),
    "large config": lambda path: (path / "config.json").write_text('{"task": "' + "x" * (1 << 20) + '"}'),
    "zeros": lambda path: os.truncate(path / "metrics.jsonl", 1 << 34),
}


@pytest.mark.parametrize("how", ODD)
def test_an_odd_run_leaves_the_others_as_they_are(tmp_path, how):
    make(tmp_path / "good")
    before = listed(tmp_path)["good"]
    make(tmp_path / "odd")
    ODD[how](tmp_path / "odd")
    after = listed(tmp_path)
    assert after["good"] == before
    assert before["measures"] == {"bleu": 21.5}
    assert "odd" in after


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "lock", "model.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_a_file_that_is_none(tmp_path, name, kind):
    make(tmp_path / "good")
    path = make(tmp_path / "odd") / name
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    found = listed(tmp_path)
    assert found["good"]["measures"] == {"bleu": 21.5}
    if name == "config.json" and kind == "folder":
        assert "odd" not in found
    elif name in ("config.json", "metrics.jsonl"):
        assert f"{name} cannot be read (is a" in found["odd"]["broken"]
    else:
        assert found["odd"]["broken"] == ""


def test_a_name_that_is_not_utf_8(tmp_path):
    make(os.fsencode(tmp_path) + b"/caf\xe9")
    make(tmp_path / "café ☃")
    assert set(listed(tmp_path)) == {"caf\\xe9", "café ☃"}


def count_reads(monkeypatch):
    opened = []
    real = opening._opened

    def counted(path, *given, **options):
        opened.append(os.path.basename(path))
        return real(path, *given, **options)

    monkeypatch.setattr(opening, "_opened", counted)
    return opened


def test_files_are_read_once_until_they_change(tmp_path, monkeypatch):
    for number in range(300):
        make(tmp_path / f"run-{number}")
    opened = count_reads(monkeypatch)
    runs = module.Runs([tmp_path])
    assert len(runs.list()) == 300
    assert opened.count("config.json") == 300
    assert opened.count("metrics.jsonl") == 300
    del opened[:]
    assert len(runs.list()) == 300
    assert opened == []
    with (tmp_path / "run-7" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 41, "dev": {"bleu": 30.0}}) + "\n")
    (found,) = [run for run in runs.list() if run["name"] == "run-7"]
    assert found["measures"] == {"bleu": 30.0}
    assert [name for name in opened if name != "lock"] == ["config.json", "metrics.jsonl", "timings.jsonl"]
    before = runs.stamps()
    del opened[:]
    runs.stamps()
    assert opened == []
    os.utime(tmp_path / "run-9" / "metrics.jsonl", (1, 1))
    assert sum(before[key] != stamp for key, stamp in runs.stamps().items()) == 1


def test_more_than_ten_thousand_runs_may_be_listed():
    assert module.MOST_RUNS > 10_000


def test_a_long_journal_is_read_in_pieces(tmp_path, monkeypatch):
    """A curve from its beginning to its end, of which an eighth is read."""
    monkeypatch.setattr(sys.modules[history.__module__], "MOST_BYTES", 1 << 20)
    folder = make(tmp_path / "long", rows=())
    line = (
        '{"step": %d, "epoch": 0, "symbols": 1, "loss": 1.0, "lr": 0.1, "grad_norm": 1.0, "clipped": 0.0}\n'
    )
    with (folder / "metrics.jsonl").open("w") as file:
        for start in range(0, 80_000, 1000):
            file.write("".join(line % step for step in range(start, start + 1000)))
    tracemalloc.start()
    try:
        steps = [row["step"] for row in history(folder).tables["steps"]]
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 16 << 20
    assert len(steps) < 20_000
    assert steps == sorted(steps)
    assert steps[0] == 0
    assert steps[-1] == 79_999
    assert max(later - earlier for earlier, later in itertools.pairwise(steps)) < 3000


# ---------------------------------------------------------------- the worker


async def lose_a_thread(worker, stuck):
    """Jobs that hang until the worker gives up their thread: on a busy machine the first may begin too late to be blamed."""
    before = len(worker._lost)
    while len(worker._lost) == before:
        with pytest.raises(AnaphoraError, match=f"took longer than {worker._deadline:g}"):
            await worker.do(stuck.wait)


def test_a_job_that_hangs_loses_its_thread_and_not_the_server():
    stuck = threading.Event()
    lost = []

    async def talk():
        worker = Worker("test", 1.0, lambda: lost.append(1))
        await lose_a_thread(worker, stuck)
        worker._deadline = 60.0  # the others take as long as a busy machine does
        assert await worker.do(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            await worker.do(lambda: 1 / 0)
        return worker

    worker = own_loop.run(talk())
    assert lost == [1]
    assert len(worker._lost) == 1
    stuck.set()
    worker._lost[0].join(60)
    assert not worker._lost[0].is_alive()


def test_a_job_that_only_waited_does_not_cost_the_thread_of_another():
    begun, go = threading.Event(), threading.Event()

    def job():
        begun.set()
        go.wait(60)
        return "first"

    async def talk():
        worker = Worker("test", 600.0)
        first = asyncio.create_task(worker.do(job))
        assert await asyncio.to_thread(begun.wait, 60)
        lane = worker._lane
        worker._free(lane)  # another job ran out of its own time while the first had just begun
        assert worker._lane is lane
        go.set()
        return await first

    assert own_loop.run(talk()) == "first"


def test_no_more_threads_are_lost_than_a_few(monkeypatch):
    monkeypatch.setattr(work, "MOST_LOST", 2)
    stuck = threading.Event()

    async def talk():
        worker = Worker("test", 0.5)
        for _ in range(2):
            await lose_a_thread(worker, stuck)
        with pytest.raises(AnaphoraError, match="several runs cannot be read in time"):
            await worker.do(lambda: 1)
        stuck.set()
        for lane in worker._lost:
            lane.join(60)
        worker._deadline = 60.0
        assert await worker.do(lambda: 1) == 1

    own_loop.run(talk())


def test_numbers_and_texts_that_json_does_not_know_are_sent_all_the_same():
    from anaphora.studio.app import _json

    assert json.loads(_json({"a": float("nan"), "b": "half \ud800"}).body) == {"a": None, "b": "half \ud800"}
