"""The regression on weighted n-grams: its weights by hand, its minimum by Newton's method."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from anaphora.data.symbols import SPELLINGS
from anaphora.models.classical.ngram import classifier
from anaphora.models.classical.ngram.classifier import (
    LOSSES,
    Block,
    Grams,
    NGramClassifier,
    log_ratio,
    regress,
    weighted,
)

TEXTS = [np.array(ids) for ids in ([4, 5], [4, 6], [5, 7], [7], [4, 5, 7], [6], [6, 7])]
TRUTH = np.array([[1], [1], [0], [0], [1], [1], [0]], dtype=np.float64)


def matrix(texts, symbols):
    x = np.zeros((len(texts), symbols))
    for row, ids in enumerate(texts):
        x[row, ids] = 1
    return x


def newton(features, truth, penalty):
    """w and b that minimise ½ penalty |w|² + Σ log(1 + e^{∓z}), all in dense matrices."""
    x = np.concatenate((features, np.ones((len(features), 1))), axis=1)
    cost = np.diag([penalty] * features.shape[1] + [0.0])
    w = np.zeros(x.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ w))
        slope = x.T @ (p - truth) + cost @ w
        w -= np.linalg.pinv((x.T * (p * (1 - p))) @ x + cost) @ slope
    return w[:-1], w[-1]


def test_ratios_by_hand():
    grams = np.concatenate(TEXTS)
    of_class = np.repeat(TRUTH[:, 0] > 0.5, [len(ids) for ids in TEXTS])
    found = log_ratio(grams, of_class, 8)
    p, q = np.array([4, 3, 3, 2]), np.array([1, 2, 2, 4])  # one more than the texts that have 4, 5, 6, 7
    np.testing.assert_allclose(found[4:], np.log(p / 12) - np.log(q / 9))
    assert not found[:4].any()


def test_the_minimum_is_newtons():
    model = NGramClassifier(8, 1, binary=True).fit(TEXTS, TRUTH, 0.3)
    r = model.ratio[:, 0].double().numpy()
    weighted = matrix(TEXTS, 8) * r
    features = weighted / np.linalg.norm(weighted, axis=1, keepdims=True)
    w, b = newton(features, TRUTH[:, 0], 0.3)
    np.testing.assert_allclose(model.weight[:, 0], w, atol=1e-4)
    np.testing.assert_allclose(model.bias[0], b, atol=1e-4)
    table = torch.zeros(len(TEXTS), 5, dtype=torch.long)  # PAD and EOS weigh nothing
    for row, ids in enumerate(TEXTS):
        table[row, : len(ids)], table[row, len(ids)] = torch.from_numpy(ids), 3
    z = model(table, torch.tensor([len(ids) + 1 for ids in TEXTS]))
    assert z.shape == (7, 2)
    assert not z[:, 0].any()
    np.testing.assert_allclose(z[:, 1], features @ w + b, atol=1e-4)


def test_single_words_are_a_second_block_of_the_same_regression():
    """Ids 4 and 5 are single words; both blocks of a text have unit length, that of words times its emphasis."""
    model = NGramClassifier(8, 1, binary=True, singles=6).fit(TEXTS, TRUTH, 0.3, 0.5)
    has = matrix(TEXTS, 8)
    rarity = np.array(
        [0, 0, 0, 0, math.log(7 / 3), math.log(7 / 3)]
    )  # three of seven texts have 4, and three 5
    np.testing.assert_allclose(model.rarity, rarity, rtol=1e-6)
    weighted, rare = has * model.ratio[:, 0].double().numpy(), has[:, :6] * rarity
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True).clip(1e-12) for x in (weighted, rare)]
    w, b = newton(np.concatenate((unit[0], 0.5 * unit[1]), axis=1), TRUTH[:, 0], 0.3)
    np.testing.assert_allclose(model.weight[:, 0], w[:8], atol=1e-4)
    np.testing.assert_allclose(model.word_weight[:, 0], 0.5 * w[8:], atol=1e-4)
    table = torch.zeros(len(TEXTS), 4, dtype=torch.long)
    for row, ids in enumerate(TEXTS):
        table[row, : len(ids)] = torch.from_numpy(ids)
    z = model(table, torch.tensor([len(ids) for ids in TEXTS]))[:, 1]
    np.testing.assert_allclose(z, unit[0] @ w[:8] + 0.5 * unit[1] @ w[8:] + b, atol=1e-4)


def test_words_that_every_text_or_none_has_weigh_nothing():
    texts = [np.array([4, 5]), np.array([4]), np.array([4, 5])]
    model = NGramClassifier(7, 1, binary=True, singles=7).fit(texts, np.array([[1.0], [0.0], [1.0]]), 0.3)
    np.testing.assert_allclose(model.rarity, [0, 0, 0, 0, 0, math.log(3 / 2), 0], rtol=1e-6)
    assert bool(torch.isfinite(model(torch.tensor([[4, 6, 3]]), torch.tensor([3]))).all())


def test_each_class_against_the_rest():
    labels = np.array([0, 0, 1, 2, 0, 1, 2])
    each = (labels[:, None] == np.arange(3)).astype(np.float64)
    model = NGramClassifier(8, 3).fit(TEXTS, each, 1.0)
    assert model.outputs == 3
    for k in range(3):
        alone = NGramClassifier(8, 1, binary=True).fit(TEXTS, each[:, k : k + 1], 1.0)
        torch.testing.assert_close(model.weight[:, k], alone.weight[:, 0], atol=1e-4, rtol=0)
        torch.testing.assert_close(model.bias[k], alone.bias[0], atol=1e-4, rtol=0)


def test_texts_without_any_known_n_gram_get_the_share_of_the_class():
    texts = [np.zeros(0, np.int32)] * 4 + [np.array([4]), np.array([5])]
    model = NGramClassifier(6, 1, binary=True).fit(texts, np.array([[1], [1], [1], [0], [1], [0]]), 1e6)
    z = model(torch.tensor([[3]]), torch.tensor([1]))
    assert float(z[0, 1]) == pytest.approx(math.log(4 / 2), abs=1e-3)


def test_parts_are_regressions_of_their_own_whose_scores_are_averaged():
    """Ids below ``split`` and from it on: the mean of two models, each of which knows one part."""
    first, split, size = len(SPELLINGS), len(SPELLINGS) + 3, len(SPELLINGS) + 7
    draw = np.random.default_rng(1)
    texts = [np.flatnonzero(draw.random(size - first) < 0.5) + first for _ in range(30)]
    truth = (draw.random((30, 1)) < 0.5).astype(float)
    both = NGramClassifier(size, 1, binary=True, split=split).fit(texts, truth, 0.3)
    low = NGramClassifier(split, 1, binary=True).fit([x[x < split] for x in texts], truth, 0.3)
    high = NGramClassifier(size - 3, 1, binary=True).fit([x[x >= split] - 3 for x in texts], truth, 0.3)
    for text in texts[:9]:
        alone = [
            model(torch.from_numpy(ids)[None], torch.tensor([len(ids)]))[0, 1]
            for model, ids in ((low, text[text < split]), (high, text[text >= split] - 3))
        ]
        found = both(torch.from_numpy(text)[None], torch.tensor([len(text)]))[0, 1]
        torch.testing.assert_close(found, torch.stack(alone).mean(), rtol=1e-4, atol=1e-5)


def test_of_two_parts_the_one_of_words_has_the_single_words():
    """Characters (ids from ``split`` on) have the same weights as without them."""
    texts = [np.array(ids) for ids in ([4, 6], [5, 7], [4, 7], [5, 6], [4, 5, 6], [7])]
    truth = np.array([[1], [0], [1], [0], [1], [0]], dtype=np.float64)
    with_words, without = (
        NGramClassifier(8, 1, binary=True, split=6, singles=singles).fit(texts, truth, 0.3)
        for singles in (6, 0)
    )
    torch.testing.assert_close(with_words.weight[6:], without.weight[6:])
    assert not torch.allclose(with_words.weight[4:6], without.weight[4:6])
    assert bool(with_words.word_weight[4:].any())


def test_a_part_without_n_grams_is_none():
    size = len(SPELLINGS) + 2
    for split in (0, len(SPELLINGS), size):
        assert NGramClassifier(size, 1, split=split)._parts == ((len(SPELLINGS), size),)


def test_a_margin_is_a_support_vector_machine():
    model = NGramClassifier(8, 1, binary=True).fit(TEXTS, TRUTH, 1.0, loss="squared_hinge")
    weighted = matrix(TEXTS, 8) * model.ratio[:, 0].double().numpy()
    features = weighted / np.linalg.norm(weighted, axis=1, keepdims=True)
    w, b, sign = model.weight[:, 0].double().numpy(), float(model.bias[0]), 2 * TRUTH[:, 0] - 1
    short = np.maximum(0, 1 - sign * (features @ w + b))
    np.testing.assert_allclose(w, features.T @ (2 * sign * short), atol=1e-3)  # where the slope is 0
    assert abs((sign * short).sum()) < 1e-3
    assert (short > 0).any()
    before = model.weight.clone(), model.bias.clone()
    model.sharpen(3.0)
    torch.testing.assert_close(model.weight, 3 * before[0])
    torch.testing.assert_close(model.bias, 3 * before[1])


def test_a_number_by_least_squares():
    numbers = np.array([[1.0], [0.5], [-1.0], [-2.0], [0.25], [1.5], [-0.25]])
    model = NGramClassifier(8, 1).fit(TEXTS, numbers, 0.7, loss="squared")
    x = matrix(TEXTS, 8)
    ratio = (x.T @ numbers)[:, 0] / (1 + x.sum(0))
    np.testing.assert_allclose(model.ratio[:, 0], ratio, atol=1e-6)
    features = x * ratio / np.linalg.norm(x * ratio, axis=1, keepdims=True)
    with_one = np.hstack([features, np.ones((7, 1))])
    cost = np.diag([0.7] * 8 + [0.0])
    best = np.linalg.pinv(with_one.T @ with_one + cost) @ with_one.T @ numbers[:, 0]
    np.testing.assert_allclose(model.weight[:, 0], best[:-1], atol=1e-4)
    np.testing.assert_allclose(model.bias[0], best[-1], atol=1e-4)


def test_classes_may_be_learned_in_groups(monkeypatch):
    each = (np.array([0, 0, 1, 2, 0, 1, 2])[:, None] == np.arange(3)).astype(np.float64)
    together = NGramClassifier(8, 3, singles=6).fit(TEXTS, each, 1.0)
    monkeypatch.setattr(classifier, "_AT_ONCE", 1)
    alone = NGramClassifier(8, 3, singles=6).fit(TEXTS, each, 1.0)
    for name, value in alone.named_parameters():
        torch.testing.assert_close(together.get_parameter(name), value, atol=1e-4, rtol=0)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "squared"])
def test_a_text_of_weight_two_counts_like_two_texts(loss):
    draw = np.random.default_rng(3)
    rows = [np.flatnonzero(draw.random(12) < 0.4) for _ in range(20)]
    truth = torch.from_numpy((draw.random((20, 2)) < 0.4).astype(np.float32))
    ratio = torch.from_numpy(draw.normal(size=(12, 2)))

    def block(texts):
        of = np.repeat(np.arange(len(texts)), [len(ids) for ids in texts])
        return Block(Grams(np.concatenate(texts), of, len(texts), 12), ratio)

    weights = 1.0 + (torch.arange(20) < 7)[:, None]
    (found,), bias = regress([block(rows)], truth, 0.5, weighted(LOSSES[loss], weights))
    twice = torch.cat([truth, truth[:7]])
    (wanted,), other = regress([block([*rows, *rows[:7]])], twice, 0.5, LOSSES[loss])
    torch.testing.assert_close(found, wanted, atol=2e-4, rtol=0)
    torch.testing.assert_close(bias, other, atol=2e-4, rtol=0)
    (plain,), _ = regress([block(rows)], truth, 0.5, LOSSES[loss])
    assert not torch.allclose(plain, found, atol=1e-2)
