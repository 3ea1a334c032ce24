"""X5, X7, F7: what a run learned besides weights, changed under sound checksums: refused in one sentence, or harmless."""

from __future__ import annotations

import json
import shutil
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

import anaphora as an
from anaphora.errors import AnaphoraError, RunError
from anaphora.tasks.registry import estimator
from anaphora.tasks.verify import verify_run
from anaphora.training.run import RunFolder
from anaphora.training.weights import load_weights, pack, save_weights
from hostile_json import variants
from sweeps import sweep

TINY = {"steps": 2, "valid_every": 2, "save_every": 2, "device": "cpu", "hidden": 4, "batch_tokens": 64}
SEQUENCES = [(np.full((2 + i % 4, 2), i % 2, np.float32), "ab"[i % 2]) for i in range(8)]
MAKE = {
    "forecast": lambda out: an.Forecaster("kalman", horizon=4).fit(
        np.sin(np.arange(160) / 5)[:, None], out=out
    ),
    "tag": lambda out: an.Tagger("hmm").fit([("a b c", "X Y X"), ("b a", "Y X")] * 6, out=out),
    "vectors": lambda out: an.Classifier("lstm", **TINY).fit(SEQUENCES, valid=SEQUENCES[:3], out=out),
    "rocket": lambda out: an.Classifier("rocket", thresholds=1).fit(SEQUENCES, valid=SEQUENCES[:3], out=out),
    "ngrams": lambda out: an.Classifier("ngrams").fit([("good a", "p"), ("bad b", "n")] * 6, out=out),
}


@pytest.fixture(scope="module", params=MAKE)
def original(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param) / "run"
    MAKE[request.param](folder)
    return folder


@pytest.fixture
def run(original, tmp_path):
    shutil.copytree(original, tmp_path / "run")
    return tmp_path / "run"


def reseal(run) -> None:
    """Weights that name the files as they are now."""
    tensors, facts = load_weights(run / "model.safetensors")
    facts["files"] = RunFolder(run).fingerprints()
    (run / "model.safetensors").write_bytes(pack(tensors, facts=facts))


def problem_of(work) -> str | None:
    try:
        work()
    except AnaphoraError as error:
        return str(error)
    return None


def test_every_field_of_what_was_learnt(run):
    document = json.loads((run / "learnt.json").read_text())
    refused = total = 0
    for what, changed in variants(document):
        (run / "learnt.json").write_text(json.dumps(changed))
        reseal(run)
        said = problem_of(lambda: an.load(run, device="cpu"))
        total += 1
        refused += said is not None
        assert said is None or "\n" not in said, what
        assert said is None or any(
            name in said for name in ("learnt.json", "model.safetensors", "tokenizer.json")
        ), (what, said)
    assert refused > total * 0.6


def test_every_field_of_the_config(run):
    document = json.loads((run / "config.json").read_text())
    for what, changed in islice(variants(document), 0, None, sweep(4, 1)):
        (run / "config.json").write_text(json.dumps(changed))
        reseal(run)
        said = problem_of(lambda: verify_run(run))
        assert said is None or "\n" not in said, what


def test_a_network_does_not_take_integers_for_weights(tmp_path):
    MAKE["vectors"](tmp_path / "run")
    tensors, facts = load_weights(tmp_path / "run" / "model.safetensors")
    name = next(iter(tensors))
    tensors[name] = tensors[name].to(torch.int8)
    (tmp_path / "run" / "model.safetensors").write_bytes(pack(tensors, facts=facts))
    with pytest.raises(RunError, match=r"holds the weights of another model \(.* torch.int8 there and"):
        an.load(tmp_path / "run")


KEPT = Path(__file__).resolve().parents[1] / "contract" / "kept" / "0.2.0"
CORPUS = {"kind": "corpus", "name": "parity", "variant": "12", "split": "train", "seed": 1, "rows": 1}
ODD_NUMBERS = {
    "10**12 examples": ("data", "train", CORPUS | {"size": 10**12, "sha256": "0" * 64}),
    "1e308 examples": ("data", "train", CORPUS | {"size": 1e308, "sha256": "0" * 64}),
    "a list": ("data", "train", []),
    "held out of a list": ("data", "train", {"kind": "held-out", "of": []}),
    "held out of nothing a hundred times": (
        "data",
        "train",
        {"kind": "held-out", "of": {"pairs": {"of": 1}}},
    ),
    "a width of 20,000": ("settings", "hidden", 20_000),
    "a width of a billion": ("settings", "hidden", 10**9),
    "a billion layers": ("settings", "layers", 10**9),
}


@pytest.mark.parametrize("odd", ODD_NUMBERS)
@pytest.mark.parametrize(
    "name", ["classify-text-lstm", "forecast-lstm", "language-running-gru", "transcribe-sound-conformer"]
)
def test_odd_facts_are_refused_before_anything_is_made_by_them(tmp_path, name, odd):
    """E9: resume generated rows without end, and load took memory for widths that the weights do not have."""
    run = tmp_path / "run"
    shutil.copytree(KEPT / name, run)
    part, field, value = ODD_NUMBERS[odd]
    config = json.loads((run / "config.json").read_text())
    config[part][field] = value
    (run / "config.json").write_text(json.dumps(config))
    tensors, facts = load_weights(run / "model.safetensors")
    facts["files"] = RunFolder(run).fingerprints()
    save_weights(run / "model.safetensors", tensors, facts=facts)
    for way in (an.load, estimator(config["task"]).resume):
        with pytest.raises(an.AnaphoraError, match=r"config\.json") as caught:
            way(run)
        assert "\n" not in str(caught.value)
