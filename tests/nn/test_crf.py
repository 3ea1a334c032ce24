"""The linear chain against brute force over all its paths."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from anaphora.nn.crf import CRF
from anaphora.ops import crf
from anaphora.ops.crf import chain_sums, in_log_domain


@pytest.fixture(autouse=True, params=["C", "torch"])
def _inner_loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything holds with the compiled loops and, where there is no compiler, with those in torch."""
    if request.param == "torch":
        monkeypatch.setattr(crf.library, "functions", lambda *_: None)
    elif crf.library.functions() is None:
        pytest.skip("no C compiler here")


LENGTHS = torch.tensor([4, 3, 1, 0, 2])


def chain(tags: int = 3, time: int = 4, spread: float = 2.0) -> tuple[CRF, Tensor, Tensor]:
    crf = CRF(tags).double()
    for scores in crf.parameters():
        torch.nn.init.normal_(scores, std=spread)
    emissions = torch.randn(5, time, tags, dtype=torch.float64) * spread
    return crf, emissions, LENGTHS.clamp(max=time)


def paths(crf: CRF, emissions: Tensor, length: int) -> list[tuple[float, tuple[int, ...]]]:
    """Every tagging of one row with its score, best first; the score added up term by term."""
    found = []
    for path in itertools.product(range(crf.tags), repeat=length):
        score = sum(emissions[t, tag].item() for t, tag in enumerate(path))
        score += sum(crf.transitions[a, b].item() for a, b in itertools.pairwise(path))
        if path:
            score += crf.start[path[0]].item() + crf.end[path[-1]].item()
        found.append((score, path))
    return sorted(found, reverse=True)


def log_z(scored: list[tuple[float, tuple[int, ...]]]) -> float:
    return math.log(math.fsum(math.exp(score) for score, _ in scored))


def test_log_partition_and_log_prob() -> None:
    crf, emissions, lengths = chain()
    total = crf.log_partition(emissions, lengths)
    for row, length in enumerate(lengths.tolist()):
        scored = paths(crf, emissions[row], length)
        assert total[row].item() == pytest.approx(log_z(scored), abs=1e-10)
        score, path = scored[len(scored) // 2]
        tags = torch.full((1, 4), -1)  # what stands in the padding must not matter
        tags[0, :length] = torch.tensor(path)
        found = crf(emissions[row : row + 1], tags, lengths[row : row + 1])
        assert found.item() == pytest.approx(score - log_z(scored), abs=1e-10)


def test_probabilities_of_all_taggings_sum_to_one() -> None:
    crf, emissions, _ = chain(time=3)
    every = torch.tensor(list(itertools.product(range(3), repeat=3)))
    log_probs = crf(emissions[:1].expand(len(every), -1, -1), every)
    assert log_probs.exp().sum().item() == pytest.approx(1.0, abs=1e-12)


def test_marginals() -> None:
    crf, emissions, lengths = chain()
    marginals = crf.marginals(emissions, lengths)
    expected = torch.zeros_like(marginals)
    for row, length in enumerate(lengths.tolist()):
        scored = paths(crf, emissions[row], length)
        for score, path in scored:
            for t, tag in enumerate(path):
                expected[row, t, tag] += math.exp(score - log_z(scored))
    torch.testing.assert_close(marginals, expected, rtol=0, atol=1e-10)


def test_gradients_equal_those_of_the_log_domain() -> None:
    crf, emissions, lengths = chain()
    emissions.requires_grad_()
    inputs = [emissions, crf.transitions, crf.start, crf.end]
    weights = torch.randn(5, dtype=torch.float64)
    fast = torch.autograd.grad((crf.log_partition(emissions, lengths) * weights).sum(), inputs)
    slow = torch.autograd.grad((in_log_domain(*inputs, lengths) * weights).sum(), inputs)
    for a, b in zip(fast, slow, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_gradients_by_differences_once_and_twice() -> None:
    crf, emissions, lengths = chain()
    emissions.requires_grad_()
    scores = (emissions, *(p.detach().requires_grad_() for p in (crf.transitions, crf.start, crf.end)))

    def total(e: Tensor, transitions: Tensor, start: Tensor, end: Tensor) -> Tensor:
        return torch.func.functional_call(
            crf, {"transitions": transitions, "start": start, "end": end}, (e, tags, lengths)
        )

    tags = torch.randint(3, (5, 4))
    torch.autograd.gradcheck(total, scores)
    torch.autograd.gradgradcheck(total, scores)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # the loops stay the same for all draws
@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 5), st.sampled_from([0.1, 3.0, 40.0]))
def test_scaled_sums_equal_the_log_domain(seed: int, tags: int, time: int, spread: float) -> None:
    torch.manual_seed(seed)
    crf, emissions, lengths = chain(tags, time, spread)
    scores = (emissions, crf.transitions, crf.start, crf.end)
    log_z, safe, marginals, counts = chain_sums(*scores, lengths)
    assume(bool(safe.all()))
    torch.testing.assert_close(log_z, in_log_domain(*scores, lengths), rtol=1e-12, atol=1e-9)
    torch.testing.assert_close(marginals.sum(-1), (torch.arange(time) < lengths[:, None]).double())
    torch.testing.assert_close(counts.sum((1, 2)), (lengths - 1).clamp(min=0).double())


