"""A saved model comes back as it was; a damaged one is refused in one sentence."""

from __future__ import annotations

import json
import random
import shutil

import pytest
import torch
from tasks_tiny import PRESETS, is_one_sentence, pairs, tiny, words

import anaphora as an
from anaphora.errors import RunError
from anaphora.tasks.verify import verify_run
from anaphora.training.run import RunFolder
from anaphora.training.weights import load_weights, save_weights

TEXTS = words(20, seed=5)
FILES = ["config.json", "tokenizer.json", "model.safetensors"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory, copier):
    folder = tmp_path_factory.mktemp("saved") / "model"
    copier.save(folder)
    return folder


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A model of the same shape, of other data and another seed."""
    folder = tmp_path_factory.mktemp("other") / "model"
    tiny(seed=2, steps=2).fit([("fed", "ABCDEF"), ("cba", "FED")]).save(folder)
    return folder


@pytest.fixture
def broken(saved, tmp_path):
    """A copy to be broken."""
    return shutil.copytree(saved, tmp_path / "model")


def refused(folder) -> str:
    with pytest.raises(RunError) as caught:
        an.load(folder)
    assert is_one_sentence(caught.value), str(caught.value)
    assert str(folder) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("preset", PRESETS)
def test_predictions_are_the_same_after_save_and_load(of_preset, preset, tmp_path):
    model = of_preset(preset)
    model.save(tmp_path / "model")
    again = an.load(tmp_path / "model")
    assert type(again) is an.Translator
    assert again.get_params() == model.get_params()
    assert again.search(TEXTS, n_best=3) == model.search(TEXTS, n_best=3)


def test_a_run_folder_loads_like_a_saved_model(tmp_path):
    model = tiny(steps=60).fit(pairs(100), out=tmp_path / "run")
    assert an.load(str(tmp_path / "run")).predict(TEXTS) == model.predict(TEXTS)


def test_a_loaded_model_can_be_saved_scored_and_probed_again(saved, tmp_path):
    first = an.load(saved)
    first.save(tmp_path / "copy")
    second = an.load(tmp_path / "copy")
    assert second.predict(TEXTS) == first.predict(TEXTS)
    assert second.score(pairs(5))["examples"] == 5
    assert second.probe("abc").tokens["source"] == ["a", "b", "c", "</s>"]
    for name in FILES[:2]:
        assert (tmp_path / "copy" / name).read_bytes() == (saved / name).read_bytes()


def test_a_saved_model_keeps_no_data(saved):
    assert {path.name for path in saved.iterdir()} == {*FILES, "README.md"}
    assert json.loads((saved / "config.json").read_text())["data"] == {}
    with pytest.raises(RunError, match="only a run folder can be resumed"):
        an.Translator.resume(saved)


def test_saving_refuses_a_folder_with_something_in_it(copier, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "precious.txt").write_text("mine")
    with pytest.raises(RunError, match="is not empty") as caught:
        copier.save(folder)
    assert is_one_sentence(caught.value)
    copier.save(folder, force=True)
    assert (folder / "precious.txt").read_text() == "mine"
    assert an.load(folder).predict(["abc"]) == ["ABC"]


def test_settings_changed_after_training_do_not_spoil_what_is_saved(saved, tmp_path):
    model = an.load(saved)
    model.set_params(hidden=64, beam=2)
    model.save(tmp_path / "model")
    again = an.load(tmp_path / "model")
    assert (again.settings_.hidden, again.settings_.beam) == (16, 2)
    assert again.predict(TEXTS) == an.load(saved).predict(TEXTS, beam=2)


def test_the_card_says_what_the_model_is(saved, copier):
    card = (saved / "README.md").read_text()
    parameters = sum(weight.numel() for weight in copier.model_.parameters())
    assert 'model: "lstm-attention"' in card
    assert f"{parameters:,} parameters" in card
    assert f"| exact_match | {copier.result_.metrics['exact_match']:.4g} |" in card


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(broken, name):
    (broken / name).unlink()
    assert name in refused(broken)


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_anywhere_is_noticed(broken, name):
    path = broken / name
    whole = path.read_bytes()
    draw = random.Random(name)
    for place in sorted(draw.sample(range(len(whole)), 60)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        refused(broken)
    path.write_bytes(whole)
    an.load(broken)


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_noticed(broken, name):
    path = broken / name
    whole = path.read_bytes()
    for part in range(64):
        path.write_bytes(whole[: len(whole) * part // 64])
        refused(broken)


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_run_is_noticed(broken, other, name):
    shutil.copy(other / name, broken / name)
    refused(broken)


def test_a_zeroed_page_is_noticed(broken):
    path = broken / "model.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-4096] + bytes(4096))
    assert "damaged" in refused(broken)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_numbers_are_refused(broken, bad):
    tensors, facts = load_weights(broken / "model.safetensors")
    name = sorted(tensors)[3]
    tensors[name] = torch.full_like(tensors[name], bad)
    save_weights(broken / "model.safetensors", tensors, facts=facts)
    assert f"{name} are not finite" in refused(broken)


def test_weights_of_another_shape_are_refused(broken):
    tensors, facts = load_weights(broken / "model.safetensors")
    name = sorted(tensors)[3]
    save_weights(broken / "model.safetensors", {**tensors, name: torch.zeros(3)}, facts=facts)
    assert "weights of another model" in refused(broken)
    del tensors[name]
    save_weights(broken / "model.safetensors", tensors, facts=facts)
    assert "weights of another model" in refused(broken)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": 2}, "newer than this Anaphora"),
        ({"format": None}, "has no format version"),
        ({"task": "divine"}, "names the task 'divine'"),
        ({"task": ["translate"]}, "does not know"),
        ({"settings": {"hiden": 3}}, "hiden is not a setting of Translator"),
        ({"settings": {"model": "lstm", "heads": 2}}, "heads has no effect"),
        ({"settings": []}, "is not a run's config"),
        ({"data": [1]}, "does not say what data"),
    ],
)
def test_a_config_from_elsewhere_is_refused(broken, change, told):
    path = broken / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert told in refused(broken)


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", "{", "[" * 100_000, '{"format": NaN}', "\x00"])
def test_what_is_not_a_config_is_refused(broken, text):
    (broken / "config.json").write_text(text)
    refused(broken)


def test_newer_tokenizer_and_weights_are_refused(broken):
    """Sealed as a later version would: everything fits together but for the version number."""
    run = RunFolder(broken)
    tensors, facts = run.load_model()
    tokenizer = json.loads(run.read_text("tokenizer.json"))
    run.write("tokenizer.json", json.dumps({**tokenizer, "format": 2}))
    save_weights(run.model, tensors, facts={**facts, "files": run.fingerprints()})
    assert "its format is 2" in refused(broken)


def test_a_folder_of_something_else_and_a_file_are_refused(tmp_path):
    assert "is not a run folder: it has no config.json" in refused(tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    assert "is no file of weights that is read here" in refused(tmp_path / "notes.txt")
    assert "does not exist" in refused(tmp_path / "nowhere")


def test_verify_names_the_damaged_file(broken):
    assert all(finding.fine for finding in verify_run(broken))
    path = broken / "tokenizer.json"
    path.write_bytes(path.read_bytes()[:-20])
    bad = [finding.file for finding in verify_run(broken) if not finding.fine]
    assert bad[0] == "tokenizer.json"
