"""Text drawn where the model is, without a look at each symbol: the distribution of the filters, and what a training shows."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import anaphora as an
from anaphora.search._draws import Filters
from anaphora.tasks.language import inference
from anaphora.tasks.language.inference import draw_on_device, picked


@pytest.mark.parametrize(
    "filters",
    [{}, {"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.7}, {"min_p": 0.3}, {"temperature": 0.0}],
    ids=lambda filters: "-".join(filters) or "plain",
)
def test_symbols_are_picked_as_often_as_the_filters_say(filters):
    log_probs = torch.tensor([0.1, 0.3, -torch.inf, 0.3, 0.05, 0.25]).nan_to_num(neginf=0.0).log()
    symbols, q = Filters(**filters)(log_probs.double().numpy())
    chances = (torch.arange(4000) + 0.5) / 4000
    found = [int(picked(log_probs, chance, Filters(**filters))) for chance in chances]
    shares = np.bincount(found, minlength=6) / len(found)
    wanted = np.zeros(6)
    wanted[symbols] = q
    np.testing.assert_allclose(shares, wanted, atol=1e-3)


def test_a_chance_that_rounds_to_one_picks_the_last_that_passes():
    log_probs = torch.tensor([0.5, 0.5, 0.0]).log()
    assert int(picked(log_probs, torch.tensor(1.0), Filters())) == 1
    assert int(picked(log_probs, torch.tensor(1.0), Filters(top_k=1))) == 0


class Chain:
    """After symbol s comes s + 1, from 5 on; the special symbols would be likelier."""

    def start(self, rows):
        return torch.zeros(rows)

    def step(self, symbols, state):
        scores = torch.full((1, 12), -torch.inf)
        scores[0, :4] = 0.0
        scores[0, 5 + (int(symbols) - 4) % 7] = -3.0
        return scores, state + 1


def test_special_symbols_are_never_drawn():
    given = {"device": torch.device("cpu"), "length": 9, "seed": 3}
    assert draw_on_device(Chain(), 5, **given) == [6, 7, 8, 9, 10, 11, 5, 6, 7]


def test_a_training_on_a_gpu_shows_such_a_text(tmp_path, monkeypatch):
    monkeypatch.setattr(inference, "device_of", lambda model: torch.device("cuda"))
    elsewhere = inference.draw_on_device
    monkeypatch.setattr(
        inference,
        "draw_on_device",
        lambda *given, **more: elsewhere(*given, **{**more, "device": torch.device("cpu")}),
    )
    model = an.LanguageModel(hidden=8, embedding=8, steps=2, valid_every=2, length=15, device="cpu", seed=1)
    model.fit(["abcabcabc " * 40], valid=["abcabc " * 20], out=tmp_path / "run", verbose=False)
    (shown,) = [
        line for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines() if "output" in line
    ]
    assert 1 <= len(json.loads(shown)["output"]) <= 15
