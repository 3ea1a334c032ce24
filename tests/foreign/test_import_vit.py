"""Vision Transformers of `transformers` with random weights: equal logits, hidden states, attention, pixels; and back again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import anaphora as an
from anaphora.cli import main
from anaphora.data.batches.padded import tensors_of
from anaphora.data.resampling import resized
from anaphora.errors import AnaphoraError
from anaphora.nn import inside
from anaphora.nn.attention import MultiHead

transformers = pytest.importorskip("transformers")

_SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
MODELS: dict[str, dict[str, Any]] = {
    "ViT": {"image_size": 16, "patch_size": 4},
    "ViT-oblong": {"image_size": [16, 24], "patch_size": 8, "hidden_act": "gelu_new"},
    "DeiT": {"image_size": 16, "patch_size": 8},
}


def pictures(count: int = 3) -> list[np.ndarray]:
    draw = np.random.default_rng(1)
    return [draw.integers(0, 256, (20 + 3 * i, 31 + 2 * i, 3), dtype=np.uint8) for i in range(count)]


def saved(folder: Path, name: str, labels: int = 3) -> tuple[Any, Any]:
    """A model of theirs with random weights, biases too, and its image processor, saved in ``folder``."""
    torch.manual_seed(3)
    kind, values = name.split("-")[0], MODELS[name]
    config = getattr(transformers, f"{kind}Config")(**_SIZES, **values, num_labels=labels)
    model = getattr(transformers, f"{kind}ForImageClassification")(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn_like(weight)
    model.save_pretrained(folder)
    sides = values["image_size"] if isinstance(values["image_size"], list) else [values["image_size"]] * 2
    size = {"height": sides[0], "width": sides[1]}
    more: dict[str, Any] = {"size": size}
    if kind == "DeiT":
        more = {"size": {"height": 20, "width": 18}, "crop_size": size}
    processor = getattr(transformers, f"{kind}ImageProcessor")(**more)
    processor.save_pretrained(folder)
    return model, processor


def close(ours: torch.Tensor, found: torch.Tensor, exact: torch.Tensor) -> None:
    assert float((ours - found).abs().max()) < 1e-4
    apart, theirs = (float((one.double() - exact).abs().max()) for one in (ours, found))
    assert apart <= max(1.5 * theirs, 1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_pixels_scores_states_attention_and_weights_are_equal(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    theirs, processor = saved(folder, name)
    m = an.load(folder, an.Classifier, device="cpu")
    asked = processor(pictures(), return_tensors="pt").pixel_values
    encoded = m._encode(pictures())
    seen = torch.from_numpy(np.stack(encoded)).permute(0, 3, 1, 2)
    torch.testing.assert_close(seen, asked, rtol=0, atol=1e-5)
    theirs.set_attn_implementation("eager")
    with torch.no_grad(), inside.record() as notes:
        ours = m.model_(*tensors_of(encoded, "cpu"))
    with torch.no_grad():
        found = theirs(asked, output_hidden_states=True, output_attentions=True)
        exact = theirs.double()(asked.double(), output_hidden_states=True)
    close(ours, found.logits, exact.logits)
    weights = [note.value for note in notes if note.name == "weights" and isinstance(note.module, MultiHead)]
    states = [note.value for note in notes if note.name == "states"]
    for mine, other in zip(weights, found.attentions, strict=True):
        assert float((mine - other).abs().max()) < 1e-5
    for mine, other, true in zip(states, found.hidden_states[1:], exact.hidden_states[1:], strict=True):
        if other is not found.hidden_states[-1]:  # whose last one is normalised
            close(mine, other, true)
    assert m.predict(pictures()) == [theirs.config.id2label[int(i)] for i in found.logits.argmax(1)]
    back = tmp_path / "back"
    m.export(back, to="hf")
    before, after = load_file(folder / "model.safetensors"), load_file(back / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[one], after[one]) for one in before)
    again = an.load(back, device="cpu")
    np.testing.assert_array_equal(again.predict_proba(pictures()), m.predict_proba(pictures()))
    kind = name.split("-")[0]
    opened = getattr(transformers, f"{kind}ForImageClassification").from_pretrained(back).eval()
    again_seen = getattr(transformers, f"{kind}ImageProcessor").from_pretrained(back)
    with torch.no_grad():
        same = opened(again_seen(pictures(), return_tensors="pt").pixel_values).logits
    torch.testing.assert_close(same, found.logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize("labels", [1, 2])
def test_two_classes_and_numbers(labels: int, tmp_path: Path) -> None:
    theirs, processor = saved(tmp_path, "ViT", labels)
    m = an.load(tmp_path, an.Classifier, device="cpu")
    with torch.no_grad():
        found = theirs(processor(pictures(), return_tensors="pt").pixel_values).logits
    if labels == 1:
        assert m.predict(pictures()) == pytest.approx(found[:, 0].tolist(), abs=1e-5)
    else:
        np.testing.assert_allclose(m.predict_proba(pictures()), found.softmax(1).numpy(), atol=1e-5)


def test_the_commands_work_on_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("PIL")
    from PIL import Image

    saved(tmp_path / "theirs", "ViT")
    run = str(tmp_path / "run")
    assert main.run(["import", str(tmp_path / "theirs"), "-o", run]) == 0
    m = an.load(run, an.Classifier, device="cpu")
    Image.fromarray(pictures()[0]).save(tmp_path / "a.png")
    capsys.readouterr()
    assert main.run(["predict", run, str(tmp_path / "a.png")]) == 0
    (label,) = m.predict(pictures(1))
    assert capsys.readouterr().out.strip() == label
    (tmp_path / "list.tsv").write_text(f"a.png\t{label}\n")
    assert main.run(["score", run, str(tmp_path / "list.tsv"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == 100
    page = tmp_path / "heads.html"
    look = ["inspect", run, "--view", "heads", "--input", str(tmp_path / "a.png"), "--html", str(page)]
    assert main.run(look) == 0
    assert "layer" in page.read_text()
    trace = m.probe(pictures()[0])
    assert trace.arrays["attention"].values.shape[-1] == 17  # the squares, and one before them
    assert trace.facts["max_difference"] < 1e-5


def config(**values: Any) -> Any:
    def damage(folder: Path) -> None:
        for name in ("config.json", "preprocessor_config.json"):
            found = json.loads((folder / name).read_text())
            given = {key: one for key, one in values.items() if key in found}
            (folder / name).write_text(json.dumps(found | given))

    return damage


def tensors(folder: Path) -> None:
    found = load_file(folder / "model.safetensors")
    found["vit.embeddings.cls_token"] = torch.zeros(1, 2, 16)
    found["adapter"] = found.pop("vit.layernorm.bias")
    save_file(found, folder / "model.safetensors")


DAMAGES: dict[str, tuple[Any, str]] = {
    "config": (
        config(hidden_act="sine", qkv_bias=False),
        r"qkv_bias = False; hidden_act = 'sine' .* has no counterpart",
    ),
    "sizes": (config(image_size=15), "image_size = 15 beside patch_size = 4"),
    "pixels": (
        config(resample=0, image_mean=[0.5], image_std=[0, 1, 1], size={"longest_edge": 3}),
        r"resample = 0 .*; size = .*; image_mean = \[0.5\]; image_std = ",
    ),
    "another size": (config(size={"height": 8, "width": 8}), "beside image_size"),
    "no preparation": (
        lambda f: (f / "preprocessor_config.json").unlink(),
        "has no preprocessor_config.json",
    ),
    "tensors": (
        tensors,
        r"lacks vit.layernorm.bias, has vit.embeddings.cls_token \(1, 2, 16\) instead of \(1, 1, 16\), also has.* adapter",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_folder_is_one_sentence_with_all_problems(name: str, tmp_path: Path) -> None:
    saved(tmp_path, "ViT")
    damage, sentence = DAMAGES[name]
    damage(tmp_path)
    with pytest.raises(AnaphoraError, match=sentence) as caught:
        an.load(tmp_path, device="cpu")
    assert "\n" not in str(caught.value)


def test_what_is_no_picture_is_named(tmp_path: Path) -> None:
    saved(tmp_path, "ViT")
    m = an.load(tmp_path, an.Classifier, device="cpu")
    with pytest.raises(AnaphoraError, match="input 1 holds numbers that are no pixels"):
        m.predict([np.full((4, 4, 3), 0.5)])
    with pytest.raises(AnaphoraError, match="input 1 has 4 channels"):
        m.predict([np.zeros((4, 4, 4))])
    assert len(m.predict([np.zeros((4, 4))])) == 1  # grey
    config(architectures=["ViTForMaskedImageModeling"])(tmp_path)
    with pytest.raises(AnaphoraError, match="ViTForMaskedImageModeling, which is not read; of vit these are"):
        an.load(tmp_path)


@pytest.mark.parametrize("kind", ["bilinear", "bicubic", "lanczos"])
def test_pictures_are_scaled_as_pillow_does(kind: Any) -> None:
    pytest.importorskip("PIL")
    from PIL import Image

    draw = np.random.default_rng(0)
    for before, after in (
        ((30, 50), (24, 24)),
        ((9, 12), (20, 17)),
        ((24, 10), (24, 30)),
        ((40, 7), (11, 7)),
    ):
        x = draw.integers(0, 256, (*before, 3), dtype=np.uint8)
        found = Image.fromarray(x).resize(after[::-1], Image.Resampling[kind.upper()])
        np.testing.assert_array_equal(resized(x, after, kind), np.asarray(found))
