"""The search steered on the page: the same numbers as `an.steer`, by mouse and by keyboard, at every width."""

from __future__ import annotations

import itertools
import urllib.parse

import pytest
from studio_names import TEXT
from test_studio_page import opened

import anaphora as an
from conftest import Client, Server, until

pytestmark = pytest.mark.xdist_group("studio")


@pytest.fixture(scope="module")
def model(runs):
    return an.load(runs / "attentive")


@pytest.fixture(scope="module")
def hearing(senses):
    started = Server(senses)
    yield started
    started.stop()


def steer(page, server, run, **words):
    opened(page, server, view="steer", runs=run, **{"text": TEXT, **words})
    page.wait_for_selector(".steer")
    return page


def scores(page):
    return page.eval_on_selector_all(".node", "all => all.map(one => Number(one.dataset.score))")


def found(page, name="found"):
    return page.get_attribute(f".outcome tr[data-name='{name}'] .said", "data-text")


def overlapping(page, selector):
    """Pairs of elements whose boxes cover each other."""
    boxes = page.eval_on_selector_all(
        selector,
        "all => all.map(one => { const b = one.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom] })",
    )
    return [
        (a, b)
        for a, b in itertools.combinations(boxes, 2)
        if min(a[2], b[2]) - max(a[0], b[0]) > 1 and min(a[3], b[3]) - max(a[1], b[1]) > 1
    ]


