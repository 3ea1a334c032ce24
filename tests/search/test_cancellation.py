"""Searches whose answer is no longer wanted end before their next step; asking changes nothing they find."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import anaphora as an
from anaphora.cancellation import Stopped, check_stopped, each_step, stopped_by
from anaphora.search import _HOMES

LONG = 96
"""Steps of each search below: frames, or symbols of an output."""
CHAIN = torch.full((4, 4), 1 / 3).log()
CHAIN[:, 3] = -math.inf  # 3 is EOS, which never comes
LOG_P = torch.randn(1, LONG, 3, generator=torch.Generator().manual_seed(1)).log_softmax(-1)
START = {"start": torch.tensor([0, 1]), "eos": 3, "max_length": LONG}


def step(symbols: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
    return CHAIN[symbols], state


class Toy:
    """A transducer that writes symbol 1 at each frame."""

    start = staticmethod(lambda rows: (torch.zeros(rows, 1), torch.zeros(rows, 1)))
    step = staticmethod(lambda symbols, state: (torch.ones(len(symbols), 1), state))
    join = staticmethod(
        lambda frames, predicted: torch.cat((predicted, 1 - predicted), -1).clamp(0.1, 0.9).log()
    )


def pushed(stream: Any, frames: torch.Tensor) -> list[Any]:
    stream.push(frames)
    return stream.best()


LEXICON = an.search.Lexicon(["b", "c", "bc"], "abc")
WORDS = {"lexicon": LEXICON, "lm": None}
SEARCHES: dict[str, list[tuple[Callable[[], Any], int]]] = {
    "beam": [
        (lambda: an.search.beam(step, None, width=3, **START), LONG),
        (lambda: an.search.beam(step, None, width=4, groups=2, no_repeat=90, **START), LONG),
        (lambda: an.search.beam(step, None, width=1, **START), LONG),
    ],
    "greedy": [(lambda: an.search.greedy(step, None, **START), LONG)],
    "sample": [(lambda: an.search.sample(step, None, seeds=[1, 2], n=3, **START), LONG)],
    "lexicon_beam": [
        (lambda: an.search.lexicon_beam(step, None, width=4, lexicon=LEXICON, **START), LONG),
    ],
    "ctc_beam": [
        (lambda: an.search.ctc_beam(LOG_P, width=4), LONG // 32),
        (lambda: an.search.ctc_beam(LOG_P.expand(2, -1, -1), width=4, threads=2), LONG // 32),
        (lambda: an.search.ctc_beam(LOG_P, width=4, lexicon=LEXICON), LONG // 32),
    ],
    "CTCStream": [
        (lambda: pushed(an.search.CTCStream(width=4), LOG_P[0]), LONG // 32),
        (lambda: pushed(an.search.CTCStream(width=4, lexicon=LEXICON), LOG_P[0]), LONG // 32),
    ],
    "transducer_greedy": [(lambda: an.search.transducer_greedy(Toy(), torch.zeros(2, LONG, 4)), LONG)],
    "transducer_beam": [(lambda: an.search.transducer_beam(Toy(), torch.zeros(2, LONG, 4)), LONG)],
    "TransducerGreedy": [
        (lambda: pushed(an.search.TransducerGreedy(Toy()), torch.zeros(1, LONG, 4)), LONG),
    ],
    "TransducerStream": [
        (lambda: pushed(an.search.TransducerStream(Toy(), width=2), torch.zeros(LONG, 4)), LONG),
    ],
}
"""Each search with the times that it asks at least."""
AT_ONCE = {"ctc_greedy"}
"""One operation over all frames."""
CASES = [(name, i) for name, searches in SEARCHES.items() for i in range(len(searches))]


def test_every_search_is_among_them() -> None:
    """A new one is added here with the number of its steps."""
    names = {name for name in _HOMES if name.lower().endswith(("beam", "greedy", "stream", "sample"))}
    assert names == SEARCHES.keys() | AT_ONCE


@pytest.mark.parametrize(("name", "number"), CASES)
def test_a_search_asks_before_each_step_and_ends_there(name: str, number: int) -> None:
    search, steps = SEARCHES[name][number]
    asked: list[int] = []
    with stopped_by(lambda: asked.append(1)):
        found = search()
    assert len(asked) >= steps
    assert repr(found) == repr(search())  # asking changes nothing
    for turn in (1, steps // 2, len(asked)):
        left: list[int] = []
        with (
            pytest.raises(Stopped),
            stopped_by(lambda seen=left, turn=turn: seen.append(1) or len(seen) >= turn),
        ):
            search()
        assert turn <= len(left) <= turn + (name == "ctc_beam")  # one for each thread


def test_no_step_follows_the_end() -> None:
    seen: list[int] = []

    def counted(symbols: torch.Tensor, state: Any) -> tuple[torch.Tensor, Any]:
        seen.append(len(symbols))
        return step(symbols, state)

    with pytest.raises(Stopped), stopped_by(lambda: len(seen) == 5):
        an.search.beam(counted, None, width=3, **START)
    assert len(seen) == 5


def test_what_is_around_stops_too_and_nothing_outlives_its_context() -> None:
    check_stopped()
    with stopped_by(lambda: False):
        with stopped_by(lambda: True), pytest.raises(Stopped):
            check_stopped()
        check_stopped()
        with stopped_by(lambda: True), stopped_by(lambda: False), pytest.raises(Stopped):
            list(each_step([1]))
    assert list(each_step([1, 2])) == [1, 2]


def test_nothing_that_handles_errors_takes_the_end_for_one() -> None:
    assert not issubclass(Stopped, Exception)
