"""Codes of positions by hand, the problem that needs them, and the study on trainings of a few steps."""

from __future__ import annotations

import pytest
import torch

import anaphora as an
from anaphora.tasks import study
from anaphora.tasks.studies.positions import CODES, Code, examples
from anaphora.views.positions import picture, table

SMALL = {
    "steps": 2,
    "valid_every": 2,
    "save_every": 2,
    "hidden": 8,
    "heads": 2,
    "feedforward": 8,
    "layers": 1,
}


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr("anaphora.tasks.studies.positions.EXAMPLES", 40)
    monkeypatch.setattr("anaphora.tasks.studies.positions.TESTED", 20)


def test_codes_by_hand():
    lengths = torch.tensor([5, 3])
    assert Code("counting", 4)(lengths, 5)[1, :, 0].tolist() == [0, 1, 2, 3, 4]
    assert Code("dividing", 4)(lengths, 5)[0, :, 0].tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert Code("dividing", 4)(lengths, 5)[1, :3, 0].tolist() == [0, 0.5, 1]  # the same place, another code
    assert Code("binary", 4)(lengths, 5)[0].tolist() == [
        [0, 0, 0, 0],
        [1, 0, 0, 0],
        [0, 1, 0, 0],
        [1, 1, 0, 0],
        [0, 0, 1, 0],
    ]
    torch.testing.assert_close(
        Code("sinusoidal", 4)(lengths, 3)[1, 1, :2],
        torch.tensor([1.0, 1.0])
        .sin()
        .add(torch.tensor([0.0, float(torch.cos(torch.tensor(1.0)) - torch.sin(torch.tensor(1.0)))])),
    )
    assert not Code("none", 4)(lengths, 5).any()


def test_the_problem_is_about_places():
    rows = examples(200, (4, 9), 0)
    assert all(answer[:2] == ["-", "-"] and answer[2:] == row[:-2] for row, answer in rows)
    assert {len(row) for row, _ in rows} == set(range(4, 10))
    assert rows == examples(200, (4, 9), 0) != examples(200, (4, 9), 1)


def test_the_study_says_why_codes_fail(few, tmp_path, monkeypatch):
    found = study.run("positions", tmp_path / "study", settings=SMALL)
    codes = found["codes"]
    assert list(codes) == list(CODES)
    assert codes["counting"]["largest"] == 63  # grows without bound
    assert codes["dividing"]["shift"] > 0.4  # a place means something else in another row
    assert codes["sinusoidal"]["shift"] == codes["counting"]["shift"] == 0
    assert codes["binary"]["greatest_step"] == pytest.approx(6**0.5)  # 31 -> 32 turns six digits over
    assert codes["binary"]["least_step"] == 1
    assert codes["sinusoidal"]["greatest_step"] == pytest.approx(codes["sinusoidal"]["least_step"], rel=1e-4)
    assert len(table(found)) == len(CODES)
    assert "How far neighbours are apart" in picture(found).svg()

    def never(*args, **options):
        raise AssertionError("a finished part is not trained again")

    monkeypatch.setattr(an.Tagger, "fit", never)
    assert study.run("positions", tmp_path / "study", settings=SMALL) == found


@pytest.mark.slow
def test_sines_find_a_neighbour_where_counting_dividing_and_digits_do_not(tmp_path):
    found = study.run("positions", tmp_path / "study")["codes"]
    assert found["sinusoidal"]["trained"] > 0.98
    assert max(found[code]["trained"] for code in ("none", "dividing")) < 0.6
    assert (
        max(found[code]["trained"] for code in ("counting", "binary")) < found["sinusoidal"]["trained"] - 0.03
    )
