"""Sentences about data name the line of the file, and say of a file that is no text what it is."""

from __future__ import annotations

import warnings

import pytest

from anaphora.data.asked import line_batches
from anaphora.data.audio.recordings_readers import open_recordings
from anaphora.data.sources.conll import open_sentences
from anaphora.data.sources.opening import open_source
from anaphora.data.text import open_text
from anaphora.errors import DataError


def test_a_bad_sentence_is_named_by_its_line_below_the_header_and_below_values_with_line_ends(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('words,tags\n"a\nb",X Y\nc d,Z\n')
    with pytest.raises(DataError, match=r"a.csv:4: not one tag for each word \(2 words, 1 tags\)"):
        open_sentences(path)


def test_a_bad_recording_is_named_by_its_line(tmp_path):
    path = tmp_path / "list.csv"
    path.write_text("path,text\nnone.wav,hello\n")
    with pytest.raises(DataError, match=r"list.csv:2: a recording that cannot be used"):
        open_recordings(path, role="train", features=None, bad_rows="strict")


@pytest.mark.parametrize("head", [bytes(range(256)) * 4, b"\x7fELF\x02\x01\x01" + b"\x03\x04\xe8code" * 40])
def test_a_binary_file_is_called_one(tmp_path, head):
    for name in ("a.csv", "a.tsv", "a.jsonl"):
        (tmp_path / name).write_bytes(head)
        with pytest.raises(DataError, match=f"{name} is a binary file, not a text; give a text file"):
            open_source(tmp_path / name)


def test_texts_with_tabs_colours_and_separators_are_no_binary_files(tmp_path):
    (tmp_path / "a.tsv").write_text("\x1b[1ma\x1b[0m\x1f\tb\nc\x1e\td\f\n" * 5)
    assert len(open_source(tmp_path / "a.tsv")) == 10


def test_a_line_with_a_nul_is_said_to_have_one(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"fine\nnot \0 fine\n")
    with pytest.raises(DataError, match=r"a.txt:2: this line holds a NUL character; is this a text file\?"):
        list(line_batches(str(tmp_path / "a.txt")))


def test_a_table_that_is_read_as_running_text_says_so(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\nhello there,x\nhow are you,y\n")
    with pytest.warns(
        UserWarning, match="a.csv is read as running text, with its first row and what stands between"
    ):
        assert "hello there,x" in "".join(open_text(tmp_path / "a.csv").blocks())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        column = open_text(tmp_path / "a.csv", source_field="text")
    assert "".join(column.blocks()) == "hello there\nhow are you\n"


def test_control_characters_in_utf8_are_no_binary_file(tmp_path):
    (tmp_path / "a.tsv").write_text("\x1a\x08\x1a\tb\n" * 9)
    assert len(open_source(tmp_path / "a.tsv")) == 9
    (tmp_path / "b.tsv").write_bytes(b"\x1a\x08\x1a\t\xff\xfe\n" * 9)
    with pytest.raises(DataError, match="a binary file"):
        open_source(tmp_path / "b.tsv")
