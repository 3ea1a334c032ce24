"""``.ts`` files of labelled series: read as they are, or refused in a sentence that says where."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

import anaphora as an
from anaphora.data.sources.arrays import is_ts, read_ts
from anaphora.data.sources.labelled import open_labelled
from anaphora.errors import DataError

HEAD = """# a remark
% another
@problemName Two
@timeStamps false
@univariate false
@equalLength false
@classLabel true up down
@data
"""
ROWS = "1,2,3:4,5,6:up\n\n0.5,-1e2:7, 8 :down\n"


def written(tmp_path, text, name="a.ts"):
    (tmp_path / name).write_text(text)
    return tmp_path / name


def test_features_are_columns_and_the_last_part_is_the_label(tmp_path):
    rows = read_ts(written(tmp_path, HEAD + ROWS))
    assert rows.column(1) == ["up", "down"]
    np.testing.assert_array_equal(rows.column(0)[0], [[1, 4], [2, 5], [3, 6]])
    np.testing.assert_array_equal(rows.column(0)[1], [[0.5, 7], [-100, 8]])


def test_packed_files_and_numbers_as_targets(tmp_path):
    path = tmp_path / "A_TRAIN.TS.gz"
    path.write_bytes(gzip.compress(b"@targetlabel true\n@data\n1,2:0.5\n3,4:1.5\n"))
    assert is_ts(path)
    assert read_ts(path).column(1) == ["0.5", "1.5"]
    assert not is_ts("a.tsv")
    assert not is_ts("a.ts.b.csv")


def test_a_file_without_labels_can_be_asked_about(tmp_path):
    path = written(tmp_path, "@classLabel false\n@data\n1,2:3,4\n")
    assert len(read_ts(path, labelled=False)) == 1
    assert read_ts(path, labelled=False)[0][0].shape[1] == 2
    with pytest.raises(DataError, match="has no labels"):
        read_ts(path)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("1,?:2,3:up", "a missing value"),
        ("1,x:2,3:up", "'x', which is no number"),
        ("1,2,3:2,3:up", "features of different lengths"),
        ("1,2:3,4:", "without a label"),
        ("1,2", "without a label"),
        ("1,nan:3,4:up", "not finite|NaN|nan"),
    ],
)
def test_a_bad_row_is_named_or_left_out(tmp_path, row, reason):
    path = written(tmp_path, f"{HEAD}{ROWS}{row}\n")
    with pytest.raises(DataError, match=f"a.ts:12: .*({reason}).*skip"):
        read_ts(path)
    rows = read_ts(path, bad_rows="skip")
    assert len(rows) == 2
    assert sum(rows.describe()["skipped"].values()) == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1,2:up\n", "no line @data"),
        ("@\n1,2:up\n", "no line @data"),
        ("@classLabel true a\n", "no line @data"),
        ("@timeStamps true\n@data\n(0,1),(1,2):up\n", "holds times"),
        (HEAD, "no usable row"),
        (HEAD + "1,2:up\n1,2:3,4:up\n", "features"),
    ],
)
def test_a_file_that_cannot_be_used_at_all(tmp_path, text, reason):
    with pytest.raises(DataError, match=reason):
        read_ts(written(tmp_path, text))


def test_a_run_learns_from_it_resumes_and_is_asked(tmp_path):
    rows = "".join(f"{i % 2},{i},{1 - i % 2}:{'ab'[i % 2]}\n" for i in range(20))
    train = written(tmp_path, "@classLabel true a b\n@data\n" + rows, "X_TRAIN.ts")
    m = an.Classifier("rocket", thresholds=1).fit(train, out=tmp_path / "run")
    assert m.score(train)["accuracy"] == 100
    an.Classifier.resume(tmp_path / "run")
    assert open_labelled(train).column(1)[:2] == ["a", "b"]
    train.write_text("@classLabel true a b\n@data\n" + rows.replace("0,", "5,"))
    with pytest.raises(DataError, match=r"changed|other"):
        an.Classifier.resume(tmp_path / "run")
