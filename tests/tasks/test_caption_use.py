"""Captions: learned, written alike in any company, looked into, saved, and refused where they are bad."""

from __future__ import annotations

import functools
import json
import re

import numpy as np
import pytest
import torch
from caption_tiny import ATTENTIVE, CORNERS, PRESETS, SIZE, pictures, settings, tiny, write
from tasks_tiny import is_one_sentence

import anaphora as an
from anaphora.cli import main
from anaphora.data.batches.padded import Augmentation
from anaphora.data.pictures_readers import open_pictures
from anaphora.errors import DataError, SettingsError
from anaphora.kinds.measures.captions import on_object
from anaphora.nn.attention import Hard
from anaphora.tasks.caption.inference import where_it_looked
from anaphora.tasks.caption.objective import CaptionBatch, CaptionObjective, caption_batches
from anaphora.tasks.outputs import Output
from anaphora.views.registry import VIEWS, picture
from sweeps import sweep

pytest.importorskip("PIL")


@functools.cache
def trained(preset: str) -> an.Captioner:
    return tiny(preset).fit(pictures(80), valid=pictures(6, seed=1))


def seen(count: int, seed: int = 2) -> list[np.ndarray]:
    return [x for x, _ in pictures(count, seed=seed)]


def looked_at_the_spot(model: an.Captioner) -> int:
    """For how many of 50 pictures the strongest place lay on the spot when its colour was named."""
    rows = [(x, texts[0]) for x, texts in pictures(50, seed=3)]
    symbols = model.tokenizer_.encode_batch([text for _, text in rows])
    weights = where_it_looked(model.model_, [x for x, _ in rows], symbols)
    hits = 0
    for one, (_, text) in zip(weights, rows, strict=True):
        corner = CORNERS.index(text.split(" at ")[1])
        left, top = 8 * (corner % 2) + 2, 8 * (corner // 2) + 2
        box = (left, top, left + 4, top + 4)
        hits += on_object(int(one[0].argmax()), box, grid=(4, 4), size=(SIZE, SIZE))
    return hits


@pytest.mark.parametrize("preset", PRESETS)
def test_captions_alone_and_in_a_batch_of_64_are_the_same(preset):
    model = trained(preset)
    mixed = [*seen(63), np.zeros((9, 40), dtype=np.uint8)]
    together = model.search(mixed, n_best=3, beam=5)
    for one, batched in list(zip(mixed, together, strict=True))[:: sweep(7, 1)]:
        (alone,) = model.search([one], n_best=3, beam=5)
        assert [c.text for c in alone] == [c.text for c in batched]
        assert [c.score for c in alone] == pytest.approx([c.score for c in batched], abs=1e-4)
    assert len({round(captions[0].score, 3) for captions in together}) >= 10  # it does look


@pytest.mark.parametrize(
    "preset",
    [
        "lstm-hard",
        "transformer",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("lstm", "lstm-attention")),
    ],
)
def test_it_learns_to_say_what_it_sees(preset):
    wide = {"hidden": 32, "lr": 3e-3} if preset == "transformer" else {"hidden": 32, "embedding": 32}
    model = tiny(preset, steps=400 if preset == "lstm" else 250, batch_tokens=250, **wide)
    model.fit(pictures(400), valid=pictures(10, seed=1))
    scores = model.score(pictures(50, seed=3, both=True))
    assert scores["exact_match"] >= 90
    assert scores["bleu"] >= 80
    assert scores["examples"] == 50
    if preset == "lstm-hard":  # which must see the colour in the one place that it looks at
        assert looked_at_the_spot(model) >= 45


def test_several_references_of_one_picture_are_all_learnt_from(tmp_path):
    """In columns or in rows, they are captions of one picture, of which any is right."""
    rows = pictures(4)
    write(tmp_path, "train", rows)
    (tmp_path / "rows.tsv").write_text(
        "".join(f"train-{i}.png\t{text}\n" for i, (_, texts) in enumerate(rows) for text in texts)
    )
    facts = [tiny().plan(tmp_path / name)["train"]["of"] for name in ("train.tsv", "rows.tsv")]
    assert [(one["pictures"], one["rows"]) for one in facts] == [(4, 6), (4, 6)]
    plan = tiny().plan(rows, rows)
    assert plan["train"]["rows"] == 6
    assert plan["symbols_per_example"] == pytest.approx((5 + 4.5 + 5 + 4.5) / 4, abs=0.05)


