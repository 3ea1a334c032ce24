"""word2vec's inner loops: against a plain reference with the same draws, and against autograd."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anaphora.models.embeddings import windows
from anaphora.models.embeddings.sampling import alias_table
from anaphora.models.embeddings.windows import Outputs, aligned, train
from anaphora.models.embeddings.word2vec import huffman

WORDS = 7
COUNTS = np.array([40, 20, 12, 9, 5, 3, 2])
TEXT = np.array([0, 1, 2, 0, -1, 3, 0, -3, 4, 1, 1, -1, -1, 5, -1, 6, 2, 0, 1, 0], np.int32)
"""Two real sentences, an empty one, one of a single word; −3 is a word that is left out."""
WHICH = [True, False] if windows.library.functions() is not None else [False]


@dataclass
class Reference:
    """The equations, one pair after the other, in double precision, with the kernel's own random numbers."""

    inputs: np.ndarray
    outputs: np.ndarray
    against: Outputs
    keep: np.ndarray
    window: int
    mean: bool
    seed: int
    loss: float = 0.0
    predictions: int = 0
    asked: list[tuple[int, list[int], list[tuple[int, float]]]] = field(default_factory=list)

    def random(self, below: int) -> tuple[int, int]:
        """A number below ``below`` and the 32 bits behind its point."""
        self.seed = (self.seed * 6364136223846793005 + 1442695040888963407) % 2**64
        return divmod((self.seed >> 32) * below, 2**32)

    def run(self, ids: list[int], lr: float) -> None:
        text = [w for w in ids if w == -1 or (w >= 0 and self.random(2**32)[0] < self.keep[w])]
        for t, w in enumerate(text):
            if w >= 0:
                self.place(text, t, lr)

    def place(self, text: list[int], t: int, lr: float) -> None:
        w = text[t]
        reach = 1 + self.random(self.window)[0]
        first = max((s + 1 for s in range(t) if text[s] == -1), default=0)
        last = min((s for s in range(t, len(text)) if text[s] == -1), default=len(text))
        around = [text[s] for s in range(t - 1, max(first, t - reach) - 1, -1)]
        around += [text[s] for s in range(t + 1, min(last, t + reach + 1))]
        if not around:
            return
        if self.against.negative:
            targets = [(w, 1.0)]
            for _ in range(self.against.negative):
                slot, rest = self.random(WORDS)
                x = slot if rest < self.against.share[slot] else int(self.against.other[slot])
                targets += [(x, 0.0)] * (x != w)
        else:
            path = slice(self.against.path_start[w], self.against.path_start[w + 1])
            targets = list(zip(self.against.path_node[path], self.against.path_label[path], strict=True))
        self.asked.append((w, around, targets))
        for c in [None] if self.mean else around:
            u = self.inputs[around].mean(0) if c is None else self.inputs[c].copy()
            old_out = self.outputs.copy()
            for j, y in targets:
                p = 1 / (1 + np.exp(-u @ old_out[j]))
                self.loss -= np.log(p if y else 1 - p)
                self.outputs[j] += lr * (y - p) * u
                for k in around if c is None else [c]:
                    self.inputs[k] += lr * (y - p) * old_out[j] / (len(around) if c is None else 1)
            self.predictions += 1


def weights(width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    both = aligned(WORDS, width), aligned(WORDS, width)
    for matrix in both:
        matrix[:, :width] = random.standard_normal((WORDS, width)) * 0.5
    return both


def outputs(negative: int) -> Outputs:
    tree = huffman(COUNTS)
    if negative:
        return Outputs(negative, *alias_table(COUNTS**0.75), *tree)
    return Outputs(0, np.zeros(1, np.uint32), np.zeros(1, np.int32), *tree)


@pytest.mark.parametrize("native", WHICH)
@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("negative", [0, 1, 5, 20])
@pytest.mark.parametrize("width", [3, 16, 40])
def test_a_block_is_learnt_as_by_the_equations(native: bool, mean: bool, negative: int, width: int) -> None:
    keep = np.rint(np.array([0.5, 0.9, 1, 1, 1, 1, 1]) * 2**32).astype(np.uint64)
    inputs, out = weights(width)
    wanted = Reference(
        inputs[:, :width].astype(float),
        out[:, :width].astype(float),
        outputs(negative),
        keep,
        3,
        mean,
        seed=11,
    )
    text = TEXT if negative < 20 else TEXT[:4]  # or float32 itself is off by more, with so many additions
    wanted.run(text.tolist(), lr=0.025)
    done, loss = train(
        text, keep, window=3, mean=mean, inputs=inputs, outputs=out, against=outputs(negative),
        rates=(0.025, 0.025), seed=11, native=native,
    )  # fmt: skip
    assert done == wanted.predictions
    assert loss == pytest.approx(wanted.loss, rel=1e-5)
    np.testing.assert_allclose(inputs[:, :width], wanted.inputs, atol=1e-6)
    np.testing.assert_allclose(out[:, :width], wanted.outputs, atol=1e-6)
    assert not inputs[:, width:].any()
    assert not out[:, width:].any()


@pytest.mark.parametrize("native", WHICH)
@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("negative", [0, 4])
def test_one_place_moves_along_the_gradient_that_autograd_finds(
    native: bool, mean: bool, negative: int
) -> None:
    ids, keep = np.array([1, 4, 2], np.int32), np.full(WORDS, 2**32, np.uint64)
    inputs, out = weights(8)
    given = Reference(
        inputs[:, :8].astype(float), out[:, :8].astype(float), outputs(negative), keep, 1, mean, 5
    )
    given.run(ids.tolist(), lr=0.0)  # tells which words are drawn at each of the three places
    u = torch.tensor(inputs[:, :8], dtype=torch.double, requires_grad=True)
    v = torch.tensor(out[:, :8], dtype=torch.double, requires_grad=True)
    lr = 1e-4  # so small that the three places hardly change each other's gradients
    loss = u.new_zeros(())
    for _, around, targets in given.asked:
        for x in u[around].mean(0, keepdim=True) if mean else u[around]:
            for j, y in targets:
                loss = loss - torch.nn.functional.logsigmoid((2 * y - 1) * (x @ v[j]))
    loss.backward()
    before = inputs[:, :8].copy(), out[:, :8].copy()
    _, found = train(
        ids, keep, window=1, mean=mean, inputs=inputs, outputs=out, against=outputs(negative),
        rates=(lr, lr), seed=5, native=native,
    )  # fmt: skip
    assert found == pytest.approx(loss.item(), rel=1e-3)
    np.testing.assert_allclose((before[0] - inputs[:, :8]) / lr, u.grad, atol=6e-3)
    np.testing.assert_allclose((before[1] - out[:, :8]) / lr, v.grad, atol=6e-3)


@pytest.mark.skipif(len(WHICH) < 2, reason="there is no C compiler here")
def test_c_and_plain_loops_agree_over_a_long_text() -> None:
    random = np.random.default_rng(3)
    ids = random.integers(-3, WORDS, 5000).astype(np.int32)
    keep = np.rint(random.random(WORDS) * 2**32).astype(np.uint64)
    found = []
    for native in (True, False):
        both = weights(20)
        told = train(
            ids, keep, window=6, mean=False, inputs=both[0], outputs=both[1], against=outputs(5), rates=(0.05, 0.01),
            seed=1, native=native,
        )  # fmt: skip
        found.append((*told, *both))
    assert found[0][0] == found[1][0]
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-5)
    np.testing.assert_allclose(found[0][2], found[1][2], atol=1e-4)


