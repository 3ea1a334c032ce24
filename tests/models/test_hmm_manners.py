"""What an HMM says to input it cannot use, and how it is kept in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anaphora as an
from anaphora.errors import AnaphoraError, DataError, RunError, SettingsError


def vectors() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((n, 2)) + 4 * (np.arange(n)[:, None] // 5 % 2) for n in (30, 1, 17)]


def test_saved_and_loaded(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    topology = np.array([[True, True], [False, True]])
    model = an.HMM(2, covariance="full", topology=topology, transition_prior=0.5).fit(vectors())
    model.save(path)
    same = an.HMM.load(path)
    assert same.log_likelihood(vectors()).tolist() == model.log_likelihood(vectors()).tolist()
    assert same.settings.to_json() == model.settings.to_json()
    an.HMM(np.int64(2), seed=np.int64(1)).set(**model.parameters | {"covariances": np.ones((2, 2))}).save(
        path
    )
    assert an.HMM.load(path).settings.seed == 1
    whole = path.read_bytes()
    for damaged in (whole[:-9], whole[:40], b"", whole[:-8] + bytes(8), whole.replace(b'"hmm', b'"hmn')):
        path.write_bytes(damaged)
        with pytest.raises(RunError, match=r"model\.safetensors: "):
            an.HMM.load(path)
    with pytest.raises(RunError, match="no such file"):
        an.HMM.load(tmp_path / "none")
    with pytest.raises(RunError, match="cannot be written"):
        model.save(tmp_path / "none" / "model")


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ([], "no sequences"),
        ([np.zeros((3, 2)), np.zeros((0, 2))], "sequence 1 is empty"),
        (np.zeros((0, 2)), "the sequence is empty"),
        ([np.zeros((3, 2)), np.zeros((3, 1))], "1 features per step where 2"),
        (np.full((4, 2), np.nan), "every observation is missing"),
        (np.array([[1.0, np.nan], [2.0, np.nan]]), "feature 1 is missing everywhere"),
        (np.array([[1.0, np.inf]]), "infinite"),
        ([["a", "b"]], "not a number"),
        (3.0, "not a single value"),
        ([[[1.0, 2.0], [3.0]]], "different widths"),
    ],
)
def test_vectors_that_cannot_be_used(data: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        an.HMM(2).fit(data)


@pytest.mark.parametrize(
    ("data", "labels", "sentence"),
    [
        ([[0, 5]], None, "sequence 0: 5 at step 1 is not a symbol"),
        ([[0, -2]], None, "-2 at step 1"),
        ([[0.5]], None, "0.5 at step 0"),
        ([[0, 1]], [[0, 2]], "states 0 to 1"),
        ([[0, 1]], [[0]], "need \\(2,\\)"),
        ([[0, 1]], [[0, 1], [0]], "2 sequences of labels for 1"),
        ([[0, 1]], [[0.0, 1.0]], "not whole numbers"),
        ([[-1, -1]], None, "every observation is missing"),
        ("abc", None, "text is not a sequence of numbers"),
    ],
)
def test_symbols_and_labels_that_cannot_be_used(data: Any, labels: Any, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        an.HMM(2, emissions="categorical", symbols=3).fit(data, labels=labels)


def test_labels_that_the_topology_forbids() -> None:
    model = an.HMM(2, emissions="categorical", topology="left-to-right")
    with pytest.raises(DataError, match="sequence 0 with its labels has probability 0"):
        model.fit([[0, 1, 0]], labels=[[0, 1, 0]])


def test_all_mistakes_in_the_settings_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        an.HMM(0, emissions="poisson", covariance="round", start_prior=-1, min_covariance=0)
    assert [p.split(":")[0] for p in caught.value.problems] == [
        "states", "emissions", "covariance", "start_prior", "min_covariance",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"start": [0.5, 0.6]}, "start: every row must hold probabilities"),
        ({"transitions": [[1, 0]]}, r"transitions: has shape \(1, 2\)"),
        ({"means": [[np.nan], [0]]}, "means: holds NaN"),
        ({"means": [[0], [0]], "covariances": [[1], [0]]}, "covariances: not positive"),
        ({"probabilities": [[1], [1]]}, "no such parameter"),
        ({"start": "ab"}, "not an array of numbers"),
    ],
)
def test_parameters_that_cannot_be(parameters: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        an.HMM(2).set(**parameters)


def test_other_mistakes() -> None:
    with pytest.raises(AnaphoraError, match="no parameters yet"):
        an.HMM(2).predict([1.0])
    with pytest.raises(SettingsError, match="transitions was never set"):
        an.HMM(2).fit([[1.0, 2.0]], fixed=("transitions",))
    with pytest.raises(SettingsError, match="weights is no parameter"):
        an.HMM(2).fit([[1.0, 2.0]], fixed=("weights",))
    with pytest.raises(SettingsError, match="what the topology forbids"):
        an.HMM(2, topology="left-to-right").set(start=[0.5, 0.5])
    with pytest.raises(SettingsError, match="topology"):
        an.HMM(2, topology="ring")
    with pytest.raises(SettingsError, match="tolerance: 'small'"):
        an.HMM(2).fit([[1.0, 2.0]], tolerance="small")
    with pytest.raises(DataError, match="symbol 999999999999 asks for too large a table"):
        an.HMM(2, emissions="categorical").fit([0, 10**12 - 1])
    with pytest.raises(SettingsError, match="iterations: 0"):
        an.HMM(2).fit([[1.0, 2.0]], iterations=0)
