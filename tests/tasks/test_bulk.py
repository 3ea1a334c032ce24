"""Any number of inputs: in order, from any number of processes, and into files that a killed command continues."""

from __future__ import annotations

import collections
import itertools
import json
import os
import random
import signal
import subprocess
import time
import warnings

import numpy as np
import pytest

import anaphora as an
from anaphora.cli import main
from anaphora.errors import AnaphoraError, DataError
from anaphora.tasks.bulk import engine
from anaphora.tasks.bulk.engine import Bulk
from anaphora.tasks.bulk.windows import LARGEST, PARTS, Item, in_parts, in_windows, item
from anaphora.tasks.bulk.workers import Workers
from sweeps import sweep
from warm_command import popen, run

WORDS = ["good", "bad", "fine", "poor", "film", "plot"]


def lines(count: int, seed: int = 1) -> list[str]:
    """Texts of 1 to 12 words, some empty."""
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randrange(13))) for _ in range(count)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A small classifier in a run folder."""
    folder = tmp_path_factory.mktemp("bulk") / "run"
    texts = [line for line in lines(60) if line]
    data = [(text, "yes" if "good" in text else "no") for text in texts]
    an.Classifier("lstm", hidden=4, embedding=4, steps=3, tokens="word", device="cpu").fit(data, out=folder)
    return folder


@pytest.fixture(scope="module")
def model(trained):
    return an.load(trained, an.Classifier)


@pytest.fixture
def small(monkeypatch):
    """Windows of 8 · 4 inputs."""
    monkeypatch.setattr(engine, "PART", 4)


# ---------------------------------------------------------------------- windows
def test_windows_end_where_the_inputs_say_whenever_they_arrive():
    items = [item("x" * n) for n in (1, 2, 3)] * 10
    assert [len(w) for w in in_windows(items, 1)] == [PARTS] * 3 + [30 - 3 * PARTS]
    large = [Item("a", LARGEST), Item("b"), Item("c", LARGEST - 1), Item("d")]
    assert [[one.given for one in w] for w in in_windows(large, 4)] == [["a"], ["b", "c"], ["d"]]
    assert item(np.zeros((3, 4))).size == 12


def test_what_comes_before_an_error_of_the_reader_is_handed_on():
    def reader():
        yield from (Item(1), Item(2))
        raise DataError("broken")

    windows = in_windows(reader(), 4)
    assert [one.given for one in next(windows)] == [1, 2]
    with pytest.raises(DataError, match="broken"):
        next(windows)


def test_parts_hold_inputs_of_about_equal_length_once_each():
    items = [Item(i, size) for i, size in enumerate([5, 1, 4, 1, 3])]
    assert in_parts(items, 2) == [[1, 3], [4, 2], [0]]


# ---------------------------------------------------------------------- answers
class Numbered:
    """Stands in for a model: the answer to a text is its number and itself backwards; ``asked`` holds the parts."""

    settings_ = an.Classifier().settings_

    def __init__(self):
        self.asked = []


def backwards(model, options):
    def answer(asked):
        model.asked.append([text for _, text in asked])
        for number, text in asked:
            if text == options.get("wrong"):
                raise DataError(f"input {number} is wrong")
            if len(text) > options.get("longest", 99):
                warnings.warn(f"{len(text)} letters are many", stacklevel=2)
            yield f"{number} {text[::-1]}"

    return answer


def test_answers_come_in_the_order_of_the_inputs_though_short_ones_are_answered_first():
    model = Numbered()
    texts = lines(100)
    bulk = Bulk(model, f"{__name__}:backwards", {}, part=4)
    found = list(bulk.answers(map(item, texts)))
    assert [len(w.items) for w in found] == [32, 32, 32, 4]
    assert all(w.whole for w in found)
    assert [a for w in found for a in w.answers] == [f"{i} {t[::-1]}" for i, t in enumerate(texts, 1)]
    sizes = [len(text) for part in model.asked[:8] for text in part]
    assert sizes == sorted(sizes)
    assert all(len(part) <= 4 for part in model.asked)


def test_answers_before_a_wrong_input_come_first_and_nothing_after_it():
    texts = [f"text {i}" for i in range(100)]
    bulk = Bulk(Numbered(), f"{__name__}:backwards", {"wrong": "text 50"}, part=4)
    found = []
    with pytest.raises(DataError, match="input 51 is wrong"):
        found.extend(bulk.answers(map(item, texts)))
    assert [len(w.answers) for w in found] == [32, 18]
    assert [w.whole for w in found] == [True, False]


def test_warnings_that_differ_in_numbers_alone_are_counted():
    bulk = Bulk(Numbered(), f"{__name__}:backwards", {"longest": 3}, part=4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        list(bulk.answers(item("x" * (3 + i % 3)) for i in range(70)))
    texts = [str(one.message) for one in caught]
    assert len(texts) == 2
    assert texts[0] == "4 letters are many"
    assert texts[1].startswith("the same in ")


def test_memory_holds_a_few_windows_however_many_inputs_there_are():
    read = 0

    def endless():
        nonlocal read
        for read in itertools.count(1):
            yield Item(str(read))

    answers = Bulk(Numbered(), f"{__name__}:backwards", {}, part=4).answers(endless())
    for done in range(1, 30):
        next(answers)
        assert read <= 32 * (done + 2)


def test_predict_each_gives_what_predict_gives(model, small):
    texts = [line for line in lines(80) if line]
    found = model.predict_each(iter(texts))
    assert iter(found) is found
    assert list(found) == model.predict(texts)
    detailed = list(model.predict_each(texts, details=True))
    assert [one.label for one in detailed] == model.predict(texts)


def test_another_process_gives_the_same_answers_and_a_killed_one_is_an_error(model, small, monkeypatch):
    """One other process, which takes seconds to start; the slow test below has two. A killed one is no hang."""
    texts = [line for line in lines(300) if line]
    alone = list(model.predict_each(texts, workers=1, details=True))
    started = []
    real = Workers.__init__
    monkeypatch.setattr(
        Workers, "__init__", lambda self, *given: started.append(self) or real(self, *given[:-1], 1)
    )
    sent, send = [], Workers.send
    monkeypatch.setattr(Workers, "send", lambda self, *given: sent.append(given) or send(self, *given))
    found = model.predict_each(itertools.cycle(texts), workers=2, details=True)
    first = [next(found)]
    while not started[0].idle:
        started[0].receive()
    first += [next(found) for _ in range(2 * len(texts) - 1)]
    assert len(sent) > 10  # parts of four inputs
    assert first == alone * 2
    (process,) = started[0]._processes.values()
    process.kill()
    with pytest.raises(AnaphoraError, match=r"has ended \(signal 9"):
        collections.deque(found, maxlen=0)
    assert not started[0]._processes


def test_a_forecaster_reads_whole_series():
    forecaster = an.Forecaster("var")
    forecaster.model_ = None
    with pytest.raises(AnaphoraError, match="reads its series whole"):
        forecaster.predict_each([1.0])
    with pytest.raises(DataError, match="one after the other"):
        list(an.Classifier.predict_each(trained_stub(), "text"))


def trained_stub():
    stub = an.Classifier()
    stub.model_ = None
    return stub


# ---------------------------------------------------------------------- files
def test_predict_to_writes_json_lines_and_goes_on(model, small, tmp_path):
    texts = [line for line in lines(100) if line]

    def interrupted():
        yield from texts[:70]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.predict_to(tmp_path / "out.jsonl", interrupted())
    assert model.predict_to(tmp_path / "out.jsonl", iter(texts)) == len(texts)
    model.predict_to(tmp_path / "whole.jsonl", texts)
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    first = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    assert first == {"line": 1, "output": model.predict(texts[:1])[0]}


# ---------------------------------------------------------------------- the command
def test_out_holds_what_stdout_would(trained, small, tmp_path, capsys):
    source = tmp_path / "in.txt"
    source.write_text("\n".join(lines(100)) + "\n")
    assert main.run(["predict", str(trained), str(source), "--json"]) == 0
    printed = capsys.readouterr().out
    out = tmp_path / "out.jsonl"
    assert main.run(["predict", str(trained), str(source), "--json", "--out", str(out)]) == 0
    assert out.read_text() == printed
    empty = sum(not line.strip() for line in lines(100))
    assert f"Wrote the answers to {100 - empty} of 100 inputs" in capsys.readouterr().err
    assert main.run(["predict", str(trained), str(source), "--json", "--out", str(out)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert main.run(["predict", str(trained), str(source), "--out", str(out), "--force"]) == 0
    assert len(out.read_text().splitlines()) == 100
    assert main.run(["predict", str(trained), str(source), "--force"]) == 2


def test_a_corrected_line_is_gone_on_from(trained, small, tmp_path, capsys):
    source, out = tmp_path / "in.txt", tmp_path / "out.txt"
    text = ("\n".join(lines(100)) + "\n").encode()
    source.write_bytes(text + b"\xff\n")
    order = ["predict", str(trained), str(source), "--out", str(out)]
    assert main.run(order) == 2
    assert "in.txt:101: this line is not UTF-8" in capsys.readouterr().err
    source.write_bytes(text + b"good\n")
    assert main.run(order) == 0
    assert len(out.read_text().splitlines()) == 101


def killed(arguments, **environment):
    return run(["-m", "anaphora", *arguments], env={**os.environ, **environment}).returncode


@pytest.fixture(scope="module")
def order(trained, tmp_path_factory):
    """A command of three windows, and what it writes. The windows are large: another process has no small ones."""
    folder = tmp_path_factory.mktemp("whole")
    source, whole = folder / "in.txt", folder / "whole.jsonl"
    source.write_text("\n".join(lines(2 * PARTS * engine.PART + 5)) + "\n")
    words = ["predict", str(trained), str(source), "--json", "--workers", "1", "--out"]
    assert killed([*words, str(whole)]) == 0
    return words, whole.read_bytes()


@pytest.mark.parametrize("fault", ["written:2", "synced:1", "marked:1", "done:1", "renamed:1"])
def test_a_killed_command_goes_on_and_the_bytes_are_the_same(order, tmp_path, fault):
    """C9: SIGKILL at a named place."""
    words, whole = order
    out = tmp_path / "out.jsonl"
    assert killed([*words, str(out)], ANAPHORA_FAULT=f"predict.{fault}") == -signal.SIGKILL
    assert killed([*words, str(out)]) == 0
    assert out.read_bytes() == whole
    assert os.listdir(tmp_path) == ["out.jsonl"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(sweep(4, 12)))
def test_killed_at_random_again_and_again_with_other_processes(trained, tmp_path, seed):
    """C9: Real SIGKILLs at random moments, two processes; none of them outlives the command."""
    draw = random.Random(seed)
    source, out, whole = (tmp_path / name for name in ("in.txt", "out.jsonl", "whole.jsonl"))
    source.write_text("\n".join(lines(40_000, seed)) + "\n")
    order = ["-m", "anaphora", "predict", str(trained), str(source), "--json", "--workers", "2", "--out"]
    assert run([*order, str(whole)]).returncode == 0
    for _ in range(20):
        process = popen([*order, str(out)])
        time.sleep(draw.uniform(0.5, 8.0))
        process.kill()  # does nothing to one that has ended
        process.communicate()
        if out.exists():
            break
    if not out.exists():
        assert run([*order, str(out)]).returncode == 0
    assert out.read_bytes() == whole.read_bytes()
    for _ in range(600):  # they notice soon that the command has gone; a busy machine may take its time
        left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True).stdout
        if not left:
            break
        time.sleep(0.1)
    assert not left, left


def test_vectors_are_written_row_by_row(tmp_path, small, capsys):
    pairs = [(f"a {i}", f"b {i}") for i in range(30)]
    folder = tmp_path / "run"
    an.Embedder("bow", vector_size=4, embedding=4, steps=2, tokens="word", device="cpu").fit(
        pairs, out=folder
    )
    source = tmp_path / "in.txt"
    source.write_text("\n" + "\n".join(f"a {i}" for i in range(100)) + "\n")
    assert main.run(["predict", str(folder), str(source), "--npy", str(tmp_path / "v.npy")]) == 0
    found = np.load(tmp_path / "v.npy")
    assert found.shape == (101, 4)
    assert not found[0].any()
    np.testing.assert_allclose(found[1:], an.load(folder).predict([f"a {i}" for i in range(100)]), atol=1e-6)


def test_no_inputs_and_no_folder_are_named(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").write_text("")
    assert main.run(["predict", str(trained), "empty.txt"]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "There were no inputs, so there are no answers.\n")
    (tmp_path / "one.txt").write_text("good film\n")
    assert main.run(["predict", str(trained), "one.txt", "--out", "one.txt/answers.txt"]) == 2
    assert "one.txt is not a folder); choose another place." in capsys.readouterr().err
