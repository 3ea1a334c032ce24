"""From the words a user sets to settings: presets' defaults, and every mistake told at once."""

from __future__ import annotations

import copy

import pytest

import anaphora as an
from anaphora.errors import SettingsError
from anaphora.settings import VariantSettings
from anaphora.settings.synonyms import SYNONYMS
from anaphora.tasks.registry import TASKS, meaningful, resolve

TRANSLATE = TASKS["translate"]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("rnn", {"cell": "elman", "layers": 1, "bidirectional": False}),
        ("lstm", {"cell": "lstm", "layers": 2, "bidirectional": False}),
        ("lstm-attention", {"cell": "lstm", "layers": 1, "bidirectional": True, "attention": "bilinear"}),
        ("gru-attention", {"cell": "gru", "bidirectional": True, "attention": "additive"}),
        ("transformer", {"layers": 3, "schedule": "cosine", "warmup": 800, "joint": True}),
    ],
)
def test_a_preset_puts_its_values_in_place_of_the_defaults(model, expected):
    params = an.Translator(model=model).get_params()
    assert {key: params[key] for key in expected} == expected


def test_what_is_given_wins_over_the_preset():
    assert an.Translator(model="lstm", layers=1).settings_.layers == 1


def test_without_a_model_the_default_preset_is_taken():
    assert an.Translator().settings_.model == TRANSLATE.default_preset == "lstm-attention"


@pytest.mark.parametrize(
    ("model", "given"),
    [
        ("rnn", {"heads": 2}),
        ("lstm", {"attention": "dot"}),
        ("lstm-attention", {"norm_first": True}),
        ("gru-attention", {"input_feeding": True}),
        ("gru-attention", {"lexical": True}),
        ("transformer", {"embedding": 8}),
        ("transformer", {"cell": "gru"}),
    ],
)
def test_a_setting_without_effect_is_refused(model, given):
    with pytest.raises(SettingsError, match=f"{next(iter(given))} has no effect on the preset {model}"):
        an.Translator(model=model, **given)


def test_all_mistakes_are_told_at_once():
    with pytest.raises(SettingsError) as caught:
        an.Translator(model="rnn", heads=2, hiden=8, dropout=1.5, steps="many", tokens="chars")
    problems = caught.value.problems
    assert len(problems) == 5
    told = "\n".join(problems)
    assert "heads has no effect on the preset rnn" in told
    assert "hiden is not a setting of Translator. Did you mean hidden?" in told
    assert "dropout = 1.5 cannot be used: it must be less than 1" in told
    assert "steps = 'many' cannot be used: it must be a whole number" in told
    assert "Did you mean char?" in told


def test_a_setting_of_another_task_is_named_as_such_and_nothing_like_it_is_suggested():
    with pytest.raises(SettingsError) as caught:
        an.Tagger(label_smoothing=0.1, max_token=3)
    told = "label_smoothing is not a setting of Tagger but of {}; leave it out."
    told = told.format("Translator, Classifier, Transcriber, Captioner, Answerer")
    assert caught.value.problems == [told, "max_token is not a setting of Tagger. Did you mean max_tokens?"]


@pytest.mark.parametrize("key", ["source_field", "valid", "out"])
def test_an_argument_of_fit_is_told_as_such(key):
    with pytest.raises(SettingsError) as caught:
        resolve(TRANSLATE, {key: "x"})
    (told,) = caught.value.problems
    assert told == (
        f"{key} is not a setting of Translator but an argument of fit, and an option of `anaphora train`; give it there."
    )


@pytest.mark.parametrize("task", ["Translator", "Classifier", "Forecaster", "Captioner"])
def test_no_seed_is_taken_that_a_generator_refuses(task):
    with pytest.raises(
        SettingsError, match="seed = 4294967296 cannot be used: it must be less than 4294967296"
    ):
        getattr(an, task)(seed=2**32)


def test_an_unknown_preset_is_told_together_with_other_mistakes():
    with pytest.raises(SettingsError) as caught:
        an.Translator(model="lstm-atention", lr=-1)
    first, second = caught.value.problems
    assert "'lstm-atention' is not a preset of Translator" in first
    assert "Did you mean lstm-attention?" in first
    assert second.startswith("lr = -1 cannot be used")
    with pytest.raises(SettingsError, match="model = true is not a preset"):  # as it is written in a file
        an.Translator(model=True)


