"""Language models in the search for words: recombination, look-ahead, fusion over symbols, KenLM and networks."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import anaphora as an
from anaphora.errors import AnaphoraError, DataError
from anaphora.search import KenLM, Lexicon, NBest, NextWordModel, WordHypothesis, ctc_beam, ctc_loss

PHONES = ["–", "D", "AO", "G", "K", "B", "AY", "T", "S", "Z", "M", "AE", "N"]
SPELLED = {"DOG": "D AO G", "DOCK": "D AO K", "BITES": "B AY T S", "BUYS": "B AY Z", "MAN": "M AE N"}
TEXT = ["DOG BITES MAN"] * 6 + ["MAN BUYS A DOCK"] * 8 + ["DOCK BUYS MAN"] + ["DOCK"] * 6


def words_of(found: NBest) -> list[str]:
    return [" ".join(h.words) for h in found if isinstance(h, WordHypothesis)]


def heard(*frames: dict[str, float], symbols: Sequence[str] = PHONES) -> Tensor:
    """log p ``(1, time, symbols)`` of frames that name their probable symbols; the others are very improbable."""
    p = torch.full((1, len(frames), len(symbols)), 1e-4)
    for t, frame in enumerate(frames):
        for symbol, value in frame.items():
            p[0, t, symbols.index(symbol)] = value
    return (p / p.sum(-1, keepdim=True)).log()


def said() -> Tensor:
    """A recording in which K is a little clearer than G, and Z than T S."""
    sure = [{name: 1.0} for name in ["D", "AO", "B", "AY", "M", "AE", "N"]]
    return heard(
        *sure[:2], {"K": 0.7, "G": 0.3}, *sure[2:4], {"Z": 0.7, "T": 0.3}, {"–": 0.5, "S": 0.5}, *sure[4:]
    )


def test_dog_bites_man() -> None:
    lexicon, lm = Lexicon(SPELLED, PHONES), an.NGram(2).fit(TEXT)
    assert words_of(ctc_beam(said(), lexicon=lexicon)[0]) == ["DOCK BUYS MAN"]  # what it sounds like
    assert words_of(ctc_beam(said(), lexicon=lexicon, lm=lm)[0]) == ["DOG BITES MAN"]
    (narrow,) = ctc_beam(said(), lexicon=lexicon, lm=lm, width=2)
    (wide,) = ctc_beam(said(), lexicon=lexicon, lm=lm, width=3)
    assert words_of(narrow) == ["DOCK BUYS MAN"]  # DOG was dropped before its verb could help it
    assert words_of(wide) == ["DOG BITES MAN"]
    assert wide[0].score > narrow[0].score + 3
    exact = -float(ctc_loss(said().double(), [wide[0].tokens], reduction="sum", normalized=True))
    assert wide[0].score == pytest.approx(exact + lm.log_prob("DOG BITES MAN"), abs=0.01)


def test_six_words_on_a_tree() -> None:
    letters = "–ADEINRST"
    lexicon = Lexicon(["ARE", "ART", "ARTIST", "ANT", "AN", "AND"], letters)
    frames = [
        {"A": 1.0},
        {"N": 0.5, "R": 0.5},
        {"T": 0.6, "–": 0.4},
        {"I": 0.3, "–": 0.7},
        {"S": 0.2, "–": 0.8},
    ]
    log_p = heard(*frames, symbols=letters)
    (found,) = ctc_beam(log_p, lexicon=lexicon, n_best=3)
    assert words_of(found)[0] in ("ANT", "ART")
    assert set(words_of(found)) == {"ANT", "ART", "AN"}  # AR is no word
    exact = ctc_loss(log_p, [h.tokens for h in found][:1], reduction="sum", normalized=True)
    assert found[0].score == pytest.approx(-float(exact), abs=1e-5)


def test_three_paths_of_one_word() -> None:
    symbols = ["–", "H", "EH", "L", "OU"]
    lexicon = Lexicon({"HELLO": "H EH L OU", "HELL": "H EH L"}, symbols)
    for path in ("H EH EH L OU", "H – EH – – – – L L – – OU –", "– – H – EH – – – L OU – –"):
        log_p = heard(*({name: 1.0} for name in path.split()), symbols=symbols)
        (best,) = ctc_beam(log_p, lexicon=lexicon)[0]
        assert isinstance(best, WordHypothesis)
        assert best.words == ["HELLO"]
        assert [symbols[k] for k in best.tokens] == ["H", "EH", "L", "OU"]


def random_case(seed: int, frames: int = 12, inputs: int = 1) -> tuple[Tensor, Lexicon, an.NGram]:
    chance, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    log_p = (2 * torch.randn(inputs, frames, 5, dtype=torch.float64, generator=generator)).log_softmax(-1)
    words = sorted({"".join(chance.choices("abc", k=chance.randrange(1, 4))) for _ in range(8)})
    texts = [" ".join(chance.choices(words, k=3)) for _ in range(8)]
    return log_p, Lexicon(words, "-abc|", separator="|"), an.NGram(2, smoothing="witten-bell").fit(texts)


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), width=st.integers(1, 30), per_node=st.sampled_from([1, 2, None]))
def test_a_score_is_what_loss_and_model_say(seed: int, width: int, per_node: int | None) -> None:
    log_p, lexicon, lm = random_case(seed)
    options = {"lexicon": lexicon, "lm": lm, "lm_weight": 0.6, "word_bonus": 0.3}
    (found,) = ctc_beam(log_p, width=width, per_node=per_node, n_best=None, **options)  # type: ignore[arg-type]
    assert len(set(words_of(found))) == len(found)
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
    for h in found:
        assert isinstance(h, WordHypothesis)
        exact = -float(ctc_loss(log_p, [h.tokens], reduction="sum", normalized=True))
        assert h.log_prob <= exact + 1e-9  # the beam may have dropped a path
        if h.finished:
            extra = 0.6 * lm.log_prob(h.words) + 0.3 * len(h.words)
            assert h.score == pytest.approx(h.log_prob + extra)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_nothing_beats_the_widest_beam(seed: int) -> None:
    log_p, lexicon, lm = random_case(seed, frames=6)
    options = {"lexicon": lexicon, "lm": lm}
    widest = ctc_beam(log_p, width=20_000, per_node=20_000, **options)[0][0].score  # type: ignore[arg-type]
    for width in (1, 3, 10, 100):
        for per_node in (1, width):
            (found,) = ctc_beam(log_p, width=width, per_node=per_node, **options)  # type: ignore[arg-type]
            assert not found or not found[0].finished or found[0].score <= widest + 1e-9


def test_recombined_prefixes_leave_room() -> None:
    """One prefix per node and state does as well as many times the width without recombination."""
    gains = []
    for seed in range(20):
        log_p, lexicon, lm = random_case(seed, frames=40)
        options = {"lexicon": lexicon, "lm": lm, "lm_weight": 0.5}
        one, many = (
            ctc_beam(log_p, width=10, per_node=per_node, **options)[0][0].score  # type: ignore[arg-type]
            for per_node in (1, 10)
        )
        gains.append(one - many)
    assert sum(gains) > 0


def test_the_best_partial_hypothesis_where_nothing_is_complete() -> None:
    lexicon = Lexicon(SPELLED, PHONES)
    log_p = heard({"D": 1.0}, {"AO": 1.0}, {"G": 1.0}, {"B": 1.0}, {"AY": 1.0})
    (found,) = ctc_beam(log_p, lexicon=lexicon, width=1)
    assert [(h.tokens, h.finished) for h in found] == [([1, 2, 3, 5, 6], False)]
    assert words_of(found) == ["DOG"]
    log_p[:] = -math.inf
    assert ctc_beam(log_p, lexicon=lexicon) == [[]]


def test_an_input_alone_or_in_a_batch_or_by_threads() -> None:
    log_p, lexicon, lm = random_case(5, frames=30, inputs=4)
    lengths = [30, 0, 17, 29]
    options = {"lexicon": lexicon, "lm": lm, "width": 20, "n_best": 3, "times": True}
    together = ctc_beam(log_p, lengths, **options)  # type: ignore[arg-type]
    assert together == ctc_beam(log_p.numpy(), lengths, threads=2, **options)  # type: ignore[arg-type]
    for n, real in enumerate(lengths):
        assert ctc_beam(log_p[n : n + 1, :real], **options) == [together[n]]  # type: ignore[arg-type]
    assert words_of(together[1]) == [""]


def test_times_of_words() -> None:
    lexicon = Lexicon(["an", "ant"], "-ant|", separator="|")
    log_p = heard(*({name: 1.0} for name in "--aa-n||-a-ntt-"), symbols="-ant|")
    (best,) = ctc_beam(log_p, lexicon=lexicon, times=True)[0]
    assert isinstance(best, WordHypothesis)
    assert (best.words, best.times) == (["an", "ant"], [(2, 6), (9, 14)])


def test_a_hot_word_survives_a_narrow_beam() -> None:
    lexicon = Lexicon(SPELLED, PHONES)
    hot = {"DOG": 2.0, "BITES": 2.0}
    assert words_of(ctc_beam(said(), lexicon=lexicon, hot_words=hot, width=2)[0]) == ["DOG BITES MAN"]
    assert words_of(ctc_beam(said(), lexicon=lexicon, hot_words={"DOG BITES": 3.0})[0]) == ["DOG BITES MAN"]
    # A phrase that is begun and not ended leaves nothing behind.
    plain = ctc_beam(said(), lexicon=lexicon)[0][0].score
    assert ctc_beam(said(), lexicon=lexicon, hot_words={"DOCK BITES": 0.5})[0][0].score == pytest.approx(
        plain
    )


def test_a_language_model_over_symbols() -> None:
    letters = ["-", "t", "h", "e", " "]
    log_p = heard({"t": 1.0}, {"e": 0.6, "h": 0.4}, {"-": 0.6, "e": 0.4}, symbols=letters)
    assert [letters[k] for k in ctc_beam(log_p)[0][0].tokens] == ["t", "e"]
    lm = an.NGram(3, tokens="char").fit(["the then the", "the"])
    (best,) = ctc_beam(log_p, symbols=letters, lm=lm)[0]
    assert isinstance(best, WordHypothesis)
    assert "".join(best.words) == "the"
    exact = -float(ctc_loss(log_p, [best.tokens], reduction="sum", normalized=True))
    assert best.score == pytest.approx(exact + lm.log_prob("the"), abs=1e-4)
    (hot,) = ctc_beam(log_p, symbols=letters, hot_words={"th": 3.0})[0]
    assert "".join(hot.words) == "th"  # type: ignore[attr-defined]


def test_kenlm_says_what_our_tables_say(tmp_path: Path) -> None:
    pytest.importorskip("kenlm")
    lm = an.NGram(2).fit(TEXT)
    path = tmp_path / "model.arpa"
    lm.write_arpa(path)
    options = {"lexicon": Lexicon(SPELLED, PHONES), "n_best": 5}
    (theirs,) = ctc_beam(said(), lm=KenLM(path), **options)  # type: ignore[arg-type]
    (ours,) = ctc_beam(said(), lm=lm, **options)  # type: ignore[arg-type]
    assert words_of(theirs)[0] == words_of(ours)[0] == "DOG BITES MAN"
    assert theirs[0].score == pytest.approx(ours[0].score, abs=1e-4)
    with pytest.raises(DataError, match="no such file"):
        KenLM(tmp_path / "none.bin")
    path.write_text("this is no model")
    with pytest.raises(DataError, match="KenLM cannot read it"):
        KenLM(path)


def test_without_kenlm_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "kenlm", None)
    with pytest.raises(AnaphoraError, match="pip install kenlm"):
        KenLM("model.bin")


def test_any_next_symbol_model_of_words() -> None:
    lm = an.NGram(2).fit(TEXT)
    asked: list[int] = []

    def step(symbols: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        asked.append(len(symbols))
        return lm.step(symbols, state)

    network = NextWordModel(step, lm.start(1), start=2, eos=3, spell=lm.words.ids)
    options = {"lexicon": Lexicon(SPELLED, PHONES), "n_best": 3}
    (theirs,) = ctc_beam(said(), lm=network, **options)  # type: ignore[arg-type]
    (ours,) = ctc_beam(said(), lm=lm, **options)  # type: ignore[arg-type]
    assert words_of(theirs)[0] == words_of(ours)[0] == "DOG BITES MAN"
    assert theirs[0].score == pytest.approx(ours[0].score, abs=1e-4)
    assert max(asked) > 1  # histories are read together
    deaf = NextWordModel(step, lm.start(1), start=2, eos=3, spell={})
    with pytest.raises(AnaphoraError, match="no symbol for 'MAN'"):
        ctc_beam(said(), lm=deaf, lexicon=Lexicon({"MAN": "M"}, PHONES))


def test_a_network_of_letters_spells_the_words() -> None:
    lm = an.NGram(4, tokens="char").fit(TEXT)
    spelled = {word: [lm.words.ids[letter] for letter in word] for word in SPELLED}
    between = [lm.words.ids[" "]]
    network = NextWordModel(lm.step, lm.start(1), start=2, eos=3, spell=spelled, between=between)
    network.start()
    states: list[tuple[int, ...]] = [()]
    total = 0.0
    for word in ["DOG", "BITES", "MAN"]:
        (log_p,), states = network.score(states, [word])
        total += log_p
    assert total + network.end(states)[0] == pytest.approx(lm.log_prob("DOG BITES MAN"), abs=1e-4)
    (best,) = ctc_beam(said(), lexicon=Lexicon(SPELLED, PHONES), lm=network)[0]
    assert words_of(NBest([best])) == ["DOG BITES MAN"]


@pytest.mark.parametrize("tokens", ["word", "char"])
def test_a_trained_language_model(tmp_path: Path, tokens: str) -> None:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{line}\n" for line in TEXT * 5))
    lm = an.LanguageModel(model="ngram", tokens=tokens, lines=True)
    lm.fit(str(path), out=str(tmp_path / "run"))
    lexicon = Lexicon(SPELLED, PHONES)
    (best,) = ctc_beam(said(), lexicon=lexicon, lm=lm, lm_weight=2.0)[0]
    (plain,) = ctc_beam(said(), lexicon=lexicon)[0]
    assert words_of(NBest([best, plain])) == ["DOG BITES MAN", "DOCK BUYS MAN"]
    assert best.score == pytest.approx(best.log_prob + 2.0 * lm.predict(["DOG BITES MAN"])[0], abs=1e-4)


class Wrong:
    """A model that gives logits for log p."""

    def start(self) -> int:
        return 0

    def score(self, states: Sequence[int], words: Sequence[str]) -> tuple[list[float], list[int]]:
        return [3.0] * len(words), [0] * len(words)

    def end(self, states: Sequence[int]) -> list[float]:
        return [0.0] * len(states)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"lm": an.NGram(2)}, "lm is about words; give a lexicon"),
        ({"hot_words": {"a": 1.0}}, "hot_words is about words"),
        ({"beam_distance": 9.0}, "beam_distance is about words"),
        ({"lexicon": Lexicon(["a"], "-a"), "symbols": "-a"}, "leave symbols out"),
        ({"lexicon": Lexicon(["a"], "a")}, "spelled with the blank 0"),
        ({"lexicon": Lexicon(["c"], "-abc")}, "spells with 4 symbols, but there are 3"),
        ({"symbols": "-ab", "lm": an.NGram(2)}, "holds no model yet"),
        ({"symbols": "-ab", "lm": Wrong()}, "gave 3.0 as log p"),
        ({"symbols": "-ab", "per_node": 0}, "per_node"),
        ({"symbols": "-ab", "word_bonus": math.inf}, "word_bonus must be a number"),
        ({"symbols": "-ab", "lm_weight": math.inf, "lm": Wrong()}, "lm_weight"),
    ],
)
def test_what_cannot_be_asked(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(AnaphoraError, match=sentence):
        ctc_beam(torch.zeros(1, 2, 3).log_softmax(-1), **options)  # type: ignore[arg-type]
