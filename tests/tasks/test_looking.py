"""What a person asks a model to look at: typed, a file, or one of the run's own dev examples by its number."""

from __future__ import annotations

import json

import numpy as np
import pytest

import anaphora as an
from anaphora.cli.main import run as command
from anaphora.data.pictures import png_bytes
from anaphora.errors import DataError
from anaphora.tasks.looking import Asked
from hand_made import EVIL, scene

TINY = {"hidden": 4, "steps": 2, "batch_tokens": 64, "valid_every": 2, "device": "cpu"}


class Seeing:
    """A model whose inputs are files; notes what it was given."""

    def _inputs(self):
        return "file"

    def _with_words(self, x, words):
        return (x, words)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A classifier of vectors; its dev data are two sequences that are known by their first number."""
    folder = tmp_path_factory.mktemp("looking") / "run"
    random = np.random.default_rng(0)
    train = [(random.normal(size=(5, 2)).astype(np.float32), "ab"[i % 2]) for i in range(8)]
    dev = [(np.full((3, 2), 7.0, np.float32), "a"), (np.full((4, 2), 9.0, np.float32), "b")]
    an.Classifier(model="lstm", **TINY).fit(train, valid=dev, out=folder)
    return folder


def test_a_number_names_a_dev_example_of_the_run(run):
    asked = Asked(an.load(run), run)
    x, facts = asked.find("#2")
    assert x.tolist() == np.full((4, 2), 9.0).tolist()
    assert facts == {"example": 2, "reference": "b"}
    assert asked.find(" #1 ")[0][0, 0] == 7.0


@pytest.mark.parametrize("text", ["#0", "#3", "#999999999"])
def test_numbers_beyond_the_dev_examples_are_refused(run, text):
    with pytest.raises(DataError, match=r"dev examples #1 to #2; there is no #"):
        Asked(an.load(run), run).find(text)


def test_numbers_can_still_be_typed_and_text_is_never_a_number(run, tmp_path):
    assert Asked(an.load(run), run).find("1 2\n3 4") == ("1 2\n3 4", {})
    m = an.Classifier(model="lstm", embedding=4, **TINY).fit([("#1", "a"), ("x y", "b")] * 6)
    assert Asked(m, tmp_path).find("#1") == ("#1", {})


def test_words_beside_an_example_only_where_they_mean_something(run):
    with pytest.raises(DataError, match="takes no words beside its input; leave 'is it red\\?' out"):
        Asked(an.load(run), run).find("#1 is it red?")


def test_files_are_named_by_a_command_and_never_by_a_page(run, tmp_path):
    asked = Asked(Seeing(), tmp_path)
    assert asked.find("", "scene.png") == ("scene.png", {})
    assert asked.find("is it red?", "scene.png") == (("scene.png", "is it red?"), {})
    with pytest.raises(
        DataError, match=r"reads no typed text; name one of the run's dev examples, such as #1"
    ):
        asked.find("scene.png")
    with pytest.raises(DataError, match="a file and #N are two inputs"):
        asked.find("#1", "scene.png")
    with pytest.raises(DataError, match=r"reads what is typed; give it with --text, or name a dev example"):
        Asked(an.load(run), run).find("", "scene.png")


def test_a_table_of_series_is_a_path_and_its_name_typed_is_not(tmp_path, capsys):
    table, folder = tmp_path / "sales.csv", tmp_path / "run"
    table.write_text("sales\n" + "".join(f"{i + i % 4}\n" for i in range(40)))
    an.Forecaster("median", horizon=3).fit(table, out=folder)
    asked = Asked(an.load(folder), folder)
    assert asked.find("", str(table)) == (table, {})
    with pytest.raises(DataError, match="reads what is typed"):
        asked.find("1", str(table))
    assert command(["inspect", str(folder), "--view", "forecast", "--input", str(table), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["arrays"]["forecast"]["values"]) == 3
    assert command(["inspect", str(folder), "--view", "forecast", "--text", str(table)]) == 2
    assert "is not numbers" in capsys.readouterr().err


def test_a_model_without_its_data_has_no_examples(run, tmp_path):
    an.load(run).save(tmp_path / "saved")
    with pytest.raises(DataError, match="saved without its data, so it has no dev examples"):
        Asked(an.load(tmp_path / "saved"), tmp_path / "saved").find("#1")


def test_the_command_takes_a_number_and_tells_what_was_wanted(run, capsys):
    assert command(["inspect", str(run), "--view", "states", "--text", "#2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["facts"]["example"], found["facts"]["reference"]) == (2, "b")
    assert len(found["tokens"]["time"]) == 4


def test_the_command_asks_the_probe_for_what_a_view_needs(run, capsys):
    """Gradients are only looked at when they are asked for."""
    assert command(["inspect", str(run), "--view", "gradients", "--text", "#2"]) == 0
    assert "Gradient" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--text", "#3"], "dev examples #1 to #2"),
        (["--input", "x.png"], "reads what is typed"),
        ([], "give it with --text, or a file with --input"),
        (["--text", " "], "--text is empty"),
        (["--view", "curves", "--input", "x.png"], "takes no --text and no --input"),
        (["--view", "glimpses", "--text", "#1"], "bit by bit"),
    ],
)
def test_the_command_refuses_in_a_sentence(run, capsys, words, told):
    assert command(["inspect", str(run), "--view", "states", *words]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert "Traceback" not in err


@pytest.fixture(scope="module")
def seeing(tmp_path_factory):
    """A captioner, an answerer, and a picture in a file whose name is no good as markup."""
    folder = tmp_path_factory.mktemp("seeing")
    tiny = {"hidden": 8, "steps": 2, "valid_every": 2, "device": "cpu", "picture_size": 32}
    captions = [(scene(), text) for text in ("a red square", "a blue square") * 4]
    an.Captioner(model="lstm-attention", embedding=8, **tiny).fit(
        captions, valid=captions[:2], out=folder / "captioner"
    )
    questions = [(scene(), "is it red ?", answer) for answer in ("yes", "no") * 4]
    an.Answerer(model="lstm-attention", embedding=8, **tiny).fit(
        questions, valid=questions[:2], out=folder / "answerer"
    )
    (folder / f"{EVIL}.png").write_bytes(png_bytes(scene()))
    (folder / "none.png").write_bytes(b"no picture")
    return folder


def test_the_command_looks_at_a_file_whatever_its_name(seeing, capsys, monkeypatch):
    monkeypatch.chdir(seeing)  # a long path would be folded somewhere inside the name
    given = [str(seeing / "captioner"), "--view", "captions", "--input", f"{EVIL}.png"]
    assert command(["inspect", *given, "--html", str(seeing / "strip.html")]) == 0
    html = (seeing / "strip.html").read_text()
    assert "&lt;img src=x" in html
    assert "<img" not in html
    capsys.readouterr()
    assert command(["inspect", *given, "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert seen["input"].endswith(f"{EVIL}.png")
    assert np.array(seen["arrays"]["picture"]["values"]).shape == (32, 32, 3)


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["--input", f"{EVIL}.png", "--text", "is it red ?"], "is it red ?"),
        (["--text", "#1 is it blue ?"], "is it blue ?"),
        (["--text", "#1"], "is it red ?"),
    ],
)
def test_questions_go_with_a_file_or_an_example(seeing, capsys, monkeypatch, words, asked):
    monkeypatch.chdir(seeing)
    assert command(["inspect", "answerer", "--view", "captions", *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["facts"]["text"] == asked
    assert found["facts"]["output"] in ("yes", "no")
    assert found["facts"].get("reference") == ("yes" if words[-1] == "#1" else None)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["captioner", "--input", "absent.png"], "absent.png"),
        (["captioner", "--input", "none.png"], "none.png"),
        (["captioner", "--input", "."], "."),
        (["captioner", "--input", f"{EVIL}.png", "--text", "is it red?"], "takes no words beside its input"),
        (["captioner", "--text", "a red square"], "reads no typed text"),
        (["answerer", "--input", f"{EVIL}.png"], "question"),
    ],
)
def test_files_that_cannot_be_looked_at_are_told_in_a_sentence(seeing, capsys, monkeypatch, words, told):
    monkeypatch.chdir(seeing)
    assert command(["inspect", *words, "--view", "captions"]) == 2
    err = capsys.readouterr().err
    assert told in err
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1


def test_several_runs_stand_in_one_picture_where_the_view_can(run, tmp_path, capsys):
    other = tmp_path / "other"
    rows = [(np.full((3 + i % 3, 2), i % 2, np.float32), "ab"[i % 2]) for i in range(8)]
    an.Classifier(model="rnn", **TINY).fit(rows, valid=rows[:2], out=other)
    both = [str(run), str(other), "--text", "#1"]
    picture = tmp_path / "both.svg"
    assert command(["inspect", *both, "--view", "gradients", "--svg", str(picture)]) == 0
    assert all(name in picture.read_text() for name in (str(run), str(other)))
    capsys.readouterr()
    assert command(["inspect", *both, "--view", "gradients", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [one["run"] for one in shown] == [str(run), str(other)]
    assert all("state_gradients" in one["arrays"] for one in shown)
    assert command(["inspect", *both, "--view", "states"]) == 2
    assert "looks into one model; name one RUN, not 2" in capsys.readouterr().err
