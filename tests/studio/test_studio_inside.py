"""Compare, intervene and follow the film: by the server and on the page, with the numbers of the probe."""

from __future__ import annotations

import json
import urllib.parse

import numpy as np
import pytest
from studio_names import TEXT
from test_studio_page import address, opened, values

import anaphora as an
from anaphora.probe.film import film
from anaphora.views.registry import picture_together
from conftest import settled, until

pytestmark = pytest.mark.xdist_group("studio")
CHANGES = [
    {"kind": "Clamp", "where": "decoder", "unit": 3, "value": 1.0},
    {"kind": "Attend", "at": 1, "to": 2, "weight": 0.8},
]
MADE = [an.Clamp(where="decoder", unit=3, value=1.0), an.Attend(at=1, to=2, weight=0.8)]


def intervened(client, run, changes, **words):
    return client.json(
        "/api/panel?"
        + urllib.parse.urlencode({"panel": "intervene", "run": run, "s.do": json.dumps(changes), **words})
    )


# ---------------------------------------------------------------------- several runs in one picture
def test_gradients_of_several_runs_are_lines_in_one_axis(client, ids, runs):
    chosen = [ids["attentive"], ids["deep/transformer"]]
    status, found = client.picture("gradients", chosen, text=TEXT)
    assert status == 200
    (one,) = found["pictures"]
    assert one["run"] == "attentive, deep/transformer"
    traces = {
        name: an.load(runs / name).probe(TEXT, what=("gradients",))
        for name in ("attentive", "deep/transformer")
    }
    same = picture_together(traces, "gradients").chart
    assert [line.name for line in same.charts[0].lines] == list(traces)
    shown = [float(shape["data"]["v"]) for shape in one["shapes"] if shape.get("data")]
    expected = [y for chart in same.charts for line in chart.lines for y in line.y if y > 0]
    assert sorted(shown) == pytest.approx(sorted(expected), rel=2e-3)


def test_alignments_share_their_rows_and_scale_and_have_a_difference(client, ids, runs):
    status, found = client.picture("alignment", [ids["attentive"], f"{ids['attentive']}@0"], text=TEXT)
    assert status == 200
    m, then = an.load(runs / "attentive"), an.load(runs / "attentive", frame=0)
    trace = m.probe(TEXT)
    other = then.probe(TEXT, trace.facts["output_text"])
    a, b = trace.array("alignment"), other.array("alignment")
    shown = [float(shape["data"]["v"]) for shape in found["pictures"][0]["shapes"] if shape.get("data")]
    assert shown == pytest.approx([*a.ravel(), *b.ravel(), *(b - a).ravel()], abs=1e-6)
    assert found["pictures"][0]["run"] == "attentive, attentive at step 0"


def test_a_run_that_has_no_such_picture_says_why_beside_the_others(client, ids):
    status, found = client.picture("gradients", [ids["language"], ids["markov"]], text="a b")
    assert status == 200
    drawn, refused = found["pictures"]
    assert "shapes" in drawn
    assert refused["run"] == "markov"
    assert "error" in refused


def test_the_code_of_several_runs_runs(client, ids, runs, monkeypatch):
    _, found = client.picture("alignment", [ids["attentive"], f"{ids['attentive']}@0"], text=TEXT)
    monkeypatch.chdir(runs)
    try:
        exec(compile(found["pictures"][0]["code"], "code", "exec"), {})
        assert (runs / "alignment.html").stat().st_size > 1000
    finally:
        (runs / "alignment.html").unlink(missing_ok=True)


# ---------------------------------------------------------------------- the film
def test_every_view_follows_the_film(client, ids, runs):
    status, found = client.json(f"/api/film?run={ids['attentive']}")
    assert (status, found["frames"]) == (200, [0, 20, 40])
    then = an.load(runs / "attentive", frame=20).probe(TEXT)
    for asked in ("20", "33"):  # the frame there, or the one before
        _, drawn = client.picture("alignment", [f"{ids['attentive']}@{asked}"], text=TEXT)
        shown = [float(shape["data"]["v"]) for shape in drawn["pictures"][0]["shapes"] if shape.get("data")]
        assert shown == pytest.approx(then.array("alignment").ravel().tolist(), abs=1e-6)
        assert "frame=20" in drawn["pictures"][0]["code"]
    query = urllib.parse.urlencode({"run": f"{ids['attentive']}@0", "text": TEXT})
    _, explained = client.json(f"/api/explain?{query}")
    first = an.load(runs / "attentive", frame=0).probe(TEXT)
    assert explained["answer"]["log_p"] == pytest.approx(float(first.array("log_probs").sum()), abs=1e-5)
    assert explained["run"] == "attentive at step 0"


@pytest.mark.parametrize("step", ["x", "1" * 40, "-1", "٣"])
def test_a_frame_that_is_no_number_is_refused(client, ids, step):
    run = urllib.parse.quote(f"{ids['attentive']}@{step}")
    status, found = client.json(f"/api/picture?view=alignment&text=ab&run={run}")
    assert status == 422
    assert "no film" in found["error"]


