"""Small data for the contract, drawn from a seed: inputs in their JSON form, the files that users would keep them in, and
nothing of Anaphora, so that every version of it reads the same bytes."""

from __future__ import annotations

import csv
import json
import random
import struct
import wave
import zlib
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np

Row = tuple[Any, Any]
"""An input in its JSON form, and what belongs to it."""

GOOD, BAD, PLAIN = (
    ["fine", "good", "warm"],
    ["bad", "cold", "dull"],
    ["a", "day", "film", "so", "the", "very"],
)
COLOURS = {"blue": (20, 40, 220), "green": (20, 210, 40), "red": (220, 30, 30)}
SIDE, RATE = 12, 8000
SAID = ("bad", "cab", "dab", "face")


# ---------------------------------------------------------------------- rows
def sentences(count: int, seed: int = 0) -> list[Row]:
    """One of two moods among plain words, and the mood."""
    draw = random.Random(f"sentences {seed}")
    rows = []
    for number in range(count):
        mood = GOOD if number % 2 else BAD
        words = draw.choices(PLAIN, k=1 + draw.randrange(6))
        words.insert(draw.randrange(len(words)), draw.choice(mood))
        rows.append((" ".join(words), "good" if number % 2 else "bad"))
    return rows


def several(count: int, seed: int = 0) -> list[Row]:
    """Sentences and which of the words ``a``, ``the`` and ``very`` are in them: any number of labels."""
    rows = []
    for text, _ in sentences(count, seed):
        words = set(text.split())
        rows.append((text, "|".join(word for word in ("a", "the", "very") if word in words) or "-"))
    return rows


def lengths(count: int, seed: int = 0) -> list[Row]:
    """Sentences and how long they are: a number."""
    return [(text, len(text) / 10) for text, _ in sentences(count, seed)]


def capitals(count: int, seed: int = 0) -> list[Row]:
    """A few letters, and the same in capitals."""
    draw = random.Random(f"capitals {seed}")
    texts = ["".join(draw.choices("abcdef", k=1 + draw.randrange(6))) for _ in range(count)]
    return [(text, text.upper()) for text in texts]


def phrases(count: int, seed: int = 0) -> list[Row]:
    """Sentences and the same with every word in capitals."""
    return [(text, text.upper()) for text, _ in sentences(count, seed)]


def tagged(count: int, seed: int = 0) -> list[Row]:
    """Sentences with names of one or two words: spans."""
    draw = random.Random(f"tagged {seed}")
    rows = []
    for _ in range(count):
        words, tags = [], []
        for _ in range(1 + draw.randrange(3)):
            words += draw.choices(PLAIN, k=1 + draw.randrange(2))
            tags += ["O"] * (len(words) - len(tags))
            name = draw.choices(["Ada", "Bob", "Cleo"], k=1 + draw.randrange(2))
            words, tags = words + name, tags + ["B-P", "I-P"][: len(name)]
        rows.append((" ".join(words), " ".join(tags)))
    return rows


def arrays(count: int, seed: int = 0) -> list[Row]:
    """Sequences ``(time, 2)`` that rise or fall."""
    draw = np.random.RandomState(seed)
    rows = []
    for number in range(count):
        slope, steps = (1 if number % 2 else -1), 3 + draw.randint(7)
        wave = slope * np.linspace(-1, 1, steps) + 0.1 * draw.randn(steps)
        rows.append(
            (np.stack([wave, draw.randn(steps)], 1).round(3).tolist(), "up" if number % 2 else "down")
        )
    return rows


def framed(count: int, seed: int = 0) -> list[Row]:
    """Sequences ``(time, 2)`` and a label for each of their frames."""
    return [(x, " ".join("high" if frame[0] > 0 else "low" for frame in x)) for x, _ in arrays(count, seed)]


def _picture(draw: np.random.RandomState, colour: str, right: int) -> list[Any]:
    picture = draw.randint(0, 40, (SIDE, SIDE, 3))
    top, left = draw.randint(SIDE - 4), draw.randint(2) + right * SIDE // 2
    picture[top : top + 4, left : left + 4] = COLOURS[colour]
    return picture.tolist()


