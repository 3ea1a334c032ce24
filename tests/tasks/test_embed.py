"""Embedding from pairs, labels and inputs alone: it learns, finds, clusters, and is the same in any batch."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from classify_tiny import waves
from embed_tiny import PRESETS, pairs, tiny

import anaphora as an
from anaphora.data.alike import AlikeBatch, Lookups, cropped
from anaphora.errors import DataError, SettingsError
from anaphora.kinds.measures.retrieval import lookup_measures
from anaphora.models.embeddings.vectors import neighbours, spherical_kmeans, unit
from anaphora.nn.contrastive import contrastive_losses, similarities
from anaphora.tasks.looking import Asked


@pytest.mark.parametrize("preset", PRESETS)
def test_pairs_are_learnt_and_found(preset):
    model = tiny(preset, steps=80).fit(pairs(200), valid=pairs(30, seed=1))
    assert model.settings_.positives == "pairs"
    found = model.score(pairs(30, seed=2))
    assert found["examples"] == 30
    assert found["recall_at_10"] > 60  # a guess finds a third of them
    assert found["mrr"] > 3 * found["chance_at_1"]
    assert found["recall_at_1"] <= found["recall_at_5"] <= found["recall_at_10"] <= 100


def test_inputs_with_labels_come_together():
    model = tiny("bilstm", steps=40).fit(waves(80), valid=waves(16, seed=1))
    assert model.settings_.positives == "labels"
    vectors = model.predict([x for x, _ in waves(40, seed=2)])
    labels = np.array([y for _, y in waves(40, seed=2)])
    found = model.cluster([x for x, _ in waves(40, seed=2)], 2)
    same = np.array(found.labels)[:, None] == np.array(found.labels)
    assert (same == (labels[:, None] == labels)).mean() > 0.8
    assert vectors.shape == (40, 8)
    assert np.allclose((vectors**2).sum(1), 1, atol=1e-5)
    assert model.score(waves(40, seed=3))["recall_at_1"] > 80


@pytest.mark.parametrize(
    "alone", [[x for x, _ in pairs(60)], [x for x, _ in waves(60)]], ids=["texts", "series"]
)
def test_inputs_alone_are_told_apart_by_two_views_of_each(alone):
    model = tiny("bilstm", dropout=0.1, crop=0.6).fit(alone)
    assert model.settings_.positives == "views"
    assert model.score(alone)["mrr"] > 2 * model.score(alone)["chance_at_1"]
    assert "source_field" not in model.score(alone)


def test_a_search_finds_what_is_nearest_and_takes_vectors_that_were_computed_before():
    model = tiny().fit(pairs(100))
    documents = [y for _, y in pairs(20, seed=5)]
    first = model.search(["a b", "h"], documents, k=3)
    assert [len(found) for found in first] == [3, 3]
    cosines = model.predict(["a b", "h"]) @ model.predict(documents).T
    for row, found in zip(cosines, first, strict=True):
        assert [one.index for one in found] == np.argsort(-row, kind="stable")[:3].tolist()
        assert found[0].similarity == pytest.approx(float(row.max()), abs=1e-6)
        assert found[0].item == documents[found[0].index]
        assert str(found[0]).endswith(f"\t{found[0].item}")
    (one,) = model.predict(["a b"], details=True)
    np.testing.assert_array_equal(one.vector, model.predict(["a b"])[0])
    assert one.read >= 2
    again = model.search(["a b", "h"], model.predict(documents), k=3)
    assert [[one.index for one in found] for found in again] == [
        [one.index for one in found] for found in first
    ]
    with pytest.raises(DataError, match="the vectors have 3 numbers; this Embedder gives 8"):
        model.search(["a"], np.zeros((2, 3)))
    with pytest.raises(DataError, match="0 neighbours cannot be found"):
        model.search(["a"], documents, k=0)


def test_a_vector_does_not_depend_on_its_batch():
    texts = [x for x, _ in pairs(30, seed=4, longest=40)]
    for preset in PRESETS:
        model = tiny(preset, steps=3).fit(pairs(40))
        together = model.predict(texts)
        alone = np.concatenate([model.predict([text]) for text in texts])
        np.testing.assert_allclose(together, alone, atol=1e-5, err_msg=preset)
        assert together.std() > 1e-3  # the model does look at its input


def test_the_loss_is_infonce_where_all_rows_differ_and_spares_those_that_are_alike():
    torch.manual_seed(0)
    a, b = torch.randn(4, 6), torch.randn(4, 6)
    scores = similarities(a, b) / 0.1
    assert torch.allclose(
        similarities(a, b), torch.nn.functional.cosine_similarity(a[:, None], b[None], dim=-1), atol=1e-6
    )
    right = torch.arange(4)
    wanted = 0.5 * (
        torch.nn.functional.cross_entropy(scores, right, reduction="none")
        + torch.nn.functional.cross_entropy(scores.T, right, reduction="none")
    )
    assert torch.allclose(contrastive_losses(scores, torch.eye(4, dtype=torch.bool)), wanted, atol=1e-6)
    alike = torch.eye(4, dtype=torch.bool)
    alike[0, 1] = alike[1, 0] = True
    by_hand = -0.5 * (scores[0].log_softmax(0)[:2].mean() + scores[:, 0].log_softmax(0)[:2].mean())
    assert contrastive_losses(scores, alike)[0] == pytest.approx(float(by_hand), abs=1e-6)


def test_rows_with_the_same_input_positive_or_label_are_alike():
    ids = [np.array([1, 2]), np.array([3]), np.array([1, 2])]
    batch = AlikeBatch(ids, [np.array([5]), np.array([5]), np.array([6])], None, [0, 1, 2])
    assert batch.alike().tolist() == [[True, True, True], [True, True, False], [True, False, True]]
    labelled = AlikeBatch([np.array([i]) for i in range(3)], None, ["x", "y", "x"], [4, 5, 6])
    assert labelled.alike().tolist() == [[True, False, True], [False, True, False], [True, False, True]]
    assert labelled.shard(1, 2).indices == [5]
    assert labelled.shard(0, 2).labels == ["x", "x"]


def test_a_crop_is_a_stretch_of_at_least_the_share():
    torch.manual_seed(1)
    inputs = [np.arange(n) for n in (1, 2, 10, 50)] * 20
    for x, part in zip(inputs, cropped(inputs, 0.5), strict=True):
        assert len(part) >= max(1, len(x) // 2)
        assert np.array_equal(part, np.arange(part[0], part[0] + len(part)))
    assert {len(part) for part in cropped([np.arange(10)] * 50, 0.5)} >= {5, 7, 9}


def test_retrieval_by_hand():
    rows = [("a", "x"), ("b", "y"), ("c", "x")]
    asked = Lookups.of(rows, "pairs", lambda texts: [np.array([ord(text)]) for text in texts])
    queries = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    targets = np.array([[1.0, 0.0], [1.0, 0.1], [1.0, 0.0]])
    measured = lookup_measures(asked, unit(queries), unit(targets))
    found, nearest = measured.report, measured.nearest
    # a finds x (rank 1), b finds y (nearest to (0, 1)), c is nearer to y than to both x
    assert nearest == [0, 1, 1]
    assert found["recall_at_1"] == pytest.approx(200 / 3)
    assert found["mrr"] == pytest.approx(100 * (1 + 1 + 0.5) / 3)
    assert found["chance_at_1"] == pytest.approx(100 * (2 / 3 + 1 / 3 + 2 / 3) / 3)
    labelled = Lookups.of([("a", "1"), ("b", "1"), ("c", "2")], "labels", lambda texts: list(texts))
    assert labelled.own.tolist() == [1, 0, 2]
    vectors = np.array([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1]])
    measured = lookup_measures(labelled, unit(vectors), unit(vectors))
    found, nearest = measured.report, measured.nearest
    assert nearest == [2, 2, 0]  # never itself
    assert (found["recall_at_1"], found["mrr"]) == (0.0, 50.0)


def test_clusters_of_directions():
    draw = np.random.RandomState(0)
    centres = np.eye(3)
    vectors = unit(
        np.concatenate([c + 0.1 * draw.randn(n, 3) for c, n in zip(centres, (5, 20, 10), strict=True)])
    )
    labels, found, similarity = spherical_kmeans(vectors, 3, seed=1)
    assert labels == [2] * 5 + [0] * 20 + [1] * 10
    assert np.allclose((found**2).sum(1), 1)
    assert similarity > 0.95
    assert spherical_kmeans(vectors, 3, seed=1)[0] == labels
    assert spherical_kmeans(np.ones((4, 2), np.float32) / 2**0.5, 3, seed=0)[0].count(0) == 4
    with pytest.raises(DataError, match="35 inputs cannot make 36 clusters"):
        spherical_kmeans(vectors, 36, seed=1)
    assert neighbours(vectors[:1], vectors, 99)[0][0] == (0, pytest.approx(1.0))


@pytest.mark.parametrize(
    ("content", "name", "found"),
    [
        ("a b\tA B\nc d\tC D\ne f\tE F\n", "a.tsv", "pairs"),
        ("anchor,positive\na b,A B\nc d,C D\ne f,E F\n", "a.csv", "pairs"),
        ("text,label\na b,x\nc d,y\ne f,x\na c,y\n", "a.csv", "labels"),
        ("a b\nc d\ne f g\nh a\n", "a.txt", "views"),
        ("text\na b\nc d\ne f g\nh a\n", "a.csv", "views"),
        ('{"query": "a b", "document": "A B"}\n{"query": "c", "document": "C"}\n', "a.jsonl", "pairs"),
        ('{"text": "a b"}\n{"text": "c d e"}\n', "a.jsonl", "views"),
    ],
)
def test_files_of_every_kind_are_read_and_opened_again(content, name, found, tmp_path):
    path = tmp_path / name
    path.write_text(content)
    model = tiny(steps=2, save_every=1, batch_tokens=40, bad_rows="strict").fit(
        path, valid=path, out=tmp_path / "run"
    )
    assert model.settings_.positives == found
    assert json.loads((tmp_path / "run" / "config.json").read_text())["settings"]["positives"] == found
    longer = an.Embedder.resume(tmp_path / "run", steps=3)
    assert longer.result_.steps == 3
    loaded = an.load(tmp_path / "run")
    texts = ["a b", "c d"]
    assert np.array_equal(loaded.predict(texts), longer.predict(texts))
    assert loaded.score(path)["examples"] == longer.score(path)["examples"]


def test_arrays_without_labels(tmp_path):
    X = np.random.RandomState(0).randn(12, 6, 2).astype(np.float32)
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "x.npz", X=X)
    for name in ("x.npy", "x.npz"):
        out = tmp_path / f"run-{name}"
        model = tiny(steps=2, save_every=1).fit(tmp_path / name, out=out)
        assert model.settings_.positives == "views"
        assert an.Embedder.resume(out, steps=3).result_.steps == 3
    assert model.predict(X).shape == (12, 8)
    assert tiny(steps=1).fit(X).settings_.positives == "views"
    assert tiny(steps=1).fit(list(X)).settings_.positives == "views"
    assert tiny(steps=1, holdout=0.5).fit((X, ["a", "b"] * 6)).settings_.positives == "labels"


@pytest.mark.parametrize(
    ("data", "given", "told"),
    [
        ([("a b", "x"), ("b c", "y")] * 20, {}, "the second texts of 40 pairs are only 2 different ones; if they are labels"),
        ([("a", "x"), ("b", "y"), ("c", "z")], {"positives": "labels"}, "no two of the inputs to measure on have the same label"),
        (["a", "b", "c"], {}, "no input is longer than one symbol"),
        (["a " * 300, "b " * 300], {"max_tokens": 400}, "batch_tokens = 200 holds one input"),
        ([x for x, _ in pairs(8)], {"frontend": "dense", "preset": "bilstm"}, "frontend reads frames of vectors"),
    ],
)  # fmt: skip
def test_data_that_cannot_teach_anything_are_refused(data, given, told):
    with pytest.raises(DataError, match=told):
        tiny(**{"preset": "bow", **given}).fit(data)


def test_dev_data_of_another_kind_are_refused():
    with pytest.raises(DataError, match="the training data are pairs and the dev data views"):
        tiny().fit(pairs(10), valid=["a b", "c d"])


def test_settings_that_mean_nothing_are_refused():
    with pytest.raises(SettingsError, match="pooling has no effect on the preset bow"):
        an.Embedder("bow", pooling="max")
    with pytest.raises(SettingsError, match="cell has no effect on the preset transformer"):
        an.Embedder("transformer", cell="gru")


def test_own_parts_train_an_embedder():
    def lazy(scores, right):
        return torch.nn.functional.cross_entropy(scores, right, reduction="none")

    def hits(truth, answers):
        return float(np.mean([a == b for a, b in zip(truth, answers, strict=True)]))

    model = tiny("bilstm", steps=3, loss=lazy, metrics={"hits": hits}, metric="hits", cell=an.nn.MGU).fit(
        pairs(40)
    )
    assert set(model.result_.metrics) >= {"hits", "mrr"}

    class Mean(torch.nn.Module):
        def __init__(self, spec):
            super().__init__()
            self.table = torch.nn.Embedding(spec.inputs, spec.outputs)

        def forward(self, x, lengths):
            return self.table(x).mean(1)

    assert tiny(steps=2, model=Mean).fit(pairs(20)).predict(["a b"]).shape == (1, 8)


def test_the_inside_of_an_embedder(tmp_path):
    model = tiny("transformer", steps=2).fit(pairs(40), out=tmp_path / "run")
    trace = model.probe("a b c", "A B C", what=("gradients", "ablation"))
    assert trace.tokens["time"] == ["▁a", "▁b", "▁c", "</s>"]
    assert {"attention", "input_gradients"} <= trace.arrays.keys()
    assert model.probe_embeddings(["a b", "c", "d e"]).tokens["symbol"] == ["a b", "c", "d e"]
    assert "▁A" in model.probe_embeddings().tokens["symbol"]
    asked = Asked(model, tmp_path / "run")
    assert asked.vectors(asked.typed("a b\n\n c \nd e\n")).tokens["symbol"] == ["a b", "c", "d e"]
    assert asked.typed(" \n") is None
    beside = asked.vectors(asked.typed("d e"))
    assert len(beside.tokens["symbol"]) > 1
    assert beside.tokens["symbol"][-1] == "d e"
    numbers = tiny("bilstm", steps=2).fit(waves(20), valid=waves(6, seed=1))
    assert numbers.probe("1 2\n3 4").tokens["time"] == ["1", "2"]
    with pytest.raises(DataError, match="reads vectors, so it has no vectors of symbols"):
        numbers.probe_embeddings()
    with pytest.raises(DataError, match="input 1 is empty"):
        model.probe("")
