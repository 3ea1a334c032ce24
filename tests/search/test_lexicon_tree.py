"""The prefix tree of a lexicon: what it holds, what it reads, and what it refuses."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anaphora.errors import AnaphoraError, DataError
from anaphora.search import Lexicon

LECTURE = ["ARE", "ART", "ARTIST", "ANT", "AN", "AND"]
LETTERS = "ADEINRST"
PHONES = ["R", "IY", "EH", "D", "T"]


def contents(lexicon: Lexicon) -> set[tuple[str, tuple[int, ...]]]:
    """Words and spellings, read off the arrays from their ends to the root."""
    tree = lexicon.tree
    pairs = zip(tree.word.tolist(), tree.end.tolist(), strict=True)
    return {(lexicon.words[word], tuple(tree.spelling(end))) for word, end in pairs if word >= 0}


def test_six_words_share_their_beginnings() -> None:
    lexicon = Lexicon(LECTURE, LETTERS)
    assert len(lexicon.tree) == 1 + len({word[:n] for word in LECTURE for n in range(1, len(word) + 1)})
    assert lexicon.draw() == (
        "└ A\n"
        "  ├ N [AN]\n"
        "  │ ├ D [AND]\n"
        "  │ └ T [ANT]\n"
        "  └ R\n"
        "    ├ E [ARE]\n"
        "    └ T [ART]\n"
        "      └ I\n"
        "        └ S\n"
        "          └ T [ARTIST]"
    )


@given(st.lists(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=12, unique=True), st.booleans())
def test_the_tree_holds_every_word_once(words: list[str], separated: bool) -> None:
    lexicon = Lexicon(words, "abc|", separator="|" if separated else None)
    tree, after = lexicon.tree, (3,) if separated else ()
    assert contents(lexicon) == {(word, (*("abc".index(c) for c in word), *after)) for word in words}
    for node in range(len(tree)):
        children = tree.symbol[tree.first[node] : tree.first[node + 1]].tolist()
        assert children == sorted(set(children))
        assert (tree.parent[tree.first[node] : tree.first[node + 1]] == node).all()
    assert [lexicon[word] for word in lexicon.words] == list(range(len(lexicon)))
    assert all(lexicon.spellings(word) == [["abc".index(c) for c in word]] for word in words)


def test_homophones_share_a_node_and_a_word_may_have_two_spellings() -> None:
    lexicon = Lexicon({"read": ["R IY D", "R EH D"], "red": "R EH D", "reed": [0, 1, 3]}, PHONES)
    assert lexicon.words == ["read", "red", "reed"]
    assert lexicon.spellings("read") == [[0, 1, 3], [0, 2, 3]]
    assert "R\n  ├ IY\n  │ └ D [read] [reed]\n  └ EH\n    └ D [read] [red]" in lexicon.draw()
    assert "red" in lexicon
    assert "green" not in lexicon


def written(folder: Path, text: str, name: str = "words.txt") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_files_of_all_three_forms(tmp_path: Path) -> None:
    assert Lexicon.read(written(tmp_path, "an\n\nant\n"), "ant").words == ["an", "ant"]
    tab = Lexicon.read(written(tmp_path, "read\tR IY D\nread\tR EH D\n"), PHONES)
    assert tab.spellings("read") == [[0, 1, 3], [0, 2, 3]]
    cmu = ";;; a comment\nREAD  R EH1 D\nREAD(1)  R IY1 D\nREADER  R IY1 D EH0 R # an editor's note\n"
    lexicon = Lexicon.read(written(tmp_path, cmu), PHONES, drop_stress=True)
    assert lexicon.words == ["READ", "READER"]
    assert lexicon.spellings("READ") == [[0, 2, 3], [0, 1, 3]]
    stressed = Lexicon.read(written(tmp_path, "READ  R EH1 D\n"), ["R", "EH1", "D"])
    assert stressed.spellings("READ") == [[0, 1, 2]]


def test_spellings_that_differ_in_stress_alone_count_once(tmp_path: Path) -> None:
    path = written(tmp_path, "A  EH0\nA(1)  EH1\nA(2)  IY0\n")
    assert Lexicon.read(path, PHONES, drop_stress=True).spellings("A") == [[2], [1]]


def test_a_packed_file(tmp_path: Path) -> None:
    path = tmp_path / "words.gz"
    path.write_bytes(gzip.compress(b"an\nant\n"))
    assert len(Lexicon.read(path, "ant")) == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("an\nant\nan\n", r"words.txt:3: 'an' is there twice with the same spelling; take one out."),
        ("an\nöl\n", r"words.txt:2: 'ö' in the word 'öl' is not among the 3 symbols"),
        ("a\tn\n\tn\n", r"words.txt:2: the word is empty"),
        ("a\tn\nb\t\n", r"words.txt:2: the word 'b' has an empty spelling"),
        ("a\tn\nb n\n", r"words.txt:2: there is no tab"),
        ("\n\n", r"at least one word"),
        ("a n\nb\n", r"words.txt:2: the word 'b' has an empty spelling"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_its_line(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        Lexicon.read(written(tmp_path, text), "ant")


@pytest.mark.parametrize(
    ("words", "symbols", "options", "sentence"),
    [
        (["a", "a"], "a", {}, "word 2: 'a' is there twice"),
        ([""], "a", {}, "word 1: the word is empty"),
        ({"a": []}, "a", {}, "an empty spelling"),
        ({"a": [5]}, "a", {}, "5 in the word 'a' is not among the 1 symbols"),
        (["a|"], "a|", {"separator": "|"}, "holds the separator"),
        (["a"], "a", {"separator": "|"}, "The separator '|' is not among"),
        (["a"], "aa", {}, "'a' is there twice"),
        (["a"], "", {}, "needs the symbols"),
        ([1], "a", {}, "word 1 is 1"),
        ("words.txt", "a", {}, "Lexicon.read"),
    ],
)
def test_what_cannot_be_a_lexicon(words: Any, symbols: Any, options: Any, sentence: str) -> None:
    with pytest.raises(AnaphoraError, match=sentence.replace("|", r"\|")):
        Lexicon(words, symbols, **options)


def test_a_missing_file_and_an_unknown_form_are_named(tmp_path: Path) -> None:
    with pytest.raises(AnaphoraError, match=r"none.txt"):
        Lexicon.read(tmp_path / "none.txt", "ant")
    with pytest.raises(AnaphoraError, match="form must be one of"):
        Lexicon.read(written(tmp_path, "an"), "ant", form="csv")  # type: ignore[arg-type]
