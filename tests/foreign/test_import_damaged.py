"""Folders that are not what they say: one sentence, and nothing in them is executed. Needs no package of others."""

from __future__ import annotations

import json
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_folders import tensors
from foreign_tiny import TEXTS, classifier
from safetensors.torch import load_file

import anaphora as an
from anaphora.cli import main
from anaphora.errors import AnaphoraError, RunError
from anaphora.foreign.architectures import ARCHITECTURES
from anaphora.settings.removed import REMOVED


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "whole"
    classifier(norm_first=False, embedding_norm=True, pooling="first-tanh").export(folder, to="hf")
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "model")


def test_what_was_exported_is_imported_with_equal_scores(whole: Path, tmp_path: Path) -> None:
    m = classifier(norm_first=False, embedding_norm=True, pooling="first-tanh")
    again = an.load(whole, an.Classifier, device="cpu")
    assert again.predict(TEXTS) == m.predict(TEXTS)
    ours, theirs = (torch.tensor(one.session.outputs(one._encode(TEXTS))) for one in (m, again))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    again.export(tmp_path / "back", to="hf")
    first, second = (load_file(one / "model.safetensors") for one in (whole, tmp_path / "back"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def config(**values: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        found = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(found | values))

    return damage


def oversized(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((1 << 40).to_bytes(8, "little") + b"{}" * 50)


class Payload:
    ran: list[str] = []  # noqa: RUF012

    def __reduce__(self) -> Any:
        return (Payload.ran.append, ("executed",))


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"bert.embeddings": Payload()}, folder / "pytorch_model.bin")
    Payload.ran.clear()


def plain_pickle(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Payload()))
    Payload.ran.clear()


def bomb(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("archive/data.pkl", b"\0" * 30_000_000)


def outside(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder.parent / "elsewhere.safetensors")
    index = {"weight_map": {"a": "../elsewhere.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def costly_pattern(folder: Path) -> None:
    found = json.loads((folder / "tokenizer.json").read_text())
    found["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"Regex": "(a+)+$"},
        "behavior": "Isolated",
        "invert": False,
    }
    (folder / "tokenizer.json").write_text(json.dumps(found))


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing tensor": (tensors(lambda t: t.pop("classifier.bias")), "lacks classifier.bias"),
    "wrong shape": (
        tensors(lambda t: t.update({"classifier.bias": torch.zeros(7)})),
        r"classifier.bias \(7\) instead of \(3\)",
    ),
    "extra tensor": (tensors(lambda t: t.update({"lora.A": torch.zeros(2)})), "no counterpart here, lora.A"),
    "not finite": (tensors(lambda t: t["classifier.bias"].fill_(torch.nan)), "not finite"),
    "unknown type": (config(model_type="bertt"), "'bertt', which is not read"),
    **{f"{kind}, of 0.2": (config(model_type=kind), REMOVED[kind]) for kind in ("mamba", "mamba2", "rwkv")},
    "unknown class": (
        config(architectures=["BertForNextSentencePrediction"]),
        "BertForNextSentencePrediction, which",
    ),
    "unknown value": (config(hidden_act="sine"), "hidden_act = 'sine'"),
    "unknown positions": (
        config(position_embedding_type="relative_key"),
        "position_embedding_type = 'relative_key'",
    ),
    "no sizes": (config(hidden_size=None), "is not complete|cannot be used|must be"),
    "vast sizes": (config(hidden_size=1 << 20, intermediate_size=1 << 24), "describes a model of .* numbers"),
    "oversized header": (oversized, "cut off within its header|its header has"),
    "cut off": (lambda f: (f / "model.safetensors").write_bytes(b"\x08"), "cut off within its header"),
    "pickled payload": (pickled, "holds more than tensors"),
    "plain pickle": (plain_pickle, "holds more than tensors|cannot be read"),
    "zip bomb": (bomb, "unpacks to more than it holds"),
    "outside": (outside, "files outside the folder"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "has no weights"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "has no tokenizer.json"),
    "costly pattern": (costly_pattern, "patterns of its own"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_folder_is_refused_in_one_sentence(name: str, folder: Path, tmp_path: Path) -> None:
    damage, sentence = DAMAGES[name]
    damage(folder)
    with pytest.raises(AnaphoraError, match=sentence) as caught:
        an.load(folder, device="cpu")
    assert "\n" not in str(caught.value)
    assert not Payload.ran


def test_commands_that_want_a_run_say_how_to_make_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["predict", str(folder)]) == 2
    assert "anaphora import" in capsys.readouterr().err
    with pytest.raises(RunError, match="no checkpoints"):
        an.load(folder, checkpoint=3)


def test_the_command_says_what_is_no_such_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["import", str(tmp_path), "-o", str(tmp_path / "run")]) == 2
    assert "is not a folder of `transformers`" in capsys.readouterr().err
    with pytest.raises(RunError, match="no config"):
        an.load(tmp_path)


def test_nothing_and_an_empty_file_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty.safetensors").touch()
    for name, why in (("nowhere", "does not exist"), ("empty.safetensors", "is empty")):
        assert main.run(["import", str(tmp_path / name), "-o", str(tmp_path / "run")]) == 2
        assert why in capsys.readouterr().err
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("kind", "context", "longest"),
    [
        ("bert", 19, 18),
        ("electra", 19, 18),
        ("distilbert", 19, 18),
        ("roberta", 17, 16),
        ("opt", 20, None),
        ("gpt2", 20, None),
    ],
)
def test_how_long_a_text_may_be_follows_from_the_places_of_a_config(
    kind: str, context: int, longest: int | None
) -> None:
    derive = ARCHITECTURES[kind].derive
    assert derive is not None
    width = {"hidden_size": 16, "embedding_size": 16, "n_embd": 16}
    found = derive(width | {"max_position_embeddings": 20, "n_positions": 20})
    assert (found["context"], found.get("max_tokens")) == (context, longest)


def test_the_places_of_roberta_are_counted_from_the_third_both_ways() -> None:
    roberta = ARCHITECTURES["roberta"]
    assert roberta.derive is not None
    assert roberta.complete is not None
    settings = roberta.derive({"max_position_embeddings": 20})
    assert settings["max_positions"] == 18
    assert roberta.complete(settings)["max_position_embeddings"] == 20
