"""The view of several runs on the same examples: its numbers are those of ``anaphora compare --json``."""

from __future__ import annotations

import json
import urllib.parse

import pytest
from studio_names import BAD_NAME
from test_studio_page import address

import anaphora as an
from anaphora.cli import main

pytestmark = pytest.mark.xdist_group("studio")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two classifiers with the same dev file, one with a name that is no good as markup, and a model of another task."""
    place = tmp_path_factory.mktemp("compared")
    texts = [("good film", "pos"), ("bad film", "neg"), ("good plot", "pos"), ("bad plot", "neg")] * 8
    for name, rows in (("train.tsv", texts), ("dev.tsv", [*texts[:5], ("film", "pos"), ("bad good", "neg")])):
        (place / name).write_text("".join(f"{text}\t{label}\n" for text, label in rows))
    runs = place / "runs"
    small = {"embedding": 4, "tokens": "word", "device": "cpu", "valid_every": 5, "save_every": 5}
    data = {"valid": str(place / "dev.tsv")}
    an.Classifier("bow", steps=5, **small).fit(str(place / "train.tsv"), out=runs / "first", **data)
    an.Classifier("gru", hidden=4, steps=30, **small).fit(
        str(place / "train.tsv"), out=runs / BAD_NAME, **data
    )
    an.Tagger(model="hmm").fit([("a b c", "X Y X"), ("b a", "Y X")] * 6, out=runs / "markov")
    return runs


def compared(asked, runs, **options):
    words = [("view", "compare"), *(("run", run) for run in runs), *options.items()]
    return asked.json(f"/api/compare?{urllib.parse.urlencode(words)}")


@pytest.fixture(scope="module")
def printed(folder):
    """What the command says of the same two runs."""
    import contextlib
    import io

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert (
            main.run(["compare", str(folder / "first"), str(folder / BAD_NAME), "--samples", "200", "--json"])
            == 0
        )
    return json.loads(out.getvalue())


def test_the_numbers_are_those_of_the_command(asked, known, printed, folder):
    status, found = compared(asked, [known["first"], known[BAD_NAME]], **{"o.samples": "200"})
    assert status == 200, found
    comparison = found["comparison"]
    for key in ("measures", "disagreements", "examples", "notes"):
        assert comparison[key] == printed[key], key
    assert comparison["names"] == ["first", BAD_NAME]
    assert comparison["rows"][0] == ["", "first", BAD_NAME]
    assert str(folder.parent) not in json.dumps(found)  # a page never names a path
    again = compared(asked, [known["first"], known[BAD_NAME]], **{"o.samples": "200"})[1]
    assert again["comparison"]["rows"] == comparison["rows"]  # speeds too: it was kept


def test_mistakes_are_sentences_with_the_names_of_the_page(asked, known, folder):
    for runs, options, sentence in (
        (["first"], {}, "choose from 2 to 8 runs to compare, not 1."),
        (["first", "markov"], {}, "first is a Classifier and markov a Tagger; compare runs of one task."),
        (["first", "first"], {}, "first is named twice; name each run once."),
        (["first", BAD_NAME], {"o.samples": "3"}, "samples = 3 cannot be used"),
        (
            ["first", BAD_NAME],
            {"o.samples": "30000"},
            "samples must be a whole number of at most 20,000 here.",
        ),
        (["first", BAD_NAME], {"o.beem": "3"}, "there is no option 'beem' here"),
    ):
        status, found = compared(asked, [known[name] for name in runs], **options)
        assert status == 422, found
        assert found["error"].startswith(sentence), found
        assert str(folder) not in found["error"]


def test_the_page_shows_the_table_with_all_digits(page, studio, known, printed):
    runs = f"{known['first']},{known[BAD_NAME]}"
    page.goto(address(studio, view="compare", runs=runs, **{"o.samples": "200"}))
    page.reload()
    page.wait_for_selector(".compared table")
    cells = page.eval_on_selector_all(".compared td[title]", "cells => cells.map(cell => cell.title)")
    wanted = []
    for measure in printed["measures"]:
        wanted += [[one["value"], one["low"], one["high"]] for one in measure["estimates"]]
        wanted += [
            [one[key] for key in ("value", "low", "high", "p")] for one in measure["differences"] if one
        ]
    assert sorted([list(map(float, cell.split())) for cell in cells]) == sorted(wanted)
    assert page.locator(".compared svg").count() == 2 * len(printed["measures"])
    assert BAD_NAME in page.locator(".compared thead").first.inner_text()
    assert page.locator(".examples tbody tr").count() == len(printed["disagreements"])
    first = printed["disagreements"][0]
    page.click(".examples tbody tr >> nth=0 >> td >> nth=2 >> button")  # what the second run answered
    page.wait_for_selector(".answer")  # the same example, explained
    assert f"example={first['number']}" in page.url
    assert f"runs={known[BAD_NAME]}%2C{known['first']}" in page.url
    assert page.input_value("#input") == first["input"]
    assert page.troubles == []
    page.goto(address(studio, view="compare", runs=known["first"]))
    page.reload()
    page.wait_for_selector("main p:has-text('Choose two or more runs of one task at the left')")
    assert page.locator(".problem").count() == 0  # nothing is wrong
