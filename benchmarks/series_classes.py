"""Presets of `Classifier` on labelled series that come with a division into training and test data.

    python benchmarks/series_classes.py FOLDER --models rocket lstm --seeds 1 2 3

FOLDER holds NAME_TRAIN.ts and NAME_TEST.ts, at any depth; aeon and sktime bring some in their packages. Each model is trained with its
defaults on the training file, which holds its own dev data out, and scored on the test file once. Prints accuracy in percent and
seconds of training; one thread.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from pathlib import Path

import torch

import anaphora as an
from anaphora.errors import AnaphoraError


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("folder", type=Path)
    given.add_argument("--models", nargs="+", default=["rocket", "lstm", "bilstm", "conv"])
    given.add_argument("--sets", nargs="+", default=[], help="names of sets; all by default")
    given.add_argument("--seeds", nargs="+", type=int, default=[1])
    asked = given.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found: dict[str, list[float]] = {model: [] for model in asked.models}
    for train in sorted(asked.folder.rglob("*_TRAIN.ts")):
        name = train.name.removesuffix("_TRAIN.ts")
        test = train.with_name(f"{name}_TEST.ts")
        if not test.exists() or (asked.sets and name not in asked.sets):
            continue
        for model in asked.models:
            values, seconds = [], 0.0
            for seed in asked.seeds:
                begun = time.monotonic()
                try:
                    m = an.Classifier(model, seed=seed).fit(train)
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
