"""ARPA files: what we write is read back bit for bit, by others too; what others write is understood."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anaphora as an
from anaphora.errors import DataError

TEXT = ["the cat sat on the mat", "the dog sat", "a dog saw the cat", "the cat saw the dog on a mat"]
# As SRILM writes: -99 for <s>, no weight where it is 0, blank lines, a closed vocabulary (no <unk>).
SRILM = """
\\data\\
ngram 1=4
ngram 2=3

\\1-grams:
-0.6020600\t</s>
-99\t<s>\t-0.3010300
-0.3010300\ta\t-0.1760913
-0.6020600\tb

\\2-grams:
-0.1760913\t<s> a
-0.3010300\ta b
-0.3979400\ta </s>

\\end\\
"""


def same(one: an.NGram, other: an.NGram) -> None:
    back = {w: i for i, w in enumerate(other.words.spellings)}
    assert set(one.words.spellings) == set(back)
    for name in ("parent", "word", "suffix", "log_prob", "backoff"):
        np.testing.assert_array_equal(getattr(one.table, name), getattr(other.table, name), err_msg=name)
    assert one.table.bounds == other.table.bounds


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=8), min_size=1, max_size=6),
    st.integers(1, 4),
    st.sampled_from(["kneser-ney", "witten-bell", "add-k"]),
    st.sampled_from([(0,), (0, 2, 1)]),
)
def test_round_trip_is_exact(tmp_path_factory, sentences, order, smoothing, prune) -> None:
    path = tmp_path_factory.getbasetemp() / "model.arpa"
    model = an.NGram(order, smoothing=smoothing, prune=prune).fit(sentences)
    model.write_arpa(path)
    same(model, an.NGram.read_arpa(path))


def test_characters_and_ids_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "model.arpa"
    model = an.NGram(3, tokens="char").fit(TEXT)
    model.write_arpa(path)
    assert "<space>" in path.read_text()
    again = an.NGram.read_arpa(path, tokens="char")
    same(model, again)
    assert again.log_prob("a cat") == model.log_prob("a cat")
    ids = an.NGram(2).fit([[4, 5, 4], [5]])
    ids.write_arpa(path)
    assert an.NGram.read_arpa(path).log_prob("4 5 4") == ids.log_prob([4, 5, 4])
    with pytest.raises(DataError, match="'a b' holds white space"):
        an.NGram(2).fit([["a b"]]).write_arpa(path)


def test_a_file_of_srilm_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "srilm.arpa"
    path.write_text(SRILM)
    model = an.NGram.read_arpa(path)
    assert model.order == 2
    # <s> a: stored; a b: stored; b </s>: b has no weight, so p(</s>) itself.
    assert model.log_prob("a b", base=10) == pytest.approx(-0.1760913 - 0.3010300 - 0.6020600)
    # <s> b: weight of <s>; b a: p(a); a </s>: stored.
    assert model.log_prob("b a", base=10) == pytest.approx(-0.30103 - 0.60206 - 0.30103 - 0.39794)
    assert model.log_prob("zzz", base=10) == pytest.approx(-0.30103 - 100 - 0.60206)
    path.write_text("made by hand\n" + SRILM.replace("\t", "  ").replace("ngram 2=3", "ngram 2 = 3"))
    assert an.NGram.read_arpa(path).log_prob("a b") == model.log_prob("a b")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("\\data\\", "data", r"there is no \\data\\ line; give an ARPA file"),
        ("ngram 2=3", "ngram 2=4", r":17: 3 2-grams before this line, but \\data\\ says 4"),
        ("ngram 1=4", "ngram 1=99999999999999", r":12: 4 1-grams before this line"),
        ("ngram 2=3", "ngram 2=2", r":15: expected \\end\\ here"),
        ("a b\n", "a zebra\n", r":14: 'zebra' is not among the 1-grams"),
        ("-0.3010300\ta b", "x\ta b", r":14: a probability or a backoff weight is not a number"),
        ("-0.3010300\ta b", "0.3\ta b", r":14: log10 p = 0.3 is above 0"),
        ("-0.3010300\ta b", "-0.3010300\ta", r":14: 2 fields in a row of 2-grams, not 3 or 4"),
        ("-0.3010300\ta b", "-0.1\t<s> a", r":14: the n-gram is there twice"),
        ("\\end\\", "", r"the file ends before \\end\\; it is cut off"),
        ("\\2-grams:", "\\3-grams:", r":12: expected \\2-grams: here"),
    ],
)
def test_damage_is_told_with_its_line(tmp_path: Path, old: str, new: str, told: str) -> None:
    path = tmp_path / "bad.arpa"
    assert old in SRILM
    path.write_text(SRILM.replace(old, new, 1))
    with pytest.raises(DataError, match=r"bad\.arpa:\d+: .+\.$") as error:
        an.NGram.read_arpa(path)
    error.match(told)


def test_kenlm_reads_the_same_probabilities(tmp_path: Path) -> None:
    kenlm = pytest.importorskip("kenlm")
    path = tmp_path / "model.arpa"
    for order, prune in ((2, (0,)), (4, (0,)), (4, (0, 0, 1))):
        model = an.NGram(order, prune=prune).fit(TEXT)
        model.write_arpa(path)
        theirs = kenlm.Model(str(path))
        for sentence in [*TEXT, "the the zebra sat", "mat mat a"]:
            assert model.log_prob(sentence, base=10) == pytest.approx(theirs.score(sentence), rel=1e-5)
            steps = [found[0] for found in theirs.full_scores(sentence)]
            np.testing.assert_allclose(model.query(model.encode([sentence]))[1:], steps, rtol=1e-5, atol=1e-6)


def test_nltk_agrees_on_add_k() -> None:
    lm = pytest.importorskip("nltk.lm")
    from nltk.lm.preprocessing import pad_both_ends
    from nltk.util import ngrams

    padded = [list(pad_both_ends(s.split(), n=3)) for s in TEXT]
    theirs = lm.Lidstone(0.5, 3)
    theirs.fit([list(ngrams(s, 3)) for s in padded], [w for s in TEXT for w in [*s.split(), "</s>"]])
    ours = an.NGram(3, smoothing="add-k", k=0.5).fit(TEXT)
    for history, word in ((("the", "cat"), "sat"), (("a", "mat"), "dog"), (("<s>", "the"), "cat")):
        known = [w for w in history if w != "<s>"]
        found = ours.distribution(known, begin="<s>" in history)[ours.words.ids[word]]
        assert found == pytest.approx(theirs.score(word, history))
