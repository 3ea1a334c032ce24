"""Cross-validation of a classifier: python benchmarks/folds.py train.tsv KEY=VALUE … [--folds 5] [--first N] [--json]

Each part of the texts (TSV: text, tab, label) is judged once by a classifier that learnt from the other parts; KEY=VALUE
are its settings, as model=ngrams. The part that is judged chooses nothing: of training by steps the last weights count.
"""

from __future__ import annotations

import argparse
import json
import random
import tomllib
from pathlib import Path
from typing import Any

import anaphora as an

SEED = 7  # of the order in which texts are dealt to the parts


def value(text: str) -> Any:
    """A setting as it is written in TOML; what is none is a word."""
    try:
        return tomllib.loads(f"it = {text}")["it"]
    except tomllib.TOMLDecodeError:
        return text


def accuracy(rows: list[list[str]], part: int, folds: int, settings: dict[str, Any]) -> float:
    """Percent of the texts of one part that are judged right."""
    model = an.Classifier(**settings)
    if "steps" in model.get_params():
        model.set_params(patience=0, valid_every=model.settings_.steps)
    held = rows[part::folds]
    model.fit([row for i, row in enumerate(rows) if i % folds != part], valid=held)
    return float(model.score(held)["accuracy"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--first", type=int, help="only so many of the parts are judged")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    rows = [
        line.rsplit("\t", 1) for line in Path(asked.data).read_text(encoding="utf-8").rstrip("\n").split("\n")
    ]
    random.Random(SEED).shuffle(rows)
    settings = {key: value(text) for key, _, text in (given.partition("=") for given in asked.settings)}
    found = [accuracy(rows, part, asked.folds, settings) for part in range(asked.first or asked.folds)]
    result = {"accuracy": sum(found) / len(found), "parts": found}
    if asked.json:
        print(json.dumps(result))
    else:
        print(f"{result['accuracy']:.2f} %, the mean of {', '.join(f'{one:.2f}' for one in found)}")


if __name__ == "__main__":
    main()
