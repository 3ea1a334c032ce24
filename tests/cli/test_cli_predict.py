"""``predict``: lines in, lines out, as they come."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
from types import SimpleNamespace

import pytest

from anaphora.cli import main, writing
from anaphora.data.asked import line_batches
from anaphora.errors import AnaphoraError, DataError
from anaphora.tasks.bulk.outfile import OutFile
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.translate.estimator import Translator


class Reverser(Translator):
    """Stands in for a trained model: an output is its input backwards."""

    def __init__(self):
        super().__init__()
        self.batches = []

    def search(self, texts, *, n_best=1, **options):
        self.batches.append(list(texts))
        return [
            [
                SimpleNamespace(text=t[::-1], score=-0.5 * r, log_prob=-1.0 * r, finished=True)
                for r in range(n_best)
            ]
            for t in texts
        ]


@pytest.fixture
def model(monkeypatch, tmp_path):
    import anaphora.tasks.load as load

    found = Reverser()
    monkeypatch.setattr(load, "load", lambda run, **options: found)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(Recipe(found.command, found.settings_).to_json())
    return found


def test_one_line_out_for_each_line_in(model, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("abc\n\ndef\r\nlast", newline="")
    assert main.run(["predict", "run", "in.txt"]) == 0
    assert capsys.readouterr().out == "cba\n\nfed\ntsal\n"
    assert [text for batch in model.batches for text in batch] == ["abc", "def", "last"]


def test_json_lines(model, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("ab\n\n")
    assert main.run(["predict", "run", "in.txt", "--json", "--n-best", "2"]) == 0
    first, empty = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["line"], first["input"], first["output"]) == (1, "ab", "ba")
    assert [o["score"] for o in first["outputs"]] == [0.0, -0.5]
    assert (empty["line"], empty["output"], empty["outputs"]) == (2, "", [])


def test_whether_outputs_may_depend_on_the_batch_is_a_setting_of_every_model(model, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("ab\n")
    assert main.run(["predict", "run", "in.txt", "--set", "batch_invariant=false"]) == 0
    assert not model.settings_.batch_invariant
    assert main.run(["predict", "run", "in.txt", "--set", "batch_invariant=7"]) == 2
    assert "batch_invariant = 7 cannot be used: it must be true or false" in capsys.readouterr().err


def test_n_best_names_line_and_score(model, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("ab\ncd\n")
    assert main.run(["predict", "run", "in.txt", "--n-best", "2"]) == 0
    assert capsys.readouterr().out == "1\t-0.0000\tba\n1\t-0.5000\tba\n2\t-0.0000\tdc\n2\t-0.5000\tdc\n"


def test_lines_before_a_broken_one_are_answered(model, tmp_path, capsys):
    (tmp_path / "in.txt").write_bytes(b"ab\ncd\n\xff\xfe\nef\n")
    assert main.run(["predict", "run", "in.txt"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "ba\ndc\n"
    assert shown.err == "anaphora: in.txt:3: this line is not UTF-8 text; convert the file to UTF-8.\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["none.txt"], "none.txt: there is no such file."),
        (
            ["love it"],
            "love it: there is no such file; to ask about a text, pipe it: echo TEXT | anaphora predict RUN.",
        ),
        (["."], ". is a folder"),
        (["in.txt", "--beam", "0"], "--beam: beam = 0 cannot be used: it must be at least 1."),
        (["in.txt", "--n-best", "0"], "--n-best: n_best = 0 cannot be used: it must be at least 1."),
        (["in.txt", "--set", "beem=3"], "beem is not a setting of predicting with a Translator."),
        (["in.txt", "--set", "beam"], "must have the form key=value"),
    ],
)
def test_bad_requests(model, tmp_path, capsys, arguments, told):
    (tmp_path / "in.txt").write_text("ab\n")
    assert main.run(["predict", "run", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert told in shown.err


def test_an_empty_file_gives_nothing(model, tmp_path, capsys):
    (tmp_path / "in.txt").write_bytes(b"")
    assert main.run(["predict", "run", "in.txt"]) == 0
    assert capsys.readouterr().out == ""


def test_a_pipe_is_answered_as_it_speaks(monkeypatch):
    read, write = os.pipe()
    with os.fdopen(read) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        batches = line_batches("-")
        os.write(write, b"one\ntw")
        assert next(batches) == ["one"]  # at once, though the pipe is still open
        os.write(write, b"o\nthree")
        assert next(batches) == ["two"]
        os.close(write)
        assert list(batches) == [["three"]]


def test_batches_are_cut_and_marks_at_the_start_dropped(tmp_path):
    path = tmp_path / "in.txt"
    path.write_bytes(b"\xef\xbb\xbfa\nb\nc\n")
    assert list(line_batches(str(path), most=2)) == [["a", "b"], ["c"]]
    path.write_bytes(b"a\nb\0\n")
    with pytest.raises(DataError, match=r"in.txt:2: "):
        list(line_batches(str(path)))
    path.write_bytes(b"x" * (2 << 20))
    with pytest.raises(DataError, match="over a megabyte"):
        list(line_batches(str(path)))


def test_packed_files_and_utf_16_are_read_as_in_training(tmp_path):
    (tmp_path / "in.txt.gz").write_bytes(gzip.compress(b"a\nb\nc\n"))
    assert list(line_batches(str(tmp_path / "in.txt.gz"), most=2)) == [["a", "b"], ["c"]]
    (tmp_path / "in.txt.bz2").write_bytes(bz2.compress(b"a\nb\nc\n"))
    assert list(line_batches(str(tmp_path / "in.txt.bz2"), most=2)) == [["a", "b"], ["c"]]
    (tmp_path / "in.txt").write_bytes("ä\nb\n".encode("utf-16"))
    assert list(line_batches(str(tmp_path / "in.txt"))) == [["ä", "b"]]
    (tmp_path / "in.txt.zip").write_bytes(b"a\n")
    with pytest.raises(DataError, match=r"in\.txt\.zip is damaged"):
        list(line_batches(str(tmp_path / "in.txt.zip")))


def test_stdin_without_a_descriptor_is_a_plain_failure(model, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("x"))
    assert main.run(["predict", "run"]) != 0


def test_inputs_that_cannot_be_answered_leave_no_file_to_go_on_from(tmp_path):
    with pytest.raises(DataError), OutFile(tmp_path / "new" / "answers", {"model": "m"}):
        raise DataError("the first input cannot be read.")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", "is a folder; name a file"),
        (".", "is a folder; name a file"),
        ("answers.csv.gz", "nothing is packed here; name it answers.csv"),
    ],
)
def test_names_that_no_file_of_answers_can_have(name, told):
    with pytest.raises(AnaphoraError, match=told):
        OutFile(name, {"model": "m"})


def test_the_speed_is_that_of_this_run_and_is_said_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr(writing, "time", SimpleNamespace(monotonic=lambda: now[0]))
    progress = writing.Progress(True, begun=100)  # inputs that an earlier run has answered
    for seconds, inputs in ((10, 110), (40, 900), (50, 990), (80, 108)):
        now[0] = 100.0 + seconds
        progress.reached(inputs)
    assert capsys.readouterr().err.splitlines() == ["900 inputs, 20 a second", "108 inputs, 0.1 a second"]
    writing.Progress(False).reached(5)
    assert capsys.readouterr().err == ""
