"""Training whole models on a GPU with our recurrent kernels and with cuDNN's layers: ``--json`` for machines.

    python benchmarks/training_gpu.py [--json] [--steps 40] [--rounds 4] [--data FOLDER] [--curve 0]

The library's own training step both times (bf16, clipped gradients, fused Adam); only the recurrences differ. Both sides
start from the same weights, see the same batches and are timed in turns; the least time of several rounds counts. With
``--data`` the batches are real ones: ``FOLDER/tinyshakespeare/input.txt`` and ``FOLDER/multi30k-en-de/train.tsv``.
``--curve N`` trains both for N steps first and prints their losses. Needs an NVIDIA GPU.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from anaphora.data.batches.pairs import PairBatch, ordered_batches
from anaphora.data.batches.stream import StreamBatch
from anaphora.engine.backends.base import BackendName
from anaphora.engine.dispatch import force
from anaphora.tasks.language.build import build_language
from anaphora.tasks.language.objective import LanguageObjective
from anaphora.tasks.registry import TASKS, resolve
from anaphora.tasks.translate.build import build_seq2seq
from anaphora.tasks.translate.objective import TranslationObjective
from anaphora.training import distributed
from anaphora.training.seeding import seed_everything
from anaphora.training.step import Stepper
from rows import row, show

Step = Callable[[Any], float]
LANGUAGE = {
    "model": "lstm",
    "layers": 2,
    "hidden": 640,
    "embedding": 128,
    "bptt": 128,
    "batch_tokens": 16384,
    "dropout": 0.5,
    "output_dropout": 0.5,
    "variational": True,
    "lr": 0.003,
}
TRANSLATE = {"model": "lstm-attention"}
SYMBOLS = 8000


def characters(folder: Path | None, rows: int, time: int) -> tuple[list[StreamBatch], int]:
    """Streams of characters side by side, ``rows`` of them, ``time`` at a step."""
    if folder is not None:
        text = (folder / "tinyshakespeare" / "input.txt").read_text()
        known = {c: 4 + i for i, c in enumerate(sorted(set(text)))}
        ids = np.array([known[c] for c in text], dtype=np.int64)
    else:
        ids, known = np.random.default_rng(0).integers(4, 69, 1_100_000), {str(k): k for k in range(65)}
    length = len(ids) // rows
    streams = ids[: length * rows].reshape(rows, length)
    return [
        StreamBatch(
            streams[:, at : at + time], streams[:, at + 1 : at + time + 1], list(range(rows)), at == 0
        )
        for at in range(0, length - time, time)
    ], 4 + len(known)


def pairs(folder: Path | None, batch_tokens: int) -> list[PairBatch]:
    """Batches of sentence pairs of about equal length, words as numbers, in random order."""
    if folder is not None:
        lines = (folder / "multi30k-en-de" / "train.tsv").read_text().splitlines()
        texts = [[side.split() for side in line.split("\t")[:2]] for line in lines]
    else:
        random = np.random.default_rng(0)
        sizes = np.clip(random.normal(13, 4, (29_000, 2)), 4, 40).astype(int)
        texts = [[[str(random.integers(9000)) for _ in range(n)] for n in pair] for pair in sizes[:8000]]
    sides = []
    for side in (0, 1):
        counts = Counter(word for pair in texts for word in pair[side])
        known = {word: 4 + i for i, (word, _) in enumerate(counts.most_common(SYMBOLS - 4))}
        sides.append([[known.get(word, 3) for word in pair[side]] for pair in texts])
    batches = ordered_batches(sides[0], batch_tokens, sides[1])
    order = np.random.default_rng(1).permutation(len(batches))
    return [batches[k] for k in order]


def language(folder: Path | None) -> tuple[Callable[[], Step], list[Any]]:
    settings = resolve(TASKS["language"], LANGUAGE)
    data, symbols = characters(folder, settings.batch_tokens // settings.bptt, settings.bptt)

    def make() -> Step:
        seed_everything(1, "model")
        objective = LanguageObjective(settings, symbols, measure=lambda _: {}, show=lambda _: [])
        return stepping(build_language(settings, symbols).cuda(), objective, settings)

    return make, data


def translation(folder: Path | None) -> tuple[Callable[[], Step], list[Any]]:
    settings = resolve(TASKS["translate"], TRANSLATE)

    def make() -> Step:
        seed_everything(1, "model")
        model = build_seq2seq(settings, SYMBOLS, SYMBOLS).cuda()
        sizes: Any = SimpleNamespace(target=SimpleNamespace(size=SYMBOLS))
        return stepping(model, TranslationObjective(settings, sizes, []), settings)

    return make, pairs(folder, settings.batch_tokens)


def stepping(model: torch.nn.Module, objective: Any, settings: Any) -> Step:
    """A training step of the library, loop and all but its log."""
    stepper = Stepper(model, objective, settings, distributed.join("cuda"), "bf16")
    number = 0

    def step(batch: Any) -> float:
        nonlocal number
        number += 1
        lr = settings.lr * min(1.0, number / 100)
        outcome, factor = stepper.gradient(batch, number, lr=lr)
        stepper.apply(factor, lr)
        return outcome.loss

    return step


SIDES: tuple[BackendName | None, ...] = (None, "cudnn")
MODELS = {
    "LSTM language model, 2×640, tinyshakespeare": language,
    "lstm-attention, Multi30k": translation,
}


def seconds(step: Step, data: Sequence[Any], steps: int, way: BackendName | None, at: int) -> float:
    with force(way):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for number in range(at, at + steps):
            step(data[number % len(data)])
        torch.cuda.synchronize()
    return (time.perf_counter() - begun) / steps


def curve(step: Step, data: Sequence[Any], steps: int, way: BackendName | None) -> list[float]:
    """The mean loss of every tenth of so many steps."""
    with force(way):
        losses = [step(data[number % len(data)]) for number in range(steps)]
    return [float(np.mean(part)) for part in np.array_split(losses, 10)]


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    make, data = MODELS[name](options.data)
    if options.curve:
        for way in SIDES:
            losses = curve(make(), data, options.curve, way)
            said = " ".join(f"{loss:.3f}" for loss in losses)
            print(f"{name}, {way or 'ours'}: {said}", file=sys.stderr, flush=True)
    steps = [make() for _ in SIDES]
    best = [float("inf")] * len(SIDES)
    for side, way in enumerate(SIDES):  # kernels are compiled, and every shape has been seen
        seconds(steps[side], data, max(options.steps, len(data)), way, 0)
    for turn in range(options.rounds):
        for side, way in enumerate(SIDES):
            took = seconds(steps[side], data, options.steps, way, turn * options.steps)
            best[side] = min(best[side], took)
    ours, theirs = (1 / one for one in best)
    return row(f"{name}, training", "cuDNN's layers", ours, theirs, "steps/s", goal=1.5, more_is_better=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--steps", type=int, default=40, help="steps of a round (default 40)")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of each side (default 4)")
    parser.add_argument("--curve", type=int, default=0, help="train both sides this long first")
    parser.add_argument("--data", type=Path, help="folder of the corpora; numbers of their shape otherwise")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if torch.cuda.is_available():
        rows = [measure(name, options) for name in MODELS]
    else:
        print("training_gpu: skipped, there is no NVIDIA GPU here.", file=sys.stderr)
    show(rows, as_json=options.json)


if __name__ == "__main__":
    main()
