"""Presets of `Classifier` on labelled series that come with a division into training and test data.

    python benchmarks/series_classes.py FOLDER --models rocket lstm --seeds 1 2 3
    python benchmarks/series_classes.py --marks 300 1000 3000 --models rocket lstm --set places=false

FOLDER holds NAME_TRAIN.ts and NAME_TEST.ts, at any depth; aeon and sktime bring some in their packages. Each model is trained with its
defaults, or with those of --set, on the training file, which holds its own dev data out, and scored on the test file once. ``--marks N`` makes N series
of two features and 120 steps of noise, each with a mark in either feature at some time, and 2 000 more to judge by: which came first?
Prints accuracy in percent and seconds of training; one thread.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import anaphora as an
from anaphora.errors import AnaphoraError
from text_classes import setting


def marks(count: int) -> tuple[Any, Any]:
    """So many series, and 2 000 others, by which of their two marks comes first."""
    draw = np.random.RandomState(count)
    rows = []
    for _ in range(count + 2000):
        x = 0.3 * draw.standard_normal((120, 2)).astype(np.float32)
        first, second = 5 + draw.permutation(100)[:2]
        x[first : first + 4, 0] += 2
        x[second : second + 4, 1] += 2
        rows.append((x, "first" if first < second else "second"))
    return rows[:count], rows[count:]


def sets(asked: argparse.Namespace) -> Iterator[tuple[str, Any, Any]]:
    """Name, training and test data."""
    for train in sorted(asked.folder.rglob("*_TRAIN.ts")) if asked.folder else []:
        name = train.name.removesuffix("_TRAIN.ts")
        test = train.with_name(f"{name}_TEST.ts")
        if test.exists() and (not asked.sets or name in asked.sets):
            yield name, train, test
    for count in asked.marks:
        yield f"marks of {count}", *marks(count)


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("folder", type=Path, nargs="?")
    given.add_argument("--marks", nargs="+", type=int, default=[], metavar="N")
    given.add_argument("--set", nargs="+", type=setting, default=[], metavar="NAME=VALUE", dest="settings")
    given.add_argument("--models", nargs="+", default=["rocket", "lstm", "bilstm", "conv"])
    given.add_argument("--sets", nargs="+", default=[], help="names of sets; all by default")
    given.add_argument("--seeds", nargs="+", type=int, default=[1])
    asked = given.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found: dict[str, list[float]] = {model: [] for model in asked.models}
    for name, train, test in sets(asked):
        for model in asked.models:
            values, seconds = [], 0.0
            for seed in asked.seeds:
                begun = time.monotonic()
                try:
                    m = an.Classifier(model, seed=seed, **dict(asked.settings)).fit(train)
                    seconds += time.monotonic() - begun
                    values.append(m.score(test)["accuracy"])
                except AnaphoraError as error:
                    print(f"{name}  {model}: {error}", flush=True)
                    break
            if len(values) == len(asked.seeds):
                found[model].append(statistics.fmean(values))
                each = ", ".join(f"{value:.1f}" for value in values)
                print(
                    f"{name}  {model}  {found[model][-1]:.1f} ({each})  {seconds / len(values):.0f} s",
                    flush=True,
                )
    for model, means in found.items():
        if means:
            print(f"mean of {len(means)} sets  {model}  {statistics.fmean(means):.1f}")


if __name__ == "__main__":
    main()
