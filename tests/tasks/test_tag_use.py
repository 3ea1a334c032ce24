"""Taggers learn, name only what their scheme allows, and answer alone as they answer in a batch."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

import anaphora as an
from anaphora.data.corpora import generate
from anaphora.data.labelled_targets import Targets
from anaphora.data.symbols import UNK
from anaphora.data.tag_vocabulary import hiding_rates
from anaphora.errors import DataError, SettingsError
from anaphora.tasks.registry import TASKS
from anaphora.tasks.tag.info import TaggerSettings
from anaphora.tasks.tag.objective import TagObjective
from sweeps import sweep

SIZES = {"hidden": 24, "lr": 1e-2, "dropout": 0.0, "warmup": 0, "ema": 0.0}
RUN = {"steps": 140, "batch_tokens": 500, "valid_every": 1000, "save_every": 1000, "device": "cpu"}
PRESETS = {
    "hmm": {"model": "hmm"},
    "hmm of order 2": {"model": "hmm", "order": 2},
    "bilstm": {"model": "bilstm", "embedding": 16, "characters": "none"},
    "bilstm with spellings": {"model": "bilstm", "embedding": 16, "character_hidden": 6},
    "forward only": {"model": "bilstm", "embedding": 16, "characters": "none", "bidirectional": False},
    "bilstm-crf": {"model": "bilstm-crf", "embedding": 16, "characters": "conv"},
    "transformer": {
        "model": "transformer",
        "heads": 2,
        "feedforward": 48,
        "lr": 3e-3,
        "character_hidden": 4,
        "steps": 260,
    },
}
AMBIGUOUS = "they talked about Teddy bears and Teddy Roosevelt or Apple stores and Apple juice ."
MEANT = "O O O O O O B-PER I-PER O B-ORG O O O O O"


@pytest.fixture(scope="module")
def of_preset():
    made = {}

    def make(name):
        if name not in made:
            given = PRESETS[name] if "hmm" in name else {**SIZES, **RUN, **PRESETS[name]}
            made[name] = an.Tagger(**given).fit(
                generate("names", size=2000), valid=generate("names", split="dev", size=50)
            )
        return made[name]

    return make


@pytest.fixture(scope="module")
def most_frequent():
    """The stated baseline: each word gets the tag it had most often in training."""
    from anaphora.data.sources.conll import open_sentences, words_of
    from anaphora.kinds.measures.tags import tag_measures

    counts: dict[str, dict[str, int]] = {}
    for words, tags in open_sentences("names"):
        for word, tag in zip(words_of(words), words_of(tags), strict=True):
            seen = counts.setdefault(word, {})
            seen[tag] = seen.get(tag, 0) + 1
    test = [(words_of(words), words_of(tags)) for words, tags in open_sentences("names", role="test")]
    said = [
        [max(counts.get(w, {"O": 1}), key=counts.get(w, {"O": 1}).get) for w in words] for words, _ in test
    ]
    return tag_measures(said, [tags for _, tags in test], spans=True).report["f1"]


@pytest.mark.parametrize("preset", [name for name in PRESETS if name != "forward only"])
def test_every_preset_beats_the_most_frequent_tag_of_each_word(of_preset, preset, most_frequent):
    """The HMM only by what surnames tell: "Apple stores" and "Apple juice" have the same tags after Apple."""
    assert of_preset(preset).score("names")["f1"] > most_frequent + (3 if "hmm" in preset else 10)


def test_the_word_after_a_name_is_seen_by_who_reads_both_ways_only(of_preset):
    both, one = of_preset("bilstm"), of_preset("forward only")
    assert both.predict([AMBIGUOUS]) == [MEANT.split()]
    assert both.score("names")["f1"] > 95
    said = one.predict([AMBIGUOUS])[0]
    assert said[3] == said[6] == "B-PER"  # what comes next has not been read, and most Teddys are people
    assert one.score("names")["f1"] < 75


@pytest.mark.parametrize("preset", PRESETS)
def test_a_sentence_alone_is_tagged_as_in_a_batch_of_64(of_preset, preset):
    model, draw = of_preset(preset), random.Random(1)
    known = [*AMBIGUOUS.split(), "Zebulon", "x", "antidisestablishmentarianism" * 2]
    sentences = [draw.choices(known, k=draw.choice([1, 2, 5, 9, 40])) for _ in range(63)] + [[]]
    together = model.tag(sentences)
    for words, found in list(zip(sentences, together, strict=True))[:: sweep(7, 1)]:
        (alone,) = model.tag([words])
        assert alone.tags == found.tags
        assert len(alone.tags) == len(words)
        assert alone.probabilities == pytest.approx(found.probabilities, abs=1e-5)
        assert all(0 < p <= 1 + 1e-9 for p in alone.probabilities)
    assert len({tuple(found.tags) for found in together}) > 5


@pytest.mark.parametrize("preset", PRESETS)
def test_no_sequence_breaks_the_scheme(of_preset, preset):
    draw = random.Random(2)
    names = ["Teddy", "Roosevelt", "Miller", "Tanaka", "Apple", "stores", "saw", "."]
    for tags in of_preset(preset).predict([draw.choices(names, k=8) for _ in range(40)]):
        for before, now in zip(["O", *tags], tags, strict=False):
            assert not now.startswith("I-") or before[1:] == now[1:], tags


@pytest.mark.parametrize("preset", PRESETS)
def test_saved_and_loaded_it_answers_the_same(of_preset, preset, tmp_path):
    model = of_preset(preset)
    model.save(tmp_path / "model")
    again = an.load(tmp_path / "model")
    assert type(again) is an.Tagger
    assert again.get_params() == model.get_params()
    assert again.tag([AMBIGUOUS, "Zebulon ran"]) == model.tag([AMBIGUOUS, "Zebulon ran"])


def test_an_hmm_that_was_stopped_is_fitted_again_to_the_same_bytes(tmp_path):
    an.Tagger("hmm").fit([("a b", "X Y"), ("b a", "Y X"), ("a", "X")] * 4, out=tmp_path / "run")
    names = ("model.safetensors", "metrics.jsonl", "learnt.json", "README.md")
    before = {name: (tmp_path / "run" / name).read_bytes() for name in names}
    for name in ("model.safetensors", "metrics.jsonl", "README.md"):
        (tmp_path / "run" / name).unlink()
    an.Tagger.resume(tmp_path / "run")
    assert {name: (tmp_path / "run" / name).read_bytes() for name in names} == before


def test_parts_of_speech_are_measured_by_accuracy_and_spans_by_f1():
    plain = an.Tagger("hmm").fit([("a b", "X Y"), ("b", "Y")] * 2, valid=[("a", "X")])
    assert set(plain.score([("a b", "X X")])) == {"accuracy", "by_type"}
    assert plain.score([("a b", "X X")])["accuracy"] == 50
    spans = an.Tagger("hmm").fit([("a b", "B-X O"), ("b", "O")] * 2, valid=[("a", "B-X")])
    assert set(spans.score([("a", "B-X")])) == {"accuracy", "precision", "recall", "f1", "by_type"}
    assert (plain.result_.best, spans.result_.best) == (100, spans.result_.metrics["f1"])


def test_tags_and_words_never_seen_are_no_obstacle():
    model = an.Tagger("hmm").fit([("a b", "X Y"), ("b", "Y")] * 2, valid=[("zzz a", "NEW X")])
    assert model.score([("a new", "X NEW")])["accuracy"] == 50
    assert model.predict([["never", "seen before"], []])[1] == []


@pytest.mark.parametrize(
    ("data", "given", "told"),
    [
        ([("a b", "X X")] * 3, {}, "all training words have the tag X"),
        ([("a b", "X Y")] * 3, {"scheme": "bio"}, "scheme = bio, but the training data have the tag X"),
        ([("a b", "X Y")] * 3, {"metric": "f1"}, "metric = f1 counts spans"),
        ([("a b", "X")] * 3, {}, "train sentences:1: not one tag for each word"),
        ([(f"a{i}", f"T{i}") for i in range(260)] * 2, {}, "tags, and order = 3 takes at most 200"),
        ([("a b", "X Y")], {}, "too little to hold dev data out of"),
        ([], {}, "no usable row"),
        (7, {}, "A int cannot be read as tagged sentences"),
        ("nmes", {}, "nmes is neither a file nor an embedded corpus"),
    ],
)
def test_data_that_cannot_be_learnt_from(data, given, told):
    with pytest.raises(DataError, match=told) as caught:
        an.Tagger("hmm", **given).fit(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("sentences", "told"),
    [("a b", "a list of sentences"), ([3], "input 1 is a int"), ([["a", ""]], "input 1 has an empty word")],
)
def test_inputs_that_are_no_sentences(of_preset, sentences, told):
    with pytest.raises(DataError, match=told):
        of_preset("hmm").predict(sentences)


@pytest.mark.parametrize("model", TASKS["tag"].presets)
def test_settings_make_the_same_tagger_again(model):
    first = an.Tagger(model, seed=7)
    assert an.Tagger(**first.get_params()).settings_ == first.settings_


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"model": "hmm", "hidden": 8}, "hidden has no effect on the preset hmm"),
        ({"model": "bilstm", "order": 2}, "order has no effect on the preset bilstm"),
        ({"model": "transformer", "hidden": 96, "character_hidden": 48}, "lower character_hidden"),
        ({"model": "transformer", "characters": "none", "hidden": 30}, "cannot be divided"),
        ({"characters": "lstn"}, "Did you mean lstm"),
        ({"tokens": "word"}, "tokens is not a setting of Tagger"),
    ],
)
def test_settings_that_cannot_be(given, told):
    with pytest.raises(SettingsError, match=told):
        an.Tagger(**given)


def test_a_plan_trains_nothing():
    plan = an.Tagger("bilstm").plan("names")
    assert plan["train"]["rows"] == 4000
    assert plan["vocabulary"]["tags"] == 5
    assert plan["parameters"] > 10_000
    assert set(an.Tagger("hmm").plan("names")) == {"train", "valid", "vocabulary"}


def test_rare_words_are_hidden_more_often_than_frequent_ones():
    """α = 1: a word seen once is hidden every other time, one seen 99 times once in a hundred; spellings never."""
    words = np.array([[4, 7]] + [[5, 8]] * 99, dtype=np.int32)
    rates = hiding_rates([words[:60], words[60:]], 7, alpha=1.0)
    np.testing.assert_allclose(rates, [0, 0, 0, 0, 0.5, 0.01, 0], rtol=1e-6)
    objective = TagObjective(
        Targets("class", ("X", "Y")),
        [],
        hiding=rates,
        settings=TaggerSettings(),
        metric="accuracy",
        scores=lambda found, gold: {},
    )
    source = torch.tensor([[[4, 7], [5, 8], [0, 0]]]).repeat(20_000, 1, 1)
    found = objective._with_words_hidden(source)
    assert (found[..., 1] == source[..., 1]).all()
    assert (found[:, 2] == 0).all()
    share = (found[..., 0] == UNK).float().mean(0)
    torch.testing.assert_close(share, torch.tensor([0.5, 0.01, 0.0]), atol=0.01, rtol=0)


@pytest.mark.cuda
@pytest.mark.parametrize("preset", ["bilstm with spellings", "bilstm-crf", "transformer"])
def test_on_a_gpu_it_learns_and_tags_as_on_a_cpu(preset, tmp_path):
    given = {**SIZES, **RUN, **PRESETS[preset], "device": "cuda"}
    model = an.Tagger(**given).fit(
        generate("names", size=2000), valid=generate("names", split="dev", size=50)
    )
    assert model.score("names")["f1"] > 80
    model.save(tmp_path / "model")
    sentences = [words for words, _ in generate("names", split="test", size=200)]
    there = an.load(tmp_path / "model", device="cpu").predict(sentences)
    same = [a == b for a, b in zip(model.predict(sentences), there, strict=True)]
    assert sum(same) >= 198  # a tie may fall otherwise
