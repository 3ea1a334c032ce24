"""Hard attention: what it draws, and that its gradients are right on average."""

from __future__ import annotations

import pytest
import torch

from anaphora.nn import inside
from anaphora.nn.attention import (
    Additive,
    Dot,
    Hard,
    masks,
    one_hot_draw,
    score_function,
    score_function_in_time,
)


def case() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.randn(2, 3, 4), torch.randn(2, 5, 4), masks.padding(torch.tensor([5, 2]), 5)


def test_the_context_is_the_one_value_that_was_drawn() -> None:
    query, keys, mask = case()
    context, weights = Hard(Dot())(query, keys, mask)
    chosen = weights.argmax(-1)
    assert torch.equal(weights, torch.nn.functional.one_hot(chosen, 5).float())
    torch.testing.assert_close(context, torch.take_along_dim(keys, chosen[..., None], 1))
    assert (chosen[1] < 2).all()


def test_draws_follow_the_weights() -> None:
    probabilities = torch.tensor([0.6, 0.0, 0.3, 0.1]).expand(20000, 4)
    share = one_hot_draw(probabilities, sample=True).mean(0)
    torch.testing.assert_close(share, probabilities[0], rtol=0, atol=0.02)
    assert share[1] == 0


def test_in_eval_mode_it_takes_the_likeliest() -> None:
    query, keys, mask = case()
    hard = Hard(Dot()).eval()
    _, soft = Dot()(query, keys, mask)
    assert torch.equal(hard(query, keys, mask)[1].argmax(-1), soft.argmax(-1))


def test_straight_through_passes_the_gradient_of_the_weights() -> None:
    query, keys, mask = case()
    query.requires_grad_()
    cost = torch.randn(2, 3, 5)
    _, weights = Hard(Dot())(query, keys, mask)
    (got,) = torch.autograd.grad((weights * cost).sum(), query)
    _, soft = Dot()(query, keys, mask)
    (expected,) = torch.autograd.grad((soft * cost).sum(), query)
    torch.testing.assert_close(got, expected)


def test_the_score_function_is_unbiased() -> None:
    """The mean over all draws, weighted by their probabilities, is the exact gradient of the expected cost."""
    scores = torch.randn(4, dtype=torch.float64, requires_grad=True)
    costs = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    alpha = torch.softmax(scores, -1)
    (exact,) = torch.autograd.grad((alpha * costs).sum(), scores, retain_graph=True)
    for baseline in (0.0, 0.7):
        estimate = torch.zeros_like(scores)
        for key in range(4):
            surrogate = score_function(costs[key], alpha[key].log(), baseline)
            assert surrogate.item() == costs[key].item()
            (one,) = torch.autograd.grad(surrogate, scores, retain_graph=True)
            estimate += alpha[key].detach() * one
        torch.testing.assert_close(estimate, exact)


def test_log_prob_is_that_of_the_draw() -> None:
    query, keys, mask = case()
    hard = Hard(Dot(), straight_through=False)
    query.requires_grad_()
    drawn = hard.draw(query, keys, mask)
    _, soft = Dot()(query, keys, mask)
    expected = torch.take_along_dim(soft, drawn.weights.argmax(-1, keepdim=True), -1).squeeze(-1).log()
    torch.testing.assert_close(drawn.log_prob, expected)
    assert not drawn.context.requires_grad
    assert drawn.log_prob.requires_grad


@pytest.mark.parametrize("straight_through", [True, False])
def test_a_row_with_nothing_to_see(straight_through: bool) -> None:
    query, keys, mask = case()
    mask[1] = False
    query.requires_grad_()
    drawn = Hard(Additive(4, 4, 3), straight_through=straight_through).draw(query, keys, mask)
    assert (drawn.context[1] == 0).all()
    assert (drawn.log_prob[1] == 0).all()
    (drawn.context.sum() + drawn.log_prob.sum()).backward()
    assert query.grad is not None
    assert query.grad.isfinite().all()


def test_it_learns_where_to_look_by_both_gradients() -> None:
    """The value of the third key costs least; either estimator finds it."""
    for straight_through in (True, False):
        torch.manual_seed(0)
        query = torch.zeros(64, 1, 3, requires_grad=True)
        keys = torch.eye(3).expand(64, 3, 3)
        values = torch.tensor([[1.0], [2.0], [0.0]]).expand(64, 3, 1)
        hard = Hard(Dot(), straight_through=straight_through)
        optimizer = torch.optim.Adam([query], lr=0.1)
        for _ in range(60):
            drawn = hard.draw(query.mean(0, keepdim=True).expand(64, 1, 3), keys, None, values)
            cost = drawn.context.squeeze(-1)
            loss = cost if straight_through else score_function(cost, drawn.log_prob, cost.mean().item())
            optimizer.zero_grad()
            loss.mean().backward()
            optimizer.step()
        assert hard.eval()(query, keys)[1].argmax(-1).eq(2).all()