def test_runs_without_a_film_say_so(client, ids):
    assert client.json(f"/api/film?run={ids['markov']}") == (200, {"frames": []})
    status, found = client.picture("change", [ids["markov"]])
    assert status == 422
    assert "no film" in found["error"]


def test_initial_against_trained_weights(client, ids, runs):
    trace = film(runs / "attentive")
    then = an.load(runs / "attentive", frame=0).model_.state_dict()
    now = an.load(runs / "attentive", frame=40).model_.state_dict()
    away = np.sqrt(sum(float((now[k].double() - then[k].double()).square().sum()) for k in now))
    begun = np.sqrt(sum(float(then[k].double().square().sum()) for k in then))
    row = next(r for r in trace.tables["moved"] if r["step"] == 40 and r["part"] == "all")
    assert row["moved"] == pytest.approx(away / begun, rel=1e-9)
    status, found = client.picture("change", [ids["attentive"], ids["deep/transformer"]])
    assert status == 200
    assert len(found["pictures"]) == 1
    assert "attentive, step 40" in json.dumps(found["pictures"][0]["table"])


# ---------------------------------------------------------------------- interventions
def test_an_intervention_has_the_numbers_of_the_effect(client, ids, runs):
    status, found = intervened(client, ids["attentive"], CHANGES, text=TEXT)
    assert status == 200
    effect = an.load(runs / "attentive").effect(TEXT, MADE)
    assert found["delta"] == pytest.approx(effect.delta, abs=1e-6)
    assert found["loss"] == pytest.approx([effect.loss_before, effect.loss_after], abs=1e-6)
    assert found["after"]["log_p"] == pytest.approx(float(effect.after.array("log_probs").sum()), abs=1e-5)
    assert [one["code"] for one in found["changes"]] == [one.code() for one in MADE]
    assert found["places"]["states"][0]["units"] == 16
    # the next question of the same model meets it unchanged
    _, plain = intervened(client, ids["attentive"], [], text=TEXT)
    assert plain["delta"] == 0


def test_the_code_of_an_intervention_runs(client, ids, runs, monkeypatch, capsys):
    _, found = intervened(
        client, ids["attentive"], [*CHANGES, {"kind": "Patch", "at": 1, "source": "fed"}], text=TEXT
    )
    monkeypatch.chdir(runs)
    exec(compile(found["code"], "code", "exec"), {})
    assert float(capsys.readouterr().out.split()[0]) == pytest.approx(found["delta"], abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ("{", "JSON"),
        ("{}", "list"),
        ('[{"kind": "exec"}]', "one of Silence"),
        ('[{"kind": "Clamp", "unit": 3, "depth": 1}]', "other words"),
        ('[{"kind": "Clamp", "unit": "3"}]', "counts from 1"),
        ('[{"kind": "Clamp", "value": "x"}]', "finite"),
        ('[{"kind": "Silence"}]', "no attention with heads"),
        ("[" + ",".join(['{"kind": "Clamp"}'] * 9) + "]", "at most 8"),
    ],
)
def test_a_change_that_cannot_be_made_is_one_sentence(client, ids, changes, reason):
    query = urllib.parse.urlencode(
        {"panel": "intervene", "run": ids["attentive"], "s.do": changes, "text": TEXT}
    )
    status, found = client.json(f"/api/panel?{query}")
    assert status == 422
    assert reason in found["error"]


# ---------------------------------------------------------------------- studies
def test_a_finished_study_is_listed_and_drawn(client):
    status, found = client.json("/api/studies")
    assert status == 200
    (one,) = found
    assert (one["name"], one["study"]) == ("study-length", "length")
    status, drawn = client.json(f"/api/study?study={one['id']}&w=700")
    assert status == 200
    assert "lstm" in json.dumps(drawn["pictures"][0]["shapes"])
    assert client.get(f"/api/save?study={one['id']}&form=svg")[0] == 200
    assert client.json("/api/study?study=../etc")[0] == 422


# ---------------------------------------------------------------------- the page
def test_the_film_is_scrubbed_and_the_alignment_follows(page, server, ids, runs):
    opened(page, server, view="alignment", runs=ids["attentive"], text=TEXT)
    page.wait_for_selector(".film")
    page.locator(".film input[type=range]").focus()
    page.keyboard.press("Home")  # the step before the first
    first = an.load(runs / "attentive", frame=0).probe(TEXT).array("alignment").ravel()
    until(page, lambda: "frame=0" in page.url and len(values(page)) == len(first))
    until(page, lambda: [float(v) for v in values(page)] == pytest.approx(first.tolist(), rel=1e-5))
    assert page.get_attribute(".film output", "data-frame") == "0"
    page.keyboard.press("ArrowRight")
    second = an.load(runs / "attentive", frame=20).probe(TEXT).array("alignment").ravel()
    until(page, lambda: "frame=20" in page.url and len(values(page)) == len(second))
    until(page, lambda: [float(v) for v in values(page)] == pytest.approx(second.tolist(), rel=1e-5))
    page.check(".film input[type=checkbox]")
    until(page, lambda: "attentive at step 20 · attentive at step 0" in page.inner_text(".figure"))
    page.reload()  # all of it is in the address
    until(page, lambda: page.locator(".figure").count() and "at step 0" in page.inner_text(".figure"))
    page.uncheck(".film input[type=checkbox]")
    page.click(".film button")
    until(page, lambda: page.get_attribute(".film output", "data-frame") == "40")
    until(page, lambda: page.get_attribute(".film output", "data-frame") == "")
    assert page.troubles == []


