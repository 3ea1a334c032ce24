"""Ways to train on from a model: frozen layers, rates by layer, gradual unfreezing, low-rank changes; of others and of our own."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_tiny import LINES, TRAINING, language

import anaphora as an
from anaphora.errors import AnaphoraError, RunError
from anaphora.training.weights import load_weights

ROWS = [(line, "ab"[i % 2]) for i, line in enumerate(LINES)]
LORA: dict[str, Any] = {
    **TRAINING,
    "steps": 6,
    "save_every": 3,
    "valid_every": 3,
    "lora": 2,
    "dropout": 0.1,
    "lr": 1e-2,
}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ways") / "bert"
    language("masked", norm_first=False, embedding_norm=True, positions="learned").export(folder, to="hf")
    return folder


def moved(m: Any, bert: Path) -> set[str]:
    """Names of the encoder's weights that training changed."""
    public = an.load(bert, device="cpu").model_.body.state_dict()
    now = m.model_.encoder.state_dict()
    return {name for name, value in public.items() if not torch.equal(now[name], value)}


def test_frozen_layers_stay_and_the_others_move(bert: Path) -> None:
    m = an.Classifier(init=str(bert), freeze=1, **{**TRAINING, "steps": 2}).fit(ROWS, verbose=False)
    assert {name.split(".")[2] for name in moved(m, bert) if "layers" in name} == {"1"}
    assert not any(name.startswith(("embedding", "positions", "norm")) for name in moved(m, bert))


def test_gradual_unfreezing_reaches_one_layer_after_the_other(bert: Path) -> None:
    ways: dict[str, Any] = {**TRAINING, "unfreeze": "gradual", "unfreeze_every": 1, "ema": 0.0}
    runs = [
        an.Classifier(init=str(bert), **{**ways, "steps": steps}).fit(ROWS, verbose=False)
        for steps in (1, 2, 3)
    ]
    layers = [{name.split(".")[2] for name in moved(m, bert) if "layers" in name} for m in runs]
    assert layers == [set(), {"1"}, {"0", "1"}]
    assert not any("embedding" in name for name in moved(runs[2], bert))


def test_low_rank_changes_are_saved_alone_and_added_up_when_loaded(bert: Path, tmp_path: Path) -> None:
    run, public = tmp_path / "run", tmp_path / "bert"
    shutil.copytree(bert, public)
    m = an.Classifier(init=str(public), **LORA).fit(ROWS, out=run, verbose=False)
    shutil.rmtree(public)
    tensors = load_weights(run / "model.safetensors")[0]
    assert {name.rpartition(".")[2] for name in tensors} == {"lora_a", "lora_b", "weight", "bias"}
    assert {name for name in tensors if "lora" not in name} == {"output.weight", "output.bias"}
    held = sum(one.numel() for one in tensors.values())
    assert 2 * held < sum(one.numel() for one in m.model_.parameters())
    assert moved(m, bert) == {
        f"stack.layers.{i}.{part}.weight"
        for i in range(2)
        for part in ("attention.inward", "attention.outward", "feedforward.first", "feedforward.second")
    }
    again = an.load(run, device="cpu")
    assert not any("lora" in name for name in again.model_.state_dict())
    assert torch.equal(torch.tensor(again.predict_proba(LINES[:5])), torch.tensor(m.predict_proba(LINES[:5])))
    again.save(tmp_path / "saved")  # whole, without the base beside it
    assert not (tmp_path / "saved" / "base.safetensors").exists()
    saved = an.load(tmp_path / "saved", device="cpu")
    assert saved.predict(LINES) == m.predict(LINES)
    early, late = (an.load(run, device="cpu", checkpoint=step).model_ for step in (3, 6))
    assert not torch.equal(early.output.weight, late.output.weight)


def test_low_rank_training_resumes_to_the_bit(bert: Path, tmp_path: Path) -> None:
    public = tmp_path / "bert"
    shutil.copytree(bert, public)
    an.Classifier(init=str(public), **{**LORA, "schedule": "constant", "steps": 3}).fit(
        ROWS, out=tmp_path / "half", verbose=False
    )
    shutil.rmtree(public)  # all that a run goes on with is in its folder
    an.Classifier.resume(tmp_path / "half", steps=6, verbose=False)
    an.Classifier(init=str(bert), **{**LORA, "schedule": "constant"}).fit(
        ROWS, out=tmp_path / "flat", verbose=False
    )
    halves, flat = (load_weights(tmp_path / name / "model.safetensors")[0] for name in ("half", "flat"))
    assert halves.keys() == flat.keys()
    assert all(torch.equal(halves[name], flat[name]) for name in flat)


def test_a_base_of_another_run_is_noticed(bert: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    an.Classifier(init=str(bert), **{**LORA, "steps": 1}).fit(ROWS, out=run, verbose=False)
    assert {one.name: one.state for one in verdicts(run)}["base.safetensors"] == "good"
    content = bytearray((run / "base.safetensors").read_bytes())
    content[-5] ^= 1
    (run / "base.safetensors").write_bytes(content)
    assert {one.name: one.state for one in verdicts(run)}["base.safetensors"] == "damaged"
    with pytest.raises(RunError, match="checksum"):
        an.load(run, device="cpu")
    (run / "base.safetensors").unlink()
    with pytest.raises(RunError, match=r"base\.safetensors: is missing"):
        an.load(run, device="cpu")


def verdicts(run: Path) -> list[Any]:
    from anaphora.training.run import RunFolder
    from anaphora.training.verify import verify_run

    return verify_run(RunFolder(run))


def test_a_run_of_our_own_can_be_tuned_in_the_same_ways(tmp_path: Path) -> None:
    language("masked", tokens="word").save(tmp_path / "lm")
    m = an.Classifier(init=str(tmp_path / "lm"), lora=2, **TRAINING).fit(
        ROWS, out=tmp_path / "run", verbose=False
    )
    assert an.load(tmp_path / "run", device="cpu").predict(LINES) == m.predict(LINES)
    an.LanguageModel("lstm", hidden=8, tokens="word", lines=True, **TRAINING).fit(LINES, verbose=False).save(
        tmp_path / "lstm"
    )
    slow = an.Classifier(init=str(tmp_path / "lstm"), layer_decay=0.5, **TRAINING).fit(ROWS, verbose=False)
    assert slow.settings_.model == "lstm"
    tags = [(line.split(), ["X" if len(word) > 3 else "O" for word in line.split()]) for line in LINES]
    with pytest.raises(AnaphoraError, match="set bidirectional = false"):
        an.Tagger(init=str(tmp_path / "lstm"), freeze=True, **TRAINING).fit(tags, verbose=False)
    with pytest.raises(AnaphoraError, match="lora is for a Transformer"):
        an.Classifier(init=str(tmp_path / "lstm"), lora=2, **TRAINING).fit(ROWS, verbose=False)


def test_ways_without_a_beginning_are_refused() -> None:
    for way in ({"lora": 4}, {"layer_decay": 0.9}, {"unfreeze": "gradual"}, {"freeze": 2}):
        with pytest.raises(AnaphoraError, match="set init to the model they come from"):
            an.Classifier("transformer", **way)
    with pytest.raises(AnaphoraError, match="has no effect on the preset conv"):
        an.Classifier("conv", lora=4)
