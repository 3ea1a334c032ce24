"""N-gram models against worked examples, a plain reference, and the laws of probability."""

from __future__ import annotations

import gzip
import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import anaphora as an
from anaphora.errors import AnaphoraError, DataError, RunError, SettingsError
from anaphora.models.classical.ngram import counts as ngram_counts
from anaphora.models.classical.ngram.model import SMOOTHINGS

SAM = ["I am Sam", "Sam I am", "I do not like green eggs and ham"]  # Jurafsky and Martin, chapter 3
TEXT = [
    "the cat sat on the mat",
    "the dog sat",
    "a dog saw the cat",
    "the cat saw the dog on a mat",
    "a cat sat",
]

corpora = st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=8), min_size=1, max_size=8)


def p(model: an.NGram, history: str, word: str) -> float:
    return float(model.distribution(history)[model.words.ids[word]])


# -- a reference that is nothing but the formulas, in dictionaries


def reference_discounts(counts: Counter[tuple[str, ...]]) -> list[float]:
    t = Counter(counts.values())
    if 0 in (t[1], t[2], t[3]):
        return [0.5, 1.0, 1.5]
    y = t[1] / (t[1] + 2 * t[2])
    d = [1 - 2 * y * t[2] / t[1], 2 - 3 * y * t[3] / t[2], 3 - 4 * y * t[4] / t[3]]
    return d if all(0 < d[k] <= k + 1 for k in range(3)) else [0.5, 1.0, 1.5]


class Reference:
    """Interpolated modified Kneser-Ney by the book: slow, and plain to read."""

    def __init__(self, sentences: list[list[str]], order: int):
        self.vocabulary = {w for s in sentences for w in s} | {"</s>", "<unk>"}
        raw: Counter[tuple[str, ...]] = Counter()
        for s in sentences:
            padded = ["<s>", *s, "</s>"]
            for n in range(1, order + 1):
                raw.update(tuple(padded[i : i + n]) for i in range(len(padded) - n + 1))
        self.counts = []
        for n in range(1, order + 1):
            grams = [g for g in raw if len(g) == n and g != ("<s>",)]
            if n == order:
                self.counts.append(Counter({g: raw[g] for g in grams}))
            else:
                before = Counter(g[1:] for g in raw if len(g) == n + 1)
                self.counts.append(Counter({g: raw[g] if g[0] == "<s>" else before[g] for g in grams}))
        self.discounts = [reference_discounts(c) for c in self.counts]

    def p(self, word: str, history: tuple[str, ...]) -> float:
        n = len(history) + 1
        counts, d = self.counts[n - 1], self.discounts[n - 1]
        below = self.p(word, history[1:]) if history else 1 / len(self.vocabulary)
        followers = {g: c for g, c in counts.items() if g[:-1] == history}
        total = sum(followers.values())
        if not total:
            return below
        c = counts.get((*history, word), 0)
        kept = (c - d[min(c, 3) - 1]) / total if c else 0.0
        return kept + sum(d[min(c, 3) - 1] for c in followers.values()) / total * below


# -- worked examples


def test_add_k_gives_the_published_bigrams_of_i_am_sam() -> None:
    model = an.NGram(2, smoothing="add-k", k=1e-9).fit(SAM)  # next to nothing added: the relative frequencies
    published = {("", "I"): "2/3", ("", "Sam"): "1/3", ("I", "am"): "2/3", ("Sam", "</s>"): "1/2"}
    published |= {("I am", "Sam"): "1/2", ("I", "do"): "1/3"}
    for (history, word), value in published.items():
        assert p(model, history, word) == pytest.approx(float(Fraction(value)), abs=1e-7)
    one = an.NGram(2, smoothing="add-k").fit(SAM)  # V = 10 words, </s> and <unk>
    assert p(one, "I", "am") == pytest.approx((2 + 1) / (3 + 12))
    assert p(one, "I", "eggs") == pytest.approx(1 / (3 + 12))
    assert p(one, "never", "eggs") == pytest.approx(1 / 12)


