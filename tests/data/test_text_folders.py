"""Texts in a folder per label: what is read, and what is refused and in which words."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
from data_folders import text_folder

from anaphora.data.sources.labelled import open_labelled
from anaphora.data.sources.report import reported
from anaphora.errors import DataError


def test_texts_in_folders_by_label(tmp_path):
    folder = text_folder(tmp_path / "films")
    (folder / "pos" / "z.txt.gz").write_bytes(gzip.compress(b"\xef\xbb\xbfpacked"))
    (folder / "pos" / ".hidden.txt").write_text("no data")
    (folder / "README.txt").write_text("no data")
    said = []
    with reported(said.append):
        rows = open_labelled(folder)
    assert said == [f'read {folder}: 5 rows, a folder per label, source="text", target="label" (2 classes)']
    assert rows.read([0, 4]) == [("a neg film,\nnumber 0", "neg"), ("packed", "pos")]
    assert next(iter(open_labelled(folder, role="dev", source_field="message")))[1] == "neg"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", r"is empty \(pos/x.txt\)"),
        (b" \n", r"an empty side \(pos/x.txt\)"),
        (b"caf\xe9", r"broken UTF-8 \(pos/x.txt\); save the file as UTF-8"),
        (b"a" * ((1 << 24) + 1), r"too long for one example \(more than 16 MiB\) \(pos/x.txt\)"),
    ],
)
def test_a_text_file_that_cannot_be_used_is_named_or_left_out(tmp_path, content, why):
    folder = text_folder(tmp_path / "films")
    (folder / "pos" / "x.txt").write_bytes(content)
    with pytest.raises(DataError, match=why):
        open_labelled(folder)
    rows = open_labelled(folder, bad_rows="skip")
    assert (len(rows), sum(rows.facts["skipped"].values())) == (4, 1)


def test_a_folder_of_texts_and_arrays_is_refused(tmp_path):
    folder = text_folder(tmp_path / "films")
    np.save(folder / "pos" / "x.npy", np.ones((3, 2)))
    with pytest.raises(
        DataError, match=r"both texts and arrays or pictures, such as neg/0\.txt and pos/x\.npy"
    ):
        open_labelled(folder)
