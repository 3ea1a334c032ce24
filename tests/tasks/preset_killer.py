"""Kills small runs of presets of all tasks again and again, and lets them end: do they end with the same bytes?

Run as ``python preset_killer.py FOLDER KILLS SEED DEVICE [FIRST STRIDE]``; prints one JSON object. With a stride it
takes every STRIDE-th preset from the FIRST on. It forks, as tests/training's killer does: the children find torch
loaded, and the parent never computes.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import answer_tiny
import caption_tiny
import classify_tiny
import embed_tiny
import forecast_tiny
import tasks_tiny
import torch
import transcribe_tiny
from invariant_cases import LANGUAGE, TAGGER

import anaphora as an
from anaphora.data.corpora import generate
from anaphora.training.run import RunFolder
from anaphora.training.verify import verify_run
from anaphora.training.weights import load_weights

PACE = {"steps": 24, "save_every": 3, "valid_every": 8, "log_every": 1, "keep": 2, "keep_best": 1}
Made = Callable[[dict[str, Any]], tuple[Any, Any, Any]]


def _pairs(preset: str) -> Made:
    return lambda more: (
        tasks_tiny.tiny(preset, **more),
        tasks_tiny.pairs(60),
        tasks_tiny.pairs(4, seed=1),
    )


def _texts(preset: str) -> Made:
    rows = classify_tiny.texts
    return lambda more: (classify_tiny.tiny(preset, **more), rows(60), rows(8, seed=1))


def _names(**preset: Any) -> Made:
    def made(more: dict[str, Any]) -> tuple[Any, Any, Any]:
        data = (
            list(generate("names", split=split, size=size)) for split, size in (("train", 60), ("dev", 8))
        )
        return (an.Tagger(**{**TAGGER, **preset, **more}), *data)

    return made


def _lines(**preset: Any) -> Made:
    lines = ["abc" * (1 + i % 5) + "a b" for i in range(80)]
    return lambda more: (an.LanguageModel(**{**LANGUAGE, **preset, **more}), lines, lines[:8])


def _running(**preset: Any) -> Made:
    lines = ["abc" * (1 + i % 5) + "a b" for i in range(80)]
    return lambda more: (
        an.LanguageModel(**{**LANGUAGE, **preset, "lines": False, **more}),
        lines,
        lines[:8],
    )


def _sounds(preset: str) -> Made:
    rows = transcribe_tiny.recordings
    return lambda more: (transcribe_tiny.tiny(preset, **more), rows(30), rows(4, seed=1))


def _pictures(preset: str) -> Made:
    rows = caption_tiny.pictures
    return lambda more: (caption_tiny.tiny(preset, **more), rows(20), rows(4, seed=1))


def _questions(preset: str) -> Made:
    rows = answer_tiny.scenes
    return lambda more: (answer_tiny.tiny(preset, **more), rows(15), rows(4, seed=1))


def _alike(preset: str, *, alone: bool = False) -> Made:
    def made(more: dict[str, Any]) -> tuple[Any, Any, Any]:
        data = [embed_tiny.pairs(60), embed_tiny.pairs(8, seed=1)]
        if alone:
            data = [[x for x, _ in rows] for rows in data]  # type: ignore[misc]
        return (embed_tiny.tiny(preset, dropout=0.1, **more), *data)

    return made


def _waves(preset: str) -> Made:
    return lambda more: (forecast_tiny.tiny(preset, **more), forecast_tiny.waves(), None)


PRESETS: dict[str, Made] = {
    "translate lstm-attention": _pairs("lstm-attention input feeding"),
    "translate gru-attention": _pairs("gru-attention"),
    "translate transformer": _pairs("transformer norm first"),
    "classify bilstm": _texts("bilstm attention"),
    "classify conv": _texts("conv mean"),
    "tag bilstm-crf": _names(model="bilstm-crf", embedding=16),
    "language lstm": _lines(model="lstm", embedding=8, bptt=16),
    "language running": _running(model="lstm", embedding=8, bptt=16),
    "language transformer": _lines(model="transformer", heads=2, feedforward=32, context=16),
    "forecast lstm": _waves("lstm"),
    "forecast conv": _waves("conv"),
    "transcribe bilstm-ctc": _sounds("bilstm-ctc"),
    "caption lstm-attention": _pictures("lstm-attention"),
    "answer transformer": _questions("transformer"),
    "embed bilstm": _alike("bilstm"),
    "embed transformer views": _alike("transformer", alone=True),
}
POINTS = {
    "write.chunk": 20,
    "checkpoint.file": 20,
    "checkpoint.manifest": 6,
    "checkpoint.renamed": 6,
    "checkpoint.pruned": 5,
}


def train(
    made: Made, folder: Path, device: str, fault: str | None = None, *, background: bool = False
) -> None:
    torch.set_num_threads(1)
    if fault:
        os.environ["ANAPHORA_FAULT"] = fault
    model, data, valid = made({**PACE, "device": device, "save_in_background": background})
    if (folder / "config.json").exists():
        type(model).resume(folder)
    else:
        model.fit(data, valid=valid, out=folder)  # also in a folder that a kill left without config.json


def forked(work: Callable[..., Any], *given: Any, **options: Any) -> int:
    child = os.fork()
    if child == 0:
        try:
            work(*given, **options)
            os._exit(0)
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            os._exit(1)
    return child


def ended(child: int, what: str) -> bool:
    """Whether the child was killed; one that failed by itself ends all."""
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
        raise SystemExit(f"{what} failed on its own")
    return os.WIFSIGNALED(status)


def outcome(folder: Path, device: str) -> Any:
    """What must be the same: bytes on a CPU; on a GPU, whose sums vary, the steps and about the losses."""
    if device == "cpu":
        names = ("metrics.jsonl", "samples.jsonl")
        files: dict[str, Any] = {n: (folder / n).read_bytes() for n in names if (folder / n).exists()}
        tensors, facts = load_weights(folder / "model.safetensors")
        facts.pop("files")  # config.json names the run's own copy of the data
        return files | {"facts": facts} | {name: value.numpy().tobytes() for name, value in tensors.items()}
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["loss"]) for line in lines if "loss" in line]


def same(found: Any, expected: Any, device: str) -> bool:
    if device == "cpu":
        return bool(found == expected)
    return [s for s, _ in found] == [s for s, _ in expected] and all(
        math.isclose(a, b, rel_tol=0.05, abs_tol=0.05) for (_, a), (_, b) in zip(found, expected, strict=True)
    )


def main(base: Path, kills: int, seed: int, device: str, first: int = 0, stride: int = 1) -> None:
    draw = random.Random(f"{seed}/{first}")
    torch.optim.SGD(
        [torch.zeros(1)]
    )  # loads, once for all children, what torch loads with the first optimizer
    presets = dict(list(PRESETS.items())[first::stride])
    done = dict.fromkeys(presets, 0)
    whole: dict[str, tuple[Any, float]] = {}
    rounds = 0
    while sum(done.values()) < kills:
        rounds += 1
        for number, (name, made) in enumerate(presets.items()):
            background = number % 2 == 1  # config.json says so, and the weights name its hash
            if sum(done.values()) >= kills:
                break
            place = base / name.replace(" ", "-")
            if name not in whole:
                place.mkdir()
                began = time.monotonic()
                ended(
                    forked(train, made, place / "whole", device, background=background),
                    name,
                )
                whole[name] = outcome(place / "whole", device), time.monotonic() - began
            expected, seconds = whole[name]
            folder = place / f"run-{rounds}"
            for _ in range(draw.randint(1, 3)):
                fault = None
                if draw.random() < 0.4:
                    point = draw.choice(list(POINTS))
                    fault = f"{point}:{draw.randint(1, POINTS[point])}"
                child = forked(train, made, folder, device, fault, background=background)
                if fault is None:
                    time.sleep(draw.random() * seconds)
                    os.kill(child, signal.SIGKILL)
                if not ended(child, name):
                    break
                done[name] += 1
            ended(
                forked(train, made, folder, device, background=background),
                name,
            )
            if not same(outcome(folder, device), expected, device):
                raise SystemExit(f"{name}: {folder.name} differs from the uninterrupted run")
            bad = [verdict for verdict in verify_run(RunFolder(folder)) if verdict.state == "damaged"]
            if bad or list(folder.rglob(".tmp-*")) or (folder / "lock").exists():
                raise SystemExit(f"{name}: {folder.name}: something is damaged or was left behind ({bad})")
    print(json.dumps({"kills": sum(done.values()), "presets": done}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], *map(int, sys.argv[5:]))
