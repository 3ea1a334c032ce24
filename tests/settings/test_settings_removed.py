"""What earlier versions had: one sentence says what to do, for a setting that is given and for a run that has it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from anaphora.cli import main
from anaphora.errors import RunError, SettingsError
from anaphora.settings.removed import REMOVED
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.registry import TASKS, resolve

KEPT = Path(__file__).parent.parent / "contract" / "kept" / "0.2.0"
SETTINGS: list[tuple[str, str, Any, Any]] = [("products", "language-running-transformer", "half", "fp8")]
"""A setting, a kept run that has it, its value there, and one that was more than a default."""
EACH = pytest.mark.parametrize(("key", "run", "plain", "other"), SETTINGS, ids=[case[0] for case in SETTINGS])


def changed(folder: Path, run: str, **settings: Any) -> Path:
    document = json.loads((KEPT / run / "config.json").read_text())
    document["settings"] |= settings
    (folder / "config.json").write_text(json.dumps(document))
    return folder


@EACH
def test_a_removed_setting_is_refused_with_its_sentence(key: str, run: str, plain: Any, other: Any):
    task = json.loads((KEPT / run / "config.json").read_text())["task"]
    for value in (plain, other):
        with pytest.raises(SettingsError) as caught:
            resolve(TASKS[task], {key: value}, {key: "run.toml:3"})
        assert caught.value.problems == [f"run.toml:3: {REMOVED[key]}"]


@EACH
def test_a_run_that_had_it_without_effect_loads(tmp_path: Path, key: str, run: str, plain: Any, other: Any):
    assert json.loads((KEPT / run / "config.json").read_text())["settings"][key] == plain
    assert not hasattr(Recipe.read(KEPT / run).settings, key)
    with pytest.raises(RunError, match=re.escape(REMOVED[key])):
        Recipe.read(changed(tmp_path, run, **{key: other}))


def test_a_sentence_leaves_room_for_its_place():
    for name, sentence in REMOVED.items():
        assert len(sentence) <= 120, name
        assert "\n" not in sentence
        assert sentence.endswith((".", "?"))


def test_explain_says_that_it_was_removed(capsys: pytest.CaptureFixture[str]):
    assert main.run(["explain", "products"]) == 2
    assert REMOVED["products"] in capsys.readouterr().err
