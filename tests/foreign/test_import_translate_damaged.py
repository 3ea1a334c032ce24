"""Folders of encoder-decoders that are not what they say: one sentence that names all of it. Needs no package of others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_folders import tensors
from foreign_tiny import translator
from safetensors.torch import load_file, save_file

import anaphora as an
from anaphora.errors import AnaphoraError
from anaphora.foreign.folder import read_writing


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("export") / "whole"
    translator(norm_first=False, joint=True, tie=True).export(folder, to="hf")
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "model")


def said(name: str = "config.json", **values: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        found = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(found | values))

    return damage


def several(folder: Path) -> None:
    found = load_file(folder / "model.safetensors")
    del found["model.decoder.layers.0.encoder_attn.k_proj.weight"]
    found["model.shared.weight"] = torch.zeros(3, 16)
    found["adapter.A"] = torch.zeros(2)
    save_file(found, folder / "model.safetensors")


def unframed(folder: Path) -> None:
    found = json.loads((folder / "tokenizer.json").read_text())
    found["post_processor"] = None
    (folder / "tokenizer.json").write_text(json.dumps(found))


SEVERAL = (
    r"lacks model.decoder.layers.0.encoder_attn.k_proj.weight, has model.shared.weight \(3, 16\) instead of .*"
    r"no counterpart here, adapter.A"
)
DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "several at once": (several, SEVERAL),
    "a layer too few": (said(decoder_layers=3), "lacks model.decoder.layers.2"),
    "a layer too many": (said(decoder_layers=1), "no counterpart here, model.decoder.layers.1"),
    "heads of two kinds": (said(decoder_attention_heads=4), "decoder_attention_heads = 4 beside"),
    "unknown activation": (said(activation_function="sine"), "activation_function = 'sine'"),
    "no sizes": (said(d_model=None), "is not complete|must be|cannot be used"),
    "not finite": (tensors(lambda t: t["model.shared.weight"].fill_(torch.nan)), "not finite"),
    "no end": (
        lambda f: [said(n, eos_token_id=None)(f) for n in ("config.json", "generation_config.json")] and None,
        "names no eos_token_id",
    ),
    "several ends": (said("generation_config.json", eos_token_id=[3, 4]), r"eos_token_id = \[3, 4\]"),
    "an end out of reach": (
        said("generation_config.json", eos_token_id=999),
        "eos_token_id = 999, but there are",
    ),
    "a rule out of reach": (said("generation_config.json", suppress_tokens=[999]), "names the symbol 999"),
    "a text without an end": (unframed, "puts nothing around a text"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), "has no tokenizer.json"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "has no weights"),
    "other class": (said(architectures=["MarianForCausalLM"]), "MarianForCausalLM, which is not read"),
    "a broken generation config": (
        lambda f: (f / "generation_config.json").write_text("{") and None,
        "generation_config.json cannot be read",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_folder_is_refused_in_one_sentence(name: str, folder: Path) -> None:
    damage, sentence = DAMAGES[name]
    damage(folder)
    with pytest.raises(AnaphoraError, match=sentence) as caught:
        an.load(folder, device="cpu")
    assert "\n" not in str(caught.value)


def test_a_bias_that_was_not_stored_is_zero(folder: Path) -> None:
    tensors(lambda t: t.pop("final_logits_bias"))(folder)
    m: Any = an.load(folder, device="cpu")
    assert not m.model_.decoder.output.bias.any()


def test_what_is_not_followed_is_named_in_a_warning(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    said("generation_config.json", repetition_penalty=1.3, bad_words_ids=[[5], [6, 7]], num_beams=3)(folder)
    with pytest.warns(UserWarning, match=r"repetition_penalty = 1.3; bad_words_ids with \[6, 7\]"):
        found = read_writing(folder, config)
    assert found.never == (5,)
    assert found.settings == {
        "beam": 3,
        "refill": True,
        "stopping": "likely",
        "max_length": 255,
        "length_penalty": 1.0,
    }
