"""What makes a classifier of few examples steadier: two passes that must agree, inputs moved against it, examples mixed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from anaphora.errors import SettingsError
from anaphora.models.classifier import SequenceClassifier
from anaphora.settings.classify import ClassifierSettings
from anaphora.training.objective import LossSum

Loss = Callable[[Tensor], LossSum]
"""The loss of scores ``(batch, outputs)``, and of how many examples it is the sum."""


def is_regular(s: ClassifierSettings) -> bool:
    """Whether the settings ask for anything of this module."""
    return bool(s.r_drop or s.adversarial or s.mixup)


def regular_loss(
    s: ClassifierSettings,
    model: nn.Module,
    source: Tensor,
    lengths: Tensor,
    truth: Tensor,
    loss: Callable[[Tensor, Tensor], LossSum],
) -> LossSum:
    """The loss of a training batch, ``loss(scores, truth)`` of one pass replaced by what the settings ask for.

    - r_drop α: the mean of two passes with other dropout, and α times the mean of KL(p‖q) and KL(q‖p) (R-Drop, Wu 2021);
    - adversarial ε: the mean of that and of a pass whose embeddings e are moved by r = ε |e| g/|g|, where g is the gradient of the loss with
      respect to e, example by example (Miyato 2017);
    - mixup α: examples are mixed pairwise, λ v + (1 − λ) v', after pooling, with λ ~ Beta(α, α), and so are their losses (Zhang 2018).
    """
    if s.mixup:
        return _mixed(s.mixup, _reader(model, "mixup"), source, lengths, truth, loss)
    if not s.adversarial:
        return _agreeing(s, model, source, lengths, lambda scores: loss(scores, truth))
    embedding = getattr(_reader(model, "adversarial").encoder, "embedding", None)
    if embedding is None:
        raise SettingsError(["adversarial moves embeddings, of which this model has none; leave it out."])
    with _noted(embedding) as given:
        found = _agreeing(s, model, source, lengths, lambda scores: loss(scores, truth))
    (slope,) = torch.autograd.grad(found.total, given[0], retain_graph=True)
    with torch.no_grad():
        size = given[0].flatten(1).norm(dim=1) / slope.flatten(1).norm(dim=1).clamp_min(1e-12)
        moved = s.adversarial * size.view(-1, *[1] * (slope.dim() - 1)) * slope
    with _added(embedding, moved):
        against = loss(model(source, lengths).float(), truth)
    return LossSum((found.total + against.total) / 2, found.count)


def _agreeing(
    s: ClassifierSettings, model: nn.Module, source: Tensor, lengths: Tensor, loss: Loss
) -> LossSum:
    scores = model(source, lengths).float()
    found = loss(scores)
    if not s.r_drop:
        return found
    other = model(source, lengths).float()
    total = (found.total + loss(other).total) / 2 + s.r_drop * disagreement(s.target, scores, other).sum()
    return LossSum(total, found.count)


def disagreement(target: str, a: Tensor, b: Tensor) -> Tensor:
    """How far two passes are apart, ``(batch,)`` from scores ``(batch, outputs)``: ½ KL(p‖q) + ½ KL(q‖p), of several classes summed over them;
    of numbers the squared difference."""
    if target == "number":
        return (a - b).square().sum(-1)
    if target == "class":
        p, q = a.log_softmax(-1), b.log_softmax(-1)
        return ((p.exp() - q.exp()) * (p - q)).sum(-1) / 2
    p, q = (
        a.sigmoid(),
        b.sigmoid(),
    )  # KL(p‖q) + KL(q‖p) of two Bernoulli variables is (p − q)(logit p − logit q)
    return ((p - q) * (a - b)).sum(-1) / 2


def _mixed(
    alpha: float,
    model: SequenceClassifier,
    source: Tensor,
    lengths: Tensor,
    truth: Tensor,
    loss: Callable[[Tensor, Tensor], LossSum],
) -> LossSum:
    share = float(torch.distributions.Beta(alpha, alpha).sample())
    order = torch.randperm(len(truth), device=truth.device)
    pooled = model.pooled(source, lengths)  # (batch, width)
    scores = model.scores(share * pooled + (1 - share) * pooled[order]).float()
    one, other = loss(scores, truth), loss(scores, truth[order])
    return LossSum(share * one.total + (1 - share) * other.total, one.count)


def _reader(model: nn.Module, key: str) -> SequenceClassifier:
    if not isinstance(model, SequenceClassifier):
        raise SettingsError([f"{key} is for the presets that read sequences; leave it out."])
    return model


@contextmanager
def _noted(module: nn.Module) -> Iterator[list[Tensor]]:
    """What the module gives inside the block."""
    found: list[Tensor] = []
    held = module.register_forward_hook(lambda _module, _inputs, output: found.append(output))
    try:
        yield found
    finally:
        held.remove()


@contextmanager
def _added(module: nn.Module, by: Tensor) -> Iterator[None]:
    """Inside the block ``by`` is added to what the module gives."""
    held = module.register_forward_hook(lambda _module, _inputs, output: output + by.to(output.dtype))
    try:
        yield
    finally:
        held.remove()
