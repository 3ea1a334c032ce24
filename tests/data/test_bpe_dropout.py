"""BPE-dropout: the usual pieces without it, others with it, the same text always, and a stream that can be resumed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anaphora.data.batches.pairs import PairBatches
from anaphora.data.bpe_dropout import Recutting
from anaphora.data.sources.opening import open_source
from anaphora.data.tokenizers import PairTokenizer, Tokenizer

TEXTS = [
    "low lower lowest",
    "new newer newest -- e.g. wide, wider, widest...",
    "low low low",
    "er est ow ew",
] * 5


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXTS, kind="bpe", vocab_size=60)


@pytest.fixture(scope="module")
def with_bytes() -> Tokenizer:
    return Tokenizer.train(TEXTS, kind="bpe", vocab_size=1100)


def numbers(count: int) -> np.ndarray:
    return np.arange(count)


@given(st.lists(st.text("lower nstid.-<é漢 ", max_size=30), min_size=1, max_size=5))
def test_without_dropout_the_pieces_are_the_usual_ones(with_bytes, texts):
    cutting = Recutting(with_bytes, 0.0)
    found = cutting.cut(cutting.spelled(texts), numbers(len(texts)), epoch=0)
    assert found.lists() == with_bytes.encode_batch(texts)


@given(st.lists(st.text("lower nstid.-<é漢 ", max_size=30), min_size=1, max_size=5), st.floats(0.05, 0.95))
def test_any_cut_is_the_same_text(with_bytes, texts, rate):
    cutting = Recutting(with_bytes, rate, seed=3)
    found = cutting.cut(cutting.spelled(texts), numbers(len(texts)), epoch=1)
    assert [with_bytes.decode(ids) for ids in found.lists()] == [with_bytes.normalized(t) for t in texts]


def test_a_merge_is_left_out_as_often_as_asked(tokenizer):
    """ "er" is one merge: with rate p it stays two symbols in a share p of the draws."""
    cutting = Recutting(Tokenizer.train(["xy"] * 9, kind="bpe", vocab_size=9), 0.3)
    pieces = cutting.tokenizer.pieces(cutting.tokenizer.encode("xy"))
    assert pieces == ["▁xy"]
    count = 4000
    found = cutting.cut(cutting.spelled(["xy"] * count), numbers(count), epoch=0)
    # two merges in a row make ▁xy: whole if neither is left out
    whole = np.mean(found.lengths == 1)
    assert abs(whole - 0.7**2) < 0.03


def test_pieces_follow_from_seed_epoch_and_number_alone(tokenizer):
    cutting = Recutting(tokenizer, 0.4, seed=1)
    spelled = cutting.spelled(TEXTS)
    first = cutting.cut(spelled, numbers(len(TEXTS)), epoch=2).lists()
    some = np.array([7, 2, 5])
    assert cutting.cut(spelled, some, epoch=2, rows=some).lists() == [first[i] for i in (7, 2, 5)]
    assert cutting.cut(spelled, numbers(len(TEXTS)), epoch=3).lists() != first
    other = Recutting(tokenizer, 0.4, seed=2)
    assert other.cut(spelled, numbers(len(TEXTS)), epoch=2).lists() != first
    assert first[0] != first[4] or first[1] != first[5]  # equal texts are cut by themselves


def test_other_vocabularies_are_refused():
    words = Tokenizer.train(TEXTS, kind="word", vocab_size=60)
    with pytest.raises(ValueError, match="only a bpe vocabulary"):
        Recutting(words, 0.1)


def batches(rate: float, **more) -> PairBatches:
    pairs = open_source([(text, text[::-1]) for text in TEXTS], role="train")
    tokenizer = PairTokenizer.train(pairs, kind="bpe", vocab_size=60)
    return PairBatches(
        pairs, tokenizer, **{"batch_tokens": 60, "max_tokens": 100, "seed": 1, "bpe_dropout": rate, **more}
    )


def test_a_stream_with_dropout_is_resumed_to_the_symbol():
    stream = batches(0.3)
    for _ in range(7):
        next(stream)
    state, rest = stream.state(), [next(stream) for _ in range(9)]
    again = batches(0.3)
    again.restore(state)
    assert [next(again) for _ in range(9)] == rest


def test_the_same_examples_come_in_the_same_order_cut_otherwise():
    plain, cut = batches(0.0), batches(0.3)
    pairs = [(next(plain), next(cut)) for _ in range(12)]
    assert all(a.indices == b.indices for a, b in pairs)
    assert any(a.source != b.source for a, b in pairs)
    assert any(a.target != b.target for a, b in pairs)


def test_no_row_grows_past_max_tokens():
    plain = batches(0.0)
    longest = max(map(max, plain.lengths))
    stream = batches(0.5, max_tokens=int(longest))
    for _ in range(12):
        batch = next(stream)
        assert max(map(len, batch.source + batch.target)) <= longest
