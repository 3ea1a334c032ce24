"""Greedy search: the most probable symbol at every step."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from anaphora.search._beam import beam
from anaphora.search._hypothesis import NBest, Step


def greedy(
    step: Step,
    state: Any,
    *,
    start: Tensor,
    eos: int,
    max_length: int | Tensor,
    min_length: int = 0,
    length_penalty: float = 1.0,
    logits: bool = False,
    keep_tree: bool = False,
) -> list[NBest]:
    """yₜ = argmax p(y | y₁ … yₜ₋₁), until EOS or max_length: a beam of width 1.

    Quick, but a wrong symbol is never taken back. Arguments and result are those of `beam`; each list
    holds one hypothesis.
    """
    return beam(
        step,
        state,
        start=start,
        eos=eos,
        width=1,
        max_length=max_length,
        min_length=min_length,
        length_penalty=length_penalty,
        logits=logits,
        keep_tree=keep_tree,
    )
