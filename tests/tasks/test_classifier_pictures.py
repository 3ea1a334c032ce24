"""Classifiers that look at pictures: the promises of every preset, what is refused, and what can be seen inside."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest
import torch
from classify_tiny import PICTURES, bars, settings, texts, tiny

import anaphora as an
from anaphora.cli import main
from anaphora.cli.answering import respond
from anaphora.data.sources.labelled import open_labelled
from anaphora.errors import DataError, SettingsError
from anaphora.inference.torch_engine import score_inputs
from anaphora.nn.glimpse import Looks
from anaphora.tasks.classify.objective import choice_loss, mistakes
from anaphora.tasks.classify.probing import as_colours
from anaphora.tasks.registry import TASKS


@functools.cache
def of_preset(preset: str) -> an.Classifier:
    return tiny(preset, steps=6).fit(bars(60), valid=bars(8, seed=1))


@pytest.mark.parametrize("preset", PICTURES)
def test_scores_alone_and_in_a_batch_of_64_are_the_same(preset):
    model = of_preset(preset)
    inputs = model.kinds.encode([x for x, _ in bars(64, seed=2)])
    together = score_inputs(model.model_, inputs)
    alone = np.concatenate([score_inputs(model.model_, [x]) for x in inputs])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert together.std() > 1e-3  # the model does look at its input


@pytest.mark.parametrize("preset", PICTURES)
def test_bars_are_learnt(preset):
    model = tiny(preset, steps=250, batch_tokens=300).fit(bars(600), valid=bars(40, seed=1))
    assert model.score(bars(200, seed=2))["accuracy"] >= 95


@pytest.mark.parametrize("preset", PICTURES)
def test_a_saved_model_answers_the_same(tmp_path, preset):
    model = of_preset(preset)
    model.save(tmp_path / "m")
    asked = [x for x, _ in bars(10, seed=5)]
    again = an.load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict_proba(asked), model.predict_proba(asked))
    assert again.settings_.scan == "picture"


@pytest.mark.parametrize("target", ["classes", "number"])
@pytest.mark.parametrize("preset", PICTURES)
def test_other_targets(preset, target):
    rows = [(x, "1" if label == "lying" else "2") for x, label in bars(40)]
    rows = rows if target == "number" else [(x, f"{label}|any") for x, label in rows]
    model = tiny(preset, steps=4, target=target).fit(rows, valid=rows[:4])
    assert len(model.predict([x for x, _ in rows[:3]])) == 3
    assert "glimpses" not in model.probe(rows[0][0]).arrays or preset != "grid-lstm"


def test_colours_are_channels_and_scaled_by_themselves():
    random = np.random.RandomState(0)
    rows = [(random.rand(5, 4, 3) * [1, 10, 100], "ab"[i % 2]) for i in range(20)]
    model = tiny("grid-lstm", steps=2, scale="features").fit(rows, valid=rows[:4])
    assert model.inputs_.sizes == {"rows": 5, "columns": 4, "channels": 3}
    np.testing.assert_allclose(model.inputs_.mean, [0.5, 5, 50], rtol=0.2)
    again = type(model.inputs_).from_facts(json.loads(json.dumps(model.inputs_.to_facts())))
    np.testing.assert_array_equal(again.mean, model.inputs_.mean)
    assert again.size == (5, 4)


# ---------------------------------------------------------------------- where to look is learned


def test_mistakes_by_hand():
    scores = torch.tensor([[0.0, 1.0], [2.0, -1.0]])
    assert mistakes("class", scores, torch.tensor([1, 1])).tolist() == [0, 1]
    assert mistakes("classes", scores, torch.tensor([[0.0, 1.0], [1.0, 1.0]])).tolist() == [0, 0.5]
    assert mistakes("number", scores[:, :1], torch.tensor([0.5, 9.0])).tolist() == [0.25, 1]


def test_the_loss_of_choices_has_no_value_and_the_gradient_of_the_score_function():
    log_prob = torch.tensor([[0.0, -1.0, -2.0]], requires_grad=True)
    baseline = torch.tensor([[0.0, 0.25, 0.5]], requires_grad=True)
    looks = Looks(torch.zeros(1, 3, 2), torch.zeros(1, 3, 3), log_prob, baseline)
    loss = choice_loss(looks, torch.tensor([1.0]))
    assert loss.item() == 0
    loss.backward()
    assert log_prob.grad.tolist() == [[0, 0.75, 0.5]]  # cost less baseline
    assert baseline.grad.tolist() == [[0, -1.5, -1.0]]  # 2 (b − c)


def test_glimpses_go_to_where_the_answer_is():
    """One pixel in a corner decides; whoever stays in the middle cannot see it."""
    random = np.random.RandomState(0)

    def corners(count):
        rows = []
        for _ in range(count):
            x = np.zeros((9, 9))
            bright = random.rand() < 0.5
            x[4:6, 7:9] = 1.0 if bright else -1.0
            rows.append((x, "bright" if bright else "dark"))
        return rows

    model = tiny("glimpse", patch=3, scales=1, steps=300, lr=5e-3, wander=0.3, glimpses=3)
    model.fit(corners(300), valid=corners(20))
    assert model.score(corners(100))["accuracy"] >= 99
    windows = model.probe(corners(1)[0][0]).array("glimpses", "step", "coordinate")
    assert windows[0].tolist() == [4.5, 4.5, 3.0]
    assert (
        windows[1:, 0].max() > 5.5
    )  # the pixels in question begin at 7 and a glimpse reaches 1.5 (+ ½) to the right


# ---------------------------------------------------------------------- what is seen inside


@pytest.mark.parametrize("preset", ["glimpse", "draw"])
def test_a_trace_holds_the_picture_the_path_and_the_beliefs(preset):
    model = of_preset(preset)
    x = bars(1, seed=9)[0][0]
    trace = model.probe(x)
    assert trace.array("picture", "row", "column", "channel").shape == (7, 6, 1)
    assert trace.array("glimpses", "step", "coordinate").shape == (3, 3)
    beliefs = trace.array("beliefs", "step", "label")
    np.testing.assert_allclose(beliefs.sum(1), 1)
    np.testing.assert_allclose(beliefs[-1], model.predict_proba([x])[0], atol=1e-6)
    assert trace.tokens["label"] == model.classes_
    assert trace.array("gate_forget", "layer", "time", "unit").shape[1] == 3


def test_a_file_or_a_dev_example_can_be_inspected(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tiny("draw", steps=2).fit(bars(20), valid=bars(4, seed=1), out="run")
    np.save("bar.npy", bars(1)[0][0])
    assert main.run(["inspect", "run", "--view", "glimpses", "--input", "bar.npy"]) == 0
    assert "glimpse 3" in capsys.readouterr().out
    assert main.run(["inspect", "run", "--view", "glimpses", "--text", "#2", "--svg", "path.svg"]) == 0
    assert (tmp_path / "path.svg").read_text().startswith("<svg")
    np.save("small.npy", np.ones((2, 2)))
    capsys.readouterr()
    assert main.run(["inspect", "run", "--view", "glimpses", "--input", "small.npy"]) == 2
    assert "bring it to that size" in capsys.readouterr().err


def test_the_states_of_a_grid_are_named_by_row_and_column():
    trace = of_preset("grid-lstm").probe(bars(1)[0][0])
    assert trace.tokens["time"][:4] == ["1,1", "1,2", "1,3", "2,1"]
    assert trace.array("states", "layer", "time", "unit").shape[1] == 12


def test_numbers_as_colours():
    grey = np.array([[[0.0], [0.5], [1.0]]], np.float32)
    assert as_colours(grey)[0, :, 0].tolist() == [0, 128, 255]
    assert as_colours(grey * 200)[0, :, 0].tolist() == [0, 100, 200]
    assert as_colours(grey * 1000 - 500)[0, :, 0].tolist() == [0, 128, 255]
    assert as_colours(np.zeros((2, 3, 5), np.float32)).shape == (2, 3, 1)
    assert as_colours(np.full((1, 1, 1), -3, np.float32)).tolist() == [[[0]]]


# ---------------------------------------------------------------------- data and settings


def test_pictures_are_read_as_they_are(tmp_path):
    grey, colour = np.arange(24.0).reshape(2, 3, 4), np.arange(48.0).reshape(2, 3, 4, 2)
    np.savez(tmp_path / "grey.npz", X=grey, y=[1, 2])
    np.savez(tmp_path / "colour.npz", X=colour, y=[1, 2])
    np.testing.assert_array_equal(
        open_labelled(tmp_path / "grey.npz", scan="picture").column(0)[1], grey[1, :, :, None]
    )
    np.testing.assert_array_equal(
        open_labelled(tmp_path / "colour.npz", scan="picture").column(0)[1], colour[1]
    )
    held = open_labelled(list(zip(grey, "ab", strict=True)), spill=tmp_path / "data", scan="picture")
    assert held.describe()["scan"] == "picture"
    np.testing.assert_array_equal(held.column(0)[1], grey[1, :, :, None])


def test_files_of_pictures_in_a_list_or_in_folders(tmp_path):
    image = pytest.importorskip("PIL.Image")
    random = np.random.RandomState(0)
    drawn = random.randint(0, 256, (4, 6, 5, 3)).astype(np.uint8)
    for number, pixels in enumerate(drawn):
        (tmp_path / "ab"[number % 2]).mkdir(exist_ok=True)
        image.fromarray(pixels).save(tmp_path / "ab"[number % 2] / f"{number}.png")
    (tmp_path / "list.tsv").write_text("a/0.png\ta\nb/1.png\tb\na/2.png\ta\nb/3.png\tb\n")
    listed = open_labelled(tmp_path / "list.tsv", scan="picture")
    np.testing.assert_array_equal(np.stack(listed.column(0)), drawn)
    assert open_labelled(tmp_path, scan="picture").column(1) == ["a", "a", "b", "b"]
    model = tiny("glimpse", steps=2).fit(tmp_path / "list.tsv", valid=tmp_path)
    (alone,) = respond(model, str(tmp_path / "a" / "2.png"), {})
    both = list(respond(model, str(tmp_path / "list.tsv"), {}))
    assert alone.record["probabilities"] == pytest.approx(both[2].record["probabilities"], abs=1e-6)
    image.fromarray(drawn[0, :4]).save(tmp_path / "b" / "3.png")
    with pytest.raises(
        DataError, match=r"b/3\.png has 4 rows, 5 columns and 3 channels where most have 6 rows"
    ):
        open_labelled(tmp_path / "list.tsv", scan="picture")
    (tmp_path / "b" / "3.png").write_bytes(b"\x89PNG not at all")
    with pytest.raises(DataError, match="is not a picture that can be read"):
        open_labelled(tmp_path / "list.tsv", scan="picture")


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (texts(30), "looks at pictures, but the data are texts"),
        ([(np.ones(5), "a"), (np.ones(5), "b")], r"a picture has \(rows, columns\)"),
        (
            [(np.ones((3, 2)), "a"), (np.ones((2, 3)), "b")],
            "picture 2 has 2 rows, 3 columns and 1 channel where",
        ),
        ([(np.ones((3, 2)), "a"), (np.full((3, 2), np.nan), "b")], r"holds NaN or infinity \(row 1\)"),
        ([(np.ones((3, 2)), "a"), (np.ones((3, 2)), "a")], "a classifier needs at least two classes"),
        ([(np.ones((2, 2, 2, 2)), "a")], r"a picture has \(rows, columns\)"),
    ],
)
def test_what_is_no_picture_is_refused_in_one_sentence(rows, told):
    with pytest.raises(DataError, match=told) as caught:
        tiny("glimpse").fit(rows)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_a_picture_of_another_size_is_refused():
    with pytest.raises(
        DataError, match="input 1 has 5 rows, 6 columns and 1 channel where the model was trained on"
    ):
        of_preset("draw").predict([np.ones((5, 6))])


@pytest.mark.parametrize("preset", PICTURES)
def test_settings_that_mean_nothing_are_refused(preset):
    with pytest.raises(SettingsError, match="scan has no effect"):
        an.Classifier(model=preset, scan="rows")
    with pytest.raises(SettingsError, match="tokens has no effect"):
        an.Classifier(model=preset, tokens="word")
    with pytest.raises(SettingsError, match=r"cannot be used|has no effect"):
        an.Classifier(model=preset, directions=3)


def test_settings_of_looking_are_only_for_who_looks():
    with pytest.raises(SettingsError, match="glimpses has no effect on the preset lstm"):
        an.Classifier(model="lstm", glimpses=3)
    with pytest.raises(SettingsError, match="scan = 'picture' is for glimpse, draw, grid-lstm"):
        an.Classifier(model="lstm", scan="picture")
    for preset in TASKS["classify"].presets.values():
        assert {"patch", "directions"} & TASKS["classify"].unused(preset.name) or preset.name == "grid-lstm"


def test_pictures_through_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pictures, labels = zip(*bars(40), strict=True)
    np.savez("train.npz", X=np.stack(pictures), y=np.array(labels))
    np.save("some.npy", np.stack(pictures[:2]))
    (tmp_path / "some.jsonl").write_text("".join(json.dumps(x.tolist()) + "\n" for x in pictures[:2]))
    words = [f"{key}={value}" for key, value in settings("grid-lstm", steps=3).items()]
    given = [word for pair in words for word in ("--set", pair)]
    assert main.run(["train", "classify", "train.npz", "-o", "run", "--json", *given]) == 0
    capsys.readouterr()
    found = []
    for name in ("some.npy", "some.jsonl"):
        assert main.run(["predict", "run", name, "--json"]) == 0
        found.append([json.loads(line)["probabilities"] for line in capsys.readouterr().out.splitlines()])
    for first, second in zip(*found, strict=True):
        assert first == pytest.approx(second)
    assert main.run(["train", "classify", "train.npz", "--dry-run", "--json", *given]) == 0
    assert json.loads(capsys.readouterr().out)["vocabulary"] == {
        "rows": 7,
        "columns": 6,
        "channels": 1,
        "classes": 2,
    }
    assert main.run(["train", "classify", "reviews", "-o", "refused", "--model", "glimpse"]) == 2
    assert "looks at pictures" in capsys.readouterr().err
