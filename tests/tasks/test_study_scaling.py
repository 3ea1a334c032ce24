"""Power laws found again in numbers made from them, and the study on trainings of a few steps."""

from __future__ import annotations

import json

import pytest

import anaphora as an
from anaphora.cli import main
from anaphora.errors import AnaphoraError, DataError
from anaphora.tasks import study
from anaphora.tasks.studies.scaling import power_law
from anaphora.views.scaling import law_text, picture

SMALL = {"steps": 2, "valid_every": 1, "save_every": 2, "batch_tokens": 64, "layers": 1, "heads": 2}
PARTS = {"sizes": (4, 8, 16), "shares": (2,)}
LINES = (
    "\n".join(f"{a}{b}" for a in ("read", "write", "open", "close") for b in ("_file", "_line", "_all", ""))
    + "\n"
)


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text.txt").write_text(LINES * 4)
    return str(tmp_path / "text.txt")


@pytest.mark.parametrize("floor", [0.0, 1.5])
def test_a_power_law_is_found_again(floor):
    x = [10.0**n for n in range(6)]
    law = power_law(x, [floor + 3 * value**-0.25 for value in x])
    assert law["exponent"] == pytest.approx(0.25, rel=0.02)
    assert law["floor"] == pytest.approx(floor, abs=0.01)
    assert law["factor"] == pytest.approx(3, rel=0.01)
    assert law["r2"] == pytest.approx(1, abs=1e-4)


def test_three_points_have_no_floor_and_two_no_law():
    law = power_law([1, 10, 100], [4, 2, 1])
    assert law["floor"] == 0
    assert law["exponent"] == pytest.approx(0.30103, abs=1e-5)
    assert power_law([1, 10], [4, 2]) is None
    assert power_law([1, 1, 1], [4, 2, 3]) is None
    assert "too few" in law_text(None)


def test_the_study_measures_every_axis_and_goes_on(text, tmp_path, monkeypatch):
    found = study.run("scaling", tmp_path / "study", corpus=text, settings=SMALL, **PARTS)
    assert [len(found["points"][axis]) for axis in ("parameters", "data")] == [3, 2]
    sizes = [point["x"] for point in found["points"]["parameters"]]
    assert sizes == sorted(sizes)
    assert found["points"]["data"][0]["x"] < found["points"]["data"][1]["x"]
    frontier = [point["loss"] for point in found["points"]["compute"]]
    assert frontier == sorted(frontier, reverse=True)
    model = an.load(found["runs"]["width-8"])
    expected = sum(
        p.numel() for n, p in model.model_.named_parameters() if not n.startswith("body.embedding")
    )
    assert found["points"]["parameters"][1]["x"] == expected
    assert "power law" in picture(found).text(100, colour=False)

    def never(*args, **options):
        raise AssertionError("a finished part is not trained again")

    monkeypatch.setattr(an.LanguageModel, "fit", never)
    again = study.run("scaling", tmp_path / "study", corpus=text, settings=SMALL, **PARTS)
    assert again == found


def test_the_command_writes_its_picture(text, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("anaphora.tasks.studies.scaling.SIZES", PARTS["sizes"])
    monkeypatch.setitem(study.STUDIES["scaling"].__kwdefaults__, "sizes", PARTS["sizes"])
    monkeypatch.setitem(study.STUDIES["scaling"].__kwdefaults__, "shares", PARTS["shares"])
    options = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
    order = ["study", "scaling", "--corpus", text, "-o", str(tmp_path / "out"), *options, "--json"]
    assert main.run(order) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["laws"]) == {"parameters", "data", "compute"}
    assert "<svg" in (tmp_path / "out" / "scaling.svg").read_text()


def test_bad_input_is_refused(tmp_path):
    (tmp_path / "few.txt").write_text("one\ntwo\nthree\n")
    with pytest.raises(DataError, match="lines to learn from"):
        study.run("scaling", tmp_path / "study", corpus=str(tmp_path / "few.txt"))
    assert not (tmp_path / "study").exists()
    with pytest.raises(AnaphoraError, match="leave --corpus out"):
        study.run("positions", tmp_path / "study", corpus="copy")
