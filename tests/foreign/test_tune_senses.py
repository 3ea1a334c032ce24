"""Training begins with the weights of a model that sees or hears. The folders are written by our own export."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from foreign_tiny import stirred
from test_senses_in_use import TINY, scenes, sounds, vit, wav2vec2, whisper

import anaphora as an
from anaphora.cli import main
from anaphora.errors import AnaphoraError

STEPS: dict[str, Any] = {
    "steps": 2,
    "valid_every": 10,
    "save_every": 10,
    "device": "cpu",
    "warmup": 0,
    "seed": 1,
}
SPOKEN = [(x, ["ab b", "a"][i % 2]) for i, x in enumerate(sounds())]
SEEN = [(x, "xyzw"[i % 4]) for i, x in enumerate(scenes(8))]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("public")
    for make in (vit, wav2vec2, whisper):
        make().export(place / make.__name__, to="hf")
    return place


def moved(m: Any, donor: Any, part: str) -> bool:
    before, after = donor.model_.state_dict(), m.model_.state_dict()
    names = [name for name in before if name.startswith(part)]
    assert names
    return any(not torch.equal(before[name], after[name]) for name in names)


def test_wav2vec2_keeps_its_convolutions_and_letters_and_trains_the_rest(
    folders: Path, tmp_path: Path
) -> None:
    folder = str(folders / "wav2vec2")
    m = an.Transcriber(init=folder, **STEPS).fit(
        SPOKEN, valid=SPOKEN[:2], out=tmp_path / "run", verbose=False
    )
    donor = an.load(folder, device="cpu")
    assert (m.settings_.model, m.settings_.freeze) == ("wav2vec2", "encoder.front.convolutions")
    assert m.tokenizer_.spellings == donor.tokenizer_.spellings
    assert not moved(m, donor, "encoder.front.convolutions.")
    assert moved(m, donor, "encoder.body.stack.")
    assert moved(m, donor, "frames.")
    again = an.load(tmp_path / "run", device="cpu")
    assert again.predict(sounds()) == m.predict(sounds())


def test_all_of_it_moves_where_that_is_asked(folders: Path) -> None:
    folder = str(folders / "wav2vec2")
    m = an.Transcriber(init=folder, freeze=False, **STEPS).fit(SPOKEN, valid=SPOKEN[:2], verbose=False)
    assert moved(m, an.load(folder, device="cpu"), "encoder.front.convolutions.")


def test_letters_that_the_model_does_not_write_are_counted(folders: Path) -> None:
    odd = [(x, "a?" if i else "b") for i, x in enumerate(sounds())]
    with pytest.warns(UserWarning, match="3 of 4 transcripts have characters"):
        an.Transcriber(init=str(folders / "wav2vec2"), **STEPS).fit(odd, valid=SPOKEN[:2], verbose=False)


def test_whisper_goes_on(folders: Path) -> None:
    folder = str(folders / "whisper")
    m = an.Transcriber(init=folder, **STEPS).fit(SPOKEN, valid=SPOKEN[:2], verbose=False)
    assert m.settings_.model == "whisper"
    assert moved(m, an.load(folder, device="cpu"), "decoder.stack.")


def test_a_vit_gets_classes_of_its_own(folders: Path, tmp_path: Path) -> None:
    folder = str(folders / "vit")
    m = an.Classifier(init=folder, freeze=True, **STEPS).fit(
        SEEN, valid=SEEN[:4], out=tmp_path / "run", verbose=False
    )
    donor = an.load(folder, device="cpu")
    assert m.settings_.model == "vit"
    assert set(m.classes_) == set("xyzw")
    assert not moved(m, donor, "encoder.")
    np.testing.assert_array_equal(
        an.load(tmp_path / "run", device="cpu").predict_proba(scenes()), m.predict_proba(scenes())
    )
    tuned = an.Classifier(init=folder, **STEPS).fit(SEEN, valid=SEEN[:4], verbose=False)
    assert moved(tuned, donor, "encoder.stack.")


def test_the_command_takes_the_folder(folders: Path, tmp_path: Path) -> None:
    for i, x in enumerate(sounds()):
        np.save(tmp_path / f"{i}.npy", x)
    image = pytest.importorskip("PIL.Image")
    rows = []
    for i, x in enumerate(scenes(8)):
        image.fromarray(x[: 8 - i % 2]).save(tmp_path / f"{i}.png")  # of different sizes
        rows.append(f"{i}.png\t{'xy'[i % 2]}")
    (tmp_path / "list.tsv").write_text("\n".join(rows) + "\n")
    shutil.copytree(folders / "vit", tmp_path / "vit")
    file = tmp_path / "vit" / "preprocessor_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "do_resize": True, "resample": 2}))
    order = ["train", "classify", str(tmp_path / "list.tsv"), "--init", str(tmp_path / "vit"), "--steps", "1"]
    assert main.run([*order, "-o", str(tmp_path / "run")]) == 0
    m = an.load(tmp_path / "run", device="cpu")
    assert m.settings_.model == "vit"
    assert m.score(str(tmp_path / "list.tsv"))["examples"] == 8


def test_what_does_not_fit_is_named(folders: Path) -> None:
    with pytest.raises(AnaphoraError, match="hidden = 32 differs from 16"):
        an.Transcriber("wav2vec2", init=str(folders / "wav2vec2"), hidden=32).fit(SPOKEN)
    with pytest.raises(AnaphoraError, match="whose weights fit nothing of a Classifier"):
        an.Classifier(init=str(folders / "wav2vec2"), **STEPS).fit(SEEN)
    with pytest.raises(AnaphoraError, match="looks at pictures, but the data are texts"):
        an.Classifier(init=str(folders / "vit"), **STEPS).fit([("a b", "x"), ("c d", "y")] * 5)
    with pytest.raises(AnaphoraError, match="holds no recogniser"):
        an.Transcriber(init=str(folders), **STEPS).fit(SPOKEN)


@pytest.mark.parametrize("kind", ["Wav2Vec2Model", "Wav2Vec2ForPreTraining", "ViTModel"])
def test_a_model_without_a_last_layer_gets_one(kind: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    if kind == "ViTModel":
        config = transformers.ViTConfig(**sizes, image_size=8, patch_size=4)
        transformers.ViTImageProcessor(size={"height": 8, "width": 8}).save_pretrained(tmp_path)
    else:
        config = transformers.Wav2Vec2Config(
            **sizes,
            conv_dim=(8,) * 7,
            num_conv_pos_embeddings=16,
            num_conv_pos_embedding_groups=4,
            codevector_dim=8,
        )
        transformers.Wav2Vec2FeatureExtractor().save_pretrained(tmp_path)
    theirs = getattr(transformers, kind)(config).eval()
    theirs.save_pretrained(tmp_path)
    task, data = (an.Classifier, SEEN) if kind == "ViTModel" else (an.Transcriber, SPOKEN)
    m = task(init=str(tmp_path), freeze=True, **STEPS).fit(data, valid=data[:2], verbose=False)
    if kind == "ViTModel":
        asked = torch.from_numpy(np.stack(m._encode(scenes())))
        with torch.no_grad():
            ours = m.model_.encoder(asked, torch.tensor([8] * len(asked))).annotations
            found = theirs(asked.permute(0, 3, 1, 2)).last_hidden_state
    else:
        heard = torch.from_numpy(m._hear(sounds()[0]))[None]
        with torch.no_grad():
            ours = m.model_.encoder(heard, torch.tensor([heard.shape[1]])).annotations
            body = getattr(theirs, "wav2vec2", theirs)
            found = body(heard[..., 0]).last_hidden_state
    torch.testing.assert_close(ours, found, rtol=0, atol=1e-5)
    with pytest.raises(AnaphoraError, match=f"holds a {kind}, which is not read"):
        an.load(tmp_path)


@pytest.fixture(scope="module")
def square(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A vit that sees squares of eight pixels."""
    place = tmp_path_factory.mktemp("square") / "vit"
    data = [(x[:, :8], "abc"[i % 3]) for i, x in enumerate(scenes(9))]
    m = an.Classifier("vit", pooling="first", patch=4, **TINY).fit(data, valid=data[:2], verbose=False)
    stirred(m).export(place, to="hf")
    return str(place)


