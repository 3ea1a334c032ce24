"""CTC over frames that are still arriving: in whatever pieces, the end is that of the whole, and what is certain stays."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from anaphora.models.classical.ngram import NGram
from anaphora.search import CTCStream, Lexicon, ctc_beam

SPELLED = {"ab": [[1, 2]], "a": [[1]], "ba": [[2, 1]], "cab": [[3, 1, 2]]}
LEXICON = Lexicon(SPELLED, {"–": 0, "a": 1, "b": 2, "c": 3, " ": 4}, separator=4)


def frames(seed, count=14):
    z = 2.5 * torch.randn(count, 5, generator=torch.Generator().manual_seed(seed))
    return z.log_softmax(-1)


OPTIONS = {
    "plain": {},
    "words": {"lexicon": LEXICON, "word_bonus": 0.3},
    "hot words": {"lexicon": LEXICON, "hot_words": {"cab": 2.0, "ab a": 1.0}},
}


@pytest.mark.parametrize("name", OPTIONS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), cuts=st.lists(st.integers(0, 14), max_size=4), width=st.integers(1, 9))
def test_pieces_give_what_the_whole_gives_and_what_is_certain_stays(name, seed, cuts, width):
    log_p, options = frames(seed), OPTIONS[name]
    stream = CTCStream(width=width, per_node=1, **options) if options else CTCStream(width=width)
    settled: list[tuple[list[int], list[str] | None]] = []
    for begin, end in itertools.pairwise([0, *sorted(cuts), 14]):
        stream.push(log_p[begin:end])
        settled.append(stream.certain())
    more = {"per_node": 1, "times": True} if options else {}
    (whole,) = ctc_beam(log_p[None], width=width, n_best=None, **options, **more)
    assert list(stream.best(None)) == list(whole)
    assert stream.best(1)[0] == whole[0]
    for tokens, words in settled:
        for h in whole:
            assert h.tokens[: len(tokens)] == tokens
            if words is not None and h.finished:
                assert h.words[: len(words)] == words
    sizes = [len(tokens) for tokens, _ in settled]
    assert sizes == sorted(sizes)


def test_a_language_model_is_read_as_frames_arrive():
    lm = NGram(order=2).fit([["ab", "a"], ["cab", "ab"], ["ab", "a"]])
    log_p = frames(3, 30)
    options = {"lexicon": LEXICON, "lm": lm, "lm_weight": 0.7}
    stream = CTCStream(width=20, **options)
    for piece in log_p.split(4):
        stream.push(piece)
    (whole,) = ctc_beam(log_p[None], width=20, n_best=20, times=True, **options)
    assert [h.words for h in stream.best(20)] == [h.words for h in whole]
    assert stream.best(20)[0].score == pytest.approx(whole[0].score, abs=1e-9)


def test_nothing_yet_is_nothing():
    stream = CTCStream(width=3)
    assert (list(stream.best()), stream.certain(), stream.frames) == ([], ([], None), 0)
    stream.push(np.zeros((0, 4)))
    assert stream.frames == 0
    assert CTCStream(width=3, lexicon=LEXICON).certain() == ([], [])


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="width must be at least 1"):
        CTCStream(width=0)
    with pytest.raises(Exception, match="word_bonus is about words"):
        CTCStream(width=3, word_bonus=1.0)
    with pytest.raises(Exception, match="5 symbols, but there are 3 scores"):
        CTCStream(width=3, lexicon=LEXICON).push(torch.zeros(2, 3))
