"""The site: every link leads somewhere, nothing is loaded from elsewhere, pages are small, equations are MathML."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import anaphora as an
from anaphora.cli import main
from anaphora.cli.catalog import COMMANDS
from anaphora.cli.reference import pages as command_pages
from anaphora.errors import AnaphoraError
from anaphora.learn.page import Lesson, documentation
from anaphora.learn.pictures import draw_one, drawn, keeping, slides
from anaphora.learn.site import build
from anaphora.learn.site.equations import equation, inline
from anaphora.learn.site.markdown import render
from anaphora.learn.site.reference import ROOMS, described, pages, public, spoken
from anaphora.probe.vectors import probe_vectors
from anaphora.tasks.registry import TASKS
from anaphora.views.registry import VIEWS


class Page(HTMLParser):
    """What a page links to, what it loads, and the names that can be linked to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.names: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.names.add(found.get("id", ""))
        if tag == "a":
            self.links.append(found["href"])
        for name in ("src", "href", "srcset", "data"):
            if name in found and tag != "a":
                self.loads.append(found[name])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Page]:
    out = tmp_path_factory.mktemp("site") / "out"
    build(out, more=command_pages())
    return {path: Page(path) for path in out.rglob("*.html")}


def test_every_page_is_there(site: dict[Path, Page]) -> None:
    root = min(site, key=lambda path: len(path.parts)).parent
    names = {path.relative_to(root).as_posix() for path in site}
    for source in documentation().rglob("*.md"):
        place = source.relative_to(documentation()).with_suffix(".html").as_posix()
        assert place.replace("README", "index") in names | {"README.html"}
    assert {"index.html", "contents.html", "contributing.html", "security.html", "changes.html"} <= names


def test_no_link_is_dead_and_nothing_is_loaded_from_elsewhere(site: dict[Path, Page]) -> None:
    dead = []
    for path, page in site.items():
        for target in page.loads:
            assert not re.match(r"(?:https?:)?//", target), f"{path.name} loads {target}"
            if not target.startswith("data:"):
                assert (path.parent / target).is_file(), f"{path.name} loads {target}"
        for target in page.links:
            if re.match(r"[a-z]+:", target):
                continue
            name, _, heading = target.partition("#")
            goal = (path.parent / name).resolve() if name else path
            if not goal.is_file() or (heading and heading not in site[goal].names):
                dead.append(f"{path.name}: {target}")
    assert dead == []


def test_every_page_is_small(site: dict[Path, Page]) -> None:
    for path, page in site.items():
        loaded = [path.parent / name for name in page.loads if not name.startswith("data:")]
        own = path.stat().st_size + sum(one.stat().st_size for one in loaded if one.suffix in (".css", ".js"))
        assert own < 1_000_000, path.name
    root = min(site, key=lambda path: len(path.parts)).parent
    assert (root / "search.js").stat().st_size < 1_000_000


def test_the_style_and_the_script_name_no_address() -> None:
    static = Path(an.__file__).parent / "learn" / "site" / "static"
    for path in static.iterdir():
        assert not re.search(r"https?://|@import|url\(", path.read_text(encoding="utf-8")), path.name


def test_a_folder_with_other_files_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.md").write_text("years of work")
    with pytest.raises(AnaphoraError, match="no site"):
        build(tmp_path)
    assert (tmp_path / "thesis.md").read_text() == "years of work"


def flat(markup: str) -> str:
    """The elements of MathML without their wrappers: ``msub(h,t)``."""

    def shown(one: ElementTree.Element) -> str:
        inner = ",".join(shown(child) for child in one)
        if one.tag in ("mi", "mn", "mo", "mtext"):
            return one.text or ""
        return inner if one.tag in ("mrow", "math") else f"{one.tag}({inner})"

    return shown(ElementTree.fromstring(markup))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("h_t", "msub(h,t)"),
        ("h_{t−1}", "msub(h,t,−,1)"),
        ("W_hh h", "msub(W,hh),mspace(),h"),
        ("x²", "msup(x,2)"),
        ("Kᵀ", "msup(K,T)"),
        ("wᵢ₋₁", "msub(w,i,−,1)"),
        ("σ_i^2", "msubsup(σ,i,2)"),
        ("Σ_{i=1}^{n} x_i", "munderover(Σ,i,=,1,n),mspace(),msub(x,i)"),
        ("√d_k", "msqrt(msub(d,k))"),
        ("→h_t", "msub(mover(h,→),t)"),
        ("c̃", "c̃"),
        ("a < b", "a,<,b"),
        ("N^(−α)", "msup(N,(,−,α,))"),
        ("x_", "x,_"),
    ],
)
def test_formulas(text: str, wanted: str) -> None:
    assert flat(inline(text)) == wanted


