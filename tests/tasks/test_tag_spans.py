"""Spans in tags: found and scored as conlleval and seqeval do, and tags that may follow each other."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anaphora.data.tag_schemes import allowed, infer_scheme, misfit, split_tag
from anaphora.kinds.measures.tags import find_spans, tag_measures

BIOES = ["O", *(f"{mark}-{kind}" for mark in "BIES" for kind in ("X", "Y"))]
sequences = st.lists(st.sampled_from(BIOES), max_size=9)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("B-X I-X O B-Y", [("X", 0, 1), ("Y", 3, 3)]),
        ("B-X B-X I-X", [("X", 0, 0), ("X", 1, 2)]),
        ("O I-X I-X O", [("X", 1, 2)]),  # an I without a B
        ("B-X I-Y I-Y", [("X", 0, 0), ("Y", 1, 2)]),  # the kind changes
        ("B-X I-X E-X S-Y", [("X", 0, 2), ("Y", 3, 3)]),
        ("S-X I-X E-X E-X", [("X", 0, 0), ("X", 1, 2), ("X", 3, 3)]),
        ("B-X L-X U-Y", [("X", 0, 1), ("Y", 2, 2)]),
        ("B-creative-work I-creative-work", [("creative-work", 0, 1)]),
        ("B I O", [("_", 0, 1)]),
        ("O O", []),
        ("", []),
    ],
)
def test_spans(tags, expected):
    assert find_spans(tags.split()) == expected


def by_pattern(tags: list[str]) -> list[tuple[str, int, int]]:
    """The same by regular expression over one sign a tag: a span is [BI]?[I]*E?, or S, of one kind."""
    found = []
    for kind in sorted({split_tag(tag)[1] for tag in tags} - {""}):
        signs = "".join(tag[0] if split_tag(tag)[1] == kind else "." for tag in tags)
        for match in re.finditer(r"S|[BI]I*E?|E", signs):
            found.append((kind, match.start(), match.end() - 1))
    return sorted(found, key=lambda span: span[1])


@given(sequences)
def test_spans_are_those_of_a_pattern_over_the_tags(tags):
    assert find_spans(tags) == by_pattern(tags)


def test_scores_by_hand():
    gold = [["B-X", "I-X", "O", "B-Y"], ["O", "B-Y"]]
    said = [["B-X", "I-X", "O", "O"], ["B-Y", "B-X"]]
    scores = tag_measures(said, gold, spans=True).report
    assert scores["accuracy"] == pytest.approx(100 * 3 / 6)
    assert scores["precision"] == pytest.approx(100 / 3)  # one of the three spans given
    assert scores["recall"] == pytest.approx(100 / 3)  # one of the three wanted
    assert scores["f1"] == pytest.approx(100 / 3)
    assert scores["by_type"]["X"] == {
        "precision": 50.0,
        "recall": 100.0,
        "f1": pytest.approx(200 / 3),
        "support": 1,
    }
    assert scores["by_type"]["Y"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 2}


def test_tags_that_mark_no_spans_are_scored_one_by_one():
    scores = tag_measures([["N", "V", "V"]], [["N", "V", "N"]], spans=False).report
    assert scores["accuracy"] == pytest.approx(200 / 3)
    assert "f1" not in scores
    assert scores["by_type"]["N"]["recall"] == 50.0
    assert scores["by_type"]["V"]["precision"] == 50.0


@given(st.lists(st.tuples(sequences, st.randoms(use_true_random=False)), min_size=1, max_size=4))
def test_scores_equal_those_of_seqeval(pairs):
    seqeval = pytest.importorskip("seqeval.metrics")
    gold = [tags for tags, _ in pairs]
    said = [random.choices(BIOES, k=len(tags)) for tags, random in pairs]
    mine = tag_measures(said, gold, spans=True).report
    for name, theirs in (
        ("precision", seqeval.precision_score),
        ("recall", seqeval.recall_score),
        ("f1", seqeval.f1_score),
    ):
        assert mine[name] == pytest.approx(100 * theirs(gold, said, zero_division=0))


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [
        ("O B-X I-X O B-Y", "bio"),
        ("O I-X I-X O I-Y B-Y", "iob1"),
        ("O B-X E-X S-Y", "bioes"),
        ("O B-X L-X U-Y", "bilou"),
        ("DET NOUN O", "none"),
        ("DET B-X", "none"),
        ("O -LRB- I-X", "none"),
        ("B I O", "bio"),
    ],
)
def test_the_scheme_is_found_out(tags, scheme):
    assert infer_scheme([tags.split()]) == scheme


def test_a_tag_that_does_not_fit_the_scheme_is_named():
    assert misfit("bio", ["O", "B-X", "E-X"]) == "E-X"
    assert misfit("bioes", ["O", "B-X", "E-X"]) is None
    assert misfit("none", ["NOUN"]) is None


# A whole sentence is valid if it matches; "." is O, small letters are the second kind.
GRAMMARS = {
    "bio": r"(\.|BI*|bi*)*",
    "iob1": r"(\.|I+(BI*)*|i+(bi*)*)*",
    "bioes": r"(\.|BI*E|bi*e|S|s)*",
    "bilou": r"(\.|BI*L|bi*l|U|u)*",
}


@pytest.mark.parametrize("scheme", GRAMMARS)
def test_what_is_allowed_is_what_the_grammar_says(scheme):
    signs = {"bio": ".BIbi", "iob1": ".BIbi", "bioes": ".BIESbies", "bilou": ".BILUbilu"}[scheme]
    tags = ["O" if s == "." else f"{s.upper()}-{'X' if s.isupper() else 'Y'}" for s in signs]
    start, moves, end = allowed(scheme, tags)
    for length in (1, 2, 3, 4):
        for path in itertools.product(range(len(tags)), repeat=length):
            fine = start[path[0]] and end[path[-1]] and all(moves[a, b] for a, b in itertools.pairwise(path))
            text = "".join(signs[i] for i in path)
            assert bool(fine) == bool(re.fullmatch(GRAMMARS[scheme], text)), text


def test_without_a_scheme_everything_is_allowed():
    assert all(rule.all() for rule in allowed("none", ["B-X", "I-X", "N"]))
