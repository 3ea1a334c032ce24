"""A translator goes on from an encoder-decoder of others, or from a run. The folders are written by our own export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_tiny import LINES, TRAINING, classifier, translator

import anaphora as an
from anaphora.cli import main
from anaphora.errors import AnaphoraError

ROWS = [(line, line.upper()) for line in LINES]


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("public") / "marian"
    translator(norm_first=False, joint=True, tie=True).export(folder, to="hf")
    return folder


def weights(m: Any) -> dict[str, torch.Tensor]:
    return dict(m.model_.state_dict())


def test_an_export_comes_back_as_the_same_translator(marian: Path) -> None:
    m = translator(norm_first=False, joint=True, tie=True)
    again = an.load(marian, an.Translator, device="cpu")
    texts = ["the dog sat", "birds, far away"]
    assert again.predict(texts, max_length=9) == m.predict(texts, beam=1, max_length=9)
    assert again.tokenizer_.sources(texts) == m.tokenizer_.sources(texts)


def test_a_translator_begins_with_the_model_and_changes_it(marian: Path, tmp_path: Path) -> None:
    m = an.Translator(init=str(marian), **{**TRAINING, "steps": 2})
    m.fit(ROWS, out=tmp_path / "run", verbose=False)
    public = an.load(marian, an.Translator, device="cpu")
    assert (m.settings_.model, m.settings_.layers, m.settings_.beam) == ("transformer", 2, 1)
    assert m.settings_.lr == 3e-4
    assert m.tokenizer_.to_json() == public.tokenizer_.to_json()
    moved = {name: float((value - weights(public)[name]).abs().max()) for name, value in weights(m).items()}
    assert 0 < max(moved.values()) < 1e-2  # two small steps from where it came from
    again = an.load(tmp_path / "run", device="cpu")
    assert again.predict(LINES[:3]) == m.predict(LINES[:3])
    m.export(tmp_path / "back", to="hf")
    assert an.load(tmp_path / "back", device="cpu").predict(LINES[:3]) == m.predict(LINES[:3])


def test_a_frozen_encoder_stays_and_the_rest_moves(marian: Path) -> None:
    m = an.Translator(init=str(marian), freeze="encoder", **{**TRAINING, "steps": 2}).fit(ROWS, verbose=False)
    public = weights(an.load(marian, device="cpu"))
    same = {name: torch.equal(value, public[name]) for name, value in weights(m).items()}
    assert all(equal for name, equal in same.items() if name.startswith("encoder."))
    assert not all(equal for name, equal in same.items() if name.startswith("decoder."))


def test_low_rank_changes_are_added_up(marian: Path, tmp_path: Path) -> None:
    m = an.Translator(init=str(marian), lora=2, **{**TRAINING, "steps": 2})
    m.fit(ROWS, out=tmp_path / "run", verbose=False)
    public = weights(an.load(marian, device="cpu"))
    found = weights(an.load(tmp_path / "run", device="cpu"))
    assert found.keys() == public.keys()
    assert not torch.equal(
        found["decoder.stack.layers.0.attention.inward.weight"],
        public["decoder.stack.layers.0.attention.inward.weight"],
    )
    assert torch.equal(found["encoder.embedding.weight"], public["encoder.embedding.weight"])


def test_a_run_is_gone_on_from_as_well(tmp_path: Path) -> None:
    data = [(line, line[::-1]) for line in LINES]
    first = an.Translator("gru-attention", hidden=8, embedding=8, **TRAINING).fit(
        data, out=tmp_path / "first", verbose=False
    )
    m = an.Translator(init=str(tmp_path / "first"), **TRAINING).fit(ROWS, verbose=False)
    assert (m.settings_.model, m.settings_.hidden) == ("gru-attention", 8)
    assert m.settings_.lr == pytest.approx(0.3 * first.settings_.lr)


def test_the_command_takes_the_folder(marian: Path, tmp_path: Path) -> None:
    (tmp_path / "data.tsv").write_text("\n".join("\t".join(row) for row in ROWS) + "\n")
    order = ["train", "translate", str(tmp_path / "data.tsv"), "--init", str(marian), "--steps", "1"]
    assert main.run([*order, "-o", str(tmp_path / "run"), "--set", "freeze=encoder"]) == 0


def test_what_does_not_fit_is_named(marian: Path, tmp_path: Path) -> None:
    with pytest.raises(AnaphoraError, match="hidden = 32 differs from 16"):
        an.Translator(init=str(marian), hidden=32, **TRAINING).fit(ROWS, verbose=False)
    with pytest.raises(AnaphoraError, match="is about the weights that init gives"):
        an.Translator("transformer", freeze="encoder")
    with pytest.raises(AnaphoraError, match="nothing to train"):
        an.Translator(init=str(marian), freeze=True, **TRAINING).fit(ROWS, verbose=False)
    bert = tmp_path / "bert"
    classifier(norm_first=False, embedding_norm=True, pooling="first-tanh").export(bert, to="hf")
    with pytest.raises(AnaphoraError, match=r"is a Classifier .* but a translator goes on from"):
        an.Translator(init=str(bert), **TRAINING).fit(ROWS, verbose=False)
