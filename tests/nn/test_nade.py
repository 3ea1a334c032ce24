"""NADE against the loop written out, and against all chords there are."""

from __future__ import annotations

import itertools

import pytest
import torch

from anaphora.nn import NADE


def conditional(nade, bias, shift, values):
    """The equations of the docstring, target by target, for one step: logits (n,)."""
    hidden, found = shift.clone(), []
    for i in range(len(values)):
        found.append(bias[i] + nade.outward[i] @ torch.relu(hidden))
        hidden = hidden + values[i] * nade.inward[i]
    return torch.stack(found)


def made(targets=5, units=4, rows=3):
    torch.manual_seed(3)
    nade = NADE(targets, units).double()
    return nade, torch.randn(rows, targets).double(), torch.randn(rows, units).double()


def test_logits_are_those_of_the_loop():
    nade, bias, shift = made()
    values = torch.tensor([[1.0, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]]).double()
    found = nade(bias, shift, values)
    for row in range(3):
        assert torch.allclose(found[row], conditional(nade, bias[row], shift[row], values[row]))


def test_probabilities_of_all_chords_sum_to_one():
    nade, bias, shift = made(targets=4, rows=1)
    chords = torch.tensor(list(itertools.product((0.0, 1.0), repeat=4))).double()
    logits = nade(bias.expand(16, -1), shift.expand(16, -1), chords)
    each = torch.where(chords > 0, logits.sigmoid(), 1 - logits.sigmoid()).prod(-1)
    assert each.sum().item() == pytest.approx(1.0, abs=1e-12)
    assert each.max() < 0.99


def test_a_target_sees_those_before_it_alone():
    nade, bias, shift = made(rows=1)
    values = torch.zeros(1, 5).double()
    before = nade(bias, shift, values)
    values[0, 2] = 1.0
    after = nade(bias, shift, values)
    assert torch.equal(before[0, :3], after[0, :3])
    assert (before[0, 3:] != after[0, 3:]).all()


def test_gradients():
    nade, bias, shift = made()
    values = torch.tensor([[1.0, 0, 1, 1, 0], [0, 0, 0, 0, 0], [0, 1, 0, 1, 1]]).double()
    weights = [w.detach().requires_grad_() for w in (nade.inward, nade.outward)]

    def run(b, c, inward, outward):
        return torch.func.functional_call(nade, {"inward": inward, "outward": outward}, (b, c, values))

    assert torch.autograd.gradcheck(run, (bias.requires_grad_(), shift.requires_grad_(), *weights))


def test_any_leading_axes_and_none_at_all():
    nade, _, _ = made()
    found = nade(
        torch.zeros(2, 3, 1, 5).double(), torch.ones(2, 3, 1, 4).double(), torch.ones(2, 3, 1, 5).double()
    )
    assert found.shape == (2, 3, 1, 5)
    empty = nade(torch.zeros(0, 5).double(), torch.zeros(0, 4).double(), torch.zeros(0, 5).double())
    assert empty.shape == (0, 5)


def test_no_targets_are_refused():
    with pytest.raises(ValueError, match="NADE: targets and units must be at least 1, but are 0 and 4"):
        NADE(0, 4)