def test_kneser_ney_bigram_worked_by_hand() -> None:
    # "a b", "a b", "a c". Bigrams: <s>a 3, ab 2, ac 1, b</s> 2, c</s> 1. No count of counts t₃ but one, so t = (2, 2, 1):
    # Y = 2/6, D₁ = 1 − 2·⅓·2/2 = ⅓, D₂ = 2 − 3·⅓·1/2 = 1.5, D₃ = 3 − 0 = 3.
    model = an.NGram(2).fit(["a b", "a b", "a c"])
    assert model.discounts[1] == pytest.approx((1 / 3, 1.5, 3.0))
    # Words before: a 1 (<s>), b 1, c 1, </s> 2 (b, c): t = (3, 1, 0), so the fallback ½, 1, 1½; Σ = 5, five symbols.
    assert model.discounts[0] == (0.5, 1.0, 1.5)
    floor = (3 * 0.5 + 1.0) / 5 / 5
    assert p(model, "zzz", "a") == pytest.approx(0.5 / 5 + floor)
    assert p(model, "zzz", "</s>") == pytest.approx(1 / 5 + floor)
    assert p(model, "zzz", "<unk>") == pytest.approx(floor)
    # After a: b 2, c 1; γ = (1.5 + ⅓) / 3.
    gamma = (1.5 + 1 / 3) / 3
    assert p(model, "a", "b") == pytest.approx((2 - 1.5) / 3 + gamma * (0.1 + floor))
    assert p(model, "a", "a") == pytest.approx(gamma * (0.1 + floor))


def test_witten_bell_worked_by_hand() -> None:
    model = an.NGram(2, smoothing="witten-bell").fit(["a b", "a b", "a c"])
    # 9 symbols of 4 kinds (a 3, b 2, c 1, </s> 3), five predicted ones; after a: 3 symbols of 2 kinds.
    b = (2 + 4 / 5) / (9 + 4)
    assert p(model, "zzz", "b") == pytest.approx(b)
    assert p(model, "a", "b") == pytest.approx((2 + 2 * b) / (3 + 2))


@settings(max_examples=40, deadline=None)
@given(corpora, st.integers(1, 4))
def test_kneser_ney_equals_the_reference(sentences: list[list[str]], order: int) -> None:
    model, reference = an.NGram(order).fit(sentences), Reference(sentences, order)
    assert model.discounts == [pytest.approx(d) for d in reference.discounts]
    for history in ([], ["a"], ["a", "b"], ["d", "d", "c", "a"]):
        found = model.distribution(history)
        full = ("<s>", *history)[max(0, len(history) + 2 - order) :]
        for word in reference.vocabulary:
            assert found[model.words.ids[word]] == pytest.approx(reference.p(word, full), rel=1e-9)


def test_a_text_large_enough_for_its_own_discounts_equals_the_reference() -> None:
    rng = np.random.default_rng(0)
    sentences = [[f"w{int(w)}" for w in rng.zipf(1.4, size=9) if w < 60] for _ in range(150)]
    sentences = [s for s in sentences if s]
    model, reference = an.NGram(3).fit(sentences), Reference(sentences, 3)
    assert (0.5, 1.0, 1.5) not in model.discounts
    for s in sentences[:3]:
        padded = ["<s>", *s, "</s>"]
        steps = [reference.p(padded[i], tuple(padded[max(0, i - 2) : i])) for i in range(1, len(padded))]
        assert model.log_prob(s) == pytest.approx(sum(map(math.log, steps)), rel=1e-12)


# -- laws