def test_what_is_noted() -> None:
    query, keys, mask = case()
    hard = Hard(Dot())
    with inside.record() as notes:
        hard(query, keys, mask)
    assert [note.name for note in notes if note.module is hard] == ["probabilities", "weights", "log_prob"]


def test_in_a_mixing_block_nothing_is_drawn() -> None:
    query, keys, mask = case()
    hard = Hard(Dot(), straight_through=False)
    with hard.mixing():
        context, weights = hard(query, keys, mask)
    expected = Dot()(query, keys, mask)
    torch.testing.assert_close((context, weights), expected)
    assert set(hard(query, keys, mask)[1].unique().tolist()) <= {0.0, 1.0}


def test_draws_that_follow_one_another_agree_with_the_exact_expectation() -> None:
    """Three places, two draws, the second of which depends on the first; 40,000 estimates against the exact gradient.

    Each of the 12 numbers of the gradient is a mean whose standard error is estimated from the same draws. A right
    estimator fails |z| < 4.5 with probability 6.8e-6 for each, so below 1e-4 for all together.
    """
    torch.manual_seed(3)
    first = torch.tensor([0.3, -0.5, 0.9], dtype=torch.float64)
    second = torch.tensor([[1.0, 0.0, -1.0], [0.2, 0.4, 0.1], [-0.7, 0.8, 0.3]], dtype=torch.float64)
    cost_first = torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64)
    cost_second = torch.tensor([[0.5, 2.0, -1.0], [3.0, 0.1, 0.4], [-2.0, 1.5, 0.7]], dtype=torch.float64)
    exact_first, exact_second = (x.clone().requires_grad_() for x in (first, second))
    p, q = exact_first.softmax(-1), exact_second.softmax(-1)
    (p * cost_first).sum().add((p[:, None] * q * cost_second).sum()).backward()

    count = 40_000
    a = first.expand(count, 3).clone().requires_grad_()
    b = second.expand(count, 3, 3).clone().requires_grad_()
    places = torch.eye(3, dtype=torch.float64).expand(count, 3, 3)
    hard = Hard(Dot(), straight_through=False)
    with hard.following() as drawn:
        one, _ = hard(a[:, None], places)
        two, _ = hard(torch.matmul(one, b), places)
    costs = torch.cat(((one * cost_first).sum(-1), (one @ cost_second * two).sum(-1)), 1)
    baseline = torch.tensor([[0.4, 0.6]], dtype=torch.float64).expand(count, 2)
    loss = score_function_in_time(costs, torch.cat(drawn, 1), baseline)
    assert loss.item() == pytest.approx(costs.sum().item())
    loss.backward()
    for estimates, exact in ((a.grad, exact_first.grad), (b.grad, exact_second.grad)):
        assert estimates is not None
        assert exact is not None
        error = estimates.std(0) / count**0.5
        z = (estimates.mean(0) - exact) / error
        assert (z.abs() < 4.5).all(), z
        assert (estimates.std(0) > 0).all()


def test_a_baseline_that_ignores_later_costs_would_be_noticed() -> None:
    """The same with credit for the own step alone is biased, so the test above can fail: worked out exactly."""
    scores = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    later = torch.tensor([0.0, 1.0, 5.0], dtype=torch.float64)  # what follows from the first draw costs
    p = scores.softmax(-1)
    (exact,) = torch.autograd.grad((p * later).sum(), scores, retain_graph=True)
    whole, own = torch.zeros(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    for place in range(3):
        log_prob = torch.stack((p[place].log(), p[place].detach().log() * 0))[None]
        cost = torch.stack((later[0] * 0, later[place]))[None]
        loss = score_function_in_time(cost, log_prob, torch.zeros(1, 2, dtype=torch.float64))
        (one,) = torch.autograd.grad(loss, scores, retain_graph=True)
        whole += p[place].detach() * one
        (one,) = torch.autograd.grad((cost * log_prob).sum(), scores, retain_graph=True)
        own += p[place].detach() * one
    torch.testing.assert_close(whole, exact)
    assert not torch.allclose(own, exact)