def test_mistakes_name_their_place_in_a_file():
    with pytest.raises(SettingsError) as caught:
        resolve(
            TRANSLATE, {"model": "rnn", "heads": 2, "clip": -1}, {"heads": "a.toml:2", "clip": "a.toml:3"}
        )
    assert [problem.partition(": ")[0] for problem in caught.value.problems] == ["a.toml:2", "a.toml:3"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"model": "transformer", "hidden": 30, "heads": 4}, "hidden = 30 cannot be divided among heads = 4"),
        (
            {"model": "transformer", "hidden": 5, "heads": 1, "positions": "sinusoidal"},
            "hidden = 5 must be even",
        ),
        (
            {"model": "transformer", "hidden": 5, "heads": 1},
            "^positions = 'rotary' needs heads of even width, not hidden / heads = 5.$",
        ),
        ({"attention": "dot"}, "set bidirectional = false"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(given, told):
    with pytest.raises(SettingsError, match=told):
        an.Translator(**given)


@pytest.mark.parametrize("model", TRANSLATE.presets)
def test_params_make_the_same_estimator_again(model):
    first = an.Translator(model=model, hidden=32, seed=7)
    second = an.Translator(**first.get_params())
    assert second.get_params() == first.get_params()
    assert second.settings_ == first.settings_
    assert meaningful(TRANSLATE, first.settings_) == {**first.get_params(), "steps": first.settings_.steps}
    fixed = an.Translator(model=model, steps=9)
    assert an.Translator(**fixed.get_params()).settings_ == fixed.settings_


@pytest.mark.parametrize("model", TRANSLATE.presets)
def test_cloning_as_scikit_learn_does_it(model):
    """sklearn.base.clone copies each parameter, makes a new object of them, and wants the very same back."""
    original = an.Translator(model=model, hidden=32, lr=0.00123)
    copied = {name: copy.deepcopy(value) for name, value in original.get_params(deep=False).items()}
    clone = type(original)(**copied)
    assert clone is not original
    for name, value in clone.get_params(deep=False).items():
        assert value is copied[name], name


def test_a_clone_is_not_trained(copier):
    clone = an.Translator(**copier.get_params())
    assert not hasattr(clone, "model_")
    with pytest.raises(an.AnaphoraError, match="has not been trained"):
        clone.predict(["a"])


def test_set_params_applies_the_new_presets_defaults():
    translator = an.Translator(hidden=32)
    assert translator.set_params(model="lstm") is translator
    params = translator.get_params()
    assert (params["hidden"], params["layers"]) == (32, 2)
    assert "attention" not in params


def test_a_refused_set_params_changes_nothing():
    translator = an.Translator(hidden=32)
    before = translator.get_params()
    with pytest.raises(SettingsError):
        translator.set_params(hidden=-1)
    assert translator.get_params() == before
    assert translator.set_params(layers=2).settings_.hidden == 32


def test_the_estimator_shows_what_was_given():
    assert repr(an.Translator("lstm", hidden=32)) == "Translator(model='lstm', hidden=32)"


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.command)
def test_every_setting_is_used_by_some_preset_and_every_preset_knows_its_own(task):
    fields = set(task.settings.model_fields)
    used = set().union(*(task.used(preset) for preset in task.presets))
    # Variants of Transformers that read text; where no preset does, giving one is an error.
    assert used | (fields & set(VariantSettings.model_fields)) == fields
    some = {"norm_eps", "embedding_norm"}  # of models of others that hear
    assert used & set(VariantSettings.model_fields) in (set(), set(VariantSettings.model_fields), some)
    for preset in task.presets.values():
        named = {one for one in preset.uses if isinstance(one, str)}
        assert named <= fields, f"{preset.name} uses what {task.name} does not have: {named - fields}"
        aside = {"scan"} if task.command == "classify" else set()  # picture presets fix it
        assert preset.defaults.keys() - aside <= task.used(preset.name).keys(), preset.name


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("learning_rate", "lr?"),
        ("batch_size", "batch_tokens? It counts symbols, not examples."),
        ("num_layers", "layers?"),
        ("hidden_size", "hidden?"),
        ("d_model", "hidden?"),
        ("max_epochs", "epochs?"),
        ("random_state", "seed?"),
        ("early-stopping", "patience?"),
    ],
)
def test_names_of_other_libraries_are_understood(given, meant):
    with pytest.raises(SettingsError) as caught:
        an.Translator(**{given: 1})
    assert caught.value.problems == [f"{given} is not a setting of Translator. Did you mean {meant}"]


def test_synonyms_name_settings_and_none_hides_one():
    settings = set().union(*(task.settings.model_fields for task in TASKS.values()))
    settings |= set().union(*(task.scoring.model_fields for task in TASKS.values() if task.scoring))
    assert not SYNONYMS.keys() & {name for name, _ in SYNONYMS.values()}
    missing = {name for name, _ in SYNONYMS.values()} - settings
    assert not missing, f"synonyms of what is no setting: {missing}"


@pytest.mark.parametrize(
    ("task", "model"),
    [
        ("Classifier", "ngrams"),
        ("Classifier", "rocket"),
        ("Tagger", "hmm"),
        ("LanguageModel", "ngram"),
        ("Forecaster", "var"),
    ],
)
def test_a_harmless_setting_without_effect_is_a_warning(task, model):
    with pytest.warns(UserWarning, match=f"threads has no effect on the preset {model}"):
        plain = getattr(an, task)(model, threads=1)
    assert "threads" not in plain.get_params()
    assert repr(plain) == f"{task}(model='{model}')"
    with pytest.raises(SettingsError, match=f"steps has no effect on the preset {model}"):
        getattr(an, task)(model, steps=1)


def test_a_setting_that_no_preset_of_a_task_uses_is_not_of_that_task():
    with pytest.raises(SettingsError, match="joint is not a setting of Captioner but of Translator"):
        an.Captioner(joint=True)