def pictures(count: int, seed: int = 0) -> list[Row]:
    """A square of a colour on a dark ground, and the colour."""
    draw = np.random.RandomState(seed)
    return [(_picture(draw, name, draw.randint(2)), name) for name in (list(COLOURS) * count)[:count]]


def captioned(count: int, seed: int = 0) -> list[Row]:
    """The same with one or two captions."""
    rows = pictures(count, seed)
    return [(x, [f"a {y} square", f"{y} on black"][: 1 + i % 2]) for i, (x, y) in enumerate(rows)]


def questions(count: int, seed: int = 0) -> list[Row]:
    """Pictures, each with two questions, and the answers."""
    draw = np.random.RandomState(seed)
    rows: list[Row] = []
    while len(rows) < count:
        colour, right = list(COLOURS)[draw.randint(3)], int(draw.randint(2))
        picture = _picture(draw, colour, right)
        rows.append(({"picture": picture, "question": "what colour is it"}, colour))
        rows.append(({"picture": picture, "question": "is it on the left"}, "no" if right else "yes"))
    return rows[:count]


def frames(count: int, seed: int = 0) -> list[Row]:
    """Frames ``(time, 7)`` in which each letter has a feature of its own, and the text."""
    draw = random.Random(f"frames {seed}")
    noise = np.random.RandomState(seed)
    rows = []
    for _ in range(count):
        text = " ".join(draw.choices(SAID, k=1 + draw.randrange(2)))
        steps = []
        for letter in f"_{text}_":
            part = np.zeros((3 + noise.randint(2), 7))
            if letter != "_":
                part[1:, 6 if letter == " " else ord(letter) - ord("a")] = 2.0
            steps.append(part)
        x = np.concatenate(steps)
        rows.append(((x + 0.1 * noise.randn(*x.shape)).round(3).tolist(), text))
    return rows


def sounds(count: int, seed: int = 0) -> list[Row]:
    """Tones, one for each letter, with silence between: samples at `RATE`, as 16-bit files hold them."""
    draw = random.Random(f"sounds {seed}")
    noise = np.random.RandomState(seed)
    rows = []
    for _ in range(count):
        text = "".join(draw.choices("abc", k=1 + draw.randrange(3)))
        time = np.arange(400) / RATE
        tones = [0.5 * np.sin(2 * np.pi * (400 + 500 * "abc".index(letter)) * time) for letter in text]
        x = np.concatenate([part for tone in tones for part in (tone, np.zeros(100))])
        x = np.clip(x + 0.01 * noise.randn(len(x)), -1, 1)
        rows.append(((np.round(x * 32767) / 32768).tolist(), text))
    return rows


def waves(steps: int, seed: int = 0) -> list[list[float]]:
    """Two columns ``(steps, 2)``: a wave of six steps with noise, and the same a step later."""
    draw = np.random.RandomState(seed)
    wave = 3 + np.sin(2 * np.pi * np.arange(steps + 1) / 6) + 0.1 * draw.randn(steps + 1)
    values: list[list[float]] = np.stack([wave[1:], wave[:-1]], 1).round(3).tolist()
    return values


# ---------------------------------------------------------------------- files
def write_tsv(folder: Path, name: str, rows: Sequence[Row]) -> str:
    lines = [f"{x}\t" + ("\t".join(y) if isinstance(y, list) else str(y)) for x, y in rows]
    return _written(folder / f"{name}.tsv", "\n".join(lines) + "\n")


def write_csv(folder: Path, name: str, rows: Sequence[Row]) -> str:
    """With an id before and columns called ``body`` and ``kind``."""
    with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([("id", "body", "kind"), *((100 + i, x, y) for i, (x, y) in enumerate(rows))])
    return f"{name}.csv"


def write_jsonl(folder: Path, name: str, rows: Sequence[Row]) -> str:
    lines = [json.dumps({"text": x, "label": y}) for x, y in rows]
    return _written(folder / f"{name}.jsonl", "\n".join(lines) + "\n")


def write_lines(folder: Path, name: str, rows: Sequence[Row]) -> str:
    return _written(folder / f"{name}.txt", "".join(f"{x}\n" for x, _ in rows))


