"""Models that see and hear in the studio: dev examples by number, pixels that are the picture's, no files from the page."""

from __future__ import annotations

import base64
import io
import urllib.parse

import numpy as np
import pytest

import anaphora as an
from anaphora.views.colour import DARK, LIGHT, rgb
from conftest import colour_at, settled, until
from hand_made import EVIL, scene

pytestmark = pytest.mark.xdist_group("studio")
VIEWS = {"captions": "captioner", "spectrogram": "listener", "glimpses": "gazer"}


@pytest.fixture(scope="module")
def folder(senses):
    return senses


def pixels(png):
    pil = pytest.importorskip("PIL.Image")
    return np.asarray(pil.open(io.BytesIO(base64.b64decode(png))))


def images(found):
    return [shape for shape in found["pictures"][0]["shapes"] if shape["kind"] == "image"]


def test_the_picture_that_is_sent_is_the_dev_example(asked, known, senses):
    status, found = asked.picture("captions", [known["captioner"]], text="#2")
    assert status == 200, found
    seen = an.load(senses / "captioner").probe(np.roll(scene(), 4, axis=1)).array("picture")
    assert pixels(images(found)[0]["png"]).tolist() == seen.tolist()
    assert "dark" not in images(found)[0]
    status, found = asked.picture("spectrogram", [known["listener"]], text="#1")
    (image,) = images(found)
    light, dark = (pixels(image[name]) for name in ("png", "dark"))
    assert light.shape == dark.shape
    assert set(map(tuple, dark.reshape(-1, 3).tolist())) <= {rgb(colour) for colour in DARK.scale}
    assert set(map(tuple, light.reshape(-1, 3).tolist())) <= {rgb(colour) for colour in LIGHT.scale}


@pytest.mark.parametrize("view", VIEWS)
def test_numbers_sent_are_those_of_the_trace(asked, known, senses, view):
    from anaphora.tasks.looking import Asked
    from anaphora.views.registry import picture

    run = senses / VIEWS[view]
    model = an.load(run)
    drawn = picture(model.probe(Asked(model, run).find("#3")[0]), view).chart.scene()
    expected = [dict(shape.data)["v"] for shape in drawn.shapes if getattr(shape, "data", ())]
    _, found = asked.picture(view, [known[VIEWS[view]]], text="#3")
    sent = [shape["data"]["v"] for shape in found["pictures"][0]["shapes"] if "data" in shape]
    assert [float(v) for v in sent] == pytest.approx([float(v) for v in expected], rel=1e-4, abs=1e-6)
    assert ".find('#3')" in found["pictures"][0]["code"]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(
    "text", ["/etc/passwd", "../runs/captioner/config.json", "file:///etc/passwd", "x.png", "#"]
)
def test_a_page_names_no_files(asked, known, view, text):
    status, found = asked.picture(view, [known[VIEWS[view]]], text=text)
    assert status == 422
    assert "name one of the run's dev examples" in found["error"] or "not numbers" in found["error"]
    assert "root:" not in found["error"]


@pytest.mark.parametrize("text", ["#0", "#4", "#99999999"])
def test_only_examples_that_there_are(asked, known, text):
    status, found = asked.picture("captions", [known["captioner"]], text=text)
    assert (status, "dev examples #1 to #3" in found["error"]) == (422, True)


def test_runs_are_compared_and_one_that_cannot_says_why(asked, known):
    _, found = asked.picture("captions", [known["captioner"], known["gazer"]], text="#1")
    assert ["error" in picture for picture in found["pictures"]] == [False, True]
    assert "sees no picture or has no attention" in found["pictures"][1]["error"]


@pytest.mark.parametrize(
    ("form", "start"), [("svg", b"<svg"), ("png", b"\x89PNG"), ("csv", b"number,"), ("html", b"<!d")]
)
def test_they_are_saved_in_every_form(asked, known, form, start):
    status, _, body = asked.get(f"/api/save?view=captions&run={known['captioner']}&text=%231&form={form}")
    assert (status, body[: len(start)]) == (200, start)


# ---------------------------------------------------------------------- in the browser


def opened(page, studio, **words):
    page.goto(f"{studio.url}&{urllib.parse.urlencode(words)}")
    page.reload()
    page.wait_for_selector(".picture .figure *, .problem")
    settled(page)
    return page


def await_colour(page, x, y, allowed):
    """Wait for one of these colours at a share of the first image's width and height."""
    image = page.locator(".figure svg image").first
    until(page, lambda: colour_at(image, x, y) in allowed)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(("theme", "width"), [("light", 1280), ("dark", 360)])
