"""The player on the page: numbers of `an.play`, by mouse and keyboard, for every kind of model that goes step by step."""

from __future__ import annotations

import urllib.parse

import pytest
from studio_names import TEXT
from test_studio_page import address
from test_studio_steer import overlapping, serious

import anaphora as an
from conftest import until

pytestmark = pytest.mark.xdist_group("studio")


@pytest.fixture(scope="module")
def model(runs):
    return an.load(runs / "attentive")


def shown(page):
    """Each equation's name and number, as the page has them."""
    return dict(
        page.eval_on_selector_all(
            ".equations li", "all => all.map(li => [li.dataset.equation, Number(li.dataset.value)])"
        )
    )


def expected(reel, step, unit):
    found = {}
    for one in reel.equations:
        found[one.name] = pytest.approx(reel.value(one.name, step, unit), rel=1e-6, abs=1e-9)
    return found


def at(page, server, run, **words):
    page.goto(address(server, view="play", runs=run, **words))
    page.reload()
    page.wait_for_selector(".equations li, .problem")


def test_numbers_follow_the_step_and_the_unit(page, server, ids, model, runs, monkeypatch):
    at(page, server, ids["attentive"], text=TEXT, **{"s.step": "2", "s.unit": "5"})
    reel = an.play(model, TEXT)
    assert shown(page) == expected(reel, 2, 5)
    boxes = dict(
        page.eval_on_selector_all(
            "[data-box]", "all => all.map(g => [g.dataset.box, Number(g.dataset.value)])"
        )
    )
    assert boxes["c"] == pytest.approx(reel.value("c", 2, 5), rel=1e-6)
    assert boxes["h′"] == pytest.approx(reel.value("h′", 2, 5), rel=1e-6)
    # the keyboard: a step on with the strip, another unit with the slider, and Space plays
    page.focus(".strip [aria-pressed=true]")
    page.keyboard.press("ArrowRight")
    until(page, lambda: shown(page) == expected(reel, 3, 5))
    page.focus(".slider:has-text('unit') input")
    page.keyboard.press("ArrowRight")
    until(page, lambda: shown(page) == expected(reel, 3, 6))
    assert "s.step=3" in page.url
    assert "s.unit=6" in page.url
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press(" ")
    until(page, lambda: shown(page) == expected(reel, len(reel.steps), 6))
    # a click on a row of cells chooses a unit
    row = page.locator(".vector canvas").nth(1)
    row.scroll_into_view_if_needed()
    row.click(position={"x": row.bounding_box()["width"] - 2, "y": 5})
    until(page, lambda: page.locator(f"[data-unit='{reel.units}']").count() == 1)
    # the line of Python makes the same reel
    page.click("summary:has-text('In Python')")
    monkeypatch.chdir(runs)
    names: dict = {}
    exec(compile(page.inner_text(".player pre"), "shown", "exec"), names)
    assert repr(names["reel"]) == repr(reel)
    assert page.troubles == []


def test_another_part_is_chosen_and_a_reload_keeps_it(page, server, ids, model):
    from anaphora.tasks.playing import parts

    at(page, server, ids["attentive"], text=TEXT)
    names = parts(model, TEXT)
    assert page.eval_on_selector_all(".choice option", "all => all.map(one => one.textContent)") == names
    number = next(i for i, name in enumerate(names, start=1) if name.startswith("attention"))
    page.select_option(".choice select", str(number))
    reel = an.play(model, TEXT, number)
    until(page, lambda: shown(page) == expected(reel, 1, 1))
    page.reload()
    page.wait_for_selector(".equations li")
    assert shown(page) == expected(reel, 1, 1)
    page.go_back()
    until(page, lambda: "c" in shown(page))


@pytest.mark.parametrize(
    ("run", "name"),
    [("language", "c"), ("markov", "α"), ("kalman", "m"), ("vectors", "c"), ("deep/transformer", "x")],
)
def test_every_kind_of_model_is_played(page, server, ids, run, name):
    words = {"s.part": "9"} if run == "deep/transformer" else {}
    at(page, server, ids[run], **words)
    if run == "deep/transformer":
        part = page.locator(".choice option", has_text="encoder layers at place 1").first.get_attribute(
            "value"
        )
        page.select_option(".choice select", part)
        until(page, lambda: name in shown(page))
    assert name in shown(page)
    assert page.locator(".diagram [data-box]").count() >= 2
    assert page.locator(".problem").count() == 0
    assert page.troubles == []


@pytest.mark.parametrize(("width", "theme"), [(360, "light"), (768, "dark"), (1440, "light"), (360, "dark")])
def test_it_fits_every_width_and_is_open_to_all(page, server, ids, width, theme):
    page.set_viewport_size({"width": width, "height": 800})
    at(page, server, ids["attentive"], text=TEXT, theme=theme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert overlapping(page, ".diagram rect") == []
    assert overlapping(page, ".equations li > span") == []
    assert overlapping(page, ".sliders > *, .playing > *") == []
    assert serious(page) == []


def test_what_is_not_there_is_one_sentence(client, ids):
    for wrong in ({"s.part": "x"}, {"s.from": "0"}, {"text": "a" * 30_000}):
        words = {"panel": "play", "run": ids["attentive"], "text": TEXT, **wrong}
        status, answer = client.json(f"/api/panel?{urllib.parse.urlencode(words)}")
        assert status == 422
        assert answer["error"].endswith(".")
