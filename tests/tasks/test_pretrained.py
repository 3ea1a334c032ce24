"""Pre-train, then use: language models and word vectors as the beginning of classifiers and taggers."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

import anaphora as an
from anaphora.errors import DataError, RunError, SettingsError
from anaphora.tasks.recipe import Recipe

LINES = [
    "the good film was good",
    "a bad film was bad",
    "the actors were good",
    "the script was bad",
    "not a good script",
    "not a bad film",
] * 8
LABELLED = [(line, "neg" if ("bad" in line) != ("not" in line) else "pos") for line in LINES]
TAGGED = [(line, " ".join("A" if w in ("good", "bad") else "N" for w in line.split())) for line in LINES]
TINY = {"steps": 4, "batch_tokens": 64, "valid_every": 4, "save_every": 4, "device": "cpu", "threads": 1}
LM = {**TINY, "tokens": "word", "lines": True, "hidden": 8, "layers": 1}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Language models of several kinds over the same lines."""
    folder = tmp_path_factory.mktemp("language")
    for name, more in {
        "lstm": {"model": "lstm", "embedding": 6},
        "gru": {"model": "gru", "embedding": 6, "layers": 2},
        "backward": {"model": "lstm", "embedding": 6, "backward": True},
        "gpt": {"model": "transformer", "heads": 2, "feedforward": 16, "context": 16},
        "bert": {"model": "masked", "heads": 2, "feedforward": 16, "context": 16},
        "peephole": {
            "model": "lstm",
            "embedding": 6,
            "peephole": True,
            "layers": 2,
            "connections": "highway",
        },
        "ngram": {"model": "ngram"},
        "letters": {"model": "lstm", "embedding": 6, "tokens": "char"},
    }.items():
        given = {**LM, **more}
        if name == "ngram":
            given = {"model": "ngram", "tokens": "word", "lines": True}
        an.LanguageModel(**given).fit(LINES, out=folder / name)
    return folder


def rested(body, donor):
    """A recurrent donor's vectors are brought to the spread of fresh ones, 1/√width, in place."""
    if donor in ("lstm", "gru"):
        vectors = body["embedding.weight"]
        vectors *= vectors.shape[1] ** -0.5 / vectors.std()


def first_step(estimator, data, **options):
    """The weights before the first step, by training none worth the name."""
    estimator.set_params(lr=1e-12, steps=1, valid_every=1, **options)
    estimator.fit(data)
    return estimator.model_.state_dict()


@pytest.mark.parametrize(
    ("donor", "preset"), [("lstm", "lstm"), ("gru", "gru"), ("gpt", "transformer"), ("bert", "transformer")]
)
def test_a_classifier_begins_with_the_body_of_a_language_model(runs, donor, preset):
    classifier = an.Classifier(init=str(runs / donor), **TINY)
    weights = first_step(classifier, LABELLED)
    body = an.load(runs / donor).model_.body.state_dict()
    assert classifier.settings_.model == preset
    rested(body, donor)
    for name, value in body.items():
        torch.testing.assert_close(weights[f"encoder.{name}"], value, atol=1e-6, rtol=0)
    assert classifier.inputs_.tokenizer.spellings == an.load(runs / donor).tokenizer_.spellings


def test_what_a_body_computes_is_what_the_classifier_reads(runs):
    """GPT's states in the classifier are those of the language model, place by place."""
    classifier = an.Classifier(init=str(runs / "gpt"), **TINY)
    first_step(classifier, LABELLED)
    model = an.load(runs / "gpt")
    symbols = torch.tensor([model.tokenizer_.encode("the good film")])
    expected = model.model_.body.read(symbols).states
    found = classifier.model_.eval().encoder(symbols, torch.tensor([3])).annotations
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    assert classifier.settings_.causal
    assert classifier.settings_.pooling == "last"


def test_bert_answers_from_its_first_place(runs):
    classifier = an.Classifier(init=str(runs / "bert"), **TINY).fit(LABELLED)
    assert classifier.settings_.pooling == "first"
    assert not classifier.settings_.causal
    assert classifier.model_.begin == 2
    alone = classifier.predict_proba(["the good film"])
    together = classifier.predict_proba(["the good film", "not a bad film was bad and good"])
    np.testing.assert_allclose(alone[0], together[0], atol=1e-6)