def serious(page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    answer = axe.Axe().run(page).response
    return [
        f"{v['id']}: {v['nodes'][0]['html'][:160]}"
        for v in answer["violations"]
        if v["impact"] in ("serious", "critical")
    ]


def test_the_tree_has_the_numbers_of_the_search(page, server, ids, model):
    steer(page, server, ids["attentive"], **{"s.reference": TEXT.upper()})
    trace = an.steer(model, TEXT, reference=TEXT.upper())
    assert scores(page) == [row["score"] for row in trace.tables["beam"]]
    row = page.locator(".outcome tr[data-name=wanted]")
    assert float(row.get_attribute("data-score")) == trace.facts["reference"]["score"]
    assert page.get_attribute(".verdict", "data-verdict") == trace.facts["verdict"]
    assert found(page) == trace.facts["output"]
    assert overlapping(page, ".node") == []
    assert page.troubles == []


def test_a_node_is_forced_by_the_mouse_and_banned_by_the_keyboard(
    page, server, ids, model, runs, monkeypatch
):
    steer(page, server, ids["attentive"])
    rows = an.steer(model, TEXT).tables["beam"]
    number, node = next((i, row) for i, row in enumerate(rows) if row["fate"] == "kept" and row["rank"] == 1)
    page.click(f"[data-node='{number}']")
    page.wait_for_selector(f".picked[data-symbols='{'.'.join(map(str, node['symbols']))}']")
    page.click(".picked button:has-text('Force')")
    page.wait_for_selector(".rule")
    forced = an.steer(model, TEXT, force=node["symbols"])
    until(page, lambda: found(page) == forced.facts["output"])
    assert scores(page) == [row["score"] for row in forced.tables["beam"]]
    assert found(page, "without rules") == forced.facts["free"]["text"]
    # the line of Python does the same
    page.click("summary:has-text('In Python')")
    monkeypatch.chdir(runs)
    names: dict = {}
    exec(compile(page.inner_text(".steer pre"), "shown", "exec"), names)
    assert names["trace"].facts["found"] == forced.facts["found"]
    # the back button takes the rule back; then the first symbol is banned without a mouse
    page.go_back()
    until(page, lambda: page.locator(".rule").count() == 0)
    page.focus("[data-node='0']")
    page.keyboard.press("ArrowDown")  # chooses the first
    page.wait_for_selector(".picked button")
    symbols = page.get_attribute(".picked", "data-symbols")
    page.keyboard.press("b")
    page.wait_for_selector(".rule.banned")
    banned = an.steer(model, TEXT, ban=[[int(s) for s in symbols.split(".")]])
    until(page, lambda: found(page) == banned.facts["output"])
    assert f"s.ban={symbols}" in page.url
    page.click(".rule.banned")
    until(page, lambda: page.locator(".rule").count() == 0)
    assert page.troubles == []


def test_sliders_and_steps_change_the_search_and_a_reload_keeps_them(page, server, ids, model):
    steer(page, server, ids["attentive"])
    page.focus(".slider:has-text('beam width') input")
    page.keyboard.press("ArrowLeft")
    until(page, lambda: "s.beam=4" in page.url)
    expected = [row["score"] for row in an.steer(model, TEXT, beam=4).tables["beam"]]
    until(page, lambda: scores(page) == expected)
    page.reload()
    page.wait_for_selector(".node")
    assert scores(page) == expected
    steps = max(row["step"] for row in an.steer(model, TEXT, beam=4).tables["beam"]) + 1
    page.click("[aria-label='step back']")
    count = sum(row["step"] < steps - 1 for row in an.steer(model, TEXT, beam=4).tables["beam"])
    until(page, lambda: page.locator(".node").count() == count)
    page.keyboard.press("Escape")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press(" ")  # plays on
    until(page, lambda: page.locator(".node").count() == len(expected))


def test_banning_everything_is_refused_with_a_sentence(page, server, ids, model):
    everything = "~".join(str(i) for i in range(model.tokenizer_.target.size))
    client = Client(server.port, server.token)
    query = urllib.parse.urlencode(
        {"panel": "steer", "run": ids["attentive"], "text": TEXT, "s.ban": everything}
    )
    status, answer = client.json(f"/api/panel?{query}")
    assert status == 422
    assert "Nothing is left to search" in answer["error"]
    opened(page, server, view="steer", runs=ids["attentive"], text=TEXT, **{"s.ban": everything})
    assert "Nothing is left to search" in page.inner_text(".problem")
    for wrong in ({"s.force": "x"}, {"s.beam": "many"}, {"s.force": "99999"}, {"panel": "none"}):
        words = {"panel": "steer", "run": ids["attentive"], "text": TEXT, **wrong}
        assert client.json(f"/api/panel?{urllib.parse.urlencode(words)}")[0] == 422


def test_a_run_that_searches_for_nothing_has_no_such_tab(page, server, ids):
    opened(page, server, view="hmm", runs=ids["markov"], text="a b")
    page.wait_for_selector(".fold summary:has-text('Why not?')")
    assert page.locator("[data-tab=steer]").count() == 0
    page.click(".fold summary:has-text('Why not?')")
    assert "a Tagger searches for nothing" in page.inner_text(".absent")


@pytest.mark.parametrize(("width", "theme"), [(360, "light"), (768, "dark"), (1440, "light"), (360, "dark")])
def test_it_fits_every_width_and_is_open_to_all(page, server, ids, width, theme):
    page.set_viewport_size({"width": width, "height": 800})
    steer(page, server, ids["attentive"], theme=theme, **{"s.force": "5", "s.reference": "A"})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert overlapping(page, ".node") == []
    assert overlapping(page, ".sliders > *, .rules > *, .playing > *") == []
    assert serious(page) == []


def test_prefixes_of_ctc_are_stepped_through_and_steered(page, hearing, senses):
    client = Client(hearing.port, hearing.token)
    ids = {run["name"]: run["id"] for run in client.json("/api/runs")[1]}
    opened(page, hearing, view="steer", runs=ids["listener"])
    page.wait_for_selector(".prefixes tbody tr")
    model = an.load(senses / "listener")
    from anaphora.tasks.looking import Asked

    x, facts = Asked(model, senses / "listener").find("#1")
    rows = an.steer(model, x, reference=facts["reference"]).tables["prefix_beam"]
    last = max(row["frame"] for row in rows)
    read = "all => all.map(one => [one.dataset.prefix, Number(one.dataset.logP)])"

    def expected(frame):
        return [[".".join(map(str, r["symbols"])), r["log_prob"]] for r in rows if r["frame"] == frame]

    assert page.eval_on_selector_all(".prefixes tbody tr", read) == expected(last)
    page.click("[aria-label='step back']")
    until(page, lambda: page.eval_on_selector_all(".prefixes tbody tr", read) == expected(last - 1))
    label = page.locator(".prefixes button:has-text('Ban')").first
    label.click()
    page.wait_for_selector(".rule.banned")
    page.check(".check input")
    until(page, lambda: "s.lexicon=1" in page.url)
    until(page, lambda: "lexicon=True" in page.text_content(".steer pre") or page.locator(".problem").count())
    page.wait_for_selector(".steer[data-took]")
    assert serious(page) == []
    assert page.troubles == []
