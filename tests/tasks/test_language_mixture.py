"""Language models whose output is a mixture of softmaxes: judged, stepped through, drawn from and saved as those of one."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import anaphora as an
from anaphora.data.batches.stream import StreamBatch
from anaphora.errors import AnaphoraError, SettingsError
from anaphora.nn.mixture import MixtureOutput
from anaphora.tasks.language.objective import LanguageObjective

TEXT = "an example for a student\nan egg for the teacher\n" * 12
SMALL = {
    "hidden": 8,
    "mixtures": 3,
    "steps": 30,
    "lr": 0.02,
    "warmup": 0,
    "batch_tokens": 64,
    "length": 5,
    "device": "cpu",
}
PRESETS = {
    "lstm": {"embedding": 6, "bptt": 8},
    "nplm": {"embedding": 6, "bptt": 8, "order": 3},
    "transformer": {"context": 8, "layers": 1, "heads": 2, "feedforward": 8, "tie": False},
}


@pytest.fixture(scope="module", params=list(PRESETS))
def trained(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixture") / "run"
    model = an.LanguageModel(request.param, **SMALL, **PRESETS[request.param])
    return model.fit([TEXT], valid=[TEXT[:90]], out=folder, verbose=False), folder


@torch.no_grad()
def test_every_reading_gives_the_same_probabilities(trained):
    """Symbol by symbol (`step`), as a whole (`predict`), and as the training loss."""
    model, folder = trained
    assert isinstance(model.model_.output, MixtureOutput)
    assert model.model_.output.mixtures == 3
    line = "egg"
    symbols = [*model.tokenizer_.encode(line), model.end]
    state, before, wanted = model.start(1), model.begin, 0.0
    for symbol in symbols:
        log_probs, state = model.step(torch.tensor([before]), state)
        assert float(log_probs.exp().sum()) == pytest.approx(1, abs=1e-5)
        wanted, before = wanted + float(log_probs[0, symbol]), symbol
    assert model.predict([line]) == pytest.approx([wanted], abs=1e-4)
    read = np.array([[model.begin, *symbols]])
    batch = StreamBatch(read[:, :-1], read[:, 1:], [0], True)
    objective = LanguageObjective(model.settings_, model.tokenizer_.size, measure=dict, show=list)
    loss = objective.loss(model.model_.eval(), batch)
    assert float(loss.total) == pytest.approx(-wanted, abs=1e-4)
    assert an.load(folder).predict([line]) == model.predict([line])


def test_it_is_scored_and_drawn_from(trained):
    model, _ = trained
    found = model.score([TEXT])
    assert found["perplexity"] == pytest.approx(math.exp(found["loss"]))
    assert found["perplexity"] < 0.8 * model.tokenizer_.size
    assert model.sample("an e", seed=3) == model.sample("an e", seed=3)
    assert len(model.sample(length=7, temperature=0)[0]) == 7


def test_where_it_has_no_counterpart_is_one_sentence(trained, tmp_path):
    model, _ = trained
    with pytest.raises(AnaphoraError, match=r"has mixtures = 3 softmaxes: train with mixtures = 1"):
        model.export(tmp_path / "hf", to="hf")
    with pytest.raises(SettingsError, match="mixtures"):
        an.LanguageModel("masked", mixtures=2)
