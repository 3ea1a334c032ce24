"""S7: The page in a browser: every view, the same numbers, the same state after a reload, and what it survives."""

from __future__ import annotations

import os
import re
import urllib.parse

import pytest
from studio_names import BAD_NAME, TEXT

from conftest import Server, settled, until

pytestmark = pytest.mark.xdist_group("studio")
HISTORY = ("curves", "samples", "health")
PROBE = ("alignment", "states", "gates", "beam", "heads", "positions")


def address(server, **words):
    return f"{server.url}&{urllib.parse.urlencode(words)}"


def opened(page, server, **words):
    """The page at that state, with its picture drawn or a sentence said."""
    page.goto(address(server, **words))
    page.reload()  # a changed fragment alone does not load the page again
    page.wait_for_selector(".picture .figure *, .problem, .answer")
    settled(page)
    return page


def values(page):
    return page.eval_on_selector_all(".figure [data-v]", "marks => marks.map(mark => mark.dataset.v)")


@pytest.mark.parametrize("view", HISTORY)
def test_views_of_training_open_without_a_complaint(page, server, ids, view):
    opened(page, server, view=view, runs=f"{ids['attentive']},{ids['deep/transformer']}")
    assert page.locator(".picture").count() == 1
    assert page.troubles == []


@pytest.mark.parametrize("view", PROBE)
def test_views_of_one_input_open_or_say_why_not(page, server, ids, view):
    run = ids["deep/transformer" if view in ("heads", "positions") else "attentive"]
    opened(page, server, view=view, runs=run, text=TEXT)
    assert page.locator(".picture, .problem, .answer").count() >= 1
    assert page.troubles == [] or page.locator(".problem, .left").count()


@pytest.mark.parametrize(
    ("view", "run", "text"),
    [
        ("gradients", "language", "abc"),
        ("sampling", "language", "abc"),
        ("embeddings", "language", ""),
        ("hmm", "markov", "a b c"),
        ("kalman", "kalman", "\n".join(str(i % 7) for i in range(40))),
    ],
)
def test_views_of_other_models_open_without_a_complaint(page, server, ids, view, run, text):
    opened(page, server, view=view, runs=ids[run], text=text)
    page.wait_for_selector(".picture .figure svg")
    assert page.troubles == []
    assert values(page)


def test_a_view_that_the_run_has_not_is_left_for_the_answer_with_the_reason(page, server, ids):
    """newcomer 18: the tab of another run does not stay open, with a sentence in red."""
    opened(page, server, view="ctc", runs=ids["language"], text="abc")
    page.wait_for_selector(".left:has-text('no CTC outputs')")
    page.wait_for_selector(".answer")
    assert page.locator("[data-tab=ctc]").count() == 0
    assert page.locator(".problem").count() == 0
    assert "view=explain" in page.url


def test_settings_of_sampling_change_the_picture(page, server, ids):
    opened(page, server, view="sampling", runs=ids["language"], text="abc")
    before = values(page)
    page.fill("label:has-text('temperature') input", "0.3")
    page.keyboard.press("Tab")
    until(page, lambda: values(page) != before)
    assert "o.temperature=0.3" in page.url


def test_numbers_on_the_page_are_those_of_the_trace(page, server, ids, runs):
    import anaphora as an

    opened(page, server, view="alignment", runs=ids["attentive"], text=TEXT)
    trace = an.load(runs / "attentive").probe(TEXT)
    expected = trace.array("alignment", "target", "source").reshape(-1).tolist()
    assert [float(v) for v in values(page)] == pytest.approx(expected, rel=1e-6)
    page.click("button:has-text('Numbers')")
    cells = page.eval_on_selector_all("table td", "cells => cells.map(cell => cell.textContent)")
    assert [float(cell) for cell in cells] == pytest.approx(expected, abs=5e-4)


def test_the_keyboard_moves_from_value_to_value(page, server, ids):
    opened(page, server, view="alignment", runs=ids["attentive"], text=TEXT)
    shown = values(page)
    columns = page.locator(".figure text[transform]").count()
    page.locator(".figure").focus()
    read = lambda: page.get_attribute(".picture output", "data-value")  # noqa: E731
    page.keyboard.press("ArrowRight")
    assert read() == shown[0]
    page.keyboard.press("ArrowRight")
    assert read() == shown[1]
    page.keyboard.press("ArrowDown")
    assert read() == shown[1 + columns]
    page.keyboard.press("Escape")
    assert read() == ""


