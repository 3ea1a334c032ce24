"""A few cases of every target; ``make fuzz`` runs as many as time allows."""

from __future__ import annotations

import json
import shutil

import pytest
from fuzz_targets import SEEDS, SLOW

import fuzz as fuzzing
from anaphora.errors import DataError, RunError
from fuzz import divided, fuzz, missing_package, table, targets


@pytest.mark.slow
@pytest.mark.parametrize("name", targets())
def test_a_thousand_cases(tmp_path, name):
    found = fuzz([name], keep=tmp_path, cases=100 if name.startswith(SLOW) else 1000, seed=7)[0][name]
    assert found["findings"] == []
    assert found["cases"] == (100 if name.startswith(SLOW) else 1000)
    assert found["slowest"] < 5.0


@pytest.mark.parametrize("name", targets())
def test_the_seeds_are_read(tmp_path, name):
    """What is refused unchanged says nothing about what is changed."""
    files, reader = targets()[name]
    for file in files:
        case = tmp_path / f"case{''.join(file.suffixes)}"
        shutil.copy(file, case)
        reader(case)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("arrow", "crash.arrow"),
        ("zip", "nameless.tsv.zip"),
        ("pictures", "long-name.tsv"),
        ("state dict", "no-inputs.pt"),
    ],
)
def test_what_fuzzing_found_is_refused(tmp_path, name, file):
    """An Arrow file whose offsets lead out of its buffers ended the process; an archive entry without a name, a file name
    of more than 255 bytes and a GRU that reads vectors of no numbers raised."""
    shutil.copy(SEEDS / file, tmp_path / file)
    with pytest.raises((DataError, RunError)):
        targets()[name][1](tmp_path / file)


def test_cases_are_divided_into_parts_that_no_two_processes_share():
    names = list(targets())
    parts = divided(names, {}, 0.0, 500_000)
    assert len({(part.name, part.number) for part in parts}) == len(parts)
    done = {name: sum(part.cases for part in parts if part.name == name) for name in names}
    slow = [done[name] for name in names if name.startswith(SLOW)]
    others = [done[name] for name in names if not name.startswith(SLOW)]
    assert len({*slow}) == len({*others}) == 1
    assert 500_000 <= sum(done.values()) < 500_000 + len(names)
    assert slow[0] == -(-others[0] // 10)


def test_counts_are_summed_and_a_later_call_goes_on(tmp_path, monkeypatch):
    """What was counted stands in the file; a second call adds the parts that are left and repeats none."""
    ran = []

    def part_of(part, end, seed, keep):
        ran.append(part)
        if part.name == "parquet":
            return {"missing": "pyarrow"}
        counted = dict.fromkeys(("refused", "crashes", "hangs", "faults", "slowest", "peak"), 0)
        return counted | {
            "cases": part.cases,
            "findings": [["file", "same problem"]] if part.name == "csv" else [],
        }

    monkeypatch.setattr(fuzzing, "run_part", part_of)
    names, counts = ["tsv", "csv", "parquet"], tmp_path / "counts.json"
    fuzz(names, keep=tmp_path, cases=6000, processes=3, counts=counts)
    found, missing = fuzz(names, keep=tmp_path, cases=15_000, processes=3, counts=counts)
    assert {name: facts["cases"] for name, facts in found.items()} == {"tsv": 5000, "csv": 5000}
    assert found == json.loads(counts.read_bytes())
    assert missing == {"parquet": "pyarrow"}
    own = [(part.name, part.number) for part in ran if part.name != "parquet"]
    assert sorted(own) == [(name, number) for name in ("csv", "tsv") for number in range(3)]
    lines = list(table(found, missing, tmp_path))
    assert sum("same problem" in line for line in lines) == 1
    assert lines[-2:] == [
        "left out, for want of pyarrow: parquet",
        "10,000 cases of 2 readers: 0 crashes, 0 over 5 s, 0 other faults; slowest 0.000 s, most memory 0 MiB",
    ]


def test_a_reader_without_its_package_is_recognised():
    def read():
        try:
            import a_package_that_is_not_there.inside  # noqa: F401
        except ImportError:
            raise DataError("it needs a package") from None

    with pytest.raises(DataError) as refused:
        read()
    assert missing_package(refused.value) == "a_package_that_is_not_there"
    assert missing_package(DataError("damaged")) == ""