@pytest.mark.parametrize(
    ("donor", "preset", "bidirectional"),
    [("lstm", "bilstm", False), ("gpt", "transformer", None), ("bert", "transformer", None)],
)
def test_a_tagger_begins_with_the_body_of_a_language_model(runs, donor, preset, bidirectional):
    more = {} if bidirectional is None else {"bidirectional": bidirectional}
    tagger = an.Tagger(init=str(runs / donor), **more, **TINY)
    weights = first_step(tagger, TAGGED)
    assert tagger.settings_.model == preset
    assert tagger.settings_.characters == "lstm"  # spellings are read all the same
    for name, value in an.load(runs / donor).model_.body.state_dict().items():
        torch.testing.assert_close(weights[f"encoder.{name}"], value, atol=1e-6, rtol=0)


@pytest.mark.parametrize("characters", ["lstm", "none"])
def test_a_tagger_reads_both_ways_and_one_of_them_as_the_language_model_does(runs, characters, tmp_path):
    """The forward half of its first states are the donor's, through both layers of a GRU."""
    model = an.load(runs / "gru")
    tagger = an.Tagger(init=str(runs / "gru"), characters=characters, **TINY)
    first_step(tagger, TAGGED)
    assert tagger.settings_.bidirectional
    words = ["the", "good", "film"]
    symbols = torch.tensor([model.tokenizer_.encode(" ".join(words))])
    expected = model.model_.body.read(symbols).states
    (read,) = tagger._reader.read([words])
    source = torch.from_numpy(read).long()[None]  # (1, words, 1 + letters)
    source = source if characters == "lstm" else source[..., 0]
    with torch.no_grad():
        found = tagger.model_.eval().encoder(source, torch.tensor([3])).annotations
    torch.testing.assert_close(found[..., :8], expected, atol=1e-6, rtol=0)
    assert float(found[..., 8:].abs().max()) > 1e-3  # the other direction reads as well
    tagger.save(tmp_path / "saved")
    assert an.load(tmp_path / "saved").predict(["the good film"]) == tagger.predict(["the good film"])


@pytest.mark.parametrize("donor", ["lstm", "gru", "gpt"])
def test_a_classifier_reads_a_text_as_the_language_model_reads_a_line(runs, donor, tmp_path):
    """After <s> and without </s>: the states that are pooled are those from which the model predicted the line."""
    model = an.load(runs / donor)
    rested(model.model_.body.state_dict(), donor)
    classifier = an.Classifier(init=str(runs / donor), **TINY)
    first_step(classifier, LABELLED)
    seen = []
    classifier.model_.eval().pooling.register_forward_hook(lambda module, given, out: seen.append(given[0]))
    classifier.predict(["the good film"])
    symbols = torch.tensor([[model.begin, *model.tokenizer_.encode("the good film")]])
    expected = model.model_.body.read(symbols).states
    torch.testing.assert_close(seen[0].annotations, expected, atol=1e-6, rtol=0)
    assert classifier.settings_.pooling == ("last" if donor == "gpt" else "concat")
    classifier.save(tmp_path / "saved")
    again = an.load(tmp_path / "saved")
    np.testing.assert_allclose(
        again.predict_proba(["", "a bad film"]), classifier.predict_proba(["", "a bad film"])
    )
    assert classifier.probe("the good film").tokens["time"] == ["<s>", "▁the", "▁good", "▁film"]


def test_a_tagger_takes_over_highways_in_one_direction(runs):
    tagger = an.Tagger(init=str(runs / "peephole"), **TINY)
    weights = first_step(tagger, TAGGED)
    assert not tagger.settings_.bidirectional
    for name, value in an.load(runs / "peephole").model_.body.state_dict().items():
        torch.testing.assert_close(weights[f"encoder.{name}"], value, atol=1e-6, rtol=0)


def test_a_donor_of_characters_is_warned_of(runs):
    with pytest.warns(UserWarning, match="language model of characters"):
        an.Classifier(init=str(runs / "letters"), **TINY).fit(LABELLED)


@pytest.mark.parametrize("task", [an.Classifier, an.Tagger])
def test_words_that_a_donor_does_not_know_are_warned_of(runs, task, recwarn):
    known = LABELLED if task is an.Classifier else TAGGED
    more = {} if task is an.Classifier else {"characters": "none"}
    task(init=str(runs / "bert"), **more, **TINY).fit(known)
    assert not [one for one in recwarn if "does not know" in str(one.message)]
    strange = [(text.replace("film", "opera"), label) for text, label in known]
    with pytest.warns(UserWarning, match=r"bert does not know \d+ % of the words of the training texts"):
        task(init=str(runs / "bert"), **more, **TINY).fit(strange)