def test_every_epoch_takes_the_next_caption_of_a_picture():
    data = open_pictures(pictures(4), role="train", size=(SIZE, SIZE), texts="captions")
    captions = [[[10 * i + j] for j in range(len(rows))] for i, rows in enumerate(data.texts)]
    batches = caption_batches(data, captions, Augmentation(0.0, False, 1), batch_tokens=100, seed=1)
    told = []
    for _ in range(3):
        batch = next(batches)
        assert sorted(batch.indices) == [0, 1, 2, 3]
        told.append({i: about[0][0] for i, about in zip(batch.indices, batch.captions, strict=True)})
    assert [epoch[0] for epoch in told] == [0, 0, 0]  # it has one
    assert [epoch[1] for epoch in told] == [11, 10, 11]


def test_hard_attention_draws_while_training_and_looks_at_one_place_afterwards():
    model = trained("lstm-hard")
    hard = model.model_.decoder.attention
    assert isinstance(hard, Hard)
    weights = model.probe(seen(1)[0]).array("attention")
    assert set(weights.ravel().tolist()) == {0.0, 1.0}
    objective = CaptionObjective(model.settings_, model.tokenizer_, [])
    rows = [(x, model.tokenizer_.encode_batch(texts)) for x, texts in pictures(4)]
    batch = CaptionBatch([x for x, _ in rows], [about for _, about in rows], [0, 1, 2, 3])
    model.model_.train()
    try:
        values = []
        for seed in (1, 2, 1):
            torch.manual_seed(seed)
            values.append(float(objective.loss(model.model_, batch).total.detach()))
    finally:
        model.model_.eval()
    assert values[0] != values[1]  # other draws
    assert values[0] == values[2]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_saved_model_says_the_same(tmp_path, preset):
    model = trained(preset)
    model.save(tmp_path / "model")
    again = an.load(tmp_path / "model")
    assert type(again) is an.Captioner
    assert again.get_params() == model.get_params()
    assert again.search(seen(5), n_best=2) == model.search(seen(5), n_best=2)


@pytest.mark.parametrize("preset", PRESETS)
def test_it_can_be_looked_into(preset):
    model = trained(preset)
    (x,) = seen(1, seed=4)
    trace = model.probe(x)
    assert trace.max_difference <= 1e-4
    assert " ".join(trace.tokens["output"]) == f"{model.predict([x])[0]} </s>".strip()
    assert (trace.array("picture", "row", "column", "channel") == x).all()
    assert trace.facts["grid"] == [4, 4]
    if preset in ATTENTIVE:
        weights = trace.array("attention", "output", "place")
        np.testing.assert_allclose(weights.sum(1), 1, atol=1e-5)
    given = model.probe(x, "a red spot")
    assert given.tokens["output"] == ["a", "red", "spot", "</s>"]
    drawn = [view.name for view in VIEWS.values() if view.of == "probe" and view.missing(trace) is None]
    assert ("captions" in drawn) == (preset in ATTENTIVE)
    for name in drawn:
        assert picture(trace, name).svg().startswith("<svg")
    assert picture(model.probe_embeddings(), "embeddings").svg().startswith("<svg")


def test_searching_otherwise():
    model = trained("lstm-attention")
    xs = seen(6)
    assert model.predict(xs, decode="sample", seed=3) == model.predict(xs, decode="sample", seed=3)
    assert model.predict(xs, decode="sample", seed=3)[2:3] == model.predict(xs[2:3], decode="sample", seed=3)
    assert len(model.predict(xs, coverage=0.2)) == 6
    with pytest.raises(SettingsError, match="needs a model with attention"):
        trained("lstm").predict(xs, coverage=0.2)
    with pytest.raises(SettingsError, match="beam"):
        model.predict(xs, beam=0)
    with pytest.raises(DataError, match="write \\[picture\\]"):
        model.predict("scene.png")


def test_weights_of_the_eye_come_from_another_run(tmp_path):
    trained("lstm").save(tmp_path / "donor")
    path = tmp_path / "donor" / "model.safetensors"
    model = tiny(picture_weights=str(path))
    model.tokenizer_ = trained("lstm").tokenizer_
    model.model_ = model._fresh_model()
    donor = trained("lstm").model_.state_dict()
    taken = model._inherited()
    assert taken
    assert all(torch.equal(value, donor[name]) for name, value in taken.items())
    with pytest.raises(DataError, match="holds no weights for the network") as caught:
        tiny("transformer", picture_weights=str(path), steps=2).fit(pictures(8))
    assert is_one_sentence(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("train-0.png\n", "1 where path⇥caption is wanted"),
        ("train-0.png\t \n", "an empty column"),
        ("nowhere.png\ta spot\n", "there is no such picture"),
        ("train.tsv\ta spot\n", "is not a picture that can be read"),
        ("", "no rows|empty|nothing"),
        ("train-0.png\t\xff\n", "UTF-8"),
    ],
)
def test_captions_without_pictures_are_told_in_one_sentence(tmp_path, capsys, text, told):
    write(tmp_path, "train", pictures(2))
    (tmp_path / "bad.tsv").write_bytes(text.encode("latin-1"))
    assert (
        main.run(["train", "caption", str(tmp_path / "bad.tsv"), "-o", str(tmp_path / "run"), "--dry-run"])
        == 2
    )
    said = capsys.readouterr().err.strip()
    assert len(said.splitlines()) == 1, said
    assert re.search(told, said), said


