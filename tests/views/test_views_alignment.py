"""The alignment in every form: the numbers are the trace's, tokens are only ever text."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Array, Trace
from anaphora.views import registry
from anaphora.views.picture import Picture
from anaphora.views.text import columns

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "a\x1b[31mred\x9b",
    "abc\u202edef",
    "&\"'",
]


def trace_of(source: list[str], target: list[str], values: object = None) -> Trace:
    if values is None:
        values = np.random.default_rng(0).dirichlet(np.full(len(source), 0.3), len(target))
    array = Array(("target", "source"), np.asarray(values, np.float32).reshape(len(target), len(source)))
    return Trace(
        {"source": source, "target": target},
        {"alignment": array},
        {"alignment": "attention", "output": "given", "max_difference": 2.4e-7},
    )


@pytest.fixture
def small() -> Trace:
    return trace_of(["two", "hundred", "</s>"], ["zwei", "hundert", "</s>"], np.eye(3) * 0.8 + 0.2 / 3)


def test_the_terminal_picture() -> None:
    values = [[1.0, 0, 0, 0], [0, 0.1, 0.3, 0.6], [0, 0.9, 0.1, 0], [0, 0, 0, 1.0]]
    trace = trace_of(["twenty", "two", "!", "</s>"], ["zwei", "und", "zwanzig", "</s>"], values)
    assert trace.view("alignment").text(60, colour=False) == (
        "Alignment\n"
        "attention · output given\n"
        "\n"
        "        ╭ twenty\n"
        "        │ ╭ two\n"
        "        │ │ ╭ !\n"
        "        │ │ │ ╭ </s>\n"
        "   zwei ██\n"
        "    und   ░░▒▒▓▓\n"
        "zwanzig   ██░░\n"
        "   </s>       ██\n"
        "\n"
        "0   ░░▒▒▓▓██ 1  attention weight\n"
        "probe against model: max |Δ| = 2.4e-07\n"
    )


@pytest.mark.parametrize("width", [24, 40, 80, 200])
@pytest.mark.parametrize("size", [1, 12, 70])
def test_the_terminal_picture_keeps_to_its_width(width: int, size: int) -> None:
    words = ["a", "Donaudampfschifffahrtsgesellschaft", "日本語の文", "e\u0301t"]
    trace = trace_of([words[i % 4] for i in range(size)], [words[(i + 1) % 4] for i in range(size)])
    text = trace.view("alignment").text(width, colour=False)
    assert max(columns(line) for line in text.splitlines()) <= width
    assert len(text.splitlines()) >= size


def test_colour_is_used_only_when_wanted(small: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = small.view("alignment")
    assert "\x1b[48;2;" in picture.text(60, colour=True)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b" in picture.text(60)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in picture.text(60)


def numbers_of(markup: str) -> dict[tuple[int, int], np.float32]:
    found = re.findall(r'data-r="(\d+)" data-c="(\d+)" data-v="([^"]+)"', markup)
    return {(int(r), int(c)): np.float32(v) for r, c, v in found}


def test_numbers_in_svg_html_and_csv_are_exactly_the_trace() -> None:
    trace = trace_of(list("abcdefg"), list("hijkl"))
    picture = trace.view("alignment")
    values = trace.array("alignment", "target", "source")
    for markup in (picture.svg(), picture.html()):
        found = numbers_of(markup)
        assert len(found) == 5 * 7
        assert all(values[r, c] == v for (r, c), v in found.items())
    rows = list(csv.reader(io.StringIO(picture.csv())))
    assert rows[0][1:] == list("abcdefg")
    assert [row[0] for row in rows[1:]] == list("hijkl")
    np.testing.assert_array_equal(np.array([row[1:] for row in rows[1:]], np.float32), values)


def test_darker_means_more() -> None:
    trace = trace_of(["a", "b", "c"], ["x"], [[0.0, 0.26, 0.74]])
    levels = [int(x) for x in re.findall(r'class="f-c(\d+)"[^>]*data-r', trace.view("alignment").svg())]
    assert levels[0] == 0
    assert levels == sorted(levels)
    assert levels[2] == round(0.74 * 32)


def test_the_scale_shrinks_for_even_attention_and_says_so() -> None:
    svg = trace_of(list("abcdefghij"), ["x"], np.full((1, 10), 0.1)).view("alignment").svg()
    assert 'class="f-c32" x' in svg
    assert ">0.1</text>" in svg
    assert ">1</text>" not in svg


def test_the_svg_is_well_formed_and_describes_itself(small: Trace) -> None:
    root = ET.fromstring(small.view("alignment").svg())
    assert root.find(f"{SVG}title").text == "Alignment"  # type: ignore[union-attr]
    assert "zwei ← two" in (root.find(f"{SVG}desc").text or "")  # type: ignore[union-attr]
    texts = ["".join(t.itertext()) for t in root.iter(f"{SVG}text")]
    assert any("probe against model: max |Δ| = 2.4e-07" in t for t in texts)
    tooltips = [t.text for t in root.iter(f"{SVG}title")]
    assert "hundert ← hundred: 0.867" in tooltips


def test_labels_never_overlap_and_stay_inside_even_for_60_tokens() -> None:
    words = ["Donaudampfschifffahrt", "the", "▁orange", "WWWWWWWWWWWWWWWW", "."]
    for size in (1, 2, 12, 60):
        trace = trace_of([words[i % 5] for i in range(size)], [words[i % 5] for i in range(size)])
        root = ET.fromstring(trace.view("alignment").svg())
        width, height = float(root.get("width", 0)), float(root.get("height", 0))
        cells = [r for r in root.iter(f"{SVG}rect") if r.get("data-r") == "0"]
        step = float(cells[1].get("x", 0)) - float(cells[0].get("x", 0)) if size > 1 else 36
        slanted = [t for t in root.iter(f"{SVG}text") if t.get("transform")]
        assert len(slanted) == size
        for text in slanted:
            font = float(text.get("font-size", 0))
            assert font <= step * np.sin(np.radians(60)) + 1e-9
        for rect in root.iter(f"{SVG}rect"):
            assert float(rect.get("x", 0)) + float(rect.get("width", 0)) <= width
            assert float(rect.get("y", 0)) + float(rect.get("height", 0)) <= height


def test_hostile_tokens_are_only_text() -> None:
    picture = trace_of(HOSTILE, HOSTILE).view("alignment")
    for markup in (picture.svg(), picture.html()):
        assert "<img" not in markup
        assert "alert(1)</script>" not in markup
        assert markup.count("<script") == (2 if "<html" in markup else 0)
        assert "\x1b" not in markup
        assert "\u202e" not in markup
        assert "\\u202e" in markup
    ET.fromstring(picture.svg())
    text = picture.text(100, colour=False)
    assert not {"\x1b", "\x9b", "\u202e"} & set(text)
    assert "␛" in text


def test_the_page_asks_nobody_for_anything(small: Trace) -> None:
    html = small.view("alignment").html()
    assert re.findall(r"https?://[^\"' ]+", html) == ["http://www.w3.org/2000/svg"]  # a name, not an address
    assert not re.search(r"\b(src|href)=|url\(|@import|<link|<iframe|fetch\(|XMLHttpRequest|WebSocket", html)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html).group(1)  # type: ignore[union-attr]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert " style=" not in html
    assert not re.search(r"\son\w+=", html)


def test_the_page_shows_the_proof_the_words_and_the_numbers(small: Trace) -> None:
    html = small.view("alignment").html()
    assert "probe against model: max |Δ| = 2.4e-07" in html
    assert "Attention shows where the model read, not why" in html
    assert 'tabindex="0"' in html
    assert "<td>0.867</td>" in html
    data = json.loads(re.search(r'id="data">(.*?)</script>', html).group(1))  # type: ignore[union-attr]
    assert data["rows"] == ["zwei", "hundert", "</s>"]
    assert data["csv"] == small.view("alignment").csv()


@pytest.mark.parametrize(("source", "target"), [([], []), (["</s>"], ["</s>"]), ([], ["x"]), (["x"], [])])
def test_empty_and_single_symbols(source: list[str], target: list[str]) -> None:
    picture = trace_of(source, target, np.ones((len(target), len(source)))).view("alignment")
    ET.fromstring(picture.svg())
    assert picture.png().startswith(b"\x89PNG")
    assert "Alignment" in picture.text(80, colour=False)
    assert "<table>" in picture.html()


def test_png_has_the_colours_of_the_values() -> None:
    image_module = pytest.importorskip("PIL.Image")
    trace = trace_of(["a", "b"], ["x", "y"], np.eye(2))
    picture = trace.view("alignment")
    for dark in (False, True):
        image = image_module.open(io.BytesIO(picture.png(dark=dark)))
        rects = re.findall(
            r'<rect class="f-c\d+" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)"[^>]*data-r', picture.svg()
        )
        centres = [(2 * (float(x) + float(w) / 2), 2 * (float(y) + float(w) / 2)) for x, y, w in rects]
        colours = [image.getpixel((int(x), int(y))) for x, y in centres]
        expected = {False: [(20, 15, 64), (246, 244, 238)], True: [(253, 250, 208), (27, 31, 39)]}[dark]
        assert colours == [expected[0], expected[1], expected[1], expected[0]]


def test_without_pillow_a_sentence_says_what_to_do(small: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(AnaphoraError, match=r"anaphora\[image\]"):
        small.view("alignment").png()


def test_saving_by_ending(small: Trace, tmp_path: Path) -> None:
    picture: Picture = small.view("alignment")
    for ending in ("html", "svg", "png", "csv", "txt"):
        path = picture.save(tmp_path / "deep" / f"x.{ending}")
        assert path.stat().st_size > 50
    assert (tmp_path / "deep" / "x.svg").read_text() == picture.svg() == picture._repr_html_()
    with pytest.raises(AnaphoraError, match=r"one of \.html"):
        picture.save(tmp_path / "x.pdf")
    with pytest.raises(AnaphoraError, match="cannot be written"):
        picture.save(tmp_path / "deep" / "x.svg" / "y.svg")


def test_the_registry_knows_what_a_view_needs(small: Trace) -> None:
    assert registry.view("alignment").missing(small) is None
    for view in registry.VIEWS.values():
        assert view.reading.endswith(".")
        assert view.caution.endswith(".")
    without = Trace(small.tokens, {}, {})
    with pytest.raises(AnaphoraError, match=r"cannot be drawn of this trace: the model has no attention"):
        without.view("alignment")
    with pytest.raises(AnaphoraError, match="did you mean alignment"):
        small.view("alinement")
    with pytest.raises(AnaphoraError, match="no option size; it has head, layer"):
        small.view("alignment", size=3)


def test_one_head_of_one_layer() -> None:
    heads = np.random.default_rng(1).dirichlet(np.ones(3), (2, 4, 2)).astype(np.float32)
    trace = Trace(
        {"source": list("abc"), "target": list("xy")},
        {
            "alignment": Array(("target", "source"), heads[1].mean(0)),
            "cross_attention": Array(("layer", "head", "target", "source"), heads),
        },
        {},
    )
    picture = trace.view("alignment", layer=1, head=3)
    np.testing.assert_array_equal(picture.chart.values, heads[0, 2])
    assert picture.chart.subtitle == "attention of layer 1, head 3"
    np.testing.assert_array_equal(trace.view("alignment", layer=2).chart.values, heads[1].mean(0))
    with pytest.raises(AnaphoraError, match="layers 1 to 2 with heads 1 to 4"):
        trace.view("alignment", layer=3)
