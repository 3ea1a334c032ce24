"""``tools/words.py``: the source and the pages speak the field's words, and the check finds those that do not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
import words


def test_the_source_and_the_pages_pass(capsys: pytest.CaptureFixture[str]) -> None:
    assert words.main() == 0, capsys.readouterr().out


def test_a_word_is_found_with_its_line_and_a_better_one(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("A view.\nThe rows are turned round, and nobody waits.\nSound is turned into features.\n")
    assert [found.split(": say")[0] for found in words.findings(page, "page.md")] == [
        "page.md:2: 'turned'",
        "page.md:2: 'nobody'",
    ]
