"""R-Drop: its divergence against torch's, and the loss of the translator with it."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import anaphora as an
from anaphora.data.batches.pairs import PairBatch
from anaphora.errors import SettingsError
from anaphora.tasks.translate.build import build_seq2seq
from anaphora.tasks.translate.objective import TranslationObjective
from anaphora.training.rdrop import divergence

SIZES = {"hidden": 16, "heads": 2, "layers": 1, "feedforward": 16}


def test_divergence_is_the_mean_of_both_directions():
    torch.manual_seed(0)
    logits = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    real = torch.tensor([True, False, True])
    p, q = (torch.log_softmax(half, -1) for half in logits.chunk(2))
    both = [F.kl_div(a, b, log_target=True, reduction="none").sum(-1) for a, b in ((p, q), (q, p))]
    wanted = 0.5 * (both[0] + both[1])[real].sum()
    found = divergence(logits, real)
    torch.testing.assert_close(found, wanted.float())
    mine, theirs = (torch.autograd.grad(one, logits, retain_graph=True)[0] for one in (found, wanted))
    torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-5)


def test_equal_predictions_do_not_diverge():
    half = torch.randn(3, 7)
    assert float(divergence(torch.cat((half, half)), torch.ones(3, dtype=torch.bool))) == 0.0


class _Side:
    size = 20


class _Sides:
    source = target = _Side


def losses(**settings):
    m = an.Translator(model="transformer", **SIZES, input_dropout=0.0, **settings)
    torch.manual_seed(1)
    model = build_seq2seq(m.settings_, 20, 20).train()
    objective = TranslationObjective(m.settings_, _Sides(), [])
    batch = PairBatch([[5, 6, 7], [8]], [[9, 4], [6, 7, 8, 5]], [0, 1])
    torch.manual_seed(2)
    found = objective.loss(model, batch)
    return found.total.item() / int(found.count), int(found.count)


def test_without_dropout_nothing_is_added():
    plain, count = losses(dropout=0.0)
    twice, count_of_both = losses(dropout=0.0, r_drop=5.0)
    assert twice == pytest.approx(plain, rel=1e-6)
    assert count == count_of_both == 8


def test_with_dropout_passes_that_disagree_cost():
    weak, _ = losses(dropout=0.3, r_drop=0.001)
    strong, _ = losses(dropout=0.3, r_drop=5.0)
    assert strong > weak + 0.01


def test_input_dropout_is_a_setting_of_its_own():
    model = build_seq2seq(
        an.Translator(model="transformer", **SIZES, dropout=0.3, input_dropout=0.05).settings_, 20, 20
    )
    assert model.encoder.dropout.p == model.decoder.dropout.p == 0.05
    inner = [part.p for part in model.encoder.stack.modules() if isinstance(part, torch.nn.Dropout)]
    assert sorted(set(inner)) == [0.0, 0.3]  # inside the feed-forward network there is none
    with pytest.raises(SettingsError, match="input_dropout"):
        an.Translator(model="lstm-attention", input_dropout=0.1)


def test_bpe_dropout_needs_bpe():
    with pytest.raises(SettingsError, match=r"bpe_dropout = 0\.1 leaves out merges of tokens = 'bpe'"):
        an.Translator(tokens="char", bpe_dropout=0.1)
    an.Translator(tokens="char", target_tokens="bpe", bpe_dropout=0.1)
