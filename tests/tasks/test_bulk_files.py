"""A file of answers appears when it is complete, and a process that was interrupted continues it."""

from __future__ import annotations

import os

import pytest

from anaphora.errors import DataError, RunError
from anaphora.tasks.bulk.outfile import OutFile
from anaphora.tasks.bulk.windows import item


def written(path, texts, stop=None, **options):
    """Write texts in windows of 2, as they are; ``stop``: after so many windows the process is gone."""
    options.setdefault("every", 0.0)
    with OutFile(path, {"model": "m"}, **options) as out:
        rest = list(out.rest(item(text) for text in texts))
        for number, begin in enumerate(range(0, len(rest), 2)):
            if number == stop:
                return out
            some = rest[begin : begin + 2]
            out.write(some, "".join(f"{one.given}\n" for one in some).encode(), bad=1)
        out.finish()
        return out


def test_a_file_appears_when_it_is_complete_and_is_continued_until_then(tmp_path):
    path = tmp_path / "answers"
    written(path, "abcdefg", stop=2)
    assert not path.exists()
    with open(tmp_path / "answers.part", "ab") as torn:
        torn.write(b"half a li")
    with open(tmp_path / "answers.journal", "ab") as torn:
        torn.write(b'{"inputs": 99')
    out = written(path, "abcdefg")
    assert path.read_text() == "a\nb\nc\nd\ne\nf\ng\n"
    assert (out.inputs, out.bad) == (7, 4)
    assert os.listdir(tmp_path) == ["answers"]


def test_what_stands_in_the_way_is_an_error(tmp_path):
    path = tmp_path / "answers"
    written(path, "abcd", stop=1)
    with pytest.raises(DataError, match="the first 2 inputs are not those"):
        written(path, "axcd")
    with pytest.raises(DataError, match="2 inputs were answered, but there are only 1"):
        written(path, "a")
    with pytest.raises(RunError, match="was begun with another model; put that back"):
        OutFile(path, {"model": "n"}).__enter__()
    part = tmp_path / "answers.part"
    part.write_bytes(b"X" + part.read_bytes()[1:])
    with pytest.raises(RunError, match="are not those that were written"):
        written(path, "abcd")
    (tmp_path / "answers.journal").write_text("{}\n")
    with pytest.raises(RunError, match=r"answers.journal: is damaged"):
        written(path, "abcd")
    written(path, "abcd", anew=True)
    assert path.read_text() == "a\nb\nc\nd\n"
    with pytest.raises(RunError, match="exists already"):
        written(path, "abcd")
    assert os.listdir(tmp_path) == ["answers"]
    written(path, "ab", anew=True)
    assert path.read_text() == "a\nb\n"


def test_two_processes_do_not_write_one_file(tmp_path):
    with (
        OutFile(tmp_path / "answers", {}),
        pytest.raises(RunError, match="another process is writing"),
        OutFile(tmp_path / "answers", {}),
    ):
        pass


@pytest.mark.parametrize("point", ["written", "synced", "marked", "done", "renamed"])
def test_a_full_disk_at_any_place_loses_nothing(tmp_path, monkeypatch, point):
    """C9: the call that failed is made again."""
    path = tmp_path / "answers"
    monkeypatch.setenv("ANAPHORA_FAULT", f"predict.{point}:1:ENOSPC")
    monkeypatch.setattr("anaphora.files.faults._passages", {})
    with pytest.raises((RunError, OSError)):
        written(path, "abcde")
    monkeypatch.delenv("ANAPHORA_FAULT")
    assert written(path, "abcde").inputs == 5
    assert path.read_text() == "a\nb\nc\nd\ne\n"
    assert os.listdir(tmp_path) == ["answers"]