def test_a_reload_at_any_address_shows_the_same(page, server, ids):
    words = {
        "view": "beam",
        "runs": ids["attentive"],
        "text": TEXT,
        "p.beam": "3",
        "o.pruned": "false",
        "theme": "dark",
    }
    opened(page, server, **words)
    before, place = values(page), page.url
    page.reload()
    page.wait_for_selector(".picture .figure svg")
    assert (values(page), page.url) == (before, place)
    assert page.get_attribute("html", "data-theme") == "dark"
    assert page.input_value("textarea >> nth=0") == TEXT


def test_changing_the_beam_changes_the_tree(page, server, ids):
    opened(page, server, view="beam", runs=ids["attentive"], text=TEXT, **{"p.beam": "2"})
    narrow = values(page)
    page.fill("label:has-text('beam') input", "6")
    page.keyboard.press("Tab")
    until(page, lambda: len(values(page)) > len(narrow))
    assert "p.beam=6" in page.url
    page.go_back()


def test_names_and_texts_are_shown_and_never_run(page, server, ids):
    fired = []
    page.on("dialog", lambda dialog: (fired.append(dialog.message), dialog.dismiss()))
    evil = "a<img src=x onerror=alert(2)>"
    opened(page, server, view="states", runs=ids[BAD_NAME], text=evil)
    assert BAD_NAME in page.inner_text("nav.runs")
    assert page.locator("img").count() == 0
    assert fired == []
    assert page.troubles == []


def test_what_a_model_cannot_show_is_named_with_the_reason(page, server, ids):
    opened(page, server, view="states", runs=ids[BAD_NAME], text=TEXT)
    page.wait_for_selector(".fold summary:has-text('Why not?')")
    page.click(".fold summary:has-text('Why not?')")
    reason = page.locator(".absent div", has=page.locator("dt:text-is('alignment')")).inner_text()
    assert "no attention" in reason
    assert page.locator("[data-tab=alignment]").count() == 0  # no tab leads to it


def test_the_landing_page_explains_an_example_and_follows_edits(page, server, ids, runs):
    import anaphora as an

    page.goto(address(server, runs=ids["attentive"]))
    page.reload()
    page.wait_for_selector(".answer .said")
    model = an.load(runs / "attentive")
    shown = page.input_value("#input")
    assert shown  # a dev example stands in the box
    trace = model.probe(shown, what=("attribution",))
    assert page.get_attribute(".said", "data-text") == model.predict([shown])[0]
    read = "marks => marks.map(mark => Number(mark.dataset.v))"
    sums = trace.array("integrated_gradients", "target", "source").sum(0)
    assert page.eval_on_selector_all(".rests .token", read) == pytest.approx(sums.tolist(), abs=2e-5)
    page.click("button:text-is('occlusion')")
    falls = trace.array("occlusion", "target", "source").sum(0)
    assert page.eval_on_selector_all(".rests .token", read) == pytest.approx(falls.tolist(), abs=2e-5)
    page.fill("#input", TEXT)
    until(page, lambda: page.get_attribute(".said", "data-text") == model.predict([TEXT])[0])
    until(page, lambda: page.locator(".rests .token").count() == len(TEXT) + 1)
    page.click(".rests button.token >> nth=0")  # leave the first symbol out
    until(page, lambda: page.input_value("#input") == TEXT[1:])
    until(page, lambda: page.locator(".rests .token").count() == len(TEXT))
    page.click(".tags button.piece >> nth=1")  # one output symbol alone
    until(page, lambda: "o.output=2" in page.url)
    row = model.probe(TEXT[1:], what=("attribution",)).array("integrated_gradients", "target", "source")[1]
    until(
        page,
        lambda: (
            page.get_attribute(".piece >> nth=1", "aria-pressed") == "true"
            and page.eval_on_selector_all(".rests .token", read) != []
        ),
    )
    page.click("button:text-is('integrated gradients')")
    until(
        page,
        lambda: page.eval_on_selector_all(".rests .token", read) == pytest.approx(row.tolist(), abs=2e-5),
    )
    assert page.troubles == []


