"""Views of a BERT and a GPT-2 that were read from folders: every one draws, and the probe has the model's own numbers. The folders
are written by our own export, so that nothing else is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from foreign_tiny import language
from safetensors.torch import load_file, save_file

import anaphora as an
from anaphora.cli import main
from anaphora.nn.attention import MultiHead

TEXT = "the dog sat on the sea"
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("transformer", {"positions": "learned", "activation": "gelu-tanh", "norm_first": True}),
    "bert": ("masked", {"positions": "learned", "activation": "gelu"}),
}
VIEWS = ("heads", "positions", "gradients", "sampling")


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    model, settings = KINDS[request.param]
    out = tmp_path_factory.mktemp(request.param) / "model"
    language(model, **settings).export(out, to="hf")
    return out


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    made = folder.parent / "run"
    assert main.run(["import", str(folder), "-o", str(made)]) == 0
    return made


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_draws(view: str, run: Path, tmp_path: Path) -> None:
    picture = tmp_path / f"{view}.svg"
    code = main.run(["inspect", str(run), "--view", view, "--text", TEXT, "--svg", str(picture)])
    if view == "sampling" and "bert" in str(run):  # it fills places, and draws no next symbol
        assert code == 2
        return
    assert code == 0
    assert picture.read_text().startswith("<svg")


def test_the_view_of_embeddings_draws(run: Path, tmp_path: Path) -> None:
    picture = tmp_path / "embeddings.svg"
    assert main.run(["inspect", str(run), "--view", "embeddings", "--svg", str(picture)]) == 0
    assert picture.read_text().startswith("<svg")


def test_the_probe_equals_the_model(folder: Path, run: Path) -> None:
    """Of the run as of the folder: log p of the next symbols, and each head's weights computed from the states below it."""
    m = an.load(folder, an.LanguageModel, device="cpu")
    trace = m.probe(TEXT)
    again = an.load(run, an.LanguageModel, device="cpu").probe(TEXT)
    assert trace.facts["max_difference"] < 1e-5
    for name, array in trace.arrays.items():
        np.testing.assert_allclose(again.arrays[name].values, array.values, atol=1e-6)
    masked = m.settings_.model == "masked"
    ids = m.tokenizer_.encode(TEXT)
    read = torch.tensor([ids if masked else [m.begin, *ids]])
    with torch.no_grad():
        logits = m.model_.eval()(read, torch.tensor([read.shape[1]])) if masked else m.model_.eval()(read)
    expected = logits[0].log_softmax(-1).sort(-1, descending=True).values
    found = np.array([row["log_probs"] for row in trace.tables["top"]])
    np.testing.assert_allclose(found, expected[:, : found.shape[1]].numpy(), atol=1e-5)
    body, weights = m.model_.body, _weights(trace)
    with torch.no_grad():
        x = body.enter(read)
        for number, layer in enumerate(body.stack.layers):
            own = layer.attention
            assert isinstance(own, MultiHead)
            entering = layer.around_attention.norm(x) if layer.norm_first else x
            alpha = own(entering, causal=not masked, weights=True)[1]
            np.testing.assert_allclose(weights[number], alpha[0].numpy(), atol=1e-5)
            x = layer(x, causal=not masked)


def _weights(trace: Any) -> Any:
    """(layer, head, query, key)"""
    named = [a.values for a in trace.arrays.values() if a.axes == ("layer", "head", "query", "key")]
    assert len(named) == 1
    return named[0]


def test_the_probe_of_an_embedder_names_every_place(tmp_path: Path) -> None:
    """Of a BERT without a head also <s>, which it reads before the first symbol."""
    m = language("masked", positions="learned", activation="gelu", norm_first=False, embedding_norm=True)
    m.export(tmp_path / "bert", to="hf")
    config = json.loads((tmp_path / "bert" / "config.json").read_text())
    (tmp_path / "bert" / "config.json").write_text(json.dumps(config | {"architectures": ["BertModel"]}))
    body = {
        k: v
        for k, v in load_file(tmp_path / "bert" / "model.safetensors").items()
        if not k.startswith("cls.")
    }
    save_file(body, tmp_path / "bert" / "model.safetensors")
    e = an.load(tmp_path / "bert", an.Embedder, device="cpu")
    trace = e.probe("the dog sat", what=("attribution",))
    pieces = e.inputs_.tokenizer.pieces(e.inputs_.tokenizer.encode("the dog sat"))
    assert trace.tokens["time"] == ["<s>", *pieces, "</s>"]
    assert trace.arrays["attention"].values.shape[2:] == (len(pieces) + 2,) * 2
    assert trace.arrays["states"].values.shape[1] == len(pieces) + 2
    assert trace.tokens["source"] == pieces
    assert trace.arrays["occlusion"].values.shape == (len(pieces),)