def test_columns_of_words_are_text() -> None:
    found = equation("RNN:  h_t = tanh(x_t)    any order <gives> the same sum\n")
    assert "<mtext>RNN:</mtext>" in found
    assert "<mtext>any order &lt;gives&gt; the same sum</mtext>" in found
    assert "<msub><mi>h</mi>" in found


def test_every_equation_of_the_pages_is_well_formed() -> None:
    count = 0
    for path in documentation().rglob("*.md"):
        for text in re.findall(
            r"^```equation\n(.*?)^```$", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        ):
            ElementTree.fromstring(equation(text))
            count += 1
    assert count > 40


def test_markup_in_a_page_is_text() -> None:
    page = render(
        "# A\n\n<script>alert(1)</script> and `<b>`, x_t\n\n[there](b.md) [not](c.md)\n",
        {"b.md": "b.html"}.get,
    )
    assert "<script>" not in page.body
    assert "&lt;script&gt;" in page.body
    assert '<a href="b.html">there</a> not' in page.body
    assert "<msub><mi>x</mi>" in page.body
    assert [(one.title, one.anchor) for one in page.sections] == [("A", "a")]


CODE = """import anaphora as an
from anaphora.probe.vectors import probe_vectors
picture = probe_vectors(["a", "b", "c"], [[1, 0], [0, 1], [1, 1]]).view("embeddings", word="a")
picture.save("words.svg")
"""
TINY = Lesson(
    7,
    "07-tiny",
    "Tiny",
    ("A1",),
    f"# 7. Tiny\n\n## The picture\n\n```python\n{CODE}```\n\n## Break it\n\n```python\n1 / 0\n```\n",
)


def test_pictures_of_a_lesson_are_drawn_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / TINY.name
    assert not drawn(TINY, place)
    draw_one(TINY, place)  # and stops before what breaks
    assert drawn(TINY, place)
    assert (place / "words.svg").read_text(encoding="utf-8").startswith("<svg")
    assert "<svg" in (place / "words.html").read_text(encoding="utf-8")
    changed = Lesson(7, "07-tiny", "Tiny", ("A1",), TINY.source + "\n")
    assert not drawn(changed, place)
    monkeypatch.setattr("anaphora.views.html.SCRIPT", "'other';")
    assert not drawn(TINY, place)  # its page would be another one


def test_slides_have_a_screen_for_each_picture(tmp_path: Path) -> None:
    one = an.learn.lessons()[0]
    (tmp_path / one.name).mkdir()
    (tmp_path / one.name / "a.svg").write_text("<svg/>")
    shown = slides(tmp_path)
    assert shown.count("<section>") == 1
    assert f'src="{one.name}/a.svg"' in shown
    assert "<math" in shown


def saved_by(one: Lesson) -> str:
    """The first picture that the lesson's code saves."""
    return str(re.findall(r'\.save\("(.+?\.svg)"\)', one.section("The picture"))[0])


def test_a_picture_stands_below_the_code_that_saves_it(tmp_path: Path) -> None:
    one, second = an.learn.lessons()[:2]
    for lesson, page in ((one, None), (second, "x" * 600_000)):
        kept = tmp_path / "pictures" / lesson.name
        kept.mkdir(parents=True)
        (kept / saved_by(lesson)).write_text("<svg><title>Two bears</title></svg>")
        if page:
            (kept / saved_by(lesson)).with_suffix(".html").write_text(page)
        with keeping(lesson, kept):
            pass
    build(tmp_path / "site", pictures=tmp_path / "pictures")
    for lesson in (one, second):  # one has no page, the other one that is too large
        text = (tmp_path / "site" / "learn" / f"{lesson.name}.html").read_text(encoding="utf-8")
        name = f"{lesson.name}/{saved_by(lesson)}"
        assert re.search(rf'</pre>\n<figure><img src="{name}" alt="Two bears"', text)
        assert (tmp_path / "site" / "learn" / name).is_file()
        assert "<iframe" not in text
    assert ">Open with values, numbers and code</a>" in text