def test_the_rate_falls_in_a_straight_line_within_a_block() -> None:
    """All words are alike here, so that the size of the last step tells its rate."""
    ids, keep = np.array([0, 1] * 2, np.int32), np.full(WORDS, 2**32, np.uint64)
    steps = []
    for rates in ((0.4, 0.0), (0.1, 0.1)):
        inputs, out = aligned(WORDS, 16), aligned(WORDS, 16)
        out[:] = 0.25
        train(
            ids[2:],
            keep,
            window=1,
            mean=False,
            inputs=inputs,
            outputs=out,
            against=outputs(0),
            rates=rates,
            seed=0,
        )
        steps.append(inputs[0, 0])  # word 0 is the context of the second place, half way through
    assert steps[0] == pytest.approx(2 * steps[1], rel=1e-3)


@pytest.mark.parametrize("native", WHICH)
def test_scores_beyond_the_table_and_not_a_number_do_no_harm(native: bool) -> None:
    keep = np.full(WORDS, 2**32, np.uint64)
    for value, loss in ((10.0, 0.0), (np.nan, np.nan)):
        inputs, out = aligned(WORDS, 16), aligned(WORDS, 16)
        inputs[:], out[:] = value, value
        told = train(
            np.array([0, 1], np.int32), keep, window=1, mean=False, inputs=inputs, outputs=out,
            against=Outputs(0, np.zeros(1, np.uint32), np.zeros(1, np.int32), *huffman(COUNTS)), rates=(0.1, 0.1),
            seed=0, native=native,
        )  # fmt: skip
        if np.isnan(loss):
            assert np.isnan(told[1])
        else:
            wrong = int((huffman(COUNTS)[2][: huffman(COUNTS)[0][2]] == 0).sum())
            assert told[1] == pytest.approx(1600.0 * wrong, rel=1e-3)  # log(1 + e¹⁶⁰⁰) for each wrong turn


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=30))
@settings(max_examples=50)
def test_an_alias_table_gives_each_word_its_share(listed: list[float]) -> None:
    share, other = alias_table(np.array(listed))
    own = share.astype(float) / 2**32
    total = own / len(listed)
    np.add.at(total, other, (1 - own) / len(listed))
    np.testing.assert_allclose(total, np.array(listed) / np.sum(listed), atol=1e-8)


def test_the_table_of_the_sigmoid_is_right_to_two_ten_millionths() -> None:
    points = windows.curve().astype(float)
    f = np.linspace(-15.9, 15.9, 100_001)
    place = (f + 16) * 256
    i = place.astype(int)
    for column, exact in ((0, 1 / (1 + np.exp(-f))), (1, np.logaddexp(0, f))):
        read = points[i, column] + (points[i + 1, column] - points[i, column]) * (place - i)
        assert np.abs(read - exact).max() < (2.5e-7 if column == 0 else 1e-6)


@pytest.mark.parametrize(
    "change",
    [
        {"other": np.zeros(2, np.int32)},
        {"path_start": np.array([0, 4], np.int64)},
        {"path_start": np.array([0, 2, 1], np.int64)},
        {"path_start": np.array([1, 2], np.int64)},
        {"path_label": np.zeros(1, np.float32)},
    ],
)
def test_parts_of_the_outputs_that_do_not_go_together_never_reach_c(change: dict[str, np.ndarray]) -> None:
    parts = {
        "share": np.zeros(1, np.uint32),
        "other": np.zeros(1, np.int32),
        "path_start": np.array([0, 1, 3], np.int64),
        "path_node": np.array([0, 0, 1], np.int32),
        "path_label": np.zeros(3, np.float32),
    }
    assert Outputs(0, **parts).rows == 2
    with pytest.raises(ValueError, match="lengths that go together"):
        _ = Outputs(0, **parts | change).rows