def test_views_open_light_and_dark_wide_and_narrow(page, studio, known, view, theme, width):
    page.set_viewport_size({"width": width, "height": 800})
    opened(page, studio, view=view, runs=known[VIEWS[view]], text="#1", theme=theme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".figure svg image").count() >= 1
    assert page.troubles == []


def test_the_screen_shows_the_pixels_of_the_picture(page, studio, known, senses):
    opened(page, studio, view="captions", runs=known["captioner"], text="#1")
    seen = an.load(senses / "captioner").probe(scene()).array("picture")
    for x, y in ((0.26, 0.26), (0.76, 0.76), (0.05, 0.9)):
        expected = seen[int(y * seen.shape[0]), int(x * seen.shape[1])]
        await_colour(page, x, y, {tuple(expected.tolist())})


def test_the_theme_changes_the_colours_of_the_sound(page, studio, known):
    opened(page, studio, view="spectrogram", runs=known["listener"], text="#1", theme="light")
    light, dark = ({rgb(colour) for colour in theme.scale} for theme in (LIGHT, DARK))
    await_colour(page, 0.5, 0.5, light)
    page.click("button:text-is('Dark')")
    await_colour(page, 0.5, 0.5, dark - light)
    assert page.troubles == []


def test_examples_are_gone_through_by_buttons(page, studio, known):
    opened(page, studio, view="curves", runs=known["captioner"])
    page.click("[data-tab=attention]")
    page.click("[data-tab=captions]")
    page.wait_for_selector(".figure svg image")
    assert page.input_value("textarea >> nth=0") == "#1"
    assert page.locator("button[aria-label='example before']").is_disabled()
    page.click("button[aria-label='next example']")
    page.wait_for_selector(".figure text:has-text('dev example 2')")
    assert "text=%232" in page.url
    page.click("button[aria-label='next example']")
    page.click("button[aria-label='next example']")
    page.wait_for_selector(".problem:has-text('#1 to #3')")
    page.click("button[aria-label='example before']")
    page.wait_for_selector(".figure text:has-text('dev example 3')")


def test_values_under_the_pointer_and_words_that_do_not_run(page, studio, known):
    fired = []
    page.on("dialog", lambda dialog: (fired.append(dialog.message), dialog.dismiss()))
    opened(page, studio, view="captions", runs=known["captioner"], text="#2")
    assert f"wanted: blue {EVIL}" in page.text_content(".figure svg")
    page.locator(".figure").focus()
    page.keyboard.press("ArrowRight")
    shown = page.get_attribute(".picture output", "data-value")
    assert 0 <= float(shown) <= 1
    assert "row 1, column 1" in page.inner_text(".picture output")
    assert page.locator("img").count() == 0
    assert fired == []
    assert page.troubles == []


def test_on_a_canvas_images_lie_below_what_is_drawn_over_them(page, studio, known):
    """More shapes than an SVG bears: the picture is padded with points, and one red square is laid over its image."""

    def padded(route):
        answer = route.fetch()
        found = answer.json()
        (drawn,) = found["pictures"]
        image = next(shape for shape in drawn["shapes"] if shape["kind"] == "image")
        red = {"kind": "rect", "role": "s1", "x": image["x"], "y": image["y"], "width": 10, "height": 10}
        point = {"kind": "dot", "role": "page", "x": 1, "y": 1, "radius": 0.5}
        drawn["shapes"] = [image, red, *([point] * 5000)]
        page.place = image
        route.fulfill(response=answer, json=found)

    page.route("**/api/picture*", padded)
    page.goto(
        f"{studio.url}&{urllib.parse.urlencode({'view': 'captions', 'runs': known['captioner'], 'text': '#1'})}"
    )
    page.wait_for_selector(".figure canvas[data-drawn]")
    image = page.place
    # read off the canvas, not off the screen, where the rest of the page may still move it
    shot = pixels(page.evaluate("document.querySelector('.figure canvas').toDataURL().split(',')[1]"))

    def at(x, y):
        return tuple(shot[int(image["y"] + y), int(image["x"] + x), :3].tolist())

    assert at(5, 5) == rgb(LIGHT.series[1])
    seen = pixels(image["png"])
    for x, y in ((0.3, 0.3), (0.8, 0.8)):
        row, column = int(y * seen.shape[0]), int(x * seen.shape[1])
        assert at(x * image["width"], y * image["height"]) == tuple(seen[row, column].tolist())
    assert page.troubles == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_serious_is_in_the_way_of_anybody(page, studio, known, theme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    opened(page, studio, view="captions", runs=known["captioner"], text="#1", theme=theme)
    page.click("button:has-text('Numbers')")
    found = axe.Axe().run(page).response
    serious = [v["id"] for v in found["violations"] if v["impact"] in ("serious", "critical")]
    assert serious == []
