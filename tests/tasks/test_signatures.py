"""The keyword arguments of estimators: in step with the settings, for type checkers, editors and help()."""

from __future__ import annotations

import inspect
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import anaphora as an
from anaphora.errors import RunError
from anaphora.tasks import signatures
from anaphora.tasks.registry import TASKS, estimator

SCRIPT = """
import anaphora as an

m = an.Classifier("lstm", hidden=16, tokens="word", steps=3)
m.fit([("good film", "yes"), ("bad film", "no")])
reveal_type(m)
reveal_type(m.predict_proba(["good film"]))
reveal_type(an.Translator(beam=2).fit("a.tsv").predict(["a"]))
reveal_type(an.load("run", an.Tagger))
reveal_type(an.Forecaster.load("run"))
reveal_type(an.LanguageModel("ngram").rank(["a", "b"])[0].log_prob)
whatever = an.load("run")
reveal_type(whatever)
reveal_type(whatever.probe("good film"))
print(whatever.predict(["a"]), whatever.score("dev.tsv")["loss"], whatever.sample("a"))
trace = m.probe("good film")
print(trace.arrays, m.get_params()["hidden"], m.classes_)
name: str = "gru"
an.Classifier(name)
"""
REVEALED = (
    "anaphora.tasks.classify.estimator.Classifier",
    "float64",
    "list[str]",
    "anaphora.tasks.tag.estimator.Tagger",
    "anaphora.tasks.forecast.estimator.Forecaster",
    "float",
    "anaphora.tasks.load.Trained",
    "anaphora.probe.trace.Trace",
)
WRONG = """
import anaphora as an

an.Classifier("lstm", hiden=16)
an.Translator(beam="wide")
"""


def test_the_keywords_are_those_of_the_settings() -> None:
    text = signatures.FILE.read_text(encoding="utf-8")
    assert text == signatures.source(list(TASKS.values())), "run python -m anaphora.tasks.signatures"


@pytest.mark.parametrize("command", sorted(TASKS))
def test_the_signature_has_every_setting_with_its_default(command: str) -> None:
    task, kind = TASKS[command], estimator(command)
    parameters = inspect.signature(kind).parameters
    assert parameters.keys() == task.settings.model_fields.keys()
    usual = kind().get_params()
    assert {name: parameters[name].default for name in usual} == usual


@pytest.mark.parametrize("command", sorted(TASKS))
def test_help_shows_presets_and_settings_in_groups(command: str) -> None:
    task = TASKS[command]
    text = pydoc.plain(pydoc.render_doc(estimator(command)))
    head = text[: text.index("Method resolution order")]
    for name in (*task.presets, *task.settings.model_fields):
        assert f"  {name} " in head or name == "model", name
    assert "\n |  Training:\n" in head
    assert max(map(len, head.splitlines())) <= 120


def typed(script: str, folder: Path) -> str:
    file = folder / "script.py"
    file.write_text(script)
    source = Path(an.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-color-output", "--config-file=", str(file)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"MYPYPATH": str(source), "PATH": "", "MYPY_CACHE_DIR": str(folder.parent / "mypy-cache")},
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_mypy_infers_everything_in_a_script_of_a_user(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    found = typed(SCRIPT, tmp_path)
    told = [line for line in found.splitlines() if "Revealed type" in line]
    assert len(told) == len(REVEALED), found
    for line, kind in zip(told, REVEALED, strict=True):
        assert kind in line.replace("builtins.", "")
    assert "script.py" not in "".join(line for line in found.splitlines() if ": error:" in line), found
    wrong = typed(WRONG, tmp_path)
    assert 'Unexpected keyword argument "hiden"' in wrong
    assert 'has incompatible type "str"; expected "int"' in wrong


def test_a_run_of_another_task_is_not_loaded_as_one(tmp_path: Path) -> None:
    m = an.LanguageModel("ngram", tokens="word").fit(["a b", "b a"] * 20, out=tmp_path / "run")
    assert isinstance(an.load(tmp_path / "run", an.LanguageModel), an.LanguageModel)
    assert an.LanguageModel.load(tmp_path / "run").predict(["a b"]) == m.predict(["a b"])
    with pytest.raises(RunError, match="holds a LanguageModel, not a Classifier"):
        an.load(tmp_path / "run", an.Classifier)
