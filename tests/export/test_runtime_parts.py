"""Parts of the runtime and of graphs against what they stand for, without writing a graph."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from export_cases import MGU, scan_by_hand
from torch.nn import functional as F

import anaphora as an
from anaphora.data.audio.features import MFCC, LogMel
from anaphora.data.audio.frames import Ear as TrainingEar
from anaphora.data.audio.frames import make_features, normalise
from anaphora.data.audio.recordings_readers import as_item, open_recordings
from anaphora.nn import linear
from anaphora.nn.exporting import scanned_layers
from anaphora.nn.grid_lstm import GridLSTM
from anaphora.nn.positions import Learned, Rotary, Sinusoidal
from anaphora.nn.recurrent_nodes import node_of
from anaphora.ops.grid import grid_states
from anaphora.runtime import ctc
from anaphora.runtime.searching import best_symbols
from anaphora.runtime.sound import Ear, normalised
from anaphora.runtime.tagger import best_path, marginals
from anaphora.tasks.registry import TASKS, resolve


@pytest.fixture
def by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anaphora.nn.exporting.scan", scan_by_hand)


LAYERS = [
    "RetNet",
    "GLA",
    "Mamba",
    "Mamba2",
    "MLSTM",
    "DeltaNet",
    "GatedDeltaNet",
    "RWKV4",
    "ChannelMixing",
    "RWKV7",
]


@pytest.mark.usefixtures("by_hand")
@pytest.mark.parametrize("name", LAYERS)
def test_a_linear_recurrence_as_a_loop_gives_the_same(name: str) -> None:
    layer = getattr(linear, name)(8, 2).eval()
    x = torch.randn(3, 21, 8, generator=torch.Generator().manual_seed(2))
    lengths = torch.tensor([21, 20, 1])
    with torch.no_grad():
        wanted, last = layer(x, lengths)
        with scanned_layers():
            found, ends = layer(x, lengths)
    assert torch.allclose(found, wanted, atol=1e-5)
    for mine, theirs in zip(ends, last, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)


@pytest.mark.usefixtures("by_hand")
@pytest.mark.parametrize("directions", [1, 2, 4])
def test_a_grid_lstm_as_a_loop_gives_the_same(directions: int) -> None:
    layer = GridLSTM(3, 4, directions=directions).eval()
    x = torch.randn(2, 5, 3, 3, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = grid_states(x, layer.weight, layer.bias, layer.recurrent, layer.directions)
        with scanned_layers():
            found, ends = layer(x)
    assert torch.allclose(found, wanted.flatten(3), atol=1e-6)
    assert torch.allclose(ends, layer(x)[1], atol=1e-6)


@pytest.mark.parametrize(
    "made", [Sinusoidal(8), Learned(8, 600), Rotary()], ids=["sines", "learned", "rotary"]
)
def test_positions_in_a_graph_are_those_of_the_table(made: Any) -> None:
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1))
    for offset in (0, 3, 500):
        wanted = made(x, offset)
        with scanned_layers():
            assert torch.allclose(made(x, offset), wanted, atol=1e-6)


def test_cells_that_onnx_has_and_those_it_has_not() -> None:
    nodes = {
        "LSTM": [an.nn.LSTM(3, 4), an.nn.LSTM(3, 4, peephole=True)],
        "GRU": [an.nn.GRU(3, 4), an.nn.GRU(3, 4, reset="after")],
        "RNN": [an.nn.Elman(3, 4), an.nn.IRNN(3, 4)],
    }
    for kind, cells in nodes.items():
        for cell in cells:
            node = node_of(cell)
            assert node is not None
            assert node.kind == kind
    others = [
        an.nn.LSTM(3, 4, coupled=True),
        an.nn.LSTM(3, 4, forget=False),
        an.nn.LSTM(3, 4, layer_norm=True),
    ]
    assert [node_of(cell) for cell in (*others, MGU(3, 4), an.nn.SimpleGRU(3, 4))] == [None] * 5


# ------------------------------------------------------------------ searches and sound


def frames(seed: int, time: int = 14, symbols: int = 5) -> Any:
    draw = np.random.default_rng(seed).normal(size=(time, symbols)) * 2
    return F.log_softmax(torch.from_numpy(draw), -1)


@pytest.mark.parametrize("seed", range(6))
def test_ctc_without_torch_finds_the_same(seed: int) -> None:
    log_p = frames(seed)
    for width in (1, 3, 8):
        mine = ctc.prefix_beam(log_p.numpy(), width, min(width, 3))
        theirs = an.search.ctc_beam(log_p[None], width=width, n_best=min(width, 3))[0]
        assert [h.tokens for h in mine] == [h.tokens for h in theirs]
        assert [h.score for h in mine] == pytest.approx([h.score for h in theirs], abs=1e-9)
    mine, theirs = ctc.greedy(log_p.numpy()), an.search.ctc_greedy(log_p[None])[0]
    assert (mine[0].tokens, mine[0].score) == (theirs[0].tokens, pytest.approx(theirs[0].score))
    for tokens in ([1], [1, 1, 2], [4, 3, 2, 1, 1], []):
        wanted = -float(an.search.ctc_loss(log_p[None], [tokens], reduction="sum", normalized=True))
        assert ctc.log_prob(log_p.numpy(), tokens) == pytest.approx(wanted, abs=1e-6)
    assert ctc.log_prob(log_p.numpy()[:2], [1, 1]) == -math.inf


def test_equal_symbols_are_ranked_by_their_number() -> None:
    row = np.log(np.array([[0.2, 0.4, 0.2, 0.2]]))
    assert [symbol for _, symbol in best_symbols(row.copy(), 3)[0]] == [1, 0, 2]
    assert [symbol for _, symbol in best_symbols(row.copy(), 3, forbidden=0)[0]] == [1, 2, 3]


@pytest.mark.parametrize(("kind", "bins"), [("log-mel", 20), ("mfcc", 13)])
@pytest.mark.parametrize("how", ["features", "means", "level", "none"])
def test_features_of_sound_without_torch(kind: str, bins: int, how: Any) -> None:
    settings = {"features": kind, "bins": bins, "frame_length": 0.025, "hop": 0.01, "normalise": how}
    ear = Ear("audio", 8000, bins, settings)
    made = LogMel(8000, bins=bins) if kind == "log-mel" else MFCC(8000, count=bins, bins=40)
    for samples in (1, 150, 200, 4321):
        wave = np.random.default_rng(samples).normal(size=samples).astype(np.float32) * 0.1
        wanted = normalise(made(torch.from_numpy(wave)[None])[0], how=how)[0].numpy()
        assert np.abs(ear.hear(wave, 1) - wanted).max() < 1e-4
    with pytest.raises(an.AnaphoraError, match="16000 samples a second and the model hears 8000"):
        ear.hear((wave, 16000), 1)
    assert normalised(np.zeros((0, 3), np.float32), how).shape == (0, 3)


@pytest.mark.parametrize("given", [{"power": 0.1, "bands": 24}, {"bands": 8}, {"power": 0.3}])
def test_cepstra_of_powers_and_of_other_bands_without_torch(given: dict[str, Any]) -> None:
    s = resolve(TASKS["transcribe"], {"features": "mfcc", "bins": 13, "normalise": "adapted", **given})
    draw = np.random.default_rng(0)
    rising = np.linspace(0.001, 0.1, 4000) ** 2
    waves = [(rising * draw.normal(size=4000)).astype(np.float32) for _ in range(3)]
    data = open_recordings(
        [((wave, 8000), "a") for wave in waves], features=lambda own: make_features(s, own)
    )
    own = TrainingEar.learn(s, data)
    assert own.usual is not None
    usual = [own.usual.mean.tolist(), own.usual.deviation.tolist()]
    keys = ("features", "bins", "bands", "power", "frame_length", "hop", "normalise")
    ear = Ear("audio", 8000, 13, {key: getattr(s, key) for key in keys}, usual)
    for tract in (1.0, 1.1):
        wanted = own.hear(as_item((waves[0], 8000), 1, 8000), tract)
        np.testing.assert_allclose(ear.hear(waves[0], 1, tract), wanted, atol=2e-3)


@pytest.mark.parametrize("how", ["speech", "adapted", "running"])
def test_normalisations_of_log_mel_without_torch(how: Any) -> None:
    s = resolve(TASKS["transcribe"], {"bins": 20, "normalise": how})
    waves = [np.random.default_rng(i).normal(size=3000).astype(np.float32) * 0.1 for i in range(3)]
    data = open_recordings(
        [((wave, 8000), "a") for wave in waves], features=lambda own: make_features(s, own)
    )
    own = TrainingEar.learn(s, data)
    usual = None if own.usual is None else [own.usual.mean.tolist(), own.usual.deviation.tolist()]
    sound = {key: getattr(s, key) for key in ("features", "bins", "frame_length", "hop", "normalise")}
    ear = Ear("audio", 8000, 20, sound, usual)
    np.testing.assert_allclose(ear.hear(waves[0], 1), own.hear(as_item((waves[0], 8000), 1, 8000)), atol=1e-3)
    if usual is not None:
        with pytest.raises(ValueError, match="what sound is usually like"):
            Ear("audio", 8000, 20, sound, [usual[0]])


def test_a_crf_without_torch_has_the_same_marginals_and_path() -> None:
    crf = an.nn.CRF(4)
    with torch.no_grad():
        for weight in crf.parameters():
            weight.normal_()
        emissions = torch.randn(1, 7, 4)
        wanted = crf.marginals(emissions, torch.tensor([7]))[0].numpy()
    parts = [part.detach().numpy() for part in (crf.start, crf.transitions, crf.end)]
    found = marginals(emissions[0].double().numpy(), *(part.astype(np.float64) for part in parts))
    assert np.abs(found - wanted).max() < 1e-5
    path = best_path(emissions[0].numpy(), *parts)
    best = max(
        np.ndindex(*(4,) * 7),
        key=lambda y: (
            parts[0][y[0]]
            + sum(float(emissions[0, t, y[t]]) for t in range(7))
            + sum(parts[1][y[t], y[t + 1]] for t in range(6))
            + parts[2][y[-1]]
        ),
    )
    assert path == list(best)