def test_a_picture_with_values_is_a_page_within_the_page(tmp_path: Path) -> None:
    one = an.learn.lessons()[0]
    with keeping(one, tmp_path / "pictures" / one.name):
        probe_vectors(["a", "b"], [[1, 0], [0, 1]]).view("embeddings").save(tmp_path / saved_by(one))
    build(tmp_path / "site", pictures=tmp_path / "pictures")
    path = tmp_path / "site" / "learn" / f"{one.name}.html"
    live = f"{one.name}/{saved_by(one).removesuffix('.svg')}.html"
    found = re.findall(
        r'<figure><iframe src="(.+?)" title="(.+?)" height="(\d+)"', path.read_text(encoding="utf-8")
    )
    assert [(page, int(height) > 200) for page, _, height in found] == [(live, True)]
    loaded = [path.parent / name for name in Page(path).loads if not name.startswith("data:")]
    assert path.parent / live in loaded
    assert path.stat().st_size + sum(one.stat().st_size for one in loaded) < 1_000_000
    assert not re.search(
        r"https?://(?!www\.w3\.org/2000/svg)", (path.parent / live).read_text(encoding="utf-8")
    )


def test_the_command_builds_and_opens_the_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert main.run(["learn", "--site", str(tmp_path / "site"), "--open"]) == 0
    assert opened == [(tmp_path / "site" / "index.html").as_uri()]
    drawn: list[str] = []
    monkeypatch.setattr("anaphora.learn.pictures.draw", lambda folder, **_: drawn.append(folder) or [])
    assert main.run(["learn", "--site", str(tmp_path / "site"), "--pictures", str(tmp_path / "kept")]) == 0
    assert drawn == [str(tmp_path / "kept")]  # what is missing is drawn first
    assert main.run(["learn", "3", "--site", str(tmp_path / "site")]) == 2
    assert main.run(["learn", "--open"]) == 2
    assert "name a folder" in capsys.readouterr().err


def test_the_reference_has_every_public_name_view_and_format() -> None:
    found = pages()
    for room in ROOMS:
        page = found[f"api-{room.removeprefix('anaphora').strip('.').replace('.', '-') or 'anaphora'}"]
        for name, _ in public(room):
            assert f"## {spoken(room)}.{name}\n" in page
    assert re.findall(r"^## (.+)$", found["views"], re.MULTILINE) == sorted(VIEWS)
    assert "`.parquet`" in found["formats"]
    assert "```python\nan.search.greedy(" in found["api-search"]
    assert "an.Classifier(model='lstm', **settings)" in found["api-anaphora"]
    assert "an.nn.LSTM(\n    inputs: int,\n    hidden: int,\n" in found["api-nn"]
    assert "**Arguments**\n\n- `states`: K, how many states." in found["api-anaphora"]
    assert "## anaphora.runtime.load\n" in found["api-runtime"]


def test_the_reference_has_every_command_and_every_setting() -> None:
    found = command_pages()
    for name in COMMANDS:
        assert f"### anaphora {name}\n" in found["command-help"]
    assert "--force" in found["command-help"]
    assert "\x1b" not in found["command-help"]
    for task in TASKS.values():
        page = found[f"settings-{task.command}"]
        used = set().union(*(task.used(name) for name in task.presets))
        assert all(f"| `{key}` |" in page for key in (*used, *task.presets, *task.predicting.model_fields))


def example() -> None:
    """Add ``two`` numbers of :class:`~anaphora.nn.Cell`::

        class A:
            x = f.g(1)

    Equation:

        h_t = x_t

    >>> 1 + 1
    2
    """


def test_a_docstring_becomes_markdown() -> None:
    assert described(example) == (
        "Add `two` numbers of `Cell`:\n\n```python\nclass A:\n    x = f.g(1)\n```\n\nEquation:\n\n"
        "```equation\nh_t = x_t\n```\n\n```python\n>>> 1 + 1\n2\n```"
    )
