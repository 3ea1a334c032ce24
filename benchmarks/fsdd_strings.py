"""Digit strings of the Free Spoken Digit Dataset: recordings of one speaker joined with pauses, a speaker held out.

    python benchmarks/fsdd_strings.py FOLDER/recordings OUT [--held-out theo]

FOLDER/recordings holds ``DIGIT_SPEAKER_NUMBER.wav`` at 8 kHz. OUT gets the folder ``wav`` and five lists for the
transcriber, ``path⇥words``, the digits written out:

    train.tsv     strings of 2 to 7 recordings of the other speakers, each string by one of them; a third are single
    dev.tsv       the same speakers, recordings that training does not use (numbers below 9)
    test.tsv      strings of 2 to 7 recordings of the speaker held out
    singles.tsv   every recording of the speaker held out, alone
    padded.tsv    the same with a pause before and after it, as strings have

Pauses last 0.05 to 0.4 s and are as silent as the quietest beginning of the string's recordings. Before and after every
second string of training there is none.
"""

from __future__ import annotations

import argparse
import wave
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.batches.pooled import random_of
from anaphora.data.corpora.sound_corpus import write_wav

RATE = 8000
DEV_BELOW = 9
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SIZES = {"train": 3000, "dev": 150, "test": 300}
Wave = np.ndarray[Any, np.dtype[np.float32]]
Digit = tuple[str, Wave]


def read(folder: Path) -> dict[str, list[tuple[int, Digit]]]:
    """Of each speaker the recordings: number, digit and samples."""
    found: dict[str, list[tuple[int, Digit]]] = defaultdict(list)
    for path in sorted(folder.glob("*.wav")):
        digit, speaker, number = path.stem.split("_")
        found[speaker].append((int(number), (WORDS[int(digit)], samples(path))))
    if len(found) < 2:
        raise SystemExit(
            f"{folder} holds recordings of {len(found)} speakers; give the folder recordings of fsdd."
        )
    return found


def samples(path: Path) -> Wave:
    """Of a file of 16 bits at 8 kHz, which all of them are: nothing but the standard library reads it."""
    with wave.open(str(path)) as file:
        if (file.getframerate(), file.getsampwidth(), file.getnchannels()) != (RATE, 2, 1):
            raise SystemExit(f"{path} is not a recording of fsdd: one channel of 16 bits at {RATE} Hz.")
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / np.float32(32768)


def string(digits: list[Digit], count: int, padded: bool, random: np.random.RandomState) -> Digit:
    """``count`` of the recordings, drawn at random, with pauses between them, and around them if ``padded``."""
    chosen = [digits[i] for i in random.randint(len(digits), size=count)]
    quiet = min(float(np.sqrt(np.mean(x[:80] ** 2))) for _, x in chosen)
    parts = [chosen[0][1]]
    for _, x in chosen[1:]:
        parts += [pause(quiet, random), x]
    if padded:
        parts = [pause(quiet, random), *parts, pause(quiet, random)]
    return " ".join(digit for digit, _ in chosen), np.concatenate(parts)


def strings(name: str, voices: list[list[Digit]], random: np.random.RandomState) -> list[Digit]:
    """The strings of a list, spoken by the voices in turn."""
    found = []
    for i in range(SIZES[name]):
        single = name == "train" and i % 3 == 0
        padded = name != "train" or bool(random.randint(2))
        count = 1 if single else random.randint(2, 8)
        found.append(string(voices[random.randint(len(voices))], count, padded, random))
    return found


def pause(level: float, random: np.random.RandomState) -> Wave:
    samples = int(random.uniform(0.05, 0.4) * RATE)
    return (level * random.standard_normal(samples)).astype(np.float32)


def write(out: Path, name: str, rows: list[Digit]) -> None:
    lines = []
    for i, (digits, x) in enumerate(rows):
        file = f"wav/{name}-{i + 1:04}.wav"
        write_wav(out / file, x, RATE)
        lines.append(f"{file}\t{digits}\n")
    (out / f"{name}.tsv").write_text("".join(lines), encoding="utf-8", newline="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recordings", type=Path, help="the folder recordings of fsdd")
    parser.add_argument("out", type=Path, help="folder to write to")
    parser.add_argument("--held-out", default="theo", help="the speaker that training never hears")
    asked = parser.parse_args()
    by_speaker = read(asked.recordings)
    if asked.held_out not in by_speaker:
        raise SystemExit(f"{asked.held_out} is not among the speakers: {', '.join(by_speaker)}.")
    (asked.out / "wav").mkdir(parents=True, exist_ok=True)
    unseen = [digit for _, digit in by_speaker.pop(asked.held_out)]
    known = list(by_speaker.values())
    train = [[digit for number, digit in rows if number >= DEV_BELOW] for rows in known]
    dev = [[digit for number, digit in rows if number < DEV_BELOW] for rows in known]
    for place, (name, voices) in enumerate({"train": train, "dev": dev, "test": [unseen]}.items()):
        write(asked.out, name, strings(name, voices, random_of(1, place)))
    write(asked.out, "singles", unseen)
    write(asked.out, "padded", [string([digit], 1, True, random_of(2, i)) for i, digit in enumerate(unseen)])
    print(
        f"Wrote {', '.join(f'{count} {name}' for name, count in SIZES.items())} and {len(unseen)} single to {asked.out}."
    )


if __name__ == "__main__":
    main()
