"""Log-mel and cepstral features against librosa. Run: python benchmarks/features.py [--json] [--times N]

One process, one thread, both sides in turn, the least of N times; ten seconds of noise at 16 kHz, windows of 25 ms every
10 ms, 80 filters. Both sides must give the same features before they are timed; ours are computed in float64 inside,
librosa's in float32. The peer is not installed with us: ``pip install librosa``.
"""

# ruff: noqa: E402  (numpy reads the number of threads when it is imported)
from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from anaphora.data.audio.features import FLOOR, MFCC, LogMel
from rows import against, row, show
from turns import least

RATE, SECONDS = 16_000, 10


def measure(times: int) -> list[dict[str, Any]]:
    import librosa

    torch.set_num_threads(1)
    x = 0.1 * np.random.RandomState(0).standard_normal(RATE * SECONDS).astype(np.float32)
    wave = torch.from_numpy(x)[None]
    aside = (
        512 - 400
    ) // 2  # it puts a window of 400 samples into the middle of 512 points, we at the beginning
    beside = np.pad(x, aside)

    def mel() -> Any:
        return librosa.feature.melspectrogram(
            y=beside, sr=RATE, n_fft=512, win_length=400, hop_length=160, center=False, n_mels=80, fmin=20,
            htk=True, norm=None,
        )  # fmt: skip

    def their_log_mel() -> Any:
        return np.log(np.maximum(mel(), FLOOR)).T

    def their_cepstra() -> Any:
        return librosa.feature.mfcc(S=np.log(np.maximum(mel(), FLOOR)), n_mfcc=13).T

    log_mel = LogMel(RATE, bins=80, preemphasis=0.0)
    cepstra = MFCC(RATE, bins=80, count=13, preemphasis=0.0)
    sides: list[tuple[str, float | None, Callable[[], Any], Callable[[], Any]]] = [
        ("log-mel, 80 filters", 2.0, lambda: log_mel(wave)[0][0].numpy(), their_log_mel),
        ("13 cepstral coefficients of 80 filters", None, lambda: cepstra(wave)[0][0].numpy(), their_cepstra),
    ]
    rows = []
    for name, goal, ours, theirs in sides:
        np.testing.assert_allclose(ours(), theirs(), rtol=0, atol=1e-3)
        mine, peers = least(ours, theirs, times)
        rows.append(
            row(f"{name}, {SECONDS} s of sound", "librosa", 1000 * mine, 1000 * peers, "ms", goal=goal)
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--times", type=int, default=200)
    options = parser.parse_args()
    show(against("librosa", lambda: measure(options.times)), as_json=options.json)


if __name__ == "__main__":
    main()
