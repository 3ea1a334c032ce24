"""The page with many runs, long inputs, further views, lessons and new runs; at three widths, light and dark, without overlap."""

from __future__ import annotations

import json

import pytest
from test_studio_page import opened, values

import anaphora as an
from anaphora.learn.page import lessons
from anaphora.tasks.gathered import gather
from anaphora.tasks.looking import Asked
from conftest import Server, until

pytestmark = pytest.mark.xdist_group("studio")
OVERLAPS = """() => {
  const found = [];
  for (const drawn of document.querySelectorAll('.figure svg')) {
    const texts = [...drawn.querySelectorAll('text')].filter((one) => !one.getAttribute('transform') && one.textContent.trim());
    const boxes = texts.map((one) => ({ box: one.getBoundingClientRect(), text: one.textContent }));
    for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++) {
      const a = boxes[i].box, b = boxes[j].box;
      const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (across > 2 && down > 0.4 * Math.min(a.height, b.height)) found.push([boxes[i].text, boxes[j].text]);
    }
  }
  return found;
}"""


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A studio over 200 runs, each no more than what a list shows."""
    folder = tmp_path_factory.mktemp("many") / "runs"
    for i in range(200):
        one = folder / f"run-{i:03d}"
        one.mkdir(parents=True)
        config = {"task": ("classify", "tag")[i % 2], "settings": {"model": "lstm", "steps": 10}}
        (one / "config.json").write_text(json.dumps(config))
        line = {"step": 10, "dev": {"loss": (i * 37) % 200 / 100}}
        (one / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    server = Server(folder)
    yield server
    server.stop()


def test_two_hundred_runs_are_searched_sorted_and_filtered(page, many):
    page.goto(many.url)
    page.wait_for_selector("nav.runs .run")
    names = "nodes => nodes.map(node => node.textContent.trim())"
    shown = lambda: page.eval_on_selector_all("nav.runs button.name", names)  # noqa: E731
    assert len(shown()) == 200
    assert page.get_attribute("#search", "placeholder") == "search 200 runs"
    page.fill("#search", "run-01")
    until(page, lambda: len(shown()) == 10)
    page.fill("#search", "")
    page.select_option("nav.runs select[aria-label=Task]", "tag")
    until(page, lambda: len(shown()) == 100)
    assert "100 of 200 runs" in page.inner_text("nav.runs")
    page.select_option("nav.runs select[aria-label='Sort by']", "loss")
    losses = sorted((i * 37) % 200 for i in range(200) if i % 2)
    until(page, lambda: [(int(name[-3:]) * 37) % 200 for name in shown()[:5]] == losses[:5])
    box = page.evaluate(
        "() => { const l = document.querySelector('.list'); return [l.scrollHeight > l.clientHeight, document.documentElement.scrollHeight]; }"
    )
    assert box[0]  # the list has its own scroll
    page.locator("nav.runs button.name").first.focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("() => document.activeElement.textContent.trim()") == shown()[1]
    assert page.troubles == []


def test_a_long_input_is_drawn_and_can_be_panned_and_zoomed(page, server, ids):
    more = {"o.places": 2000, "o.units": 3}
    opened(page, server, view="states", runs=ids["language"], text="abc abd " * 250, **more)
    page.wait_for_selector(".figure svg, .figure canvas[data-drawn]")
    figure = page.locator(".figure")
    figure.focus()
    before = page.evaluate("() => document.querySelector('.figure').scrollWidth")
    page.keyboard.press("+")
    page.keyboard.press("+")
    until(page, lambda: page.evaluate("() => document.querySelector('.figure').scrollWidth") > 1.3 * before)
    left = lambda: page.evaluate("() => document.querySelector('.figure').scrollLeft")  # noqa: E731
    # the middle of what was seen stays in the middle: two steps of 5/4 from the left edge
    at = (1.25**2 - 1) / 2 * page.evaluate("() => document.querySelector('.figure').clientWidth")
    until(page, lambda: left() == pytest.approx(at, abs=2))
    page.wait_for_selector(".fold summary")  # the last to come of what stands above the figure
    figure.drag_to(figure, source_position={"x": 400, "y": 120}, target_position={"x": 200, "y": 120})
    until(page, lambda: left() == pytest.approx(at + 200, abs=2))
    figure.focus()
    page.keyboard.press("0")
    until(page, lambda: page.evaluate("() => document.querySelector('.figure').scrollWidth") == before)
    assert page.troubles == []


def test_views_of_many_examples_hold_the_numbers_of_the_run(page, server, ids, runs):
    opened(page, server, view="errors", runs=ids["attentive"])
    asked = Asked(an.load(runs / "attentive"), runs / "attentive")
    chart = gather(asked, "judged").view("errors").chart
    wanted = [
        v
        for one in chart.charts
        for shape in one.scene().shapes
        if (v := dict(getattr(shape, "data", ())).get("v"))
    ]
    assert sorted(map(float, values(page))) == pytest.approx(sorted(map(float, wanted)), abs=1e-6)
    example = page.locator(".figure rect[data-v]").last
    example.click(position={"x": 20, "y": 10})
    page.wait_for_selector(".answer .said")
    assert "view=explain" in page.url
    assert "example=" in page.url
    opened(page, server, view="texts", runs=ids["language"], text="abc abd\nabd")
    assert page.locator("textarea").input_value() == "abc abd\nabd"
    assert "2 of them yours" in page.inner_text(".figure")
    assert page.troubles == []


def test_lessons_are_read_in_the_page(page, server):
    page.goto(f"{server.url}&view=lessons")
    page.reload()
    page.wait_for_selector(".lessons option >> nth=2", state="attached")
    assert page.locator(".lessons option").count() == len(lessons()) + 1
    first = lessons()[0]
    page.select_option(".lessons select", str(first.number))
    page.wait_for_selector(".lessons article h2.title")
    assert first.title in page.inner_text("h2.title")
    code = [block.text.strip() for block in first.blocks() if block.kind == "python"]
    assert code[0] in [text.strip() for text in page.locator(".lessons pre").all_inner_texts()]
    place = page.url
    page.reload()
    page.wait_for_selector(".lessons article h2.title")
    assert page.url == place
    assert page.troubles == []


def test_a_new_run_is_shown_as_its_command(page, server):
    page.goto(f"{server.url}&view=start")
    page.reload()
    page.wait_for_selector(".start .command")
    page.select_option(".start select >> nth=0", "tag")
    until(page, lambda: "train tag names" in page.inner_text(".start .command"))
    page.fill("[data-setting=steps]", "7")
    page.keyboard.press("Tab")
    until(page, lambda: "--set steps=7" in page.inner_text(".start .command"))
    assert page.locator(".start button:text-is('Start')").count() == 0
    assert "--allow-training" in page.inner_text(".start")
    page.fill(".start input[type=text] >> nth=0", "../away")
    page.wait_for_selector(".start .problem")
    assert "a run's name" in page.inner_text(".start .problem")


def test_a_new_run_names_a_model_only_where_one_was_chosen(page, server):
    """The page shows what the command trains: nothing is named where the data decide."""
    page.goto(f"{server.url}&view=start")
    page.reload()
    page.wait_for_selector(".start .command")
    model = page.locator(".start select >> nth=2")
    page.select_option(".start select >> nth=0", "classify")
    until(page, lambda: "train classify" in page.inner_text(".start .command"))
    assert model.input_value() == ""
    assert "--model" not in page.inner_text(".start .command")
    assert "ngrams for texts" in page.inner_text(".start")
    model.select_option("lstm")
    until(page, lambda: "--model lstm" in page.inner_text(".start .command"))
    page.select_option(".start select >> nth=0", "tag")  # of taggers none is assumed
    until(page, lambda: "train tag" in page.inner_text(".start .command"))
    assert model.input_value() == "bilstm-crf"


VIEWS_SHOWN = [
    ("states", "language", "abc abd"),
    ("lens", "language", "abc abd"),
    ("connectivity", "language", "abc abd"),
    ("trajectory", "language", "abc abd"),
    ("jacobians", "language", "abc abd"),
    ("units", "language", ""),
    ("data", "attentive", ""),
    ("errors", "attentive", ""),
    ("hmm", "markov", "a b c"),
    ("curves", "attentive", ""),
]


@pytest.mark.parametrize("width", [360, pytest.param(768, marks=pytest.mark.slow), 1440])
def test_no_texts_overlap_at_any_width_light_and_dark(page, server, ids, width):
    page.set_viewport_size({"width": width, "height": 900})
    for number, (view, run, text) in enumerate(VIEWS_SHOWN):
        opened(page, server, view=view, runs=ids[run], text=text, theme=("light", "dark")[number % 2])
        assert page.locator(".problem").count() == 0, (view, page.inner_text(".problem"))
        assert page.evaluate(OVERLAPS) == [], view
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width, view
    assert page.troubles == []


def test_new_parts_of_the_page_have_no_findings_of_axe(page, server, ids):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    for words in (
        {"view": "start"},
        {"view": "lessons", "example": "5"},
        {"view": "errors", "runs": ids["attentive"]},
    ):
        page.goto(f"{server.url}&" + "&".join(f"{key}={value}" for key, value in words.items()))
        page.reload()
        page.wait_for_selector(".start .command, .lessons article, .picture .figure svg")
        found = axe.Axe().run(page).response["violations"]
        assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []
