"""A label for every frame: a class, several or a number; from arrays, files and lists, alone as in a batch, resumed and loaded."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import anaphora as an
from anaphora.cli.answering import respond
from anaphora.data.sources.tagged import open_frames
from anaphora.errors import AnaphoraError, DataError, SettingsError

DRAW = np.random.default_rng(0)
X = [DRAW.normal(size=(3 + n % 5, 2)).astype(np.float32) for n in range(24)]
SIGNS = [["up" if frame[0] > 0 else "down" for frame in x] for x in X]
TINY = {
    "hidden": 8,
    "steps": 2,
    "valid_every": 2,
    "save_every": 1,
    "batch_tokens": 64,
    "device": "cpu",
    "seed": 3,
}
LEARN = {
    **TINY,
    "hidden": 16,
    "steps": 150,
    "lr": 2e-2,
    "warmup": 0,
    "dropout": 0.0,
    "ema": 0.0,
    "valid_every": 1000,
    "save_every": 1000,
    "batch_tokens": 200,
}
PRESETS = {
    "mlp": {"kernel": 3},
    "conv": {"kernel": 3, "layers": 2},
    "lstm": {},
    "bilstm": {"frontend": "dense"},
    "bilstm-crf": {},
    "transformer": {"heads": 2, "feedforward": 16, "characters": "none"},
}


@pytest.mark.parametrize("preset", PRESETS)
def test_frames_are_labelled_alone_as_among_others_after_loading_and_after_resuming(preset, tmp_path):
    model = an.Tagger(preset, **TINY | PRESETS[preset]).fit(
        X, SIGNS, valid=(X[:4], SIGNS[:4]), out=tmp_path / "run"
    )
    together = model.predict_proba(X)
    for x, shares in zip(X, together, strict=True):
        assert shares.shape == (len(x), 2)
        np.testing.assert_allclose(model.predict_proba([x])[0], shares, atol=1e-6)
    again = an.load(tmp_path / "run", device="cpu")
    assert again.predict(X) == model.predict(X)
    assert again.targets_ == model.targets_
    assert an.Tagger.resume(tmp_path / "run", steps=3).result_.steps == 3


def test_a_class_for_every_frame_is_learnt():
    model = an.Tagger("mlp", kernel=1, **LEARN).fit(X, SIGNS, valid=(X, SIGNS))
    scores = model.score((X, SIGNS))
    assert scores["accuracy"] > 95
    assert scores["f1"] > 95
    assert scores["by_type"].keys() == {"up", "down"}
    (one,) = model.predict([X[0]], details=True)
    assert len(one.tags) == len(one.probabilities) == len(X[0])
    assert str(one) == "\t".join(one.tags)


def test_labels_keep_the_type_they_had():
    given = [[int(label == "up") for label in row] for row in SIGNS]
    model = an.Tagger("mlp", **TINY).fit(X, [np.array(row) for row in given], valid=(X, given))
    assert {type(label) for row in model.predict(X) for label in row} == {int}


def test_a_number_for_every_frame_is_learnt():
    numbers = [5 + 100 * x[:, 1] for x in X]
    model = an.Tagger("mlp", kernel=1, target="number", layers=2, **LEARN).fit(X, numbers, valid=(X, numbers))
    scores = model.score((X, numbers))
    assert scores.keys() == {"mse", "mae", "r2"}
    assert scores["r2"] > 0.9
    found = np.concatenate(model.predict(X))
    np.testing.assert_allclose(scores["mse"], ((found - np.concatenate(numbers)) ** 2).mean(), rtol=1e-5)
    with pytest.raises(AnaphoraError, match="no probabilities"):
        model.predict_proba(X)
    assert model.probe(X[0]).arrays["outputs"].values == pytest.approx(found[: len(X[0])], rel=1e-5)


def test_several_classes_for_every_frame_are_learnt():
    given = [[[name for name, there in zip("ab", frame > 0, strict=True) if there] for frame in x] for x in X]
    model = an.Tagger("mlp", kernel=1, target="classes", **LEARN).fit(X, given, valid=(X, given))
    assert model.score((X, given))["micro_f1"] > 90
    (found,) = model.predict([X[0]])
    assert all(isinstance(labels, list) for labels in found)
    chances = model.predict_proba([X[0]])[0]
    assert [[n for n, p in zip("ab", row, strict=True) if p >= 0.5] for row in chances] == found


def test_the_loss_of_numbers_is_the_squared_error_of_the_standardised_ones():
    numbers = [x[:, 1] for x in X]
    model = an.Tagger("lstm", target="number", **TINY).fit(X, numbers, valid=(X, numbers))
    objective, _ = model._objective_and_batches(*(open_frames((X, numbers))[0],) * 2)
    scale = np.concatenate(numbers).std()
    expected = model.score((X, numbers))["mse"] / scale**2
    assert objective.evaluate(model.model_)["loss"] == pytest.approx(expected, rel=1e-4)


def test_what_comes_later_is_seen_by_who_reads_both_ways_only():
    """The label of a frame is the sign of the next one."""
    next_sign = [[*row[1:], "down"] for row in SIGNS]
    both = an.Tagger("bilstm", **LEARN).fit(X, next_sign, valid=(X, next_sign)).score((X, next_sign))
    one = an.Tagger("lstm", **LEARN | {"steps": 60}).fit(X, next_sign, valid=(X, next_sign))
    changed = [np.concatenate((x[:2], -x[2:])) for x in X]
    assert [row[:2] for row in one.predict(X)] == [row[:2] for row in one.predict(changed)]
    assert both["accuracy"] > 90


def written(folder):
    """The same frames and labels in every form that is read."""
    lengths = np.array([len(x) for x in X])
    flat, labels = np.concatenate(X), np.array([label for row in SIGNS for label in row])
    np.savez(folder / "flat.npz", X=flat, y=labels, lengths=lengths)
    padded, tags = np.zeros((len(X), lengths.max(), 2), np.float32), np.full((len(X), lengths.max()), "none")
    many = folder / "many"
    many.mkdir()
    listing = []
    for i, (x, row) in enumerate(zip(X, SIGNS, strict=True)):
        padded[i, : len(x)], tags[i, : len(x)] = x, row
        lines = [",".join([*(str(v) for v in frame), label]) for frame, label in zip(x, row, strict=True)]
        (many / f"{i:02}.csv").write_text("\n".join(["left,right,phase", *lines]) + "\n")
        np.save(folder / f"{i}.npy", x)
        np.save(folder / f"{i}.labels.npy", np.array(row))
        listing.append(f"{i}.npy\t{' '.join(row) if i % 2 else f'{i}.labels.npy'}\n")
    np.savez(folder / "padded.npz", X=padded, y=tags, lengths=lengths)
    (folder / "list.tsv").write_text("".join(listing))
    rows = [{"frames": x.tolist(), "phases": row} for x, row in zip(X, SIGNS, strict=True)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "flat.npz": {},
        "padded.npz": {},
        "many": {},
        "list.tsv": {},
        "rows.jsonl": {"source_field": "frames", "target_field": "phases"},
    }


@pytest.mark.parametrize("name", ["flat.npz", "padded.npz", "many", "list.tsv", "rows.jsonl"])
def test_every_form_is_read_as_the_same_and_answered_and_opened_again(name, tmp_path):
    fields = written(tmp_path)[name]
    rows, _ = open_frames(tmp_path / name, **fields)
    for x, label, row, tags in zip(rows.column(0), rows.column(1), X, SIGNS, strict=True):
        np.testing.assert_array_equal(x, row)
        assert label.split("\t") == tags
    model = an.Tagger("lstm", **TINY).fit(tmp_path / name, out=tmp_path / "run", **fields)
    assert an.Tagger.resume(tmp_path / "run", steps=3).result_.steps == 3
    asked = tmp_path / name / "01.csv" if name == "many" else tmp_path / name
    found = [response.text.split("\t") for response in respond(model, str(asked), {})]
    assert found == model.predict([X[1]] if name == "many" else X)
    records = [response.record for response in respond(model, str(asked), {})]
    assert [record["tags"] for record in records] == found
    assert len(records[0]["probabilities"]) == len(found[0])


def test_two_array_files_and_one_sequence_of_an_npy_file(tmp_path):
    frames, labels = np.stack([x[:3] for x in X]), np.array([row[:3] for row in SIGNS])
    np.save(tmp_path / "x.npy", frames)
    np.save(tmp_path / "y.npy", labels)
    model = an.Tagger("lstm", **TINY).fit((tmp_path / "x.npy", tmp_path / "y.npy"), out=tmp_path / "run")
    np.save(tmp_path / "one.npy", frames[0])
    (found,) = respond(model, str(tmp_path / "one.npy"), {})
    assert [found.text.split("\t")] == model.predict([frames[0]])
    assert an.Tagger.resume(tmp_path / "run", steps=3).result_.steps == 3


def test_frames_from_a_generator_a_table_and_a_loader():
    pairs = list(zip(X, SIGNS, strict=True))
    expected, _ = open_frames(pairs)
    for data in (
        iter(pairs),
        [{"sequence": x, "tags": row} for x, row in pairs],
        ([torch.from_numpy(x) for x in X], SIGNS),
    ):
        found, _ = open_frames(data)
        assert found.column(1) == expected.column(1)
        assert all((a == b).all() for a, b in zip(found.column(0), expected.column(0), strict=True))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (([X[0], X[1]], [SIGNS[0], SIGNS[1][:-1]]), "train example 2 has 4 frames, but 3 labels"),
        (([X[0], X[1]], [SIGNS[0], [*SIGNS[1][:-1], None]]), "train example 2: frame 4 has no label"),
        (([X[0], X[1]], [SIGNS[0], [*SIGNS[1][:-1], ""]]), "train example 2: frame 4 has no label"),
        (([X[0], X[1]], [SIGNS[0], "up"]), "train example 2 has 4 frames, but 1 labels"),
        (([X[0], X[1][:, :1]], [SIGNS[0], SIGNS[1]]), "features where most have"),
        (([X[0], np.full((2, 2), np.nan)], [SIGNS[0], ["up", "up"]]), "train example 2 holds NaN"),
        ("adding", "adding has one label for each sequence; it is for `train classify`"),
    ],
)
def test_what_cannot_be_used_is_named(data, told):
    with pytest.raises(DataError, match=told):
        an.Tagger("lstm", **TINY).fit(data)


def test_what_cannot_be_used_is_left_out_on_request(tmp_path):
    bad = ([*X, X[0]], [*SIGNS, ["up"]])
    with pytest.warns(UserWarning, match="1"):
        model = an.Tagger("lstm", bad_rows="skip", **TINY).fit(bad, out=tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["data"]["train"]["of"]["skipped"] == {"has 3 frames, but 1 labels": 1}
    assert model.result_.steps == 2


@pytest.mark.parametrize(
    ("settings", "error", "told"),
    [
        ({"model": "hmm"}, DataError, "counts words, but the data are vectors"),
        ({"model": "bilstm-crf", "target": "number"}, SettingsError, "a CRF scores sequences of classes"),
        ({"model": "mlp", "kernel": 4}, SettingsError, "must be odd"),
        ({"model": "lstm", "target": "number"}, DataError, "which is no number"),
        ({"model": "lstm", "frontend": "conv", "frame": "3x3"}, DataError, "frame = 3x3 has 9 values"),
    ],
)
def test_settings_that_do_not_fit_frames_are_refused(settings, error, told):
    small = {} if settings["model"] == "hmm" else TINY
    with pytest.raises(error, match=told):
        an.Tagger(**small | settings).fit(X, SIGNS)


def test_words_and_frames_are_not_mixed_up():
    words = [("a dog", "D N"), ("the dog", "D N")] * 5
    with pytest.raises(DataError, match="target = number is about frames"):
        an.Tagger("lstm", target="number", **TINY).fit(words)
    model = an.Tagger("lstm", **TINY).fit(X, SIGNS)
    with pytest.raises(DataError, match="trained on frames of vectors"):
        model.score(words)
    with pytest.raises(DataError, match="input 1 has 3 features where the model was trained on 2"):
        model.predict([np.zeros((4, 3))])
    with pytest.raises(AnaphoraError, match="no vectors of words"):
        model.probe_embeddings()


def test_an_own_model_reads_frames():
    class Plain(torch.nn.Module):
        def __init__(self, spec):
            super().__init__()
            self.linear = torch.nn.Linear(spec.inputs, spec.outputs)

        def forward(self, frames, lengths):
            return self.linear(frames)

    model = an.Tagger(model=Plain, **TINY).fit(X, SIGNS)
    assert [len(row) for row in model.predict(X)] == [len(x) for x in X]


def test_the_inside_of_a_frame_tagger():
    model = an.Tagger("bilstm", **TINY).fit(X, SIGNS)
    trace = model.probe(X[0], SIGNS[0], what=("gradients",))
    assert trace.tokens["time"] == ["1", "2", "3"]
    assert trace.arrays["probabilities"].values.shape == (3, 2)
    assert {"states", "gate_input"} <= trace.arrays.keys()
    gradients = trace.arrays["input_gradients"].values
    assert gradients.shape == (3, 3)
    assert (gradients > 0).all()  # read both ways, every loss depends on every frame
    forward = an.Tagger("lstm", **TINY).fit(X, SIGNS).probe(X[0], what=("gradients",))
    assert (np.triu(forward.arrays["input_gradients"].values, 1) == 0).all()
    typed = "\n".join(" ".join(str(value) for value in frame) for frame in X[0])
    np.testing.assert_allclose(
        model.probe(typed).arrays["probabilities"].values, trace.arrays["probabilities"].values, atol=1e-6
    )


def test_words_are_tagged_by_windows():
    words = [("a dog ran", "D N V"), ("the dogs run", "D N V")] * 6
    for preset in ("mlp", "conv", "lstm"):
        model = an.Tagger(preset, **{**LEARN, "steps": 40}).fit(words, valid=words)
        assert model.predict(["a dogs ran"]) == [["D", "N", "V"]]
