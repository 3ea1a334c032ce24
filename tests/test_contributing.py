"""The steps that CONTRIBUTING gives for a preset, a view, a corpus and a task are enough; tests/data/test_sources.py adds a format."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

import anaphora as an
import anaphora.tasks
from anaphora.cli import catalog, group, main
from anaphora.cli.commands import train
from anaphora.data import corpora
from anaphora.data.corpora.corpus import Corpus, Example
from anaphora.tasks import artifacts, keywords, registry, signatures
from anaphora.tasks.classify.info import CLASSIFY
from anaphora.tasks.info import Preset
from anaphora.views import registry as views
from anaphora.views.bars import Bars
from anaphora.views.view import View

PAGE = (Path(__file__).resolve().parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
TINY = ["tokens=word", "embedding=4", "valid_every=2", "device=cpu", "warmup=0"]
SET = [word for one in TINY for word in ("--set", one)]


def test_the_page_has_steps_for_each():
    for what in ("a task", "a preset", "a setting", "a file format", "a corpus", "a view"):
        assert f"**{what}.**" in PAGE


def test_no_test_of_the_page_waits_for_a_time():
    """`until` in tests/studio/conftest.py looks again and again for a state; a time alone fails on a busy machine."""
    for path in sorted((Path(__file__).parent / "studio").glob("*.py")):
        waits = path.read_text(encoding="utf-8").count("wait_for_timeout(")
        assert waits == (path.name == "conftest.py"), f"{path.name} waits for a time"


@pytest.fixture
def reviews(tmp_path):
    path = tmp_path / "reviews.tsv"
    path.write_text(
        "".join(f"{'good' if i % 2 else 'bad'} film {i}\t{'pos' if i % 2 else 'neg'}\n" for i in range(30))
    )
    return str(path)


def test_a_preset_is_an_entry_in_the_info_of_its_task(reviews, tmp_path, monkeypatch, capsys):
    preset = Preset("small-gru", "A GRU of four units.", {"cell": "gru", "hidden": 4, "embedding": 4, "bidirectional": False},
                    CLASSIFY.presets["gru"].uses)  # fmt: skip
    monkeypatch.setitem(CLASSIFY.presets, "small-gru", preset)  # type: ignore[arg-type]
    run = str(tmp_path / "run")
    assert main.run(["models", "classify"]) == 0
    assert "small-gru" in capsys.readouterr().out
    assert (
        main.run(["train", "classify", reviews, "--model", "small-gru", "--steps", "2", *SET, "-o", run]) == 0
    )
    assert an.load(run).settings_.hidden == 4


def test_a_corpus_is_a_module_with_rules_that_is_registered(tmp_path, monkeypatch, capsys):
    def draw(variant, random):
        digits = "".join(random.choices("01", k=random.randint(2, 8)))
        return Example(" ".join(digits), "even" if digits[-1] == "0" else "odd", digits)

    corpus = Corpus("bits", "binary numbers, even or odd", {"plain": "all of them"}, {"train": 40, "dev": 8, "test": 8}, draw,
                    tasks=("classify",))  # fmt: skip
    monkeypatch.setitem(corpora.CORPORA, "bits", corpus)
    run = str(tmp_path / "run")
    assert main.run(["corpora", "bits"]) == 0
    assert "even" in capsys.readouterr().out
    assert main.run(["train", "classify", "bits", "--model", "bow", "--steps", "2", *SET, "-o", run]) == 0
    assert main.run(["score", run, "bits", "--json"]) == 0
    assert '"examples": 8' in capsys.readouterr().out
    assert an.Classifier.resume(run, steps=3).result_.steps == 3


def test_a_view_is_a_function_of_a_trace_that_is_registered(reviews, tmp_path, monkeypatch, capsys):
    def answers(trace):
        values = trace.array("probabilities", "symbol").tolist()
        return Bars("Answers", "probability", trace.tokens["symbol"], {"probability": values})

    view = View(
        "answers",
        "Answers",
        ("probabilities",),
        "Bars are probabilities.",
        "They may be wrong.",
        "it has none.",
        answers,
    )
    monkeypatch.setitem(views.VIEWS, "answers", view)
    an.Classifier("bow", embedding=4, steps=2, tokens="word", device="cpu").fit(reviews, out=tmp_path / "run")
    assert main.run(["inspect", str(tmp_path / "run"), "--view", "answers", "--text", "good film"]) == 0
    assert "pos" in capsys.readouterr().out
    assert main.run(["inspect", str(tmp_path / "run"), "--list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["views"]["answers"] is None


@pytest.fixture
def twin(tmp_path, monkeypatch):
    """A tenth task, by the steps of docs/guides/new-task.md: its parts and four lists. Its kinds read, answer and print."""
    folder = tmp_path / "tasks" / "twin"
    folder.mkdir(parents=True)
    for file in (Path(anaphora.tasks.__file__).parent / "embed").glob("*.py"):
        text = file.read_text(encoding="utf-8")
        for old, new in (
            ("tasks.embed", "tasks.twin"),
            ("SequenceEmbedder", "SequenceE_"),
            ("Embedder", "Twin"),
            ("SequenceE_", "SequenceEmbedder"),
            ('"embed"', '"twin"'),
            ("EMBED", "TWIN"),
        ):
            text = text.replace(old, new)
        (folder / file.name).write_text(text)
    monkeypatch.setattr(anaphora.tasks, "__path__", [*anaphora.tasks.__path__, str(tmp_path / "tasks")])
    info = importlib.import_module("anaphora.tasks.twin.info").TWIN
    monkeypatch.setitem(registry.TASKS, "twin", info)
    monkeypatch.setitem(artifacts.ARTIFACTS, "twin", artifacts.ARTIFACTS["embed"])
    for place in (catalog, group, train):
        monkeypatch.setattr(place, "TASK_COMMANDS", (*catalog.TASK_COMMANDS, "twin"))
    written: dict[str, object] = {}
    exec(
        signatures.source(list(registry.TASKS.values())), written
    )  # what `python -m anaphora.tasks.signatures` writes
    for name in ("TwinKeywords", "TwinModel"):
        monkeypatch.setattr(keywords, name, written[name], raising=False)
    yield info
    for name in [name for name in sys.modules if name.startswith("anaphora.tasks.twin")]:
        del sys.modules[name]


def test_a_task_is_a_package_that_is_registered(twin, tmp_path, capsys):
    (tmp_path / "pairs.tsv").write_text("".join(f"a {i}\tb {i}\n" for i in range(30)))
    run, data = str(tmp_path / "run"), str(tmp_path / "pairs.tsv")
    assert main.run(["models", "twin"]) == 0
    assert "bilstm" in capsys.readouterr().out
    sizes = ["--model", "bow", "--steps", "2", *SET, "--set", "vector_size=4", "--set", "save_every=1"]
    assert main.run(["train", "twin", data, *sizes, "-o", run]) == 0
    model = an.load(run)
    assert type(model).__name__ == "Twin"
    assert "vector_size" in str(type(model).__signature__)
    assert type(model).resume(run, steps=3).result_.steps == 3
    capsys.readouterr()
    assert main.run(["predict", run, data, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out.splitlines()[0])["output"]) == 4
    assert main.run(["score", run, data, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["examples"] == 30
    assert main.run(["inspect", run, "--view", "curves"]) == 0
    assert main.run(["twin"]) == 2
    assert "twin is a task; write `anaphora train twin DATA`" in capsys.readouterr().err


def test_the_answers_of_the_quiz_are_where_it_says():
    answers = re.findall(r"^\d+\. .+\? \[`(.+?)`\]\((.+?)\), `(\w+)`$", PAGE, re.MULTILINE)
    assert len(answers) == 10
    root = Path(__file__).resolve().parent.parent
    for label, path, name in answers:
        assert path == f"src/anaphora/{label}"
        text = (root / path).read_text(encoding="utf-8")
        assert re.search(rf"^ *(?:def|class) {name}\b", text, re.MULTILINE), f"{path} has no {name}"