def write_vectors(folder: Path, name: str, rows: Sequence[Row]) -> str:
    return _written(folder / f"{name}.jsonl", "".join(json.dumps(x) + "\n" for x, _ in rows))


def write_conll(folder: Path, name: str, rows: Sequence[Row]) -> str:
    blocks = ["\n".join(map("\t".join, zip(x.split(), y.split(), strict=True))) for x, y in rows]
    return _written(folder / f"{name}.conll", "\n\n".join(blocks) + "\n")


def write_npz(folder: Path, name: str, rows: Sequence[Row]) -> str:
    """X padded, with its lengths, and y: one label for each sequence, or one for each of its frames."""
    longest = max(len(x) for x, _ in rows)
    held = {"X": np.stack([np.pad(np.float32(x), ((0, longest - len(x)), (0, 0))) for x, _ in rows])}
    held["lengths"] = np.array([len(x) for x, _ in rows])
    if all(isinstance(y, str) and len(y.split()) == len(x) for x, y in rows):
        held["y"] = np.array([[*y.split(), *["low"] * (longest - len(x))] for x, y in rows])
    else:
        held["y"] = np.array([y for _, y in rows])
    np.savez(folder / f"{name}.npz", **held)
    return f"{name}.npz"


def write_arrays(folder: Path, name: str, rows: Sequence[Row]) -> str:
    """A list of ``.npy`` files with what belongs to them."""
    (folder / f"{name}-npy").mkdir()
    for number, (x, _) in enumerate(rows):
        np.save(folder / f"{name}-npy" / f"{number}.npy", np.float32(x))
    return write_tsv(folder, name, [(f"{name}-npy/{i}.npy", y) for i, (_, y) in enumerate(rows)])


def write_wavs(folder: Path, name: str, rows: Sequence[Row]) -> str:
    """A list of ``.wav`` files with what is said in them."""
    (folder / f"{name}-wav").mkdir()
    for number, (x, _) in enumerate(rows):
        with wave.open(str(folder / f"{name}-wav" / f"{number}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes(np.round(np.asarray(x) * 32768).astype("<i2").tobytes())
    return write_tsv(folder, name, [(f"{name}-wav/{i}.wav", y) for i, (_, y) in enumerate(rows)])


def write_pictures(folder: Path, name: str, rows: Sequence[Row]) -> str:
    """A list of ``.png`` files with a label, captions, or a question and its answer."""
    (folder / f"{name}-png").mkdir()
    files: dict[str, str] = {}
    listed = []
    for x, y in rows:
        pixels = x["picture"] if isinstance(x, dict) else x
        key = json.dumps(pixels)
        if key not in files:
            files[key] = f"{name}-png/{len(files)}.png"
            (folder / files[key]).write_bytes(png(pixels))
        listed.append((files[key], [x["question"], y] if isinstance(x, dict) else y))
    return write_tsv(folder, name, listed)


def write_by_label(folder: Path, name: str, rows: Sequence[Row]) -> str:
    """A folder with a folder of ``.png`` files for each label."""
    for number, (x, y) in enumerate(rows):
        (folder / name / y).mkdir(parents=True, exist_ok=True)
        (folder / name / y / f"{number}.png").write_bytes(png(x))
    return name


def write_series(folder: Path, name: str, rows: Sequence[Row]) -> str:
    """The first input, a series, as a table with days."""
    lines = ["date,load,wind"]
    for day, (load, wind) in enumerate(rows[0][0]):
        lines.append(f"{date(2024, 1, 1) + timedelta(days=day)},{load},{wind}")
    return _written(folder / f"{name}.csv", "\n".join(lines) + "\n")


def png(pixels: Any) -> bytes:
    """A picture of 8-bit colours as a file."""
    values = np.uint8(pixels)
    height, width, _ = values.shape

    def chunk(kind: bytes, held: bytes) -> bytes:
        return struct.pack(">I", len(held)) + kind + held + struct.pack(">I", zlib.crc32(kind + held))

    lines = b"".join(b"\0" + line.tobytes() for line in values)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(lines, 9)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return path.name


Writer = Callable[[Path, str, Sequence[Row]], str]