def test_skipping_what_is_bad_counts_it(tmp_path, capsys):
    write(tmp_path, "train", pictures(12))
    (tmp_path / "train-3.png").write_bytes(b"not a picture")
    (tmp_path / "train-5.png").unlink()
    run, data = str(tmp_path / "run"), str(tmp_path / "train.tsv")
    order = ["train", "caption", data, "-o", run]
    for key, value in settings(steps=4).items():
        order += ["--set", f"{key}={value}"]
    assert main.run(order) == 2
    assert "train-3.png" in capsys.readouterr().err
    assert main.run([*order, "--skip-bad"]) == 0
    assert "2 rows were left out" in capsys.readouterr().err
    assert main.run(["score", run, data]) == 0  # as in training
    capsys.readouterr()
    assert main.run(["score", run, data, "--skip-bad", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert (scores["examples"], scores["skipped"]) == (10, 2)
    assert main.run(["predict", run, data]) == 2
    assert "train-3.png" in capsys.readouterr().err
    assert main.run(["predict", run, data, "--skip-bad", "--json"]) == 0
    found = capsys.readouterr()
    records = [json.loads(line) for line in found.out.splitlines()]
    assert len(records) == 12
    assert [record["picture"] for record in records if "error" in record] == ["train-3.png", "train-5.png"]
    assert "2 of 12 pictures could not be read" in found.err


def test_a_picture_a_folder_and_a_list_are_captioned(tmp_path, capsys):
    model = trained("lstm-attention")
    model.save(tmp_path / "model")
    folder = tmp_path / "scenes"
    folder.mkdir()
    write(folder, "some", pictures(3, seed=5))
    wanted = model.predict(seen(3, seed=5))
    run = str(tmp_path / "model")
    assert main.run(["predict", run, str(folder / "some-1.png")]) == 0
    assert capsys.readouterr().out == f"{wanted[1]}\n"
    for source in (folder, folder / "some.tsv"):
        assert main.run(["predict", run, str(source)]) == 0
        assert capsys.readouterr().out.splitlines() == wanted
    assert main.run(["predict", run, str(folder / "some-0.png"), "--set", "n_best=2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[0] for line in lines] == ["1", "1"]
    assert lines[0].split("\t")[2] == wanted[0]
    (tmp_path / "empty").mkdir()
    assert main.run(["predict", run, str(tmp_path / "empty")]) == 2
    assert "holds no pictures" in capsys.readouterr().err


def test_attention_on_objects_is_measured_on_scenes(monkeypatch):
    """An untrained eye looks anywhere: the share of hits is near what chance would give, and far from all."""
    from anaphora.data.corpora.shapes import CORPUS

    monkeypatch.setitem(CORPUS.sizes, "test", 20)
    model = an.Captioner(hidden=16, embedding=16, channels=8, steps=1, device="cpu")
    scenes = CORPUS.generate("few", "train", 40)
    model.fit(
        [(scene.picture, scene.captions) for scene in scenes], valid=[(scenes[0].picture, "a red circle")]
    )
    right = [[Output(s.captions[0], 0.0, 0.0, True)] for s in CORPUS.generate("few", "test", 20)]
    monkeypatch.setattr(model, "_describe", lambda *given: right)
    scores = model.score("shapes")
    assert scores["exact_match"] == 100.0
    assert scores["object_words"] == sum(3 * len(s.objects) for s in CORPUS.generate("few", "test", 20))
    assert 3 < scores["attention_by_chance"] < 8  # an object lies on about four of 64 places
    assert scores["attention_on_object"] < 60


def test_settings_without_effect_are_refused():
    for preset, given in (
        ("lstm", {"attention": "dot"}),
        ("lstm-attention", {"soft_share": 0.3}),
        ("lstm-hard", {"teacher_forcing": 0.5}),
        ("transformer", {"channels": 8}),
    ):
        with pytest.raises(SettingsError, match="has no effect on the preset"):
            an.Captioner(model=preset, **given)
