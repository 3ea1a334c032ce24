"""``POST /predict`` of every task gives what ``predict`` gives."""

from __future__ import annotations

import json

import pytest
from serve_runs import KINDS

import anaphora as an
from anaphora.serving.exchange.answers import plain


@pytest.mark.parametrize("kind", KINDS)
def test_predict_gives_what_python_gives(served, folder_of, kind):
    inputs = KINDS[kind].inputs(3)
    model = an.load(folder_of(kind))
    answered = served(kind).client("POST", "/predict", {"inputs": inputs})
    assert answered.status == 200, answered.body
    found = answered.json()
    assert (found["run"], found["task"]) == (kind, model.command)
    wanted = plain(model.predict([KINDS[kind].given(x) for x in inputs]))
    assert_close(found["outputs"], json.loads(json.dumps(wanted)))


def assert_close(found, wanted):
    """Equal, but for the last digits of numbers: the server adds up in an order that no batch changes."""
    if isinstance(wanted, list):
        assert len(found) == len(wanted)
        for mine, other in zip(found, wanted, strict=True):
            assert_close(mine, other)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    else:
        assert found == wanted


def test_mistakes_are_one_sentence(start):
    both = start("classify", "translate").client
    for path, body, status, text in (
        ("/predict", {"inputs": ["a"]}, 404, "there are several runs here"),
        ("/runs/none/predict", {"inputs": ["a"]}, 404, "there is no run 'none' here"),
        ("/runs/classify/predict", b"{", 400, "not JSON"),
        ("/runs/classify/predict", {"inputs": "a"}, 422, "must be a list"),
        ("/runs/classify/predict", {"inputs": [1]}, 422, "input 1 is not a text"),
        ("/runs/translate/predict", {"inputs": ["a"], "beam": 1000}, 422, "more than this server allows"),
        (
            "/runs/translate/predict",
            {"inputs": ["a"], "lm": "/etc/passwd"},
            422,
            "is not an option of requests",
        ),
    ):
        answered = both("POST", path, body)
        assert (answered.status, list(answered.json())) == (status, ["error"])
        assert text in answered.json()["error"]


@pytest.mark.parametrize("blank", ["", " ", "\t\n", "\u00a0"])
def test_a_text_with_nothing_in_it_has_no_label_and_no_translation(served, tmp_path, capsys, blank):
    """As from the command, which the rows of a batch around it do not change."""
    ask = served("classify").client
    (full,) = ask("POST", "/predict", {"inputs": ["a b"]}).json()["outputs"]
    assert ask("POST", "/predict", {"inputs": [blank, "a b", blank]}).json()["outputs"] == [None, full, None]
    assert ask("POST", "/predict", {"inputs": [blank], "details": True}).json()["outputs"] == [None]
    assert ask("POST", "/predict", {"inputs": [blank], "top": 2}).json()["outputs"] == [[]]
    ask = served("translate").client
    assert ask("POST", "/predict", {"inputs": [blank, "a b"]}).json()["outputs"][0] == ""
    assert ask("POST", "/predict", {"inputs": [blank], "n_best": 2}).json()["outputs"] == [[]]
    (whole,) = ask("POST", "/predict", {"inputs": [blank], "details": True}).json()["outputs"]
    assert whole == {"text": "", "score": 0.0, "log_prob": 0.0, "finished": True}
