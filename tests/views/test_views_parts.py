"""The parts all pictures share: text made safe, widths, colours."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anaphora.views.colour import DARK, LIGHT, luminance
from anaphora.views.text import clip, columns, ems, fold, pad, shorten, visible, wrap


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("zwölf ▁a 日本", "zwölf ▁a 日本"),
        ("a\x1b[2Jb\n\t", "a␛[2Jb␊␉"),
        ("\x7f\x9b", "␡\\u009b"),
        ("\u202eabc\u2066\u200f", "\\u202eabc\\u2066\\u200f"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_unseen_characters_are_spelled_out(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), st.integers(0, 20))
def test_widths_hold_for_any_text(text: str, width: int) -> None:
    shown = visible(text)
    assert columns(clip(shown, width)) <= width
    assert columns(pad(shown, width)) == width
    assert all(columns(line) <= max(width, 1) for line in wrap(shown, max(width, 1)))
    assert visible(shown) == shown


def test_wide_and_combining_characters() -> None:
    assert columns("日本") == 4
    assert columns("e\u0301") == 1
    assert clip("日本語", 5) == "日本…"
    assert shorten("internationalisation", 6).endswith("…")
    assert ems(shorten("internationalisation", 6)) <= 6
    assert fold("one two three", 4.5) == ["one two", "three"]


@pytest.mark.parametrize(("theme", "direction"), [(LIGHT, -1), (DARK, 1)])
def test_the_scale_is_monotone_in_lightness(theme: object, direction: int) -> None:
    steps = [luminance(colour) * direction for colour in theme.scale]  # type: ignore[attr-defined]
    assert steps == sorted(steps)
    assert len(set(steps)) == len(steps)


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_text_and_lines_can_be_read_on_the_page(theme: object) -> None:
    """WCAG 2 contrast: 4.5 : 1 for text, also for the coloured names of lines."""
    page = luminance(theme.page)  # type: ignore[attr-defined]
    for colour in (theme.text, theme.muted, *theme.series):  # type: ignore[attr-defined]
        bright, dim = max(page, luminance(colour)), min(page, luminance(colour))
        assert (bright + 0.05) / (dim + 0.05) >= 4.5, colour
