"""What was changed by hand between two stretches of a run: settings are taken and named, what was learned is not."""

from __future__ import annotations

import json
import shutil

import pytest
from tasks_tiny import is_one_sentence, pairs, tiny

import anaphora as an
from anaphora.cli import main
from anaphora.errors import AnaphoraError, RunError
from anaphora.training.progress import Reporter

TRAINING = {"steps": 6, "save_every": 3, "valid_every": 3, "schedule": "constant", "log_every": 1}


class Heard(Reporter):
    def __init__(self):
        self.said = []

    def say(self, text):
        self.said.append(text)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("changed")
    (folder / "train.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in pairs(60)))
    tiny(**TRAINING).fit(folder / "train.tsv", out=folder / "run")
    return folder


@pytest.fixture
def run(trained, tmp_path):
    shutil.copytree(trained / "run", tmp_path / "run")
    return tmp_path / "run"


def edit(path, *keys, to):
    document = json.loads(path.read_text())
    place = document
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = to
    path.write_text(json.dumps(document))


def refused(run, **asked):
    with pytest.raises(RunError) as caught:
        an.Translator.resume(run, **asked)
    assert is_one_sentence(caught.value), caught.value
    return str(caught.value)


def test_a_finished_run_is_made_longer_and_ends_as_if_it_had_been_meant_so(trained, run, tmp_path):
    tiny(**{**TRAINING, "steps": 10}).fit(trained / "train.tsv", out=tmp_path / "long")
    heard = Heard()
    longer = an.Translator.resume(run, steps=10, reporter=heard)
    assert longer.result_.steps == 10
    assert (
        f"{run}: steps was 6 and is 10 since the checkpoint was written; the run goes on with that."
        in heard.said
    )
    assert json.loads((run / "config.json").read_text())["settings"]["steps"] == 10
    for name in ("metrics.jsonl", "samples.jsonl"):
        made = [line for line in (run / name).read_text().splitlines() if json.loads(line)["step"] > 6]
        meant = (tmp_path / "long" / name).read_text().splitlines()
        assert made == [line for line in meant if json.loads(line)["step"] > 6]
    assert an.load(run).predict(["aa"]) == an.load(tmp_path / "long").predict(["aa"])


def test_a_run_is_not_made_shorter_than_it_is(run):
    before = (run / "config.json").read_bytes()
    heard = Heard()
    told = refused(run, steps=5, reporter=heard)
    assert (
        "has trained for 6 steps already, so nothing is left to do up to step 5; give a larger number" in told
    )
    assert not any("goes on" in text for text in heard.said)
    assert (run / "config.json").read_bytes() == before
    assert an.load(run)


def test_a_run_that_is_over_says_what_would_train_it_longer(run, tmp_path, trained):
    heard = Heard()
    an.Translator.resume(run, steps=6, reporter=heard)
    assert heard.said[-1].endswith("--steps N` with N above 6 trains longer.")
    still = {**TRAINING, "steps": 8, "valid_every": 1, "patience": 1, "lr": 1e-12}
    tiny(**still).fit(trained / "train.tsv", out=tmp_path / "still")
    an.Translator.resume(tmp_path / "still", steps=20, reporter=heard)
    assert heard.said[-1].endswith(
        ", since patience = 1 ran out; a larger one in its config.json, or 0, trains longer."
    )
    assert not any("goes on" in text for text in heard.said)


def test_what_is_fitted_in_one_go_is_not_made_longer(tmp_path):
    rows = [("good words", "a"), ("bad ones", "b")] * 6
    an.Classifier("ngrams").fit(rows, out=tmp_path / "run")
    with pytest.raises(
        AnaphoraError, match="ngrams is fitted in one go, so it cannot be trained longer"
    ) as told:
        an.Classifier.resume(tmp_path / "run", steps=50)
    assert is_one_sentence(told.value)


def test_a_setting_changed_by_hand_is_taken_and_named(run):
    edit(run / "config.json", "settings", "lr", to=0.5)
    edit(run / "config.json", "settings", "steps", to=7)
    with pytest.raises(RunError, match=r"put the original back, or train on with it: `anaphora resume"):
        an.load(run)
    heard = Heard()
    an.Translator.resume(run, reporter=heard)
    named = [text for text in heard.said if "since the checkpoint" in text]
    assert len(named) == 1
    assert "steps was 6 and is 7, lr was" in named[0]
    assert an.load(run).settings_.lr == 0.5


def test_a_change_that_makes_another_model_is_refused_by_its_name(run):
    edit(run / "config.json", "settings", "hidden", to=24)
    told = refused(run)
    assert "it is of another model (" in told
    assert "; by config.json hidden was 16 and is 24)); put back what was changed" in told


def test_another_tokenizer_is_never_taken_for_the_one_of_the_run(run):
    content = (run / "tokenizer.json").read_text()
    (run / "tokenizer.json").write_text(content + " ")  # the same symbols, but not the same file
    assert (
        "tokenizer.json: is not the one these weights were trained with; put the original back."
        in refused(run)
    )
    assert "tokenizer.json: is not the one" in refused(run, steps=9)
    (run / "tokenizer.json").write_text(content)
    assert an.load(run)


@pytest.mark.parametrize("keys", [("train",), ("train", "of"), ("train", "of", "path"), ("train", "seed")])
@pytest.mark.parametrize("value", [3, "x", None, [], {"a": 1}])
def test_nonsense_about_the_data_is_one_sentence(run, keys, value, capsys):
    if keys == ("train", "seed") and value in (3, None):
        value = -1  # 3 and None are seeds like others
    edit(run / "config.json", "data", *keys, to=value)
    edit(run / "config.json", "settings", "steps", to=7)
    assert main.run(["resume", str(run)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_many_mistakes_in_a_config_stay_one_sentence(run):
    for key in ("hidden", "lr", "steps", "layers"):
        edit(run / "config.json", "settings", key, to="x")
    assert (
        "config.json holds 4 settings that cannot be used, the first: steps = 'x' cannot be used"
        in refused(run)
    )


@pytest.mark.parametrize("content", ["{}", "[]", "null", "x", '{"format": 1, "symbols": 3}'])
def test_what_was_learnt_is_checked_before_anything_is_built_on_it(run, content):
    (run / "tokenizer.json").write_text(content)
    assert "tokenizer.json: is not the one these weights were trained with" in refused(run)
    (run / "model.safetensors").write_bytes(b"")  # nothing left to compare it with but the checkpoints
    assert "tokenizer.json" in refused(run)


@pytest.fixture(scope="module")
def carried(tmp_path_factory):
    """A language model, whose state is carried from batch to batch."""
    folder = tmp_path_factory.mktemp("carried")
    (folder / "text.txt").write_text("".join(f"{s} {t}\n" for s, t in pairs(200)))
    given = {"tokens": "char", "hidden": 8, "embedding": 4, "batch_tokens": 256, "device": "cpu"}
    an.LanguageModel(**given, **TRAINING).fit(folder / "text.txt", out=folder / "run")
    return folder / "run"


def test_a_state_that_fits_no_longer_is_begun_anew(carried, tmp_path):
    run = shutil.copytree(carried, tmp_path / "run")
    edit(run / "config.json", "settings", "batch_tokens", to=64)
    assert an.LanguageModel.resume(run, steps=8).result_.steps == 8


def test_a_place_in_the_data_that_is_lost_is_a_sentence(carried, tmp_path):
    run = shutil.copytree(carried, tmp_path / "run")
    edit(run / "config.json", "settings", "lines", to=True)
    with pytest.raises(
        RunError, match=r"cannot be found again, as by config.json .*lines was false and is true"
    ) as told:
        an.LanguageModel.resume(run, steps=8)
    assert is_one_sentence(told.value)
