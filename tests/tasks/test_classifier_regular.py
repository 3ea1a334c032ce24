"""Consistency, adversarial embeddings and mixup of classifiers."""

from __future__ import annotations

import pytest
import torch
from classify_tiny import SETTINGS
from torch import nn
from torch.distributions import Bernoulli, Categorical, kl_divergence
from torch.nn import functional as F

import anaphora as an
from anaphora.errors import SettingsError
from anaphora.models.classifier import BagEncoder, SequenceClassifier
from anaphora.models.pooling import Mean
from anaphora.nn.embedding import Embedding
from anaphora.tasks.classify.info import CLASSIFY
from anaphora.tasks.registry import resolve
from anaphora.tasks.regularising import disagreement, regular_loss
from anaphora.training.objective import LossSum

ROWS = [(f"{'good' if i % 2 else 'bad'} film {i % 7}", "01"[i % 2]) for i in range(40)]
SMALL = {key: value for key, value in SETTINGS.items() if key != "hidden"} | {
    "model": "bow",
    "steps": 3,
    "dropout": 0.3,
}


def settings(**given):
    return resolve(CLASSIFY, {"model": "bow", **given})


def classifier(dropout=0.0):
    torch.manual_seed(3)
    return SequenceClassifier(
        BagEncoder(Embedding(20, 6), width=6), Mean(), width=6, outputs=3, dropout=dropout
    ).train()


def batch():
    return torch.randint(8, 20, (5, 4)), torch.tensor([4, 4, 3, 2, 4]), torch.tensor([0, 1, 2, 1, 0])


def cross_entropy(scores, truth):
    return LossSum(F.cross_entropy(scores, truth, reduction="sum"), len(truth))


def test_disagreement_is_the_mean_of_both_divergences():
    a, b = torch.randn(4, 3), torch.randn(4, 3)
    p, q = Categorical(logits=a), Categorical(logits=b)
    torch.testing.assert_close(disagreement("class", a, b), (kl_divergence(p, q) + kl_divergence(q, p)) / 2)
    p, q = Bernoulli(logits=a), Bernoulli(logits=b)
    both = ((kl_divergence(p, q) + kl_divergence(q, p)) / 2).sum(-1)
    torch.testing.assert_close(disagreement("classes", a, b), both)
    assert disagreement("number", torch.tensor([[3.0]]), torch.tensor([[1.0]])).tolist() == [4.0]
    assert disagreement("class", a, a).abs().max() == 0


def test_consistency_adds_nothing_where_passes_agree_and_something_under_dropout():
    source, lengths, truth = batch()
    plain = cross_entropy(classifier()(source, lengths), truth).total
    same = regular_loss(settings(r_drop=5.0), classifier(), source, lengths, truth, cross_entropy)
    torch.testing.assert_close(same.total, plain)
    assert same.count == 5
    torch.manual_seed(0)
    weak = regular_loss(settings(r_drop=1e-9), classifier(0.5), source, lengths, truth, cross_entropy)
    torch.manual_seed(0)
    strong = regular_loss(settings(r_drop=5.0), classifier(0.5), source, lengths, truth, cross_entropy)
    assert strong.total > weak.total


def test_adversarial_embeddings_raise_the_loss_by_the_slope_times_the_step():
    """L(e + r) ≈ L(e) + |g|·ε|e|, summed over examples; the mean of both is minimised."""
    model, (source, lengths, truth) = classifier(), batch()
    embedded = model.encoder.embedding(source)
    kept = {}
    handle = model.encoder.embedding.register_forward_hook(lambda m, i, o: kept.setdefault("e", o))
    plain = cross_entropy(model(source, lengths), truth).total
    handle.remove()
    (slope,) = torch.autograd.grad(plain, kept["e"])
    share = 1e-3
    rise = (slope.flatten(1).norm(dim=1) * embedded.flatten(1).norm(dim=1)).sum() * share
    found = regular_loss(settings(adversarial=share), model, source, lengths, truth, cross_entropy)
    torch.testing.assert_close(found.total, plain + rise / 2, rtol=1e-4, atol=1e-6)
    found.total.backward()
    assert model.encoder.embedding.weight.grad.abs().sum() > 0
    assert not model.encoder.embedding._forward_hooks  # nothing stays behind


def test_mixup_mixes_vectors_and_losses(monkeypatch):
    model, (source, lengths, truth) = classifier(), batch()
    order = torch.tensor([1, 2, 3, 4, 0])
    monkeypatch.setattr(torch, "randperm", lambda n, device=None: order)
    monkeypatch.setattr(torch.distributions.Beta, "sample", lambda self: torch.tensor(0.25))
    found = regular_loss(settings(mixup=0.4), model, source, lengths, truth, cross_entropy)
    v = model.pooled(source, lengths)
    z = model.scores(0.25 * v + 0.75 * v[order])
    wanted = 0.25 * F.cross_entropy(z, truth, reduction="sum") + 0.75 * F.cross_entropy(
        z, truth[order], reduction="sum"
    )
    torch.testing.assert_close(found.total, wanted)


@pytest.mark.parametrize("given", [{"r_drop": 1.0}, {"adversarial": 0.1}, {"mixup": 0.2}], ids=str)
def test_a_classifier_trains_with_it_and_differs(given):
    plain, other = (an.Classifier(**SMALL, **more).fit(ROWS, valid=ROWS[:8]) for more in ({}, given))
    assert plain.predict_proba(["good film"]).tolist() != other.predict_proba(["good film"]).tolist()


def test_what_cannot_be_combined_is_refused():
    with pytest.raises(SettingsError, match="mixup has no place beside"):
        an.Classifier(model="bow", mixup=0.2, adversarial=0.1)
    with pytest.raises(SettingsError, match="has no effect on the preset ngrams"):
        an.Classifier(model="ngrams", mixup=0.2)
    for key in ("mixup", "adversarial"):
        with pytest.raises(SettingsError, match=f"{key} is for the presets"):
            regular_loss(settings(**{key: 0.1}), nn.Linear(1, 1), *batch(), cross_entropy)
