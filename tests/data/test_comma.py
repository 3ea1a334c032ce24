"""CSV files whose first line names the delimiter, as those of Excel do."""

from __future__ import annotations

import pytest

from anaphora.data.sources.opening import open_source
from anaphora.errors import DataError


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sep=;\ntext;label\na;x\nb\n", "a.csv:4: wrong number of columns"),
        ("sep=x\ntextxlabel\n", "a.csv:1: sep=x names no delimiter"),
        ("sep=,\n1,2\n3,4\n", "a.csv:2: the first row looks like data"),
    ],
)
def test_lines_are_counted_with_one_that_names_the_delimiter(tmp_path, text, told):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=told):
        open_source(tmp_path / "a.csv")