@pytest.mark.parametrize(
    ("run", "kind"),
    [("language", "next"), ("markov", "tags"), ("kalman", "forecast"), ("vectors", "classes")],
)
def test_every_kind_of_answer_is_shown(page, server, ids, run, kind):
    page.goto(address(server, runs=ids[run]))
    page.reload()
    page.wait_for_selector(f".answer[data-kind={kind}]")
    assert page.locator(".answer .said, .answer .piece, .answer .shares tr, .answer .ahead").count() >= 1
    assert page.locator(".problem").count() == 0
    assert page.troubles == []


def test_enter_sends_and_options_outlive_a_change_of_view(page, server, ids):
    opened(page, server, view="states", runs=ids["attentive"], text=TEXT)
    page.fill("label:has-text('layer') input", "1")
    page.keyboard.press("Enter")
    page.fill("main textarea >> nth=0", "abc")
    page.keyboard.press("Enter")
    until(page, lambda: "text=abc&" in page.url + "&")
    page.click("[data-tab=gates]")
    page.wait_for_selector(".picture[aria-label='Gate regimes']")
    assert page.input_value("label:has-text('layer') input") == "1"
    assert "text=abc&" in page.url + "&"


def test_arrow_keys_walk_through_tabs_and_runs(page, server, ids):
    opened(page, server, runs=ids["attentive"])
    page.wait_for_selector(".fold summary")
    page.focus("[data-tab=explain][aria-selected=true]")
    page.keyboard.press("ArrowRight")
    until(page, lambda: page.evaluate("document.activeElement.dataset.tab") == "learning")
    page.wait_for_selector(".picture[aria-label='Training curves']")
    page.keyboard.press("/")
    page.keyboard.type("lang")
    assert page.locator(".run").count() == 1
    page.focus("button.name")
    page.keyboard.press("Enter")
    until(page, lambda: f"runs={ids['language']}" in page.url)


def test_text_never_hides_a_value_and_leaving_clears_it(page, server, ids):
    opened(page, server, view="beam", runs=ids["attentive"], text=TEXT)
    mark = page.locator(".figure [data-v]").first

    def is_read():
        box = mark.bounding_box()  # every time: tabs that come later push the picture down
        page.mouse.move(box["x"] + 14, box["y"] + box["height"] / 2)  # on the text over the mark
        return page.get_attribute(".picture output", "data-value") == mark.get_attribute("data-v")

    mark.scroll_into_view_if_needed()
    until(page, is_read)
    assert page.locator(".tip").count() == 1
    page.mouse.move(3, 3)
    until(page, lambda: page.get_attribute(".picture output", "data-value") == "")
    assert page.locator(".tip").count() == 0


def test_a_head_is_opened_large_by_a_click(page, server, ids):
    opened(page, server, view="heads", runs=ids["deep/transformer"], text=TEXT)
    page.locator(".figure [data-v]").first.click()
    page.wait_for_selector(".picture[aria-label='Head 1 of layer 1']")
    assert "o.layer=1" in page.url


def test_the_code_that_is_shown_runs(page, server, ids, runs, tmp_path, monkeypatch):
    for view, text in (("alignment", TEXT), ("curves", ""), ("embeddings", "")):
        opened(page, server, view=view, runs=ids["attentive"], text=text)
        page.click("button:has-text('Code')")
        code = page.inner_text(".picture pre")
        monkeypatch.chdir(runs)
        try:
            exec(compile(code, view, "exec"), {})
            assert (runs / f"{view}.html").stat().st_size > 1000
        finally:
            (runs / f"{view}.html").unlink(missing_ok=True)


def test_pictures_can_be_kept_and_have_their_code(page, server, ids):
    opened(page, server, view="alignment", runs=ids["attentive"], text=TEXT)
    for form in ("SVG", "PNG", "CSV", "HTML"):
        with page.expect_download() as kept:
            page.click(f"button:has-text('Save {form}')")
        assert kept.value.suggested_filename == f"alignment.{form.lower()}"
    page.click("button:has-text('Code')")
    assert '.view("alignment")' in page.inner_text(".picture pre")