def test_a_change_is_made_dragged_and_removed(page, server, ids, runs):
    page.goto(address(server, view="intervene", runs=ids["attentive"], text=TEXT))
    page.reload()
    page.wait_for_selector(".adding")
    page.select_option(".adding select >> nth=0", "Attend")
    page.select_option("label:has-text('to') >> nth=-1 >> select", "2")
    page.click("button:text-is('Change it')")
    m = an.load(runs / "attentive")
    delta = m.effect(TEXT, [an.Attend(where="cross", at=1, to=2, weight=0.9)]).delta
    until(
        page,
        lambda: (
            page.locator(".delta").count()
            and abs(float(page.get_attribute(".delta", "data-delta")) - delta) < 1e-6
        ),
    )
    assert page.inner_text(".changes code") == "an.Attend(where='cross', at=1, to=2, weight=0.9)"
    page.locator(".changes input[type=range]").focus()
    page.keyboard.press("End")
    whole = m.effect(TEXT, [an.Attend(where="cross", at=1, to=2, weight=1.0)])
    until(page, lambda: abs(float(page.get_attribute(".delta", "data-delta")) - whole.delta) < 1e-6)
    assert float(page.get_attribute(".delta", "data-after")) == pytest.approx(whole.loss_after, abs=1e-6)
    page.select_option(".adding select >> nth=0", "Clamp")
    page.fill(".adding label:has-text('unit') input", "3")
    page.click("button:text-is('Change it')")
    until(page, lambda: page.locator(".changes li").count() == 2)
    page.reload()
    page.wait_for_selector(".delta")
    assert page.locator(".changes li").count() == 2
    page.click("button:text-is('Remove') >> nth=1")
    page.click("button:text-is('Remove') >> nth=0")
    until(
        page, lambda: page.locator(".delta").count() == 0
    )  # with nothing changed there is no difference to tell
    assert page.troubles == []


def test_several_runs_and_studies_open_on_the_page(page, server, ids):
    opened(page, server, view="gradients", runs=f"{ids['attentive']},{ids['deep/transformer']}", text=TEXT)
    assert page.locator(".picture").count() == 1
    assert "deep/transformer" in page.inner_text(".figure")
    opened(page, server, view="studies", runs=ids["attentive"])
    assert page.locator(".picture .figure svg").count() == 1
    assert page.troubles == []


OVERLAPS = """() => {
  const texts = [...document.querySelectorAll('main .figure svg text')].map((one) => [one.textContent, one.getBoundingClientRect(), one.getAttribute('transform')]);
  const plain = texts.filter(([text, box, turned]) => text && !turned && box.width);
  const found = [];
  for (let i = 0; i < plain.length; i++) for (let k = i + 1; k < plain.length; k++) {
    const [a, b] = [plain[i][1], plain[k][1]];
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left), tall = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (wide > 2 && tall > 4) found.push(plain[i][0] + ' | ' + plain[k][0]);
  }
  return found;
}"""


@pytest.mark.parametrize(
    ("view", "theme", "more"),
    [
        ("intervene", "light", {"s.do": json.dumps(CHANGES)}),
        ("gradients", "dark", {"beside": "0"}),
        ("alignment", "light", {"beside": "0", "frame": "20"}),
        ("change", "dark", {}),
        ("studies", "light", {}),
    ],
)
def test_every_width_without_overlaps_or_barriers(page, server, ids, view, theme, more):
    page.goto(address(server, view=view, runs=ids["attentive"], text=TEXT, theme=theme, **more))
    page.reload()
    page.wait_for_selector(".figure svg text")
    for width in (360, 768, 1440):
        page.set_viewport_size({"width": width, "height": 800})
        settled(page)  # pictures are asked for again, as wide as there is room now
        page.wait_for_selector(".figure svg text")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(OVERLAPS) == []
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    for chosen in (theme, "light" if theme == "dark" else "dark"):
        if chosen != theme:
            page.click("header button >> nth=0")
        serious = [
            f"{v['id']}: {v['nodes'][0]['html'][:120]}"
            for v in axe.Axe().run(page).response["violations"]
            if v["impact"] in ("serious", "critical")
        ]
        assert serious == []
