"""Estimators as scikit-learn's tools use them: fit(X, y), scores as one number, clones, grids and pipelines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anaphora as an
from anaphora.errors import DataError, SettingsError

TEXTS = ["good film", "bad film", "very good", "very bad", "good", "bad"] * 4
LABELS = [1, 0, 1, 0, 1, 0] * 4


def classifier(**more: Any) -> an.Classifier:
    settings: dict[str, Any] = {"tokens": "word", "steps": 60, "embedding": 8, "lr": 0.05, **more}
    return an.Classifier("bow", **settings)


@pytest.mark.parametrize(
    ("labels", "kind"), [([1, 0], int), ([True, False], bool), ([1.5, 2.5], float), (["a", "b"], str)]
)
def test_labels_keep_their_type_and_a_run_keeps_it_too(labels: list[Any], kind: type, tmp_path: Path) -> None:
    wanted = labels * 12
    m = classifier().fit(TEXTS, wanted, out=tmp_path / "run")
    assert m.classes_ == sorted(labels)
    for model in (m, an.load(tmp_path / "run", an.Classifier)):
        found = model.predict(TEXTS[:4])
        assert found == wanted[:4]
        assert {type(label) for label in found} == {kind}


def test_pairs_arrays_and_tables_keep_the_type_of_labels() -> None:
    pairs = classifier().fit(list(zip(TEXTS, LABELS, strict=True)))
    assert pairs.predict(["good"]) == [1]
    arrays = classifier().fit(np.array(TEXTS), np.array(LABELS))
    assert arrays.predict(np.array(["good"])) == [1]
    rows = classifier().fit([{"text": x, "label": y} for x, y in zip(TEXTS, LABELS, strict=True)])
    assert rows.predict(["good"]) == [1]


def test_score_of_inputs_and_targets_is_one_number() -> None:
    m = classifier().fit(TEXTS, LABELS)
    assert m.score(TEXTS, LABELS) == 1.0
    assert m.score(list(zip(TEXTS, LABELS, strict=True)))["accuracy"] == 100.0
    numbers = classifier(target="number", steps=60).fit(TEXTS, LABELS)
    assert numbers.score(TEXTS, LABELS) == pytest.approx(
        numbers.score(list(zip(TEXTS, LABELS, strict=True)))["r2"]
    )


def test_details_have_probabilities_and_become_json() -> None:
    m = classifier().fit(TEXTS, LABELS)
    (found,) = m.predict(["good film"], details=True)
    assert found.label == 1
    assert str(found) == "1"
    assert found.probability == pytest.approx(m.predict_proba(["good film"])[0, 1])
    assert found.to_dict() == {"label": 1, "probabilities": found.probabilities}
    assert "probabilities" in found._repr_html_()
    assert "dev accuracy" in m._repr_html_()


def test_targets_that_do_not_fit_the_inputs_are_an_error() -> None:
    with pytest.raises(DataError, match="24 inputs and 3 targets"):
        classifier().fit(TEXTS, [0, 1, 0])
    with pytest.raises(DataError, match="valid="):
        classifier().fit("train.tsv", "dev.tsv")
    with pytest.raises(DataError, match="valid="):
        classifier().fit([("good", 1), ("bad", 0)], [("fine", 1), ("poor", 0)])
    with pytest.raises(DataError, match="texts alone"):
        an.LanguageModel("ngram").fit(TEXTS, LABELS)


def test_cross_validation_grids_and_pipelines() -> None:
    pytest.importorskip("sklearn")
    from sklearn.base import clone, is_classifier, is_regressor
    from sklearn.model_selection import GridSearchCV, cross_val_score
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import FunctionTransformer

    m = classifier(lr=1)
    copy = clone(m)
    assert copy is not m
    assert copy.get_params() == m.get_params()
    assert is_classifier(m)
    assert is_regressor(an.Forecaster())
    m = classifier()
    assert cross_val_score(m, TEXTS, LABELS, cv=2).tolist() == [1.0, 1.0]
    grid = GridSearchCV(m, {"embedding": [4, 8]}, cv=2).fit(TEXTS, LABELS)
    assert grid.best_params_["embedding"] in (4, 8)
    assert grid.predict(["good"]) == [1]
    steps = [("lower", FunctionTransformer(lambda X: [x.lower() for x in X])), ("model", m)]
    piped = Pipeline(steps).fit([x.upper() for x in TEXTS], LABELS)
    assert piped.predict(["GOOD"]) == [1]
    assert piped.score([x.upper() for x in TEXTS], LABELS) == 1.0


def regression() -> tuple[Any, Any]:
    X = np.random.default_rng(1).normal(size=(300, 2))
    return X, X[:, 0] - 2 * X[:, 1]


def test_a_forecaster_is_a_regressor(tmp_path: Path) -> None:
    X, y = regression()
    m = an.Forecaster("rnn", hidden=16, steps=150, window=4).fit(X, y, out=tmp_path / "run")
    assert m.predict(X).shape == y.shape
    assert m.score(X, y) > 0.9
    assert m.n_features_in_ == 2
    again = an.load(tmp_path / "run", an.Forecaster)
    assert np.array_equal(again.predict(X), m.predict(X))
    both = an.Forecaster("rnn", hidden=4, steps=3, window=4).fit(X, np.stack([y, -y], 1))
    assert both.predict(X).shape == (300, 2)
    with pytest.raises(SettingsError, match="set horizon=0"):
        an.Forecaster("rnn", horizon=3).fit(X, y)
    with pytest.raises(DataError, match='target="number"'):
        an.Forecaster("rnn").fit(X[None], y)


def test_a_forecaster_is_cross_validated() -> None:
    pytest.importorskip("sklearn")
    from sklearn.model_selection import cross_val_score

    X, y = regression()
    found = cross_val_score(an.Forecaster("rnn", hidden=16, steps=150, window=4), X, y, cv=2)
    assert found.min() > 0.8


@pytest.mark.parametrize("series", [np.arange(200.0), np.sin(np.arange(200) / 5)])
def test_var_forecasts_one_column_that_follows_from_itself(series: Any) -> None:
    m = an.Forecaster("var", horizon=5).fit(series)
    whole = np.concatenate([series, m.predict(series)[:, 0]])
    expected = np.arange(205.0) if series[-1] > 2 else np.sin(np.arange(205) / 5)
    assert whole == pytest.approx(expected, abs=1e-5)


def test_every_task_is_probed_alike() -> None:
    import inspect

    from anaphora.tasks.registry import TASKS, estimator

    for command in TASKS:
        names = list(inspect.signature(estimator(command).probe).parameters)
        assert names[2:] == ["target", "what", "beam"], command
        assert {"details"} <= inspect.signature(estimator(command).predict).parameters.keys(), command
