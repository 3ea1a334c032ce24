"""C8: what a language model carries from batch to batch, divided among another number of processes."""

from __future__ import annotations

import pytest
import torch

from anaphora.models.language import Carried
from anaphora.tasks.language.objective import LanguageObjective


class Plain(LanguageObjective):
    def __init__(self):
        self._carried = {}


def shares(whole, of):
    return {(i, of): Carried(tuple(state[:, i::of] for state in whole)) for i in range(of)}


@pytest.mark.parametrize("rows", [2, 5, 8])
@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1), (4, 3), (2, 2)])
def test_every_row_goes_to_the_share_that_reads_it(rows, before, after):
    whole = (torch.randn(2, rows, 3), torch.randn(2, rows, 4))
    saved = Plain()
    saved._carried = {k: v for k, v in shares(whole, before).items() if v.states[0].shape[1]}
    read = Plain()
    read.load_shares(saved.state_dict(), range(after), after)
    for index in range(after):
        wanted = tuple(state[:, index::after] for state in whole)
        if wanted[0].shape[1]:
            found = read._carried[index, after].states
            assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_symbols_are_divided_too():
    saved, read = Plain(), Plain()
    symbols = torch.arange(10).reshape(5, 2)
    saved._carried = {(0, 1): symbols}
    read.load_shares(saved.state_dict(), [1], 2)
    assert torch.equal(read._carried[1, 2], symbols[1::2])
