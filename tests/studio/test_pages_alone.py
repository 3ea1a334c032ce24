"""Pages that stand alone, in a browser: their pixels, both themes, narrow screens, and nothing that runs."""

from __future__ import annotations

import pytest

from anaphora.views.colour import DARK, LIGHT, rgb
from conftest import colour_at
from hand_made import EVIL, heard, looked, seen

pytestmark = pytest.mark.xdist_group("studio")
TRACES = {"captions": seen, "glimpses": looked, "spectrogram": heard}


@pytest.fixture
def opened(page, tmp_path):
    def opened(name, trace, *, width=1280, theme="light"):
        path = trace.view(name).save(tmp_path / f"{name}.html")
        page.emulate_media(color_scheme=theme)
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(path.as_uri())
        page.wait_for_selector(".figure svg image:visible")
        return page

    return opened


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize("width", [360, 1280])
def test_pages_fit_and_complain_of_nothing(opened, name, theme, width):
    page = opened(name, TRACES[name](), width=width, theme=theme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.troubles == []


def test_the_pixels_on_the_screen_are_those_of_the_picture(opened):
    page = opened("captions", seen())
    first, second = page.locator("svg image").nth(0), page.locator("svg image").nth(1)
    assert colour_at(first, 12 / 48, 8 / 32) == (220, 30, 30)
    assert colour_at(first, 36 / 48, 24 / 32) == (30, 60, 220)
    assert colour_at(second, 8 / 48, 7 / 32) == (220, 30, 30)  # attended
    assert colour_at(second, 36 / 48, 24 / 32) != (30, 60, 220)  # faded


@pytest.mark.parametrize(("theme", "colours"), [("light", LIGHT), ("dark", DARK)])
def test_the_spectrogram_is_shown_in_the_colours_of_the_theme(opened, theme, colours):
    page = opened("spectrogram", heard(), theme=theme)
    image = page.locator(f"svg image.on-{theme}")
    assert page.locator("svg image:visible").count() == 1
    assert colour_at(image, 0.505, (19 - 5 + 0.5) / 20) == rgb(colours.scale[32])
    assert colour_at(image, 0.3, 0.3) == rgb(colours.scale[0])


def test_values_are_read_by_pointer_and_keys(opened):
    page = opened("captions", seen())
    page.locator("svg [data-v]").nth(12 + 11).hover()
    assert page.inner_text("output") == "red: row 3, column 4: 0.0273"
    page.locator(".figure").focus()
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    assert page.inner_text("output") == "a: row 1, column 1: 0.7000"


@pytest.mark.parametrize("name", TRACES)
def test_names_of_files_and_words_are_never_run(opened, page, name):
    fired = []
    page.on("dialog", lambda dialog: (fired.append(dialog.message), dialog.dismiss()))
    words = {"captions": (EVIL, "b", "c"), "glimpses": (EVIL, "b", "c"), "spectrogram": (EVIL, "b")}[name]
    opened(name, TRACES[name](words, text=f"{EVIL}.png", reference=EVIL))
    assert page.locator("img").count() == 0
    assert fired == []
    assert page.troubles == []
    assert f"{EVIL}.png" in page.text_content("svg")