@settings(max_examples=60, deadline=None)
@given(
    corpora,
    st.integers(1, 4),
    st.sampled_from(SMOOTHINGS),
    st.sampled_from([(0,), (0, 1), (0, 0, 1), (0, 2, 1)]),
    st.lists(st.sampled_from("abcdz"), max_size=5),
)
def test_every_history_has_a_distribution(sentences, order, smoothing, prune, history) -> None:
    model = an.NGram(order, smoothing=smoothing, prune=prune, k=0.3).fit(sentences)
    for begin in (True, False):
        found = model.distribution(history, begin=begin)
        assert found.sum() == pytest.approx(1, abs=1e-9)
        assert found[[0, 2]].tolist() == [0, 0]  # <pad> and <s> are never next
        assert (np.delete(found, [0, 2]) > 0).all()
    for node in range(len(model) + 1):
        assert (10.0 ** model.table.distributions(np.array([node]))).sum() == pytest.approx(1, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(corpora, st.integers(1, 4), st.sampled_from([(0,), (0, 1), (0, 2, 1)]), corpora)
def test_walking_equals_stepping(sentences, order, prune, asked) -> None:
    model = an.NGram(order, prune=prune).fit(sentences)
    for sentence in asked:
        state, total = model.start(1), 0.0
        symbols = model.encode([sentence]).tolist()
        for last, following in pairwise(symbols):
            scores, state = model.step(torch.tensor([last]), state)
            total += float(scores[0, following])
        assert model.log_prob(sentence) == pytest.approx(total, rel=1e-5)


def test_pruning_drops_rare_ngrams_and_keeps_what_is_common() -> None:
    whole, pruned = an.NGram(3).fit(TEXT), an.NGram(3, prune=(0, 0, 1)).fit(TEXT)
    assert len(pruned) < len(whole)
    assert pruned.table.bounds[:4] == whole.table.bounds[:4]
    stored = pruned.table.bounds[4] - pruned.table.bounds[3]
    padded = [["<s>", *s.split(), "</s>"] for s in TEXT]
    counts = Counter(tuple(s[i : i + 3]) for s in padded for i in range(len(s) - 2))
    assert stored == sum(c > 1 for c in counts.values())
    assert p(pruned, "the cat", "sat") == pytest.approx(p(whole, "the cat", "sat"), rel=0.6)


# -- text, characters, ids


def test_perplexity_with_and_without_unknown_words() -> None:
    model = an.NGram(2).fit(TEXT)
    found = model.score(["the zebra sat"])
    steps = model.query(model.encode(["the zebra sat"]))[1:]
    assert (found["symbols"], found["unknown"], found["sentences"]) == (4, 1, 1)
    assert found["perplexity"] == pytest.approx(10 ** (-steps.sum() / 4))
    assert found["perplexity_known"] == pytest.approx(10 ** (-steps[[0, 2, 3]].sum() / 3))
    assert model.log_prob("the cat", base=10) == pytest.approx(model.log_prob("the cat") / math.log(10))
    assert model.log_probs(["the cat", "a dog"]).tolist() == [
        model.log_prob("the cat"),
        model.log_prob("a dog"),
    ]


def test_lines_and_lists_of_words_are_encoded_alike() -> None:
    model = an.NGram(2).fit(TEXT)
    asked = ["the  zebra sat ", "", "a\tcat <unk>"]
    ids = model.encode(asked)
    assert ids.tolist() == model.encode([s.split() for s in asked]).tolist()
    assert ids.tolist().count(2) == 3
    assert model.words.spell(ids[:5]) == ["<s>", "the", "<unk>", "sat", "</s>"]
    for special in ("<s>", "</s>", "<pad>"):
        with pytest.raises(DataError, match=f"sentence 2: {special} is added"):
            model.encode(["a cat", f"a {special} cat"])


def test_rare_words_become_unknown() -> None:
    model = an.NGram(2, min_count=3).fit(TEXT)
    assert set(model.words.spellings or []) == {
        "<pad>",
        "<unk>",
        "<s>",
        "</s>",
        "the",
        "cat",
        "a",
        "sat",
        "dog",
    }
    assert an.NGram(2, vocab_size=6).fit(TEXT).words.spellings[4:] == ["the", "cat"]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_file_is_its_lines(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"text.txt{suffix}"
    content = ("\n\n".join(TEXT) + "\r\n").encode()
    path.write_bytes(gzip.compress(content) if suffix else content)
    for tokens in ("word", "char"):
        from_file, from_list = (an.NGram(3, tokens=tokens).fit(data) for data in (path, TEXT))
        assert from_file.log_prob(TEXT[0]) == from_list.log_prob(TEXT[0])
        assert from_file.words.spellings == from_list.words.spellings
    assert " " in from_file.words.ids


def test_ids_are_taken_as_they_are() -> None:
    by_word = an.NGram(3).fit(TEXT)
    as_ids = [[by_word.words.ids[w] for w in s.split()] for s in TEXT]
    by_id = an.NGram(3).fit([np.array(s) for s in as_ids])
    assert by_id.log_prob(as_ids[0]) == by_word.log_prob(TEXT[0])
    assert set(by_id.sample(1)[0]) <= set(range(4, by_id.words.size))
    wide = an.NGram(1, smoothing="add-k", vocab_size=50).fit(as_ids)
    assert len(wide.distribution()) == 50
    assert wide.distribution()[49] > 0


@settings(max_examples=40, deadline=None)
@given(corpora, st.integers(1, 4), st.integers(1, 9), st.booleans())
def test_training_on_disk_gives_the_same_model(tmp_path_factory, sentences, order, chunk, as_ids) -> None:
    data = [["abcd".index(w) + 4 for w in s] for s in sentences] if as_ids else sentences
    whole = an.NGram(order, vocab_size=7).fit(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngram_counts, "CHUNK", chunk)
        spilled = an.NGram(order, vocab_size=7).fit(data, spill=tmp_path_factory.getbasetemp())
    for name in ("parent", "word", "suffix", "log_prob", "backoff"):
        np.testing.assert_array_equal(getattr(spilled.table, name), getattr(whole.table, name))
    assert (spilled.table.bounds, spilled.words) == (whole.table.bounds, whole.words)


# -- search and sampling


def test_search_finds_the_most_probable_sentence() -> None:
    model = an.NGram(3).fit(TEXT)
    options = {"start": torch.tensor([2, 2]), "eos": 3, "max_length": 12}
    best = an.search.beam(model.step, model.start(2), width=50, length_penalty=0.0, **options)[1][0]
    assert best.log_prob == pytest.approx(model.log_prob(model.words.spell(best.tokens)), rel=1e-5)
    for sentence in TEXT:
        assert best.log_prob >= model.log_prob(sentence) - 1e-5
    (greedy, _) = an.search.greedy(model.step, model.start(2), **options)
    assert greedy[0].tokens[0] == int(model.distribution("").argmax())


def test_samples_follow_the_distribution_and_the_seed() -> None:
    model = an.NGram(2).fit(TEXT)
    drawn = model.sample(2000, seed=1, max_length=1)
    share = Counter(s[0] for s in drawn if s)
    expected = model.distribution("") / (1 - model.distribution("")[1])  # <unk> is not drawn
    assert share["the"] / 2000 == pytest.approx(expected[model.words.ids["the"]], abs=0.04)
    assert model.sample(3, seed=1, max_length=1) == drawn[:3]
    assert model.sample(5, seed=2) != model.sample(5, seed=3)
    best = model.words.spell([int(model.distribution("").argmax())])
    assert model.sample(4, temperature=0.01, max_length=1) == [best] * 4


# -- mistakes


def test_mistakes_are_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="order must be from 1 to 32, not 0"):
        an.NGram(0)
    with pytest.raises(SettingsError, match="smoothing must be one of kneser-ney"):
        an.NGram(smoothing="good-turing")
    with pytest.raises(AnaphoraError, match="call fit"):
        an.NGram().log_prob("a")
    with pytest.raises(DataError, match="no sentence"):
        an.NGram().fit([])
    with pytest.raises(DataError, match="sentence 2: </s> is added"):
        an.NGram().fit(["a", "b </s>"])
    with pytest.raises(DataError, match="sentence 2: </s> is added"):
        an.NGram().fit(["a", "b </s>"], spill=tmp_path)
    with pytest.raises(DataError, match="sentence 1: 2 is not the id of a symbol"):
        an.NGram().fit([[2, 4]])
    with pytest.raises(DataError, match="list of sentences"):
        an.NGram().fit([4, 5])
    with pytest.raises(DataError, match="ids from 1"):
        an.NGram().fit(["a"]).query(np.array([2, 99]))
    with pytest.raises(DataError, match="99 is not among the model's 5"):
        an.NGram().fit(["a"]).step(torch.tensor([99]), torch.tensor([0]))
    path = tmp_path / "bad.txt"
    path.write_bytes(b"fine\nbr\xffken\n")
    with pytest.raises(DataError, match=r"bad\.txt:2: broken UTF-8 at byte 3"):
        an.NGram().fit(path)
    with pytest.raises(DataError, match="is not a folder"):
        an.NGram().fit(["a"], spill=path)
    with pytest.raises(DataError, match="cannot be read"):
        an.NGram().fit(tmp_path / "none.txt")


def test_saved_models_come_back_and_damage_is_noticed(tmp_path: Path) -> None:
    model = an.NGram(3, prune=(0, 0, 1)).fit(TEXT)
    model.save(tmp_path / "model")
    again = an.NGram.load(tmp_path / "model")
    assert again.log_probs(TEXT).tolist() == model.log_probs(TEXT).tolist()
    assert (again.settings(), again.discounts) == (model.settings(), model.discounts)
    file = tmp_path / "model" / "ngram.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(RunError, match="is not the one"):
        an.NGram.load(tmp_path / "model")
    with pytest.raises(RunError, match="check the path"):
        an.NGram.load(tmp_path / "none")
