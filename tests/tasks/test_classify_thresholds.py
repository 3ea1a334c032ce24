"""Several labels: the threshold at which F1 over the dev labels is best, chosen, kept, used and exported."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import anaphora as an
from anaphora.cli import main
from anaphora.data.labelled_targets import Targets
from anaphora.errors import RunError, SettingsError
from anaphora.kinds.measures.classes import class_measures
from anaphora.tasks.thresholding import GRID, LEAST, NAME, best_threshold
from anaphora.training.weights import load_weights, save_weights

NETWORK: dict[str, Any] = {
    "model": "gru",
    "hidden": 8,
    "embedding": 8,
    "tokens": "word",
    "steps": 100,
    "lr": 0.03,
    "batch_tokens": 400,
    "valid_every": 10,
}


def unsure(count: int, seed: int = 0) -> list[tuple[str, list[str]]]:
    """Texts of which one word makes a label possible, but not probable: two of five that say ``maybe`` have it."""
    draw = random.Random(seed)
    rows = []
    for _ in range(count):
        word = draw.choice(["maybe", "never", "often"])
        share = {"maybe": 0.4, "never": 0.0, "often": 0.65}[word]
        labels = [{"maybe": "rare", "often": "usual"}[word]] if draw.random() < share else []
        rows.append((f"{draw.choice('abcd')} {word} {draw.choice('efgh')}", labels))
    return rows


def micro(truth: np.ndarray, shares: np.ndarray, threshold: float) -> float:
    names = tuple(str(i) for i in range(truth.shape[1]))
    labels = ["|".join(name for name, there in zip(names, row, strict=True) if there) or "-" for row in truth]
    found = (shares >= threshold).astype(float)
    return float(class_measures(Targets("classes", names), labels, found).report["micro_f1"])


# ---------------------------------------------------------------------- which one


@given(seed=st.integers(0, 10_000), labels=st.integers(1, 4), rare=st.floats(0.05, 0.9))
def test_the_best_mean_of_three_neighbours_is_chosen(seed: int, labels: int, rare: float) -> None:
    draw = np.random.default_rng(seed)
    shares = draw.beta(2 * rare, 2 * (1 - rare), (300, labels))
    truth = (draw.random(shares.shape) < shares).astype(float)
    values = [micro(truth, shares, least) for least in GRID]
    means = [np.mean(values[max(0, i - 1) : i + 2]) for i in range(len(values))]
    found = best_threshold(truth, shares)
    if truth.sum() < LEAST:
        assert found == 0.5
    else:
        assert means[int(np.argmin(np.abs(GRID - found)))] == pytest.approx(max(means))


def test_where_probabilities_are_right_it_is_about_half_of_f1() -> None:
    draw = np.random.default_rng(0)
    shares = draw.beta(0.5, 4, (20_000, 3))
    truth = (draw.random(shares.shape) < shares).astype(float)
    found = best_threshold(truth, shares)
    assert found == pytest.approx(micro(truth, shares, found) / 200, abs=0.04)


def test_few_labels_keep_one_half() -> None:
    truth = np.zeros((400, 2))
    truth[: LEAST - 1, 0] = 1
    assert best_threshold(truth, np.full((400, 2), 0.1)) == 0.5


# ---------------------------------------------------------------------- trained with it


@pytest.mark.parametrize("settings", [{"model": "ngrams"}, NETWORK], ids=["ngrams", "gru"])
def test_a_label_that_is_never_probable_is_given_all_the_same(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    rows, dev = unsure(900), unsure(900, seed=1)
    m = an.Classifier(**settings, target="classes").fit(rows, valid=dev, out=tmp_path / "run")
    half = an.Classifier(**settings, target="classes", threshold=0.5).fit(rows, valid=dev)
    asked = ["a maybe e", "a never e", "a often e"]
    assert m.predict(asked) == [["rare"], [], ["usual"]]
    assert half.predict(asked)[0] == []
    assert m.predict(asked, threshold=0.5)[0] == []
    assert m.score(dev)["micro_f1"] > half.score(dev)["micro_f1"] + 3
    assert m.result_.metric == "micro_f1"
    assert m.result_.best == pytest.approx(m.score(dev)["micro_f1"])
    assert half.result_.metric == "accuracy"

    loaded = an.load(tmp_path / "run")
    loaded.save(tmp_path / "saved")
    for other in (loaded, an.load(tmp_path / "saved")):
        assert other.predict(asked) == m.predict(asked)
        np.testing.assert_array_equal(other.predict_proba(asked), m.predict_proba(asked))


def test_an_exported_model_has_it_too(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    m = an.Classifier("ngrams", target="classes").fit(unsure(900), valid=unsure(900, seed=1))
    m.export(tmp_path / "exported")
    from anaphora import runtime

    assert runtime.load(tmp_path / "exported").predict(["a maybe e"]) == [["rare"]]


def test_a_run_that_goes_on_keeps_one(tmp_path: Path) -> None:
    run, whole = tmp_path / "run", tmp_path / "whole"
    rows, dev = unsure(900), unsure(900, seed=1)
    an.Classifier(**NETWORK, target="classes").fit(rows, valid=dev, out=run)
    an.Classifier.resume(run, steps=140)
    an.Classifier(**{**NETWORK, "steps": 140}, target="classes").fit(rows, valid=dev, out=whole)
    assert NAME in load_weights(run / "model.safetensors")[0]
    assert an.load(run).predict(["a maybe e"]) == an.load(whole).predict(["a maybe e"]) == [["rare"]]


def test_one_class_and_numbers_have_none(tmp_path: Path) -> None:
    an.Classifier("ngrams").fit([("good", "a"), ("bad", "b")] * 20, out=tmp_path / "run")
    assert NAME not in load_weights(tmp_path / "run" / "model.safetensors")[0]


# ---------------------------------------------------------------------- told, refused


def test_train_tells_what_was_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, rows in (("train", unsure(900)), ("dev", unsure(900, seed=1))):
        lines = [f"{text}\t{'|'.join(labels) or '-'}\n" for text, labels in rows]
        (tmp_path / f"{name}.tsv").write_text("".join(["text\tlabel\n", *lines]))
    given = [str(tmp_path / "train.tsv"), "--valid", str(tmp_path / "dev.tsv"), "--set", "target=classes"]
    assert main.run(["train", "classify", *given, "-o", str(tmp_path / "run")]) == 0
    assert "dev labels: threshold=0." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metric": "micro_f1"}, "set metric = 'accuracy'"),
        ({"metric": "micro_f1", "target": "number"}, "needs classes"),
        ({"threshold": 1.0}, "threshold"),
        ({"threshold": -0.1}, "threshold"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        an.Classifier("bow", **settings)


def test_a_threshold_that_is_none_is_refused(tmp_path: Path) -> None:
    rows = unsure(300)
    an.Classifier("ngrams", target="classes").fit(rows, valid=rows, out=tmp_path / "run")
    path = tmp_path / "run" / "model.safetensors"
    tensors, facts = load_weights(path)
    save_weights(path, tensors | {NAME: torch.tensor(1.5)}, facts=facts)
    with pytest.raises(RunError, match="a number between 0 and 1"):
        an.load(tmp_path / "run")
