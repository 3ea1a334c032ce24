"""Greedy outputs found fast, and the weights that a run ends with: chosen by the decoding that users get."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from tasks_tiny import PRESETS, pairs, tiny, words

import anaphora as an
from anaphora.data.around import Around
from anaphora.tasks.translate.inference import encode_sources, greedy_outputs, search_outputs
from anaphora.tasks.translate.objective import TranslationObjective

PAIRS = pairs(60)


@pytest.mark.parametrize(
    "preset", ["rnn", "lstm-attention bilinear", "gru-attention", "transformer norm first"]
)
@pytest.mark.parametrize("steps", [1, 25])
def test_greedy_outputs_are_those_of_a_beam_of_one(preset, steps):
    """Also of a model that has learned little, whose outputs run into their limit."""
    assert preset in PRESETS
    model = tiny(preset, steps=steps).fit(PAIRS)
    sources = encode_sources(model.tokenizer_, words(70, seed=4), 256)
    model.model_.eval()
    for longest in (0, 9):
        beam = search_outputs(model.model_, sources, beam=1, length_penalty=0.0, max_length=longest)
        found = greedy_outputs(model.model_, sources, max_length=longest, around=Around())
        assert found == [list(best[0].tokens) for best in beam]


def test_the_best_by_the_users_search_is_kept(monkeypatch, tmp_path):
    """Greedy outputs prefer the last evaluation, the search as used the first one: that one is exported."""
    greedy = iter([10.0, 20.0, 30.0])
    used = iter([7.0, 5.0])
    seen = []

    def evaluate(self, model):
        return {"loss": 1.0, "chrf": next(greedy)}

    def final(self, model):
        seen.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        return {"loss": 1.0, "chrf": next(used)}

    monkeypatch.setattr(TranslationObjective, "evaluate", evaluate)
    monkeypatch.setattr(TranslationObjective, "final", final)
    run = tmp_path / "run"
    m = tiny(steps=6, valid_every=2, save_every=2, keep_best=2, ema=0.5).fit(PAIRS, valid=PAIRS[:4], out=run)
    assert (m.result_.best_step, m.result_.best) == (4, 7.0)
    assert len(seen) == 2
    for name, tensor in an.load(run).model_.state_dict().items():
        assert torch.equal(tensor, seen[0][name])
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["dev"]["chrf"] for line in metrics if "dev" in line] == [10.0, 20.0, 30.0]


def test_without_finalists_nothing_is_judged_again(monkeypatch):
    monkeypatch.setattr(TranslationObjective, "final", lambda self, model: pytest.fail("judged"))
    tiny(steps=4, valid_every=2, keep_best=0).fit(PAIRS, valid=PAIRS[:4])


def test_the_last_measures_are_those_of_score():
    m = tiny(steps=20, valid_every=10, save_every=10, keep_best=2, valid_examples=8, beam=3).fit(
        PAIRS, valid=PAIRS[:8]
    )
    assert m.result_.metrics["chrf"] == pytest.approx(m.score(PAIRS[:8])["chrf"])


def test_what_evaluations_and_finalists_took_is_in_the_timings(tmp_path):
    run = tmp_path / "run"
    tiny(steps=4, valid_every=2, save_every=2, keep_best=2).fit(PAIRS, valid=PAIRS[:4], out=run)
    lines = [json.loads(line) for line in (run / "timings.jsonl").read_text().splitlines()]
    took = [(line["event"], line["took"]) for line in lines if "took" in line]
    assert [event for event, _ in took] == ["evaluate", "evaluate", "finalists"]
    assert all(seconds > 0 for _, seconds in took)
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "evaluation_share.py"
    spec = importlib.util.spec_from_file_location("evaluation_share", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (run / "timings.jsonl").write_text(
        '{"event": "start"}\n{"step": 5, "seconds": 20.0, "event": "evaluate", "took": 2.0}\n{"event": "resume"}\n'
        '{"step": 9, "seconds": 10.0, "event": "finalists", "took": 1.0}\n'
    )
    assert module.share(run)["share"] == 0.1
