"""The search of a transducer: wide beams find what adding up all alignments finds, and sound may arrive in any pieces."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anaphora.search import TransducerStream, transducer_beam, transducer_greedy, transducer_loss
from anaphora.search.transducer import Transducer

SYMBOLS = 3


class Table:
    """p of the next step depends on the frame and on the last two symbols: scores F(frame) + G(symbols)."""

    def __init__(self, seed, spread=1.5):
        torch.manual_seed(seed)
        self.predictions = spread * torch.randn(SYMBOLS, SYMBOLS, SYMBOLS)

    def start(self, rows):
        return self.predictions[0, 0].expand(rows, -1), torch.zeros(rows, 2, dtype=torch.int64)

    def step(self, symbols, state):
        state = torch.stack((state[:, 1], symbols), 1)
        return self.predictions[state[:, 0], state[:, 1]], state

    def join(self, frames, predicted):
        return (frames + predicted).double().log_softmax(-1)

    def exact(self, frames, target):
        """log p(y | x) by the loss, which is tested against all alignments."""
        predicted, state = self.start(1)
        rows = [predicted]
        for symbol in target:
            predicted, state = self.step(torch.tensor([symbol]), state)
            rows.append(predicted)
        logits = frames[:, None] + torch.cat(rows)
        return -float(transducer_loss(logits[None].double(), [list(target)], reduction="sum"))


def frames_of(seed, count, spread=2.0):
    return spread * torch.randn(1, count, SYMBOLS, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", range(4))
def test_a_wide_beam_adds_up_all_alignments(seed):
    model, frames = Table(seed), frames_of(seed, 3)
    frames[..., 0] += 3  # mostly blank, so that outputs are short
    (found,) = transducer_beam(model, frames, width=2000, n_best=None, most=3)
    by_tokens = {tuple(h.tokens): h.log_prob for h in found}
    for size in range(4):
        for target in itertools.product(range(1, SYMBOLS), repeat=size):
            assert by_tokens[target] == pytest.approx(model.exact(frames[0], target), abs=1e-9)
    values = [h.log_prob for h in found]
    assert values == sorted(values, reverse=True)


def test_greedy_takes_the_best_step_until_it_is_the_blank():
    model = Table(0, spread=0.0)
    rows = torch.tensor(
        [
            [[0.0, 5.0, 1.0], [5.0, 0.0, 0.0], [0.0, 1.0, 5.0]],
            [[5.0, 0.0, 0.0], [5.0, 0.0, 0.0], [0.0, 9.0, 0.0]],  # the last frame is not real
        ]
    )
    first, second = transducer_greedy(model, rows, [3, 2], most=2)
    (h,) = first
    assert h.tokens == [1, 1, 2, 2]  # nothing but the frame decides, so each is full
    assert h.frames == [0, 0, 2, 2]
    assert h.log_prob < sum(h.steps) < 0  # blanks cost as well
    assert second[0].tokens == []
    assert second[0].log_prob == pytest.approx(
        2 * float(torch.tensor([5.0, 0, 0]).log_softmax(0)[0]), abs=1e-6
    )


@pytest.mark.parametrize("seed", range(3))
def test_greedy_rows_are_those_of_each_alone(seed):
    model = Table(seed)
    rows = torch.cat([frames_of(10 * seed + i, 7) for i in range(4)])
    rows[..., 0] += 1
    lengths = [7, 4, 1, 0]
    together = transducer_greedy(model, rows, lengths)
    for row, count, (h,) in zip(rows, lengths, together, strict=True):
        ((alone,),) = transducer_greedy(model, row[None, :count])
        assert (h.tokens, h.frames) == (alone.tokens, alone.frames)
        assert h.log_prob == pytest.approx(alone.log_prob, abs=1e-9)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), cuts=st.lists(st.integers(0, 9), max_size=4), width=st.integers(1, 5))
def test_frames_may_arrive_in_any_pieces(seed, cuts, width):
    model, frames = Table(seed), frames_of(seed, 9)
    frames[..., 0] += 1
    (whole,) = transducer_beam(model, frames, width=width, n_best=None)
    stream = TransducerStream(model, width=width)
    places = [0, *sorted(cuts), 9]
    for begin, end in itertools.pairwise(places):
        stream.push(frames[0, begin:end])
    assert stream.best(None) == whole
    assert len(whole) <= width
    for h in whole:
        assert len(h.frames) == len(h.tokens) == len(h.steps)
        assert h.frames == sorted(h.frames)
        assert h.log_prob <= model.exact(frames[0], h.tokens) + 1e-9


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="n_best must be from 1 to width = 2"):
        transducer_beam(Table(0), frames_of(0, 2), width=2, n_best=3)
    with pytest.raises(ValueError, match="width and most must be at least 1"):
        transducer_beam(Table(0), frames_of(0, 2), width=0, n_best=None)
    with pytest.raises(ValueError, match="lengths must be 1 numbers from 0 to 2"):
        transducer_greedy(Table(0), frames_of(0, 2), [3])


def test_a_model_is_what_it_says():
    model: Transducer = Table(0)
    assert model.start(2)[0].shape == (2, SYMBOLS)
