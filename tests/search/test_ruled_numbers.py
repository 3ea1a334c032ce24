"""A rule changes which symbols a search looks at, and no number: log p of all symbols are those of the best, to the bit."""

from __future__ import annotations

import pytest
import torch

from anaphora.ops import packed
from anaphora.search._rows import all_log_probs, best_symbols


@pytest.mark.parametrize("symbols", [2, 9, 256, 257, 1000])
@pytest.mark.parametrize("compiled", [True, False])
def test_log_probabilities_of_all_symbols_are_those_of_the_best(symbols, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(packed.library, "ready", lambda scores: False)
    logits = 5 * torch.randn(4, symbols, generator=torch.Generator().manual_seed(symbols))
    logits[1, 1] = -torch.inf
    whole = all_log_probs(logits)
    torch.testing.assert_close(whole, logits.log_softmax(1), atol=1e-5, rtol=1e-5)
    for row, best in enumerate(best_symbols(logits, symbols, rows=4, forbidden=None, logits=True)):
        assert len(best) == symbols - (row == 1)
        assert all(p == min(float(whole[row, symbol]), 0.0) for p, symbol in best)


def test_what_is_not_a_number_stays_so():
    logits = torch.zeros(2, 5)
    logits[1, 2] = torch.nan
    found = all_log_probs(logits)
    assert found[0].isfinite().all()
    assert found[1].isnan().all()
