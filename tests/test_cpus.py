"""tools/cpus.py names tests that exist, one case of each task, and fails where a row fails or runs nothing."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from anaphora.native import isa
from anaphora.tasks.registry import TASKS

TESTS = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def cpus() -> ModuleType:
    sys.path.insert(0, str(TESTS.parent / "tools"))
    return importlib.import_module("cpus")


def test_everything_a_row_names_exists(cpus: ModuleType, tmp_path: Path) -> None:
    for pattern in (*cpus.LEFT_OUT, *cpus.SHORT, *cpus.COPIED, *cpus.FOLDERS):
        assert list(TESTS.glob(pattern)), pattern
    rows = {row.name: row for row in cpus.rows(tmp_path)}
    assert list(rows) == ["baseline", "avx2", "avx512", "no-compiler", "no-home", "two-copies"]
    asked = [word for word in rows["avx2"].words if "::" in word]
    assert {word.partition("[")[2].partition("-")[0] for word in asked} == set(TASKS)
    assert {row.environment["ANAPHORA_ISA"] for row in rows.values()} == {"baseline", "avx2", "avx512"}
    for row in rows.values():
        assert row.environment.items() >= cpus.tied(row.environment["ANAPHORA_ISA"]).items()
        assert all((TESTS.parent / word.partition("::")[0]).exists() for word in row.words if word[0] != "-")


@pytest.mark.parametrize(("passed", "failed", "code"), [(3, 0, 0), (2, 1, 1), (0, 0, 1)])
def test_the_table_and_the_exit_code_tell_what_became_of_each_row(
    cpus: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    passed: int,
    failed: int,
    code: int,
) -> None:
    def run(row: Any, scratch: Path) -> Any:
        return cpus.Outcome(row, passed, failed, 4, 5.0, 6.0, f"what {row.name} printed")

    monkeypatch.setattr(cpus, "run", run)
    monkeypatch.setattr(isa, "executable", lambda: ["baseline", "avx2", "native"])
    assert cpus.main(["avx2", "avx512"]) == code
    out = capsys.readouterr().out
    assert ("what avx2 printed" in out) == bool(failed)
    assert f"avx2 {passed} {failed} 4 5 6" in [" ".join(line.split()) for line in out.splitlines()]
    assert "avx512       left out: this processor cannot execute it" in out
    with pytest.raises(SystemExit):
        cpus.main(["sse"])


@pytest.mark.slow
def test_a_row_counts_what_its_tests_came_to(cpus: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "test_row.py").write_text(
        "import os, pytest\n"
        "def test_one(): assert os.environ['ATEN_CPU_CAPABILITY'] == 'default'\n"
        "def test_two(): assert 0\n"
        "def test_three(): pytest.skip()\n"
    )
    row = cpus.Row("toy", "", [str(tmp_path / "test_row.py")], cpus.tied("baseline"), 2)
    found = cpus.run(row, tmp_path)
    assert (found.passed, found.failed, found.skipped) == (2, 2, 2)
    assert found.cpu > 0
    assert "FAILED" in found.output
