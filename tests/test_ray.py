"""Runs on a cluster of Ray: a local one of two cores, where Ray is installed."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request

import numpy as np
import pytest

import anaphora as an
from anaphora.errors import AnaphoraError, SettingsError

TEXTS = ["a good film", "a bad film", "good", "bad", "good plot", "bad plot"] * 5


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ray") / "reviews"
    data = [(text, "pos" if "good" in text else "neg") for text in TEXTS]
    an.Classifier("bow", embedding=8, steps=30, tokens="word", device="cpu").fit(data, out=folder)
    return folder


@pytest.fixture(scope="module")
def cluster():
    """The two cores of a machine."""
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield ray
    ray.shutdown()


def test_without_ray_a_sentence_says_what_to_install(run, monkeypatch):
    import builtins
    import sys

    import anaphora.ray as engine

    for name in [name for name in sys.modules if name == "ray" or name.startswith("ray.")]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def missing(name, *rest, **options):
        if name == "ray" or name.startswith("ray."):
            raise ModuleNotFoundError("no", name="ray")
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    monkeypatch.setattr("importlib.import_module", lambda name: missing(name))
    with pytest.raises(AnaphoraError, match=r"pip install 'anaphora\[ray\]'"):
        engine._ray("serve")


def test_a_predictor_adds_a_column(run):
    """It is a plain class, which Ray only calls."""
    from anaphora.ray import Predictor

    predictor = Predictor(str(run), "review", "label")
    found = predictor({"review": np.array(TEXTS[:4], dtype=object), "id": np.arange(4)})
    assert found["label"].tolist() == an.load(run).predict(TEXTS[:4])
    assert found["id"].tolist() == [0, 1, 2, 3]
    detailed = Predictor(str(run), "review", details=True)({"review": np.array(TEXTS[:2])})
    assert detailed["prediction"][0].keys() == {"label", "probabilities"}
    with pytest.raises(AnaphoraError, match="have no column review; they have text"):
        predictor({"text": np.array(["a"])})


@pytest.mark.slow
def test_the_server_of_runs_as_an_application(cluster, run):
    pytest.importorskip("ray.serve")
    from ray import serve

    from anaphora.ray import application

    with pytest.raises(SettingsError, match="1 ≤ fewest ≤ most"):
        application([str(run)], replicas=(3, 2))
    with pytest.raises(AnaphoraError):
        application([str(run.parent)])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(application([str(run)], replicas=(1, 2), requests=8, cpus=0.5, device="cpu", token="secret"))
    try:
        body = json.dumps({"inputs": TEXTS[:4]}).encode()
        head = {"content-type": "application/json", "authorization": "Bearer secret"}
        asked = urllib.request.Request(f"http://127.0.0.1:{port}/predict", body, head)
        with urllib.request.urlopen(asked, timeout=120) as answer:
            found = json.loads(answer.read())
        assert an.load(run).predict(TEXTS[:4]) == found["outputs"]
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(
                urllib.request.Request(
                    f"http://127.0.0.1:{port}/predict", body, {"content-type": "application/json"}
                )
            )
        status = serve.status().applications["default"].deployments["anaphora"]
        assert str(status.status).endswith("HEALTHY")
    finally:
        serve.shutdown()


@pytest.mark.slow
def test_batches_of_a_dataset_are_answered_by_two_processes(cluster, run):
    pytest.importorskip("ray.data")
    import ray.data

    from anaphora.ray import Predictor

    dataset = ray.data.from_items([{"text": text, "n": n} for n, text in enumerate(TEXTS)])
    answered = dataset.map_batches(
        Predictor, fn_constructor_kwargs={"run": str(run), "device": "cpu"}, batch_size=8, concurrency=2
    )
    rows = sorted(answered.take_all(), key=lambda row: row["n"])
    assert [row["prediction"] for row in rows] == an.load(run).predict(TEXTS)


@pytest.mark.slow
def test_two_processes_train_and_report(cluster, tmp_path):
    pytest.importorskip("ray.train.torch")
    from anaphora.ray import trainer

    data = [(f"{i} {i}", str(i)) for i in range(40)]
    with pytest.raises(SettingsError, match="hiden"):
        trainer("translate", data, out=tmp_path / "bad", hiden=8)
    small = {
        "hidden": 16,
        "heads": 2,
        "layers": 1,
        "steps": 4,
        "valid_examples": 4,
        "device": "cpu",
        "dropout": 0.0,
    }
    order = trainer("translate", data, out=tmp_path / "run", model="transformer", shard="full", **small)
    result = order.fit()
    assert result.metrics["steps"] == 4
    assert any(name.startswith("dev_") for name in result.metrics)
    assert an.load(tmp_path / "run").predict(["3 3"]) == an.load(result.checkpoint.path).predict(["3 3"])
    world = [
        json.loads(line)["world"]
        for line in (tmp_path / "run" / "timings.jsonl").read_text().splitlines()[:1]
    ]
    assert world == [2]
