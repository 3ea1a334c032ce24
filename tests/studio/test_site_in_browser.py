"""The site of the documentation in a browser, opened from the disk: no errors, search, both themes, narrow screens, axe."""

from __future__ import annotations

import pytest

from anaphora.cli.reference import pages
from anaphora.learn.page import lesson
from anaphora.learn.pictures import keeping
from anaphora.learn.site import build
from conftest import until
from hand_made import heard
from sweeps import sweep

pytestmark = pytest.mark.xdist_group("studio")
SOME = (
    "index.html",
    "contents.html",
    "learn/04-hello.html",
    "guides/inside.html",
    "learn/04-hello/states.html",
    "reference/api-search.html",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """With the picture of one lesson: a spectrogram, which has pixels for both themes."""
    folder, one = tmp_path_factory.mktemp("site"), lesson(4)
    with keeping(one, folder / "pictures" / one.name):
        heard().view("spectrogram").save(folder / "states.svg")
    build(folder / "out", pictures=folder / "pictures", more=pages())
    return folder / "out"


def test_no_page_has_an_error(site, page):
    alike = {path for path in site.rglob("settings-*.html") if path.name != "settings-tag.html"}
    for path in sorted(set(site.rglob("*.html")) - alike)[:: sweep(5, 1)]:
        page.goto(path.as_uri(), wait_until="domcontentloaded")
        assert page.locator("h1").count() == 1, path
        assert page.troubles == [], path


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everyone_can_use_it(site, page, theme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    page.emulate_media(color_scheme=theme)
    for name in SOME if theme == "light" else SOME[2:4]:
        page.goto((site / name).as_uri())
        found = axe.Axe().run(page).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], name


def test_search_works_without_a_server(site, page):
    page.goto((site / "guides" / "classify.html").as_uri())
    page.keyboard.press("/")
    page.keyboard.type("vanishing gradients")
    page.wait_for_selector("#results li a")
    assert "Why it forgets" in page.inner_text("#results li a >> nth=0")
    page.keyboard.press("Enter")
    page.wait_for_url("**/learn/05-forgetting.html*")
    assert page.troubles == []


def test_the_theme_is_kept(site, page):
    page.emulate_media(color_scheme="light")
    page.goto((site / "index.html").as_uri())
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("#theme")
    page.goto((site / "learn" / "index.html").as_uri())
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    assert page.inner_text("#theme") == "Light"


@pytest.mark.parametrize("name", [name for name in SOME if "states" not in name])
def test_narrow_screens(site, page, name):
    page.set_viewport_size({"width": 360, "height": 800})
    page.goto((site / name).as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert not page.locator("#shelves").is_visible()
    page.click("#menu")
    assert page.locator("#shelves").is_visible()


def test_equations_take_room(site, page):
    page.goto((site / "learn" / "04-hello.html").as_uri())
    box = page.locator(".equation math").first.bounding_box()
    assert box["height"] > 30  # two rows
    assert box["width"] > 200


def test_a_picture_is_embedded_with_its_values_and_in_the_theme_of_the_page(site, page):
    page.emulate_media(color_scheme="light")
    page.goto((site / "learn" / "04-hello.html").as_uri())
    page.locator("figure iframe").scroll_into_view_if_needed()
    inside = page.frame_locator("figure iframe")
    assert inside.locator("svg image:visible").get_attribute("class") == "on-light"
    frame = page.locator("figure iframe")
    whole = inside.locator("main").bounding_box()["height"]
    page.wait_for_function("height => document.querySelector('iframe').clientHeight >= height - 1", arg=whole)
    page.click("#theme")
    inside.locator("svg image.on-dark").wait_for(state="visible")
    assert (
        inside.locator("body").evaluate("body => getComputedStyle(body).backgroundColor") == "rgb(18, 21, 27)"
    )
    inside.locator(".figure").focus()
    page.keyboard.press("ArrowRight")
    assert "Point at a value" not in inside.locator("output").inner_text()
    before = frame.bounding_box()["height"]
    inside.locator("summary", has_text="Numbers").click()
    page.wait_for_function("height => document.querySelector('iframe').clientHeight > height", arg=before)
    assert page.troubles == []


def test_an_embedded_picture_listens_to_its_page_alone(site, page):
    """What is no theme, and a height from elsewhere, change nothing."""
    page.goto((site / "learn" / "04-hello.html").as_uri())
    page.locator("figure iframe").scroll_into_view_if_needed()
    inside = page.frame_locator("figure iframe").locator("main")
    height = lambda: page.evaluate("document.querySelector('iframe').style.height")  # noqa: E731
    wanted = "main => `${Math.ceil(main.scrollHeight)}px`"
    until(page, lambda: height() == inside.evaluate(wanted))
    before = height()
    page.evaluate("window.postMessage({height: 9999}, '*')")
    page.evaluate("document.querySelector('iframe').contentWindow.postMessage({theme: '<b>'}, '*')")
    page.evaluate("document.querySelector('iframe').contentWindow.postMessage(null, '*')")
    # messages come in order: when the last was heard, all were
    heard = "window.heard = new Promise(done => addEventListener('message', event => event.data === 'last' && done(true)))"
    for place in (page.locator("body"), inside):
        place.evaluate(f"() => {{ {heard}; }}")
    page.evaluate("window.postMessage('last', '*')")
    page.evaluate("document.querySelector('iframe').contentWindow.postMessage('last', '*')")
    assert page.locator("body").evaluate("() => window.heard")
    assert inside.evaluate("() => window.heard")
    assert height() == before
    assert page.troubles == []
