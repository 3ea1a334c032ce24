"""A beam that refills, against the search of `transformers` written out: as many go on as the beam is wide."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from anaphora.data.tokenizers.vocabularies import Around
from anaphora.models.ruled import Counted, ruled
from anaphora.search import beam

EOS, SYMBOLS = 1, 6


def table(seed: int) -> torch.Tensor:
    """log p of each symbol after each: ``(SYMBOLS, SYMBOLS)``."""
    return torch.randn(SYMBOLS, SYMBOLS, generator=torch.Generator().manual_seed(seed)).mul(2).log_softmax(1)


def written_out(log_p: torch.Tensor, width: int, most: int, alpha: float, early: Any) -> list[int]:
    """Their search for one input, with lists."""
    live: list[tuple[float, list[int]]] = [(0.0, [])]
    done: list[tuple[float, list[int]]] = []
    for length in range(1, most + 1):
        found = sorted(
            (
                (score + float(log_p[(path or [0])[-1], s]), [*path, s])
                for score, path in live
                for s in range(SYMBOLS)
            ),
            key=lambda one: -one[0],
        )[: 2 * width]
        ends = [one for one in found[:width] if one[1][-1] == EOS or length == most]
        done = sorted(
            [*done, *((score / length**alpha, path) for score, path in ends)], key=lambda one: -one[0]
        )[:width]
        live = [one for one in found if one[1][-1] != EOS][:width]
        if early is True and len(done) == width:
            break
        reach = most if early == "never" and alpha > 0 else length
        if len(done) == width and live[0][0] / reach**alpha <= done[-1][0]:
            break
    best = done[0][1]
    return best[:-1] if best[-1] == EOS else best


@pytest.mark.parametrize(("early", "stopping"), [(False, "likely"), (True, "first"), ("never", "exact")])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.0])
def test_it_finds_what_their_search_finds(early: Any, stopping: Any, alpha: float) -> None:
    for seed in range(12):
        log_p = table(seed)

        def step(symbols: torch.Tensor, state: Any, log_p: torch.Tensor = log_p) -> tuple[torch.Tensor, Any]:
            return log_p[symbols], state

        (found,) = beam(
            step,
            torch.zeros(1),
            start=torch.zeros(1, dtype=torch.long),
            eos=EOS,
            width=3,
            max_length=7,
            length_penalty=alpha,
            stopping=stopping,
            refill=True,
        )
        assert found[0].tokens == written_out(log_p, 3, 7, alpha, early)


def test_rules_force_forbid_and_end() -> None:
    log_p = table(1)

    class State:
        def select(self, rows: torch.Tensor) -> State:
            return self

    around = Around(first=(4,), never=(1, 2), ends=True)
    step = ruled(lambda symbols, state: (log_p[symbols], state), around, [5])
    (found,) = beam(
        step,
        Counted(State(), 0),
        start=torch.zeros(1, dtype=torch.long),
        eos=3,
        width=2,
        max_length=5,
        min_length=5,
    )
    assert found[0].tokens[0] == 4
    assert not {1, 2, 3} & set(found[0].tokens)
    assert (len(found[0].tokens), found[0].finished) == (4, True)