@pytest.mark.parametrize("k", [1, 2, 7, 100])
def test_best_paths(k: int) -> None:
    crf, emissions, lengths = chain()
    tags, scores = crf.k_best(emissions, k, lengths)
    best, best_score = crf.viterbi(emissions, lengths)
    assert tags.shape == (5, k, 4)
    for row, length in enumerate(lengths.tolist()):
        scored = paths(crf, emissions[row], length)[:k]
        assert scores[row, : len(scored)].tolist() == pytest.approx([score for score, _ in scored], abs=1e-10)
        assert (scores[row, len(scored) :] == -math.inf).all()
        found = [tuple(path[:length]) for path in tags[row, : len(scored)].tolist()]
        assert found == [path for _, path in scored]
        assert (tags[row, :, length:] == 0).all()
        assert best[row].tolist() == tags[row, 0].tolist()
        assert best_score[row].item() == pytest.approx(scored[0][0], abs=1e-10)


def test_forbidden_transitions() -> None:
    """Tag 1 may not follow tag 0: no such path, no such marginal, and still gradients without NaN."""
    crf, emissions, lengths = chain()
    crf.transitions.data[0, 1] = -math.inf
    emissions.requires_grad_()
    total = crf.log_partition(emissions, lengths)
    for row, length in enumerate(lengths.tolist()):
        assert total[row].item() == pytest.approx(log_z(paths(crf, emissions[row], length)), abs=1e-10)
    total.sum().backward()
    assert emissions.grad is not None
    assert emissions.grad.isfinite().all()
    assert crf.transitions.grad is not None
    assert crf.transitions.grad[0, 1] == 0
    best, _ = crf.viterbi(emissions, lengths)
    assert (0, 1) not in {pair for row in best.tolist() for pair in itertools.pairwise(row)}


def test_no_path_at_all() -> None:
    crf, emissions, _ = chain()
    crf.start.data.fill_(-math.inf)
    emissions.requires_grad_()
    total = crf.log_partition(emissions)
    assert (total == -math.inf).all()
    total.masked_fill(total == -math.inf, 0.0).sum().backward()
    assert emissions.grad is not None
    assert emissions.grad.isfinite().all()


def test_scores_far_apart_are_summed_in_the_log_domain() -> None:
    crf, emissions, lengths = chain(spread=500.0)
    scores = (emissions, crf.transitions, crf.start, crf.end)
    assert chain_sums(*scores, lengths)[1].tolist() == [length == 0 for length in lengths.tolist()]
    best = [paths(crf, emissions[row], n)[0][0] for row, n in enumerate(lengths.tolist())]
    assert crf.log_partition(emissions, lengths).tolist() == pytest.approx(best, abs=1e-6)


