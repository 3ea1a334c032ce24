"""Log-mel and cepstral features: against the formulas written out in numpy, against librosa, whole and as they arrive."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from anaphora.data.audio.features import MFCC, LogMel
from anaphora.data.audio.frames import normalise
from anaphora.data.corpora.tones import CORPUS
from anaphora.errors import DataError
from anaphora.ops import sound

SPEECH = [x for x, _ in CORPUS.generate(CORPUS.default_variant, "train", 4)]
SINE = np.sin(0.3 * np.arange(8000)).astype(np.float32)
NOISE = np.random.RandomState(0).standard_normal(8000).astype(np.float32)


@pytest.fixture(params=["native", "torch"])
def way(request, monkeypatch):
    """The features by the kernel in C, and by torch operations as where there is no compiler."""
    if request.param == "torch":
        monkeypatch.setattr(sound.library, "functions", lambda *_: None)
    elif sound.library.functions() is None:
        pytest.skip("no C compiler here")


def by_the_book(x, rate, bins, *, window=0.025, hop=0.010, low=20.0, high=None, preemphasis=0.97):
    """The formulas of `LogMel`, one frame at a time in float64, with the Fourier sum written as a sum."""
    size, hop = round(window * rate), round(hop * rate)
    points = 2 ** math.ceil(math.log2(size))
    x = x.astype(np.float64)
    x = x - preemphasis * np.concatenate(([0.0], x[:-1]))
    window = np.array([0.5 - 0.5 * math.cos(2 * math.pi * n / size) for n in range(size)])
    k = np.arange(points // 2 + 1)
    fourier = np.exp(-2j * np.pi * np.outer(k, np.arange(size)) / points)
    mel = np.linspace(2595 * np.log10(1 + low / 700), 2595 * np.log10(1 + (high or rate / 2) / 700), bins + 2)
    corners = 700 * (10 ** (mel / 2595) - 1)
    filters = np.array([np.interp(k * rate / points, corners[m : m + 3], [0, 1, 0]) for m in range(bins)])
    frames = [x[begin : begin + size] for begin in range(0, len(x) - size + 1, hop)]
    return np.array(
        [np.log(np.maximum(filters @ np.abs(fourier @ (window * one)) ** 2, 1e-10)) for one in frames]
    )


@pytest.mark.parametrize("preemphasis", [0.97, 0.0])
@pytest.mark.parametrize("x", [*SPEECH, SINE, NOISE], ids=lambda x: str(len(x)))
def test_log_mel_by_the_book(x, preemphasis, way):
    features = LogMel(8000, bins=40, preemphasis=preemphasis)
    found, frames = features(torch.from_numpy(x)[None])
    expected = by_the_book(x, 8000, 40, preemphasis=preemphasis)
    assert found.dtype == torch.float32
    assert frames.tolist() == [len(expected)] == [features.frames(len(x))]
    np.testing.assert_allclose(found[0].numpy(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "given",
    [
        {"rate": 16_000, "bins": 80},
        {"rate": 11_025, "bins": 33, "low": 0.0, "high": 5000.0, "preemphasis": 0.5},
        {"rate": 22_050, "bins": 64, "window": 0.0464, "hop": 0.0123},
        {"rate": 8000, "bins": 7, "window": 0.008, "hop": 0.02, "low": 300.0},
        {"rate": 1000, "bins": 1, "window": 0.003, "hop": 0.001, "low": 0.0},
    ],
)
@pytest.mark.parametrize(
    "x", [SPEECH[2][3000:7001], SINE[:4001] + 1e-4 * NOISE[:4001]], ids=["speech", "loud tone"]
)
def test_any_settings_by_the_book(x, given, way):
    found = LogMel(**given)(torch.from_numpy(x)[None])[0][0].numpy()
    np.testing.assert_allclose(found, by_the_book(x, **given), rtol=0, atol=1e-5)


def test_cepstra_by_the_book(way):
    x = SPEECH[0]
    y = by_the_book(x, 8000, 24)
    m = np.arange(24)
    scale = [math.sqrt(1 / 24)] + [math.sqrt(2 / 24)] * 9
    expected = np.stack(
        [scale[j] * (y * np.cos(math.pi * j * (m + 0.5) / 24)).sum(1) for j in range(10)], axis=1
    )
    wave = torch.from_numpy(x)[None]
    np.testing.assert_allclose(MFCC(8000, bins=24, count=10)(wave)[0][0].numpy(), expected, rtol=0, atol=1e-4)
    lifted = expected * (1 + 11 * np.sin(math.pi * np.arange(10) / 22))
    found = MFCC(8000, bins=24, count=10, lifter=22)(wave)[0][0].numpy()
    np.testing.assert_allclose(found, lifted, rtol=1e-5, atol=1e-4)


def powers_by_the_book(y, power):
    """The powers that `MFCC` takes in place of log energies y, one frame at a time."""
    energies = np.exp(y)
    loudest = max(one.mean() for one in y)
    loud = [energy.mean() for one, energy in zip(y, energies, strict=True) if one.mean() >= loudest - 4.6]
    shares = np.maximum(energies / np.mean(loud), 1e-8)
    return (shares**power - 1) / power


@pytest.mark.parametrize("power", [0.1, 1 / 3])
def test_powers_in_place_of_logarithms_by_the_book(power, way):
    x = (0.3 * SPEECH[0] + 1e-3 * np.resize(NOISE, len(SPEECH[0]))).astype(np.float32)
    cosines = MFCC(8000, bins=24, count=10).transform.numpy()
    expected = powers_by_the_book(by_the_book(x, 8000, 24), power) @ cosines
    features = MFCC(8000, bins=24, count=10, power=power)
    found = features(torch.from_numpy(x)[None])[0][0].numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
    louder = features(torch.from_numpy(5 * x)[None])[0][0].numpy()  # how loud it is does not matter
    np.testing.assert_allclose(louder, found, rtol=0, atol=1e-3)
    waves = torch.full((3, len(x) + 700), 9.0)
    waves[:2, : len(x)] = torch.from_numpy(x)
    rows, counts = features(waves, torch.tensor([len(x), 3000, 0]))
    np.testing.assert_allclose(rows[0, : counts[0]].numpy(), found, rtol=0, atol=1e-5)
    alone = features(waves[1:2, :3000])[0][0]
    torch.testing.assert_close(rows[1, : counts[1]], alone, rtol=0, atol=1e-5)
    assert torch.isfinite(rows).all()


def test_powers_of_silence_are_finite_and_small_ones_are_logarithms():
    assert torch.isfinite(MFCC(8000, power=0.1)(torch.zeros(1, 2000))[0]).all()
    wave = torch.from_numpy(NOISE)[None]
    logarithms, powers = (MFCC(8000, power=p)(wave)[0][0] for p in (0.0, 1e-3))
    torch.testing.assert_close(
        powers[:, 1:], logarithms[:, 1:], rtol=0, atol=0.1
    )  # all but the level, which is taken away


def test_powers_do_not_arrive_in_pieces():
    with pytest.raises(
        DataError, match=r"the whole sound, which is not there yet while it arrives; set power = 0\."
    ):
        MFCC(8000, power=0.1).stream()


def test_log_mel_and_cepstra_as_librosa_has_them(way):
    librosa = pytest.importorskip("librosa")
    for rate, bins, points, x in ((8000, 40, 256, SPEECH[1]), (16_000, 80, 512, NOISE)):
        size, hop = round(0.025 * rate), round(0.010 * rate)
        # It puts a window that is shorter than its transform into the middle, we at the beginning.
        aside = (points - size) // 2
        mel = librosa.feature.melspectrogram(
            y=np.pad(x, aside), sr=rate, n_fft=points, win_length=size, hop_length=hop, center=False,
            n_mels=bins, fmin=20, htk=True, norm=None,
        )  # fmt: skip
        theirs = np.log(np.maximum(mel.T, 1e-10))
        wave = torch.from_numpy(x)[None]
        ours = LogMel(rate, bins=bins, preemphasis=0.0)(wave)[0][0].numpy()
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-3)
        cepstra = librosa.feature.mfcc(S=theirs.T, n_mfcc=13).T
        ours = MFCC(rate, bins=bins, count=13, preemphasis=0.0)(wave)[0][0].numpy()
        np.testing.assert_allclose(ours, cepstra, rtol=0, atol=1e-3)


@pytest.mark.parametrize("kind", [LogMel, MFCC])
@pytest.mark.parametrize("hop", [0.01, 0.06])  # the second leaves gaps between the frames
@given(cuts=st.lists(st.integers(0, 1500), max_size=8), length=st.integers(0, 1500))
def test_what_arrives_in_pieces_is_the_whole(kind, hop, cuts, length):
    features = kind(8000, bins=20, hop=hop)
    x = torch.from_numpy(SPEECH[0][4000 : 4000 + length])
    stream = features.stream()
    places = [0, *sorted(min(cut, length) for cut in cuts), length]
    parts = [stream.push(x[a:b]) for a, b in itertools.pairwise(places)]
    parts.append(stream.finish())
    whole = features(x[None])[0][0]
    assert torch.cat(parts).shape == whole.shape == (features.frames(length), features.width)
    np.testing.assert_allclose(torch.cat(parts).numpy(), whole.numpy(), rtol=0, atol=1e-5)


def test_a_row_of_a_batch_is_as_it_is_alone(way):
    features = LogMel(8000, bins=30)
    lengths = [len(SPEECH[0]), 5000, 120, 0]  # 120 samples are less than a window
    waves = torch.full((4, max(lengths)), 9.0)  # whatever lies behind the end must not be heard
    for row, n in enumerate(lengths):
        waves[row, :n] = torch.from_numpy(SPEECH[0][:n])
    found, frames = features(waves, torch.tensor(lengths))
    assert frames.tolist() == [features.frames(n) for n in lengths]
    for row, n in enumerate(lengths):
        alone, _ = features(waves[row : row + 1, :n])
        torch.testing.assert_close(found[row, : frames[row]], alone[0], rtol=0, atol=1e-6)
        assert not found[row, frames[row] :].any()


def test_a_tone_is_heard_by_the_filter_of_its_frequency():
    features = LogMel(8000, bins=20, low=100)
    for m in (3, 10, 17):
        tone = torch.sin(2 * math.pi * features.centres[m] / 8000 * torch.arange(4000, dtype=torch.float64))
        assert set(features(tone[None])[0][0].argmax(-1).tolist()) == {m}


def test_numbers_of_frames_by_hand():
    features = LogMel(8000, bins=20)  # windows of 200 samples, 80 apart
    assert [features.frames(n) for n in (0, 1, 200, 279, 280, 8000)] == [0, 1, 1, 1, 2, 98]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"rate": 40}, "make them longer"),
        ({"rate": 8000, "high": 5000}, "stay between 0 and 4000 Hz"),
        ({"rate": 8000, "bins": 200}, "200 filters are too many"),
    ],
)
def test_impossible_features(given, told):
    with pytest.raises(DataError, match=told):
        LogMel(**given)
    with pytest.raises(DataError, match="ask for 1 to 20"):
        MFCC(8000, bins=20, count=21)


def test_normalised_by_hand():
    x = torch.tensor([[[1.0, 5.0], [3.0, 5.0], [7.0, 8.0]], [[2.0, 0.0], [4.0, 1.0], [9.0, 2.0]]])
    found = normalise(x, torch.tensor([2, 3]))
    assert found[0].tolist() == [[-1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]
    torch.testing.assert_close(found[1], (x[1] - x[1].mean(0)) / x[1].std(0, correction=0))
    torch.testing.assert_close(normalise(x)[1], found[1])
    means = normalise(x, torch.tensor([2, 3]), "means")
    assert means.tolist()[0] == [[-1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]
    torch.testing.assert_close(means[1], x[1] - x[1].mean(0))
    level = normalise(x, torch.tensor([2, 3]), "level")
    deviation = (11 / 4) ** 0.5  # of 1, 5, 3, 5, whose mean is 3.5
    torch.testing.assert_close(level[0], torch.tensor([[-2.5, 1.5], [-0.5, 1.5], [0, 0]]) / deviation)
    torch.testing.assert_close(level[1], (x[1] - x[1].mean()) / x[1].std(correction=0))


def test_calls_in_turn_do_not_disturb_each_other():
    """Other filters, windows and lengths between two calls change nothing."""
    makers = (
        lambda: LogMel(8000, bins=20),
        lambda: LogMel(8000, bins=20, window=0.02),
        lambda: MFCC(8000, bins=20),
    )
    waves = [torch.from_numpy(SPEECH[0][:n])[None] for n in (8000, 3000, 8000)]
    alone = [[make()(wave)[0] for wave in waves] for make in makers]
    kept = [make() for make in makers]
    for _ in range(2):
        for wave, *expected in zip(waves, *alone, strict=True):
            for features, right in zip(kept, expected, strict=True):
                torch.testing.assert_close(features(wave)[0], right, atol=0, rtol=0)


@pytest.mark.cuda
def test_features_on_a_gpu():
    waves = torch.from_numpy(np.stack([x[:8000] for x in SPEECH]))
    lengths = torch.tensor([8000, 4000, 100, 7999])
    for features in (LogMel(8000, bins=40), MFCC(8000, bins=40)):
        here, frames = features(waves, lengths)
        there, counted = features.cuda()(waves.cuda(), lengths.cuda())
        assert counted.tolist() == frames.tolist()
        torch.testing.assert_close(there.cpu(), here, rtol=0, atol=1e-4)