def test_runs_that_are_listed_late_are_not_said_to_be_missing(page, server, ids):
    held, answering, told = [], False, set()

    def late(route):
        route.continue_() if answering else held.append(route)

    page.route("**/api/runs", late)
    page.on("requestfinished", lambda request: told.add(request.url.split("?")[0].rsplit("/", 1)[-1]))
    page.goto(address(server, view="alignment", runs=ids["attentive"], text=TEXT))
    until(page, lambda: held and {"about", "views"} <= told)
    page.evaluate(
        "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"
    )
    assert page.locator(".welcome, .picture").count() == 0
    answering = True
    for route in held:
        route.continue_()
    page.wait_for_selector(".picture .figure svg")
    assert page.locator(".welcome").count() == 0


def test_a_growing_run_is_drawn_anew(page, server, ids, runs):
    import json

    opened(page, server, view="curves", runs=ids["attentive"])
    before = len(values(page))
    journal = runs / "attentive" / "metrics.jsonl"
    content = journal.read_bytes()
    try:
        with journal.open("ab") as file:
            for step in range(45, 60, 5):
                line = {
                    "step": step,
                    "epoch": 0,
                    "symbols": step,
                    "loss": 1.0,
                    "lr": 0.1,
                    "grad_norm": 1,
                    "clipped": 0,
                }
                file.write(json.dumps(line).encode() + b"\n")
        until(page, lambda: len(values(page)) >= before + 3)
    finally:
        journal.write_bytes(content)


def test_when_the_server_is_killed_the_page_says_so_and_recovers(page, runs):
    own = Server(runs)
    try:
        page.goto(own.url)
        page.wait_for_selector(".run")
        own.stop()
        page.wait_for_selector(".banner")
        port, token = own.port, own.token
        own.start(port)
        # a new start has a new token: the page is told to open the new address
        assert own.token != token
        page.wait_for_selector(".problem:has-text('token')")
        assert page.locator(".banner").count() == 0
        earlier = page.url
        page.goto(own.url)
        until(page, lambda: page.evaluate("localStorage.getItem('anaphora-token')") == own.token)
        until(page, lambda: "token" not in page.inner_text("main"))
        # an address of the earlier start is found again: this browser knows the token of the present one
        assert token in earlier
        page.goto(earlier)
        page.reload()
        page.wait_for_selector(".run")
        page.wait_for_selector(".answer")
        assert page.locator(".problem, .banner").count() == 0
    finally:
        own.stop()


@pytest.mark.parametrize("width", [360, 768, 1440])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_narrow_and_wide_light_and_dark(page, server, ids, width, theme):
    page.set_viewport_size({"width": width, "height": 800})
    opened(page, server, view="curves", runs=ids["attentive"], theme=theme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("nav.runs").is_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_serious_is_in_the_way_of_anybody(page, server, ids, theme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    opened(page, server, view="alignment", runs=ids["attentive"], text=TEXT, theme=theme)
    page.click("button:has-text('Numbers')")
    # the script is put in by the test tool, past the page's own policy
    found = (
        page.evaluate(axe.Axe().axe_script + "\n; axe.run()") if hasattr(axe.Axe(), "axe_script") else None
    )
    if found is None:
        found = axe.Axe().run(page).response
    serious = [
        f"{v['id']}: {v['nodes'][0]['html'][:120]}"
        for v in found["violations"]
        if v["impact"] in ("serious", "critical")
    ]
    assert serious == []


def test_a_broken_run_is_listed_with_the_reason(page, server, runs):
    odd = runs / "odd"
    odd.mkdir()
    try:
        os.mkfifo(odd / "config.json")
        page.goto(server.url)
        page.reload()
        shown = page.locator(".run", has=page.locator(".broken"))
        shown.wait_for()
        assert shown.count() == 1
        assert "odd" in shown.inner_text()
        assert "config.json cannot be read (is a named pipe, not a plain file)" in shown.inner_text()
        assert page.locator(".run").count() > 1
        assert page.troubles == []
    finally:
        (odd / "config.json").unlink()
        odd.rmdir()


def test_help_is_one_key_away(page, server):
    page.goto(server.url)
    page.wait_for_selector(".run")
    page.keyboard.press("?")
    assert page.locator("dialog[open]").is_visible()
    assert re.search("arrow|←", page.inner_text("dialog"))
