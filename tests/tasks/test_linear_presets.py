"""Presets and cells with a linear recurrence: trained, saved, loaded and resumed as every other network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_blocks import WAVE, goes_on

import anaphora as an
from anaphora.errors import AnaphoraError, SettingsError
from anaphora.nn.linear import LinearStack
from anaphora.settings.network import NetworkSettings
from anaphora.tasks.parts import make_reader

PRESETS = ("mingru", "mamba", "griffin", "gla", "deltanet", "xlstm")
SMALL: dict[str, Any] = {
    "hidden": 8,
    "steps": 4,
    "valid_every": 2,
    "save_every": 2,
    "device": "cpu",
}
LINES = ["the cat sat", "a cat ran", "the dog sat", "a dog ran far"] * 4
LABELLED = [(line, "cat" if "cat" in line else "dog") for line in LINES]
TAGGED = [(line.split(), ["N" if word in ("cat", "dog") else "O" for word in line.split()]) for line in LINES]


def small(preset: str) -> dict[str, Any]:
    """Few layers; both kinds of blocks where there are two, and a window that is soon full."""
    more = {"griffin": {"layers": 3, "local_window": 4}, "xlstm": {"layers": 2}}
    return SMALL | more.get(preset, {"layers": 1})


def stacks(model: Any) -> list[LinearStack]:
    return [part for part in model.model_.modules() if isinstance(part, LinearStack)]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_language_model_goes_on_one_symbol_at_a_time(preset: str, tmp_path: Path) -> None:
    """With the probabilities it has for whole lines, and with states whose size does not grow."""
    model = an.LanguageModel(preset, embedding=8, lines=True, **small(preset)).fit(
        LINES, valid=LINES[:4], out=tmp_path / "run"
    )
    assert stacks(model)
    again = an.load(tmp_path / "run", device="cpu")
    assert again.sample(length=20, seed=3) == model.sample(length=20, seed=3)
    network = model.model_.eval()
    symbols = np.array([[2, 5, 6, 5, 7, 4, 5]])
    with torch.no_grad():
        whole = network(torch.from_numpy(symbols)).log_softmax(-1)
        state = network.start(1)
        sizes = []
        for t, symbol in enumerate(symbols[0]):
            found, state = network.step(torch.tensor([symbol]), state)
            torch.testing.assert_close(found[0], whole[0, t], rtol=1e-4, atol=1e-5)
            sizes.append(sum(s.numel() for s in state.states))
    assert len(set(sizes)) == 1


@pytest.mark.parametrize("preset", PRESETS)
def test_classes_tags_and_series(preset: str, tmp_path: Path) -> None:
    classifier = an.Classifier(preset, embedding=8, **small(preset)).fit(
        LABELLED, valid=LABELLED[:4], out=tmp_path / "c"
    )
    assert stacks(classifier)[0].bidirectional
    found = an.load(tmp_path / "c", device="cpu").predict_proba(LINES)
    np.testing.assert_array_equal(found, classifier.predict_proba(LINES))
    alone = np.concatenate([classifier.predict_proba([line]) for line in LINES])
    np.testing.assert_allclose(alone, found, atol=1e-6)
    tagger = an.Tagger(preset, embedding=8, characters="none", **small(preset)).fit(TAGGED, valid=TAGGED[:4])
    assert len(tagger.predict([LINES[0].split()])[0]) == 3
    forecaster = an.Forecaster(preset, window=8, horizon=2, **small(preset)).fit(WAVE)
    assert stacks(forecaster)


@pytest.mark.parametrize("given", [{"cell": "retnet"}, {"cell": "griffin", "layers": 3}, {"blocks": True}])
def test_the_encoder_of_a_translator_and_its_decoder_beside_it(given: dict[str, Any]) -> None:
    pairs = [("a b", "b a"), ("b c", "c b")] * 4
    model = an.Translator("lstm-attention", embedding=8, **SMALL, **given).fit(pairs, valid=pairs[:2])
    assert len(stacks(model)) == 1
    assert len(model.predict(["a b"])) == 1


@pytest.mark.parametrize(
    ("task", "given", "why"),
    [
        (an.Translator, {"model": "lstm", "cell": "gla"}, "needs a decoder that looks at what it reads"),
        (an.Classifier, {"model": "gru", "cell": "gla", "zoneout": 0.1}, "zoneout = 0.1 has no place"),
        (
            an.Classifier,
            {"model": "gla", "hidden": 10, "state_heads": 3},
            "cannot be divided among state_heads",
        ),
        (an.Classifier, {"model": "lstm", "state_heads": 3}, "needs a cell whose state is a matrix"),
        (an.LanguageModel, {"model": "gla", "peephole": True}, "peephole"),
        (an.Translator, {"model": "lstm", "blocks": True}, "needs a decoder that looks at what it reads"),
        (an.Classifier, {"model": "gru", "blocks": True, "connections": "residual"}, "residual already"),
        (an.Classifier, {"model": "gla", "local_window": 64}, "belongs to cell = 'griffin'"),
        (an.Classifier, {"model": "gla", "state_size": 8}, "belongs to cell = 'mamba'"),
        (an.Classifier, {"model": "lstm", "row_dropout": 0.2}, "belongs to recurrences in residual blocks"),
        (an.Classifier, {"model": "griffin", "hidden": 9, "state_heads": 3}, "even width per head"),
        (
            an.Classifier,
            {"model": "lstm", "cell": "retnet", "hidden": 9, "state_heads": 3},
            "even width per head",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(task: Any, given: dict[str, Any], why: str) -> None:
    with pytest.raises((SettingsError, AnaphoraError), match=why):
        task(given.pop("model"), **given)


@pytest.mark.parametrize(
    ("given", "kinds"),
    [
        ({"cell": "griffin", "layers": 6}, "GGLGGL"),
        ({"cell": "griffin", "layers": 4, "mixed_every": 2}, "GLGL"),
        ({"cell": "griffin", "layers": 2, "mixed_every": 1}, "LL"),
        ({"cell": "xlstm", "layers": 10}, "MSMMMMMMMS"),
        ({"cell": "xlstm", "layers": 4, "mixed_every": 2}, "MSMS"),
        ({"cell": "xlstm", "layers": 2, "mixed_every": 1}, "SS"),
        ({"cell": "mingru", "layers": 2, "blocks": True}, "CC"),
    ],
)
def test_which_blocks_follow_each_other(given: dict[str, Any], kinds: str) -> None:
    """Griffin: two recurrences, one attention; xLSTM[7:1]: the second of eight blocks is an sLSTM."""
    stack = make_reader(NetworkSettings(hidden=8, **given), 8, bidirectional=True)
    assert isinstance(stack, LinearStack)
    for blocks in (stack.blocks, stack.backward_blocks):
        assert "".join(type(block.mixer).__name__[0] for block in blocks) == kinds


def test_copies_of_a_block_begin_as_the_first() -> None:
    """Also what the parts of a cell do not know of themselves: the bias of its forget gate."""
    for given in ({"cell": "lstm", "blocks": True}, {"cell": "xlstm", "mixed_every": 1}):
        stack = make_reader(NetworkSettings(hidden=8, layers=3, **given), 8, bidirectional=False)
        biases = [p for name, p in stack.named_parameters() if name.endswith("gates.bias")]
        assert len(biases) == 3
        for bias in biases:
            assert float(bias.detach().abs().max()) > 0.5
            assert torch.equal(bias, biases[0])


@pytest.mark.parametrize("cell", ["retnet", "rwkv4", "rwkv7", "mamba2", "slstm"])
def test_a_cell_by_name_trains_loads_and_goes_on(cell: str, tmp_path: Path) -> None:
    goes_on(an.Classifier, "lstm", {"cell": cell, "hidden": 8, "state_heads": 2}, tmp_path)
