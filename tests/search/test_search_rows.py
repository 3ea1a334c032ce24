"""Picking rows out of every form a model's state may have."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from anaphora.errors import AnaphoraError
from anaphora.search import select_rows

ROWS = torch.tensor([2, 0, 0])
X = torch.arange(6).reshape(3, 2)
EXPECTED = [[4, 5], [0, 1], [0, 1]]


@dataclass
class Memory:
    annotations: Tensor
    mask: Tensor | None
    layers: int = 2


class Cache:
    """Knows itself how its rows are picked."""

    def __init__(self, order: list[int]):
        self.order = order

    def select(self, rows: Tensor) -> Cache:
        return Cache([self.order[row] for row in rows.tolist()])


def test_tensors_nested_in_tuples_lists_and_dicts() -> None:
    state = select_rows({"a": (X, [X + 1, None]), "t": 5}, ROWS)
    assert state["a"][0].tolist() == EXPECTED
    assert state["a"][1][0].tolist() == (torch.tensor(EXPECTED) + 1).tolist()
    assert isinstance(state["a"], tuple)
    assert state["a"][1][1] is None
    assert state["t"] == 5


def test_dataclasses_and_named_tuples_keep_their_type() -> None:
    Pair = namedtuple("Pair", "h c")
    memory = select_rows(Memory(X, None), ROWS)
    assert (memory.annotations.tolist(), memory.mask, memory.layers) == (EXPECTED, None, 2)
    pair = select_rows(Pair(X, X), ROWS)
    assert isinstance(pair, Pair)
    assert pair.c.tolist() == EXPECTED


def test_an_object_with_select_does_it_itself() -> None:
    assert select_rows((Cache([7, 8, 9]),), ROWS)[0].order == [9, 7, 7]


def test_a_tensor_without_dimensions_belongs_to_all_rows() -> None:
    assert select_rows(torch.tensor(4), ROWS).item() == 4


def test_other_things_are_refused_in_a_sentence() -> None:
    with pytest.raises(AnaphoraError, match="set in the model's state"):
        select_rows({"seen": {1, 2}}, ROWS)
