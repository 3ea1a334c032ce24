"""tools/same.py tells values apart by their bits, names the first difference in words, and leaves out what may differ."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

TOOLS = Path(__file__).resolve().parent.parent / "tools"


@pytest.fixture(scope="module")
def same() -> ModuleType:
    spec = importlib.util.spec_from_file_location("same", TOOLS / "same.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["same"] = module  # its dataclasses look for their module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def plain(same: ModuleType) -> ModuleType:
    return importlib.import_module("equality.plain")


def test_values_count_by_their_bits_and_types(plain: ModuleType) -> None:
    values: list[Any] = [0.1, 0.1 + 2**-56, np.float64(0.1), 1, 1.0, True, np.int64(1), "1", [1], {"a": 1}]
    values += [
        np.zeros(1),
        -np.zeros(1),
        np.zeros(100),
        np.zeros((10, 10)),
        torch.ones(3),
        torch.ones(3).double(),
    ]
    written = [json.dumps(plain.plain(value)) for value in values]
    assert len(set(written)) == len(values)
    assert written == [json.dumps(plain.plain(value)) for value in values]


def test_what_may_differ_is_left_out(plain: ModuleType, tmp_path: Path) -> None:
    assert plain.plain({"loss": 0.5, "seconds": 3.2, "tokens_per_second": 9.0}) == {"loss": (0.5).hex()}
    assert plain.said("took 3.2 s, 120 symbols per second") == ["took <time>, <speed>"]
    assert plain.text(f"{Path.cwd()}/run: 12 s") == "<folder>/run: 12 s"
    for number, note in enumerate(("0" * 64, "f" * 64)):
        facts = {"anaphora": json.dumps({"files": {"config.json": note}, "step": 3})}
        save_file({"b": torch.ones(2), "a": torch.zeros(3)}, tmp_path / f"{number}.safetensors", facts)
    one, other = (plain.file(tmp_path / f"{number}.safetensors") for number in range(2))
    assert one == other
    assert list(one["tensors"]) == ["a", "b"]
    save_file({"b": torch.ones(2), "a": torch.zeros(3) + 1e-38}, tmp_path / "2.safetensors")
    assert plain.file(tmp_path / "2.safetensors")["tensors"]["a"] != one["tensors"]["a"]


def test_every_difference_is_named_with_its_place(same: ModuleType) -> None:
    before = {"fit": {"value": {"loss": [1, 2], "gone": 1, "equal": "x"}}}
    after = {"fit": {"value": {"loss": [1, 3, 4], "new": 2, "equal": "x"}}}
    found = [(" > ".join(path), one, other) for path, one, other in same.differences(before, after)]
    assert found == [
        ("fit > value > loss > 1", 2, 3),
        ("fit > value > loss > length", 2, 3),
        ("fit > value > gone", 1, same.NOTHING),
        ("fit > value > new", same.NOTHING, 2),
    ]
    assert list(same.differences({"a": 1, "b": 2}, {"b": 2, "a": 1})) == [
        (("order of names",), ["a", "b"], ["b", "a"])
    ]
    assert list(same.differences(1, True)) == [((), 1, True)]


def test_the_report_says_what_differs_before_and_after(
    same: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {"fit": {"value": {"loss": (0.25).hex(), "steps": 6}, "seconds": 1.0}}
    after = {"fit": {"value": {"loss": (0.5).hex(), "steps": 7}, "seconds": 2.0}}
    found = same.compare("toy", before, after)
    same.report([found, same.Compared("other", 5)], 2.0)
    assert capsys.readouterr().out.splitlines() == [
        "toy: fit differs first in loss (and 1 more in this part)",
        "    before: 0.25",
        "    after:  0.5",
        "different: 2 values in toy (2 cases, 7 values, 2 s)",
    ]
    as_json = same.as_json("a", "b", [found], 2.0)
    assert as_json["same"] is False
    assert [one["value"] for one in as_json["cases"]["toy"]["differ"]] == [
        ["fit", "value", "loss"], ["fit", "value", "steps"],
    ]  # fmt: skip
    same.report([same.Compared("other", 5)], 2.0)
    assert capsys.readouterr().out == "same (1 cases, 5 values, 2 s)\n"


def test_a_part_that_fails_on_both_sides_is_not_called_the_same(
    same: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    found = same.compare("toy", {"fit": {"failed": "E: no"}}, {"fit": {"failed": "E: no"}})
    same.report([found], 1.0)
    assert "toy: not looked at, as it fails on both sides: fit: E: no" in capsys.readouterr().out
    assert same.compare("toy", {"fit": {"failed": "E: a"}}, {"fit": {"failed": "E: b"}}).differ


def test_a_checkout_is_the_same_as_itself() -> None:
    found = subprocess.run(
        [sys.executable, TOOLS / "same.py", ".", ".", "--case", "classify-text-ngrams", "--json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    result = json.loads(found.stdout)
    assert result["same"]
    assert set(result["cases"]) == {"classify-text-ngrams", "classify-text-ngrams-number"}
    for one in result["cases"].values():
        assert one["values"] > 1000
        assert not one["failed"]


PLANTED = {
    "a number drawn before the last layer is made": (
        "classify-text-transformer-number",
        "first weights and batches differs first in first weights",
        *("models/classifier.py", r"( +)(self\.output = )", r"\1torch.rand(1)\n\1\2"),
    ),
    "another name of a layer": (
        "classify-text-transformer-number",
        "first weights and batches differs first in first weights",
        *("models/classifier.py", r"self\.output\b(?!s)", "self.head"),
    ),
    "the same random numbers on every rank": (
        "classify-text-transformer-number",
        "two processes differs first in",
        *("training/step.py", r"self\.group\.rank, part\)", "0, part)"),
    ),
    "another digest of the files of data": (
        "classify-text-transformer-number",
        "fit differs first in run > config.json > data",
        *("data/files.py", r"file\.digest = hashlib\.sha256\(\)", 'file.digest = hashlib.sha256(b"salt")'),
    ),
    "a threshold chosen by fewer labels": (
        "classify-text-conv-classes",
        "fit differs first in",
        *("tasks/thresholding.py", r"^LEAST = 50$", "LEAST = 1"),
    ),
    "an option about files that requests may set": (
        "classify-text-conv-classes",
        "server differs first in",
        *("serving/exchange/options.py", r'"source_field", ', ""),
    ),
}
"""What is changed: the case and the part that show it, and where the source is edited."""


@pytest.mark.slow
@pytest.mark.parametrize("change", PLANTED)
def test_a_planted_change_is_named_with_its_case(change: str, tmp_path: Path) -> None:
    case, told, name, pattern, text = PLANTED[change]
    shutil.copytree(TOOLS.parent / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.nb?"))
    path = tmp_path / "src" / "anaphora" / name
    changed, places = re.subn(pattern, text, path.read_text(), flags=re.MULTILINE)
    assert places, f"{pattern} is no longer in {name}: plant the change where it is now"
    path.write_text(changed)
    command = [sys.executable, TOOLS / "same.py", TOOLS.parent, tmp_path, "--case", case, "--jobs", "1"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 1, found.stderr
    assert f"{case}: {told}" in found.stdout