def test_a_row_alone_equals_the_row_in_a_batch() -> None:
    crf, emissions, lengths = chain()
    crf, emissions = crf.float(), emissions.float()
    together, marginals = crf.log_partition(emissions, lengths), crf.marginals(emissions, lengths)
    spoilt = emissions.masked_fill((torch.arange(4) >= lengths[:, None])[..., None], math.inf)
    assert torch.equal(crf.log_partition(spoilt, lengths), together)
    assert torch.equal(crf.viterbi(spoilt, lengths)[0], crf.viterbi(emissions, lengths)[0])
    for row, length in enumerate(lengths.tolist()):
        if length:
            alone = emissions[row : row + 1, :length]
            torch.testing.assert_close(crf.log_partition(alone)[0], together[row], rtol=0, atol=1e-5)
            torch.testing.assert_close(crf.marginals(alone)[0], marginals[row, :length])


@pytest.mark.parametrize("which", ["emissions", "transitions", "start", "end"])
def test_nan_is_not_hidden(which: str) -> None:
    """A row with NaN at a real place has NaN for log Z and the best score, and no other row has."""
    crf, emissions, lengths = chain()
    if which == "emissions":
        emissions[1, 2, 0] = emissions[4, 3, 1] = math.nan  # the second lies past the end of its row
        spoilt = [False, True, False, False, False]
    else:
        getattr(crf, which).data.view(-1)[-1] = math.nan
        spoilt = [n > (which == "transitions") for n in lengths.tolist()]
    assert crf.viterbi(emissions, lengths)[1].isnan().tolist() == spoilt
    emissions.requires_grad_()
    total = crf.log_partition(emissions, lengths)
    assert total.isnan().tolist() == spoilt
    (gradient,) = torch.autograd.grad(total.sum(), emissions)
    unknown = gradient.isnan().flatten(1).any(1).tolist()
    assert (
        unknown == spoilt
        if which == "emissions"
        else all(a >= b for a, b in zip(unknown, spoilt, strict=True))
    )


def test_a_row_far_apart_changes_no_other() -> None:
    """It is summed in the log domain; the others are not, to the last bit."""
    crf, emissions, lengths = chain()
    together = crf.log_partition(emissions, lengths)
    emissions[0, 0, 0] = 1e4
    changed = crf.log_partition(emissions, lengths)
    assert torch.equal(changed[1:], together[1:])
    assert changed[0].item() == pytest.approx(paths(crf, emissions[0], 4)[0][0], abs=10)


def test_single_precision_is_as_good_as_it_can_be() -> None:
    crf, emissions, lengths = chain(tags=5, time=60)
    lengths = torch.tensor([60, 31, 7, 60, 2])
    exact_value = crf.log_partition(emissions, lengths)
    single = crf.float().log_partition(emissions.float(), lengths)
    torch.testing.assert_close(single.double(), exact_value, rtol=1e-6, atol=1e-5)


def test_an_empty_batch() -> None:
    crf, nothing = CRF(3), torch.zeros(0, 4, 3)
    assert crf(nothing, torch.zeros(0, 4, dtype=torch.int64)).shape == (0,)
    assert crf.marginals(nothing).shape == (0, 4, 3)
    assert [x.shape for x in crf.viterbi(nothing)] == [(0, 4), (0,)]
    assert [x.shape for x in crf.k_best(nothing, 2)] == [(0, 2, 4), (0, 2)]


@pytest.mark.parametrize("lengths", [[5], [-1], [1, 1]])
def test_wrong_lengths_are_refused(lengths: list[int]) -> None:
    with pytest.raises(ValueError, match=r"lengths must be 1 numbers between 0 and the 4 places"):
        CRF(3).viterbi(torch.zeros(1, 4, 3), torch.tensor(lengths))


def test_wrong_emissions_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one place"):
        CRF(3).log_partition(torch.zeros(2, 0, 3))
    with pytest.raises(ValueError, match=r"\(batch, time, 3\), got \(2, 4, 5\)"):
        CRF(3).log_partition(torch.zeros(2, 4, 5))
