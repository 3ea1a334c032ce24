"""The demo and the studies, on trainings of a few steps."""

from __future__ import annotations

import pytest
from tasks_tiny import is_one_sentence, tiny

import anaphora as an
from anaphora.data.corpora import CORPORA
from anaphora.errors import DataError, RunError, SettingsError
from anaphora.tasks import demo, study

SMALL = {"steps": 4, "hidden": 8, "embedding": 8, "valid_every": 4, "save_every": 4, "valid_examples": 4}
SMALL |= {"warmup": 0, "max_length": 6}


@pytest.fixture
def small_demo(monkeypatch):
    monkeypatch.setattr(demo, "SETTINGS", {**demo.SETTINGS, **SMALL})


def test_the_demo_measures_beside_what_is_expected(small_demo, tmp_path):
    facts = demo.run_demo(tmp_path / "demo")
    assert set(facts) == {
        *("run", "exact_match", "expected", "passed", "unseen_numbers", "chrf"),
        *("training_seconds", "steps", "text", "output", "trace"),
    }
    assert facts["expected"] == 99.0
    assert facts["passed"] is False  # four steps teach nobody German
    assert facts["unseen_numbers"] == 1000
    assert facts["steps"] == 4
    assert "alignment" in facts["trace"].arrays
    assert an.load(facts["run"]).predict([facts["text"]]) == [facts["output"]]


def test_a_demo_takes_the_place_of_one_that_was_stopped_or_finished(
    small_demo, small_corpora, tmp_path, monkeypatch
):
    def stopped(self, *args, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("anaphora.training.loop.Trainer.run", stopped)
        with pytest.raises(KeyboardInterrupt):
            demo.run_demo(tmp_path / "demo")
    assert demo.run_demo(tmp_path / "demo")["steps"] == 4
    with monkeypatch.context() as patch:
        patch.setattr("anaphora.training.loop.Trainer.run", stopped)
        with pytest.raises(KeyboardInterrupt):  # got as far as training
            demo.run_demo(tmp_path / "demo")


def test_a_demo_never_replaces_what_is_not_its_own(small_demo, tmp_path):
    (tmp_path / "thesis.txt").write_text("three years of work")
    with pytest.raises(RunError, match="is not empty") as caught:
        demo.run_demo(tmp_path)
    assert is_one_sentence(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]
    (tmp_path / "demo").write_text("the script of my film")  # a name is no mark
    with pytest.raises(RunError, match="`anaphora demo` did not write it"):
        demo.run_demo(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_demo_replaces_its_run_and_leaves_notes_beside_it(small_demo, small_corpora, tmp_path):
    demo.run_demo(tmp_path / "demo")
    (tmp_path / "demo" / "notes.txt").write_text("loss went down")
    demo.run_demo(tmp_path / "demo")
    assert (tmp_path / "demo" / "notes.txt").read_text() == "loss went down"


def test_a_study_never_replaces_what_is_not_its_own(small_corpora, tmp_path):
    tiny(model="lstm", steps=2).fit("copy", out=tmp_path / "lstm")
    kept = (tmp_path / "lstm" / "model.safetensors").read_bytes()
    with pytest.raises(RunError, match="`anaphora study` did not write it") as caught:
        study.run("length", tmp_path, settings=SMALL)
    assert is_one_sentence(caught.value)
    assert (tmp_path / "lstm" / "model.safetensors").read_bytes() == kept
    with pytest.raises(SettingsError, match="Did you mean hidden"):
        study.run("length", tmp_path / "new", settings={"hiden": 8})
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("corpus", ["copy", "numbers"])
def test_the_study_of_length_has_a_row_for_every_test_example(small_corpora, tmp_path, corpus):
    found = study.run("length", tmp_path / "study", corpus=corpus, settings=SMALL)
    assert (found["study"], found["corpus"]) == ("length", corpus)
    assert set(found["models"]) == set(found["runs"]) == {"lstm", "lstm-attention"}
    for name, rows in found["models"].items():
        assert len(rows) == CORPORA[corpus].sizes["test"] == 60
        assert all(length >= 1 and correct in (True, False) for length, correct in rows)
        assert an.load(found["runs"][name]).settings_.model == name
    assert len({length for length, _ in found["models"]["lstm"]}) > 5


def test_an_unknown_study_is_refused_with_a_suggestion(tmp_path):
    with pytest.raises(an.AnaphoraError, match="Did you mean length"):
        study.run("lengths", tmp_path)


@pytest.mark.slow
def test_attention_keeps_long_inputs_right_where_one_state_does_not(tmp_path):
    """Bahdanau 2015, figure 2, at a tenth of the size: the curves part where sentences get long."""
    settings = {"steps": 1000, "hidden": 64, "valid_every": 1000, "save_every": 1000, "valid_examples": 50}
    models = study.run("length", tmp_path, settings=settings)["models"]

    def share(name, low, high):
        right = [correct for length, correct in models[name] if low <= length <= high]
        return sum(right) / len(right)

    assert share("lstm-attention", 1, 5) > 0.9
    assert share("lstm-attention", 20, 40) > share("lstm", 20, 40) + 0.3


def test_what_a_study_found_is_kept_and_read_again(monkeypatch, tmp_path):
    import numpy as np

    from anaphora.tasks import study

    found = {
        "success": {"rnn": {10: 0.5, 100: np.float32(0.25)}},
        "pictures": np.zeros((1, 2)),
        "bad": float("nan"),
    }

    def memory(out, **options):
        tmp_path.joinpath("study").mkdir(exist_ok=True)
        return found

    monkeypatch.setitem(study.STUDIES, "memory", memory)
    assert study.run("memory", tmp_path / "study") is found
    name, read = study.found_in(tmp_path / "study")
    assert name == "memory"
    assert read == {"success": {"rnn": {10: 0.5, 100: 0.25}}, "pictures": [[0.0, 0.0]], "bad": None}
    (tmp_path / "study" / "found.json").write_text('{"study": "own", "found": {}}')
    with pytest.raises(DataError, match="holds no finished study") as caught:
        study.found_in(tmp_path / "study")
    assert is_one_sentence(caught.value)
