"""Loss against parameters, data and compute (Kaplan et al. 2020, Hoffmann et al. 2022), on small language models.

Models of several sizes learn the same text, and one of them learns from smaller and smaller parts of it. The least dev
loss falls about as a power of the parameters, of the text, and of the compute that was spent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.text import open_text
from anaphora.errors import DataError
from anaphora.probe.history import history
from anaphora.tasks.language.estimator import LanguageModel
from anaphora.tasks.studies.parts import Parts
from anaphora.training.progress import Reporter

SIZES = (8, 16, 32, 64)
"""Widths of the models that read all of the text."""
SHARES = (16, 8, 4, 2)
"""One model learns from 1/16, 1/8 … of the text as well."""
OF_DATA = 32
"""The width of that model, if it is one of those that are trained."""
MOST_CHARACTERS = 1_000_000
DEV_CHARACTERS = 30_000
SETTINGS: dict[str, Any] = {
    "model": "transformer",
    "layers": 2,
    "heads": 4,
    "lines": True,
    "context": 64,
    "dropout": 0.0,
    "lr": 3e-3,
    "warmup": 50,
    "batch_tokens": 1024,
    "steps": 600,
    "valid_every": 50,
    "save_every": 200,
    "patience": 0,
    "ema": 0.0,
    "threads": 1,
    "device": "cpu",
}


def scaling(
    out: str | Path,
    *,
    corpus: str = "python:names",
    settings: Mapping[str, Any] | None = None,
    reporter: Reporter | None = None,
    sizes: tuple[int, ...] = SIZES,
    shares: tuple[int, ...] = SHARES,
) -> dict[str, Any]:
    """Train a language model of each of ``sizes`` (widths), and one on a part 1/share of the text for each of ``shares``.

    ``corpus`` is an embedded corpus or a text file; the first million characters are used. Every training is a part that
    is not repeated by the same call. Returns ``points`` (``parameters``, ``data``, ``compute``: lists of ``{x, loss}``)
    and ``laws``, what `power_law` makes of each. Loss is in nats per symbol on the dev text; parameters do not count
    vectors of symbols and positions; compute is 6 · parameters · symbols read, in floating point operations.
    """
    report, given = reporter or Reporter(), dict(settings or {})
    train, dev = texts(corpus)
    middle = OF_DATA if OF_DATA in sizes else sizes[len(sizes) // 2]
    jobs = {f"width-{size}": (size, train) for size in sizes}
    jobs |= {f"part-{share}": (middle, train[: max(2, len(train) // share)]) for share in shares}
    models = {part: LanguageModel(**_settings(size, given)) for part, (size, _) in jobs.items()}
    asked = {"corpus": corpus, "settings": _settings(0, given), "characters": sum(map(len, train))}
    parts = Parts(out, "scaling", asked, names=r"(width|part)-\d+")
    results: dict[str, dict[str, Any]] = {}
    for number, (part, (size, lines)) in enumerate(jobs.items(), start=1):
        result = parts.finished(part)
        if result is None:
            report.say(f"{number} of {len(jobs)}: width {size}, {sum(map(len, lines)):,} characters")
            model = parts.trained(part, models[part], lines, report, valid=dev)
            result = _measure(model, parts[part], lines)
            parts.keep(part, result)
        report.say(f"{number} of {len(jobs)}: loss {min(result['losses']):.3f} nats")
        results[part] = result
    points = _points(results, sizes, shares, middle)
    laws = {axis: power_law([p["x"] for p in row], [p["loss"] for p in row]) for axis, row in points.items()}
    return {
        "study": "scaling",
        "corpus": corpus,
        "width_of_data": middle,
        "points": points,
        "laws": laws,
        "curves": {str(size): _spent(results[f"width-{size}"]) for size in sizes},
        "runs": {part: str(parts[part]) for part in jobs},
    }


def power_law(x: Sequence[float], y: Sequence[float]) -> dict[str, float] | None:
    """y ≈ floor + factor · x^(−exponent), by least squares; with fewer than four points the floor is 0.

    For each of 400 floors below the least y the line log(y − floor) = log(factor) − exponent · log(x) is fitted; that with
    the smallest Σ(y − ŷ)² wins. ``r2`` is the share of the variance of y that is explained. None for fewer than three
    points, or where x does not change.

    >>> law = power_law([1, 10, 100, 1000], [3.0, 2.1, 2.01, 2.001])
    >>> round(law["floor"], 1), round(law["exponent"], 1)
    (2.0, 0.8)
    """
    xs, ys = np.log(np.asarray(x, float)), np.asarray(y, float)
    if len(ys) < 3 or not np.ptp(xs) or not np.ptp(ys):
        return None
    floors = np.linspace(0.0, float(ys.min()), 401)[:-1] if len(ys) > 3 else [0.0]
    best: tuple[float, dict[str, float]] = (math.inf, {})
    for floor in floors:
        slope, height = np.polyfit(xs, np.log(ys - floor), 1)
        wrong = float(((floor + np.exp(height + slope * xs) - ys) ** 2).sum())
        if wrong < best[0]:
            found = {"exponent": -float(slope), "factor": float(np.exp(height)), "floor": float(floor)}
            best = wrong, {**found, "r2": 1 - wrong / float(((ys - ys.mean()) ** 2).sum())}
    return best[1]


def texts(corpus: str) -> tuple[list[str], list[str]]:
    """Lines to learn from and lines to measure on. A file has no dev text of its own: its last tenth becomes that."""
    text = open_text(corpus, role="train")
    own = text.describe()["kind"] == "corpus"
    train = _lines(text, MOST_CHARACTERS)
    held = _lines(open_text(corpus, role="dev"), DEV_CHARACTERS) if own else []
    if not held:
        cut = max(1, len(train) // 10)
        train, held = train[:-cut], train[-cut:]
    if len(train) < 2 * max(SHARES):
        raise DataError(
            f"{corpus} has {len(train)} lines to learn from; at least {2 * max(SHARES)} are needed to take parts of."
        )
    return train, held


def _lines(text: Any, most: int) -> list[str]:
    found: list[str] = []
    size = 0
    for block in text.blocks():
        for line in block.split("\n"):
            if line.strip():
                found.append(line)
                size += len(line) + 1
            if size >= most:
                return found
    return found


def _settings(size: int, given: Mapping[str, Any]) -> dict[str, Any]:
    chosen = {**SETTINGS, **given}
    if chosen["model"] != "transformer":
        chosen = {k: v for k, v in chosen.items() if k not in ("heads", "context") or k in given}
        sizes = {"hidden": size, "embedding": size}
    else:
        sizes = {"hidden": size, "feedforward": 4 * size}
    return {**chosen, **{key: value for key, value in sizes.items() if key not in given}}


def _measure(model: LanguageModel, run: Path, lines: Sequence[str]) -> dict[str, Any]:
    """The dev losses while training, with the symbols that had been read by then."""
    tables = history(run).tables
    read = {0: 0.0}
    for row in tables["steps"]:
        if isinstance(row.get("symbols"), int | float):
            read[int(row["step"])] = float(row["symbols"])
    losses = [(row["step"], row["value"]) for row in tables["dev"] if row["measure"] == "loss"]
    rate = max(read.values()) / max(max(read), 1)  # symbols a step
    network = model.model_
    tokens = sum(len(line) + 1 for line in lines)
    return {
        "parameters": sum(p.numel() for name, p in network.named_parameters() if "embedding" not in name),
        "symbols": tokens,
        "losses": [value for _, value in losses],
        "read": [step * rate for step, _ in losses],
    }


def _spent(result: Mapping[str, Any]) -> list[dict[str, float]]:
    """Loss against compute while one model was trained."""
    return [
        {"x": 6.0 * result["parameters"] * read, "loss": loss}
        for read, loss in zip(result["read"], result["losses"], strict=True)
    ]


def _points(
    results: Mapping[str, Mapping[str, Any]], sizes: Sequence[int], shares: Sequence[int], middle: int
) -> dict[str, list[dict[str, float]]]:
    of_size = [results[f"width-{size}"] for size in sizes]
    of_data = [*(results[f"part-{share}"] for share in shares), results[f"width-{middle}"]]
    spent = sorted((point for one in of_size for point in _spent(one)), key=lambda point: point["x"])
    frontier: list[dict[str, float]] = []
    for point in spent:  # the least loss that any size reaches with so much compute
        if not frontier or point["loss"] < frontier[-1]["loss"]:
            frontier.append(point)
    return {
        "parameters": [{"x": float(one["parameters"]), "loss": min(one["losses"])} for one in of_size],
        "data": [{"x": float(one["symbols"]), "loss": min(one["losses"])} for one in of_data],
        "compute": frontier,
    }
