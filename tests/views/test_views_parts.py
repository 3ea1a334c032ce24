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
        ("a\x1b[2Jb\n\t", "a␛[2Jb↵␉"),
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


def test_a_path_over_a_heatmap_is_drawn_through_its_cells():
    import numpy as np

    from anaphora.views.heatmap import Heatmap
    from anaphora.views.scene import Path, Rect

    chart = Heatmap(
        "t", "", np.eye(3, dtype=np.float32), ["x", "y", "z"], ["a", "b", "c"], "", "", "p", path=[0, 2, 1]
    )
    shapes = chart.scene().shapes
    (line,) = [shape for shape in shapes if isinstance(shape, Path) and shape.role == "s1"]
    cells = {
        tuple(dict(s.data)[k] for k in "rc"): s for s in shapes if isinstance(s, Rect) and "r" in dict(s.data)
    }
    for column, (x, y) in enumerate(line.points):
        cell = cells[str(chart.path[column]), str(column)]
        assert cell.x <= x <= cell.x + cell.width
        assert cell.y <= y <= cell.y + cell.height


def test_eight_lines_have_eight_colours_and_those_of_a_run_one():
    from anaphora.views.colour import DARK, LIGHT
    from anaphora.views.lines import Line, Lines
    from anaphora.views.scene import Path

    for theme in (LIGHT, DARK):
        assert len({theme.colour(f"s{i}") for i in range(8)}) == 8
    chart = Lines(
        "t",
        "",
        "x",
        "y",
        [Line("train", [1, 2], [1, 2], colour=3, dashed=True), Line("dev", [1, 2], [2, 1], colour=3)],
    )
    drawn = [shape for shape in chart.scene().shapes if isinstance(shape, Path) and shape.role == "s3"]
    assert {shape.dashed for shape in drawn} == {True, False}


def test_a_chart_is_as_wide_as_there_is_room():
    from anaphora.views.lines import Line, Lines
    from anaphora.views.room import fitted

    chart = Lines("t", "", "x", "y", [Line("a", [1, 2], [1, 2])])
    usual = chart.scene().width
    for width in (340, 700, 1300):
        with fitted(width):
            assert abs(chart.scene().width - width) < 3
    assert chart.scene().width == usual


def test_symbols_stand_on_the_axis_and_plots_of_characters_are_joined():
    from anaphora.views.lines import Line, Lines
    from anaphora.views.scene import Label

    chart = Lines("t", "", "symbol", "y", [Line("a", [1, 2, 3], [0, 10, 0])], symbols=["the", "dog", "\n"])
    texts = [shape.text for shape in chart.scene().shapes if isinstance(shape, Label)]
    assert {"the", "dog", "↵"} <= set(texts)
    drawn = chart.text(60, colour=False).splitlines()
    assert sum("·" in line for line in drawn) >= 5  # the way up and down
    assert any(line.strip().startswith("10 ┤") for line in drawn)
    assert any("the" in line and "dog" in line for line in drawn)


def test_words_of_one_line_are_laid_out_by_the_renderer():
    from anaphora.views.samples import Film, Strip
    from anaphora.views.svg import render

    film = Film("t", "", [Strip("in", "", [(1, "will mill"), (2, "will fill")])])
    drawn = render(film.scene())
    assert '<tspan class="f-text">will </tspan><tspan class="f-s1">fill </tspan>' in drawn


def test_a_dashed_line_keeps_its_ends_and_has_gaps():
    from anaphora.views.png import dashes

    strokes = dashes(((0.0, 0.0), (20.0, 0.0)), on=5, off=4)
    assert [(round(s[0][0]), round(s[-1][0])) for s in strokes] == [(0, 5), (9, 14), (18, 20)]


def test_a_word_is_meant_rather_than_a_piece_that_is_spelled_alike():
    import numpy as np

    from anaphora.probe.vectors import probe_vectors
    from anaphora.views.registry import picture

    names = ["man", "▁man", "▁king", "▁woman", "▁queen"]
    vectors = np.array([[9, 9, 9], [1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 1]], float)
    drawn = picture(probe_vectors(names, vectors), "embeddings", analogy="king,man,woman")
    assert "▁king − ▁man + ▁woman: ▁queen" in drawn.text(100, colour=False)