@pytest.mark.parametrize("preset", ["lstm-attention", "transformer"])
@pytest.mark.parametrize("task", [an.Captioner, an.Answerer])
def test_a_vit_sees_for_captions_and_answers(task: Any, preset: str, square: str, tmp_path: Path) -> None:
    donor = an.load(square, device="cpu")
    pictures = [x[:, :8] for x in scenes(8)]
    if task is an.Captioner:
        data: list[Any] = [(x, ["a red one", "blue"][i % 2]) for i, x in enumerate(pictures)]
    else:
        data = [(x, "is it red ?", ["yes", "no"][i % 2]) for i, x in enumerate(pictures)]
    sizes = {"hidden": 8, **({"heads": 2, "feedforward": 8, "layers": 1} if preset == "transformer" else {})}
    m = task(preset, init=square, **sizes, **STEPS).fit(
        data, valid=data[:2], out=tmp_path / "run", verbose=False
    )
    eye = m.model_.encoder if task is an.Captioner else m.model_.pictures
    assert (m.settings_.picture_size, m.settings_.freeze, eye.grid) == (8, True, (2, 2))
    held = donor.model_.encoder.state_dict()
    assert all(torch.equal(value, held[name]) for name, value in eye.network.state_dict().items())
    with torch.no_grad():
        seen = eye(torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 255)
        states = donor.model_.encoder(torch.from_numpy(np.stack(donor._encode(pictures))), torch.empty(0))
        torch.testing.assert_close(seen.annotations, eye.map(states.annotations[:, 1:]), rtol=0, atol=1e-4)
    again = an.load(tmp_path / "run", device="cpu")
    asked = pictures[:2] if task is an.Captioner else [(x, "is it red ?") for x in pictures[:2]]
    assert again.predict(asked) == m.predict(asked)
    m.probe(*([pictures[0]] if task is an.Captioner else [(pictures[0], "is it red ?")]))
    with pytest.raises(AnaphoraError, match="picture_size = 32 differs from 8"):
        task(preset, init=square, picture_size=32, **sizes, **STEPS).fit(data, valid=data[:2])
