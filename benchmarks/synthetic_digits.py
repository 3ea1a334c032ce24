"""Spoken digits of synthetic voices, in files as those of fsdd: voices that no training heard and no setting was chosen by.

    python benchmarks/synthetic_digits.py OUT [--flite kal16 awb rms slt] [--espeak en-us+f2 …]

OUT gets ``DIGIT_VOICE_NUMBER.wav`` at 8 kHz, each digit three times at other paces, by the programs flite and espeak-ng, which must be
installed. `fsdd_holdout.py --others OUT` scores its models on them.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch

from anaphora.data.audio.files import read_audio
from anaphora.data.audio.resample import resample
from anaphora.data.corpora.sound_corpus import write_wav
from fsdd_strings import RATE, WORDS, Wave

PACES = (0.85, 1.0, 1.15)
QUIET = 0.01  # of the peak: what is quieter at the ends is cut off
NOISE = 0.002  # of the peak: real recordings are never silent


def spoken(word: str, voice: str, pace: float, espeak: bool) -> Wave:
    """The samples of a word, ``pace`` times as long as usual."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "said.wav")
        if espeak:
            order = ["espeak-ng", "-v", voice, "-s", str(round(165 / pace)), "-w", file, word]
        else:
            order = [
                "flite",
                "-voice",
                voice,
                "--setf",
                f"duration_stretch={pace}",
                "-t",
                f"{word}.",
                "-o",
                file,
            ]
        subprocess.run(order, check=True)
        wave, rate = read_audio(file)
    return resample(torch.from_numpy(wave), rate, RATE).numpy()


def trimmed(wave: Wave) -> Wave:
    """Without the silence around it, 25 ms before and 50 ms after, at half of full loudness and with a little noise."""
    peak = float(np.abs(wave).max())
    loud = np.flatnonzero(np.abs(wave) > QUIET * peak)
    wave = wave[max(0, loud[0] - RATE // 40) : loud[-1] + RATE // 20] / (2 * peak)
    noise = np.random.RandomState(len(wave)).standard_normal(len(wave)) * NOISE / 2
    return (wave + noise).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder to write to")
    parser.add_argument("--flite", nargs="*", default=["kal16", "awb", "rms", "slt"], help="voices of flite")
    parser.add_argument("--espeak", nargs="*", default=[], help="voices of espeak-ng")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    voices = [(voice, False) for voice in asked.flite] + [(voice, True) for voice in asked.espeak]
    for voice, espeak in voices:
        for digit, word in enumerate(WORDS):
            for number, pace in enumerate(PACES):
                wave = trimmed(spoken(word, voice, pace, espeak))
                write_wav(asked.out / f"{digit}_{voice.replace('_', '-')}_{number}.wav", wave, RATE)
    print(f"Wrote {len(voices) * len(WORDS) * len(PACES)} recordings of {len(voices)} voices to {asked.out}.")


if __name__ == "__main__":
    main()