@pytest.mark.parametrize(
    ("names", "more"),
    [
        (("lstm",), {"model": "lstm", "embedding": 5}),
        (("peephole",), {"model": "gru", "embedding": 5}),
        (("lstm", "backward"), {"model": "bilstm", "embedding": 5}),
        (("gru", "backward"), {"model": "transformer", "heads": 2, "hidden": 20, "feedforward": 16}),
    ],
)
def test_a_classifier_reads_vectors_of_frozen_language_models(runs, names, more, tmp_path):
    """ELMo: every layer of every donor, the words' own vectors as the lowest, mixed by learned shares."""
    init = ",".join(str(runs / name) for name in names)
    given = {"hidden": 8, **more, **TINY, "init": init, "init_as": "vectors"}
    classifier = an.Classifier(**given).fit(LABELLED, out=tmp_path / "run")
    words = classifier.model_.encoder.embedding
    for number, name in enumerate(names):
        donor = an.load(runs / name)
        for key, value in donor.model_.body.state_dict().items():
            assert torch.equal(
                classifier.model_.state_dict()[f"encoder.embedding.readers.{number}.{key}"], value
            )
        assert len(words.mixtures[number].scores) == donor.settings_.layers + 1  # the token layer besides
    assert float(words.mixtures[0].scale.detach()) != 1.0
    again = an.load(tmp_path / "run")
    np.testing.assert_array_equal(
        again.predict_proba(["not good", ""]), classifier.predict_proba(["not good", ""])
    )
    alone = classifier.predict_proba(["the good film"])
    together = classifier.predict_proba(["the good film", "not a bad film was bad and good"])
    np.testing.assert_allclose(alone[0], together[0], atol=1e-6)


def test_several_language_models_give_vectors_in_context(runs, tmp_path):
    init = f"{runs / 'lstm'},{runs / 'backward'}"
    tagger = an.Tagger(model="bilstm", init=init, hidden=8, embedding=6, characters="none", **TINY)
    tagger.fit(TAGGED, out=tmp_path / "run")
    for number, name in enumerate(("lstm", "backward")):
        for key, value in an.load(runs / name).model_.body.state_dict().items():
            mine = tagger.model_.state_dict()[f"encoder.embedding.readers.{number}.{key}"]
            assert torch.equal(mine, value)  # they stay as they are, to the bit
    shares = tagger.model_.encoder.embedding.mixtures[0].scale
    assert float(shares.detach()) != 1.0  # how much of them is used is learned
    again = an.load(tmp_path / "run")
    assert again.predict(["the good film"]) == tagger.predict(["the good film"])


def test_a_trained_model_needs_its_donor_no_more(runs, tmp_path):
    shutil.copytree(runs / "lstm", tmp_path / "donor")
    classifier = an.Classifier(init=str(tmp_path / "donor"), **TINY).fit(LABELLED, out=tmp_path / "run")
    shutil.rmtree(tmp_path / "donor")
    again = an.load(tmp_path / "run")
    assert again.predict(["not good"]) == classifier.predict(["not good"])
    an.Classifier.resume(tmp_path / "run")


def test_a_backward_model_reads_lines_from_their_end(runs):
    forward = an.LanguageModel(model="lstm", embedding=6, **{**LM, "seed": 3}).fit(
        [line[::-1] for line in LINES]
    )
    assert forward  # characters turned round are another thing than words turned round
    turned = [" ".join(reversed(line.split())) for line in LINES]
    plain = an.LanguageModel(model="lstm", embedding=6, **LM).fit(turned, valid=turned[:5])
    backward = an.LanguageModel(model="lstm", embedding=6, backward=True, **LM).fit(LINES, valid=LINES[:5])
    assert plain.tokenizer_.spellings == backward.tokenizer_.spellings
    one, other = plain.predict(["film good the"]), backward.predict(["the good film"])
    assert one == pytest.approx(other, abs=1e-5)
    with pytest.raises(an.AnaphoraError, match="write from the end"):
        backward.sample()


