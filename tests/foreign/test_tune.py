"""Training begins with the weights of a model of others. The folders are written by our own export, which needs no package."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from foreign_tiny import LINES, TRAINING, language

import anaphora as an
from anaphora.cli import main
from anaphora.errors import AnaphoraError

ROWS = [(line, "ab"[i % 2]) for i, line in enumerate(LINES)]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("public") / "bert"
    language("masked", norm_first=False, embedding_norm=True, positions="learned").export(folder, to="hf")
    return folder


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("public") / "gpt"
    language().export(folder, to="hf")
    return folder


def test_a_classifier_begins_with_the_encoder_and_changes_it(bert: Path, tmp_path: Path) -> None:
    m = an.Classifier(init=str(bert), **{**TRAINING, "steps": 2}).fit(
        ROWS, out=tmp_path / "run", verbose=False
    )
    public = an.load(bert, device="cpu")
    assert (m.settings_.model, m.settings_.pooling, m.settings_.lr) == ("transformer", "first", 3e-4)
    assert m.inputs_.tokenizer.spellings == public.tokenizer_.spellings
    for name, value in public.model_.body.state_dict().items():
        moved = (m.model_.encoder.state_dict()[name] - value).abs().max()
        assert 0 <= float(moved) < 1e-2, name  # two small steps from where it came from
    assert any(
        not torch.equal(m.model_.encoder.state_dict()[name], value)
        for name, value in public.model_.body.state_dict().items()
    )
    assert an.load(tmp_path / "run").predict(LINES[:3]) == m.predict(LINES[:3])


def test_a_frozen_encoder_stays_as_it_is(bert: Path) -> None:
    m = an.Classifier(init=str(bert), freeze=True, **{**TRAINING, "steps": 3}).fit(ROWS, verbose=False)
    public = an.load(bert, device="cpu")
    assert all(
        torch.equal(m.model_.encoder.state_dict()[name], value)
        for name, value in public.model_.body.state_dict().items()
    )


def test_a_model_that_writes_is_read_from_its_last_place(gpt: Path) -> None:
    m = an.Classifier(init=str(gpt), **TRAINING).fit(ROWS, verbose=False)
    assert (m.settings_.causal, m.settings_.pooling) == (True, "last")
    assert len(m.predict(LINES[:2])) == 2


def test_the_command_takes_the_folder(bert: Path, tmp_path: Path) -> None:
    (tmp_path / "data.tsv").write_text("\n".join("\t".join(row) for row in ROWS) + "\n")
    order = [
        "train",
        "classify",
        str(tmp_path / "data.tsv"),
        "--init",
        str(bert),
        "--steps",
        "1",
        "-o",
        str(tmp_path / "run"),
    ]
    assert main.run(order) == 0


def test_what_does_not_fit_is_named(bert: Path) -> None:
    with pytest.raises(AnaphoraError, match="freeze = true is about the weights that init gives"):
        an.Classifier("transformer", freeze=True)
    with pytest.raises(AnaphoraError, match="max_tokens = 500 is more than"):
        an.Classifier(init=str(bert), max_tokens=500, **TRAINING).fit(ROWS, verbose=False)
