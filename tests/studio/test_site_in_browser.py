"""The site of the documentation in a browser, opened from the disk: no errors, search, both themes, narrow screens, axe."""

from __future__ import annotations

import pytest

from anaphora.cli.reference import pages
from anaphora.learn.site import build

pytestmark = pytest.mark.xdist_group("studio")
SOME = (
    "index.html",
    "contents.html",
    "learn/04-hello.html",
    "guides/inside.html",
    "reference/api-search.html",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site") / "out"
    build(out, more=pages())
    return out


def test_no_page_has_an_error(site, page):
    alike = {path for path in site.rglob("settings-*.html") if path.name != "settings-tag.html"}
    for path in sorted(set(site.rglob("*.html")) - alike):
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


@pytest.mark.parametrize("name", SOME)
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