@pytest.mark.parametrize(
    ("task", "preset"),
    [
        (an.Classifier, {"model": "lstm", "tokens": "word", "hidden": 8}),
        (an.Classifier, {"model": "conv", "tokens": "word", "hidden": 8}),
        (an.Classifier, {"model": "bow", "tokens": "word"}),
        (an.Tagger, {"model": "bilstm", "characters": "none", "hidden": 8}),
    ],
)
def test_word_vectors_are_where_a_model_begins(tmp_path, task, preset):
    words = ["the", "good", "film", "bad", "script"]
    matrix = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)
    lines = [
        f"{len(words)} 7",
        *(f"{w} {' '.join(map(str, row))}" for w, row in zip(words, matrix, strict=True)),
    ]
    (tmp_path / "vectors.txt").write_text("\n".join(lines) + "\n")
    model = task(embeddings=str(tmp_path / "vectors.txt"), **preset, **TINY)
    weights = first_step(model, LABELLED if task is an.Classifier else TAGGED)
    assert model.settings_.embedding == 7
    tokenizer = model.inputs_.tokenizer if task is an.Classifier else model.tokenizer_
    rows = weights["encoder.embedding.weight"]
    for word, vector in zip(words, matrix, strict=True):
        (symbol,) = tokenizer.encode(word)
        cosine = float(torch.cosine_similarity(rows[symbol], torch.tensor(vector), dim=0))
        assert cosine == pytest.approx(1.0, abs=1e-4)
    learnt = rows[[tokenizer.encode(word)[0] for word in words]]
    assert float(learnt.std()) == pytest.approx(7**-0.5, rel=1e-3)  # as wide-spread as fresh ones


def test_mistakes_are_told_in_a_sentence(runs, tmp_path):
    cases = [
        (lambda: an.Classifier(init=str(runs / "ngram"), **TINY).fit(LABELLED), RunError, "preset ngram"),
        (
            lambda: an.Classifier(init=str(tmp_path / "none"), **TINY).fit(LABELLED),
            RunError,
            "does not exist",
        ),
        (
            lambda: an.Classifier(init=f"{runs / 'lstm'},{runs / 'gru'}", init_as="weights", **TINY).fit(
                LABELLED
            ),
            SettingsError,
            "one run",
        ),
        (
            lambda: an.Classifier(init=f"{runs / 'lstm'},{runs / 'bert'}", **TINY).fit(LABELLED),
            RunError,
            "preset masked",
        ),
        (
            lambda: an.Classifier(
                model="transformer", heads=2, hidden=8, init=str(runs / "lstm"), init_as="vectors", **TINY
            ).fit(LABELLED),
            SettingsError,
            "raise hidden",
        ),
        (lambda: an.Tagger(init=str(runs / "backward"), **TINY).fit(TAGGED), RunError, "init_as=vectors"),
        (
            lambda: an.Classifier(init=f"{runs / 'lstm'},{runs / 'letters'}", **TINY).fit(LABELLED),
            RunError,
            "other words",
        ),
        (
            lambda: an.Classifier(model="gru", init=str(runs / "lstm"), **TINY).fit(LABELLED),
            SettingsError,
            "leave model out",
        ),
        (
            lambda: an.Classifier(hidden=99, init=str(runs / "lstm"), **TINY).fit(LABELLED),
            SettingsError,
            "leave hidden out",
        ),
        (lambda: an.Tagger(init=str(runs / "letters"), **TINY).fit(TAGGED), RunError, "tokens=word"),
        (
            lambda: an.Classifier(init=str(runs / "lstm"), **TINY).fit(
                [(np.ones((3, 2)), "a"), (np.zeros((2, 2)), "b")] * 9
            ),
            DataError,
            "data are vectors",
        ),
        (lambda: an.Classifier(model="bow", init="x"), SettingsError, "no effect"),
        (
            lambda: an.Classifier(embeddings=str(tmp_path / "none.txt"), **TINY).fit(LABELLED),
            DataError,
            "cannot be read",
        ),
        (lambda: an.LanguageModel(model="lstm", backward=True), SettingsError, "lines = true"),
    ]
    for make, kind, told in cases:
        with pytest.raises(kind, match=told):
            make()


def test_other_processes_take_the_settings_that_the_first_one_wrote():
    """Sizes that the first process learned, say from a model of ``init``; own parts stay the objects they are."""
    given = an.Classifier("lstm", hidden=8, metrics={"mine": _agreement}).settings_
    first = an.Classifier("transformer", hidden=16, heads=2, metrics={"mine": _agreement}).settings_
    found = Recipe("classify", first).with_parts_of(given).settings
    assert (found.model, found.hidden) == ("transformer", 16)
    assert found.metrics["mine"] is given.metrics["mine"]


def _agreement(truth, answers):
    return float(truth == answers)
