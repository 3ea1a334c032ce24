"""A few cases of every target; ``make fuzz`` runs as many as time allows."""

from __future__ import annotations

import shutil

import pytest
from fuzz_targets import SEEDS, SLOW

from anaphora.errors import DataError
from fuzz import fuzz, targets


@pytest.mark.slow
@pytest.mark.parametrize("name", targets())
def test_a_thousand_cases(tmp_path, name):
    found = fuzz(600.0, 1000, 7, tmp_path, [name])[name]
    assert found["findings"] == []
    assert found["cases"] == (100 if name.startswith(SLOW) else 1000)
    assert found["slowest"] < 5.0


@pytest.mark.parametrize(
    ("name", "file"),
    [("arrow", "crash.arrow"), ("zip", "nameless.tsv.zip"), ("pictures", "long-name.tsv")],
)
def test_what_fuzzing_found_is_refused(tmp_path, name, file):
    """An Arrow file whose offsets lead out of its buffers ended the process; an archive entry without a name and a file
    name of more than 255 bytes raised."""
    shutil.copy(SEEDS / file, tmp_path / file)
    with pytest.raises(DataError):
        targets()[name][1](tmp_path / file)
