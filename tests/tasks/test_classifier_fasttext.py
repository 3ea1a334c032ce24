"""The preset fasttext: a network of n-gram vectors that begins as naive Bayes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from classify_tiny import phrases

import anaphora as an
from anaphora.errors import DataError, SettingsError
from anaphora.models.classical.ngram.classifier import log_ratio
from anaphora.models.memory import Memory
from anaphora.models.pooling import RootMean
from anaphora.tasks.classify.build import informed_vectors, of_ngrams
from anaphora.tasks.classify.info import CLASSIFY
from anaphora.tasks.registry import resolve

SMALL = {"embedding": 8, "batch_tokens": 600, "device": "cpu", "char_ngrams": 4}


def test_it_learns_endings_and_comes_back(tmp_path):
    m = an.Classifier("fasttext", **SMALL).fit(phrases(120), valid=phrases(20, 1), out=tmp_path / "run")
    assert m.score(phrases(60, 2))["accuracy"] >= 95
    asked = [text for text, _ in phrases(9, 3)] + ["zzz", ""]
    np.testing.assert_array_equal(an.load(tmp_path / "run").predict_proba(asked), m.predict_proba(asked))
    before = (tmp_path / "run/model.safetensors").read_bytes()
    an.Classifier.resume(tmp_path / "run")
    assert (tmp_path / "run/model.safetensors").read_bytes() == before
    weight = m.model_.encoder.embedding.weight
    assert not weight[:4].any()  # special symbols say nothing, also after training


def test_the_first_answers_are_those_of_naive_bayes():
    texts = [np.array(ids) for ids in ([8, 9], [8, 10], [9, 11], [10, 11], [8, 9, 10])]
    truth = np.array([0, 0, 1, 1, 0])
    torch.manual_seed(1)
    model = of_ngrams(resolve(CLASSIFY, {"model": "fasttext", "embedding": 16}), 12, 2).eval()
    model.load_state_dict({**model.state_dict(), **informed_vectors(model, texts, truth)})
    grams = np.concatenate(texts)
    of = np.repeat(truth, [len(x) for x in texts])
    bayes = log_ratio(grams, of == 1, 12)
    scores = torch.stack([model(torch.from_numpy(x)[None], torch.tensor([len(x)]))[0] for x in texts])
    leaning = (scores[:, 1] - scores[:, 0]).detach()
    wanted = torch.stack([bayes[x].sum() for x in texts])
    assert torch.equal(leaning > 0, wanted > 0)
    assert float(torch.corrcoef(torch.stack([leaning, wanted.float()]))[0, 1]) > 0.95


def test_what_is_zero_does_not_count():
    states = torch.tensor([[[1.0, 2.0], [0.0, 0.0], [3.0, 0.0], [9.0, 9.0]]])
    mask = torch.tensor([[True, True, True, False]])
    torch.testing.assert_close(RootMean()(Memory(states, mask)), torch.tensor([[4.0, 2.0]]) / 2**0.5)
    assert RootMean()(Memory(torch.zeros(1, 3, 2), mask[:, :3])).tolist() == [[0.0, 0.0]]


def test_numbers_and_several_classes():
    rows = [("red round", "red|round"), ("red", "red"), ("round", "round"), ("plain", "-")] * 8
    several = an.Classifier("fasttext", target="classes", epochs=12, **SMALL).fit(rows, valid=rows[:4])
    assert several.predict(["red", "round red"]) == [["red"], ["red", "round"]]
    numbers = [(f"{'a ' * i}b", float(i)) for i in range(6)] * 4
    found = an.Classifier("fasttext", target="number", epochs=2, **SMALL).fit(numbers, valid=numbers[:4])
    assert np.isfinite(found.predict(["a a b"])).all()


def test_what_it_does_not_take_is_refused():
    with pytest.raises(DataError, match="fasttext reads texts, but the data are vectors"):
        an.Classifier("fasttext").fit([(np.ones((3, 2)), "a"), (np.zeros((3, 2)), "b")] * 4)
    with pytest.raises(SettingsError, match="pooling has no effect"):
        an.Classifier("fasttext", pooling="max")


def test_the_first_answers_to_a_number_are_means_of_what_n_grams_say():
    texts = [np.array(ids) for ids in ([8, 9], [8, 10], [9, 11], [10, 11], [8, 9, 10])]
    truth = np.array([1.0, 0.5, -1.5, -1.0, 1.0], dtype=np.float32)
    torch.manual_seed(1)
    model = of_ngrams(
        resolve(CLASSIFY, {"model": "fasttext", "embedding": 16, "target": "number"}), 12, 1
    ).eval()
    found = informed_vectors(model, texts, truth)
    wanted = torch.tensor([2.5 / 4, 0.5 / 4, 0.5 / 4, -2.5 / 3])  # Σ y / (1 + texts that have 8, 9, 10, 11)
    torch.testing.assert_close(found["encoder.embedding.weight"][8:, 0], 0.3 * wanted, atol=0.08, rtol=0)
    model.load_state_dict({**model.state_dict(), **found})
    scores = [float(model(torch.from_numpy(x)[None], torch.tensor([len(x)])).detach()) for x in texts]
    assert np.corrcoef(scores, truth)[0, 1] > 0.9
