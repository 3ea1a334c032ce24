"""What a model is made by: written before training, read by whatever starts from a run."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from tasks_tiny import pairs, settings

import anaphora as an
from anaphora.errors import RunError, SettingsError
from anaphora.tasks.artifacts import ARTIFACTS
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.registry import TASKS, resolve

ROWS = [{"text": "good film", "label": "yes", "row": i} for i in range(6)] + [
    {"text": "bad film", "label": "no", "row": i} for i in range(6)
]


def test_it_imports_no_torch():
    code = "import sys, anaphora.tasks.recipe, anaphora.tasks.artifacts as a; print(len(a.ARTIFACTS), 'torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == [str(len(TASKS)), "False"]


def test_every_task_says_what_it_keeps():
    assert ARTIFACTS.keys() == TASKS.keys()


def test_what_was_written_is_read_again(tmp_path):
    m = an.Translator(**settings(steps=1)).fit(pairs(12), valid=pairs(4), out=tmp_path / "run")
    read = Recipe.read(tmp_path / "run")
    assert read == Recipe("translate", m.settings_, m.recipe_.data)
    assert read.to_json() == (tmp_path / "run" / "config.json").read_text()
    whole = read.with_artifacts(tmp_path / "run")
    assert whole.artifacts["tokenizer_"].to_json() == m.tokenizer_.to_json()
    whole.write(tmp_path)
    for name in ("config.json", "tokenizer.json"):
        assert (tmp_path / name).read_bytes() == (tmp_path / "run" / name).read_bytes()


def test_it_cannot_be_changed():
    recipe = Recipe("classify", resolve(TASKS["classify"], {"model": "ngrams"}))
    with pytest.raises(FrozenInstanceError):
        recipe.trusts = True  # type: ignore[misc]
    assert recipe.with_settings(word_ngrams=1).values["word_ngrams"] == 1
    assert recipe.values["word_ngrams"] != 1
    with pytest.raises(SettingsError, match="hidden"):
        recipe.with_settings(hidden=8)


def test_another_seed_counts_its_epochs_again():
    recipe = Recipe("classify", resolve(TASKS["classify"], {"model": "lstm", "epochs": 2.0})).with_settings(
        steps=7
    )
    other = recipe.with_seed(5)
    assert (recipe.values["steps"], other.values["seed"], other.values["epochs"]) == (7, 5, 2.0)
    assert other.values["steps"] != 7


def test_a_model_that_is_resumed_knows_the_columns_of_its_data(tmp_path):
    """As the one that was trained in one go: ``predict`` takes the same tables."""
    tiny = {"steps": 2, "hidden": 4, "embedding": 4, "valid_every": 1, "save_every": 1, "device": "cpu"}
    m = an.Classifier("lstm", **tiny).fit(ROWS, valid=ROWS, out=tmp_path / "run", source_field="text")
    other = an.Classifier.resume(tmp_path / "run", steps=3)
    assert other.recipe_.trained_on == m.recipe_.trained_on
    asked = [{"row": 1, "text": "good film"}]
    assert other.predict(asked) == an.load(tmp_path / "run").predict(asked)


def test_a_saved_model_has_no_data(tmp_path):
    m = an.Classifier("ngrams").fit(ROWS, out=tmp_path / "run", source_field="text")
    m.save(tmp_path / "saved")
    assert Recipe.read(tmp_path / "saved").data == {}
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["data"] == {}
    assert Recipe.read(tmp_path / "run").trained_on


def test_old_names_and_values_become_those_of_now(tmp_path):
    document = {"format": 1, "task": "classify", "settings": {"model": "lstm", "hold_out": 0.25}, "data": {}}
    (tmp_path / "config.json").write_text(json.dumps(document))
    values = Recipe.read(tmp_path).values
    assert values["holdout"] == 0.25
    assert values["r_drop"] == 0.0  # of a time when it could not be set


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "is not a run's config"),
        ('{"settings": {}}', "has no format version"),
        ('{"settings": {}, "format": 99}', "newer than this Anaphora"),
        ('{"settings": {}, "format": 1, "task": "sing"}', "does not know"),
    ],
)
def test_what_is_no_recipe_is_named(tmp_path: Path, content: str, said: str):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(RunError, match=said):
        Recipe.read(tmp_path)
