"""Texts with several labels: what a threshold that the dev data choose changes, beside one of 0.5.

    python benchmarks/several_labels.py DATA --models ngrams lstm

DATA is a folder with the training files ``wnut17train.conll``, ``en_ewt-ud-train.conllu``, ``german-train-high`` and ``cmudict.dict``, in folders of any name.
``names``: posts, and the kinds of names in them. ``features``: sentences, and ten features of grammar that a word in them has. ``tags``: German
word forms, and their tags. ``phones``: English words, and the phones in them. At most 4 000 rows of each, drawn in one fixed order, of which a fifth judge; training
holds its own dev data out of the others. Prints F1 over all labels, the mean F1 of the labels and examples with all labels right, in percent; one thread.
"""

from __future__ import annotations

import argparse
import random
import re
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

import anaphora as an

MOST = 4000
GRAMMAR = (
    *("Mood=Imp", "Tense=Past", "Person=1", "Person=2", "Polarity=Neg"),
    *("Voice=Pass", "NumType=Card", "Degree=Cmp", "Degree=Sup", "PronType=Int"),
)
Rows = list[tuple[str, str]]


def blocks(path: Path) -> Iterator[list[str]]:
    """The lines between two empty ones."""
    found: list[str] = []
    for line in [*path.read_text(encoding="utf-8").splitlines(), ""]:
        if line.strip():
            found.append(line)
        elif found:
            yield found
            found = []


def written(labels: set[str]) -> str:
    return "|".join(sorted(labels)) or "-"


def names(path: Path) -> Rows:
    rows = []
    for lines in blocks(path):
        words, tags = zip(*(line.split("\t")[:2] for line in lines), strict=True)
        rows.append((" ".join(words), written({tag.split("-", 1)[1] for tag in tags if tag != "O"})))
    return rows


def features(path: Path) -> Rows:
    rows = []
    for lines in blocks(path):
        text = next(line[8:].strip() for line in lines if line.startswith("# text ="))
        there = {one for line in lines if line[0].isdigit() for one in line.split("\t")[5].split("|")}
        rows.append((text, written(there & set(GRAMMAR))))
    return rows


def tags(path: Path) -> Rows:
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if line]
    return [(form, written(set(re.split("[;.]", these)))) for _, form, these in rows]


def phones(path: Path) -> Rows:
    found: dict[str, str] = {}
    for line in path.read_text(encoding="latin-1").splitlines():
        word, *said = line.split("#")[0].split() or [""]
        if word.isalpha():
            found.setdefault(word, written({phone.rstrip("012") for phone in said}))
    return list(found.items())


SETS: dict[str, tuple[str, Callable[[Path], Rows]]] = {
    "names": ("wnut17train.conll", names),
    "features": ("en_ewt-ud-train.conllu", features),
    "tags": ("german-train-high", tags),
    "phones": ("cmudict.dict", phones),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--models", nargs="+", default=["ngrams", "lstm"])
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument(
        "--seeds", nargs="+", type=int, default=[1], help="of networks and of which rows judge"
    )
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in asked.sets:
        file, read = SETS[name]
        rows = read(next(asked.data.rglob(file)))
        for model in asked.models:
            for seed in asked.seeds:
                drawn = rows.copy()
                random.Random(seed).shuffle(drawn)
                drawn = drawn[:MOST]
                judges, learned = drawn[: len(drawn) // 5], drawn[len(drawn) // 5 :]
                own = {} if model in ("ngrams", "rocket") else {"seed": seed}
                for threshold in (0.5, 0.0):
                    begun = time.monotonic()
                    m = an.Classifier(model, target="classes", threshold=threshold, **own)
                    m.fit(learned, verbose=False)
                    seconds = time.monotonic() - begun
                    found = m.score(judges)
                    measures = "  ".join(f"{found[key]:5.1f}" for key in ("micro_f1", "macro_f1", "accuracy"))
                    chosen = "0.5" if threshold else f"chosen, {m._threshold:.2f}"
                    print(f"{name}  {model}  seed {seed}  {chosen}:  {measures}  {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
