"""``tools/words.py``, which ``make lint`` runs over the source and the pages."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
import words


def test_a_word_is_found_with_its_line_and_a_better_one(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("A view.\nThe rows are turned round, and nobody waits.\nSound is turned into features.\n")
    assert [found.split(": say")[0] for found in words.findings(page, "page.md")] == [
        "page.md:2: 'turned'",
        "page.md:2: 'nobody'",
    ]


def test_names_in_code_are_free_and_sentences_are_not(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        'learnt = read("learnt.json")\n# what was learnt is asked for\n"""``learnt``: a mapping, begun anew."""\n'
    )
    assert [found.split(": say")[0] for found in words.findings(module, "module.py")] == [
        "module.py:2: 'learnt'",
        "module.py:2: 'asked for'",
        "module.py:3: 'anew'",
    ]
