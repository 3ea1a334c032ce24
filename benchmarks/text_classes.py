"""Presets of `Classifier` and `Tagger`, with their defaults, beside plain pipelines of scikit-learn, on labelled texts.

    python benchmarks/text_classes.py build/texts --models ngrams fasttext svm logistic --folds 1 2

FOLDER holds what `benchmarks/public_texts.py` writes: NAME.tsv (text⇥label), NAME-number.tsv and NAME.conll. Rows are dealt to five folds; a model learns from
four, of which it holds its own dev data out, and is judged on the fifth. Prints accuracy and macro F1 (of numbers: R² and the mean absolute error; of tags: span
F1 and the accuracy of words) in percent, and seconds. The peers: `svm` and `logistic` are LinearSVC and LogisticRegression on tf-idf of words (1, 2) and of
characters within words (2 to 5), `ridge` is Ridge on the same; `crfsuite` is a CRF of the usual features, if python-crfsuite is installed. One thread.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import anaphora as an
from anaphora.errors import AnaphoraError

FOLDS = 5
PEERS = ("svm", "logistic", "ridge", "crfsuite")
Rows = list[tuple[Any, Any]]


def read(path: Path) -> Rows:
    """``(text, label)``, or ``(words, tags)`` of a file of words."""
    body = path.read_text(encoding="utf-8")
    if path.suffix == ".tsv":
        return [tuple(line.split("\t")) for line in body.splitlines()]  # type: ignore[misc]
    groups = [[line.split("\t") for line in group.splitlines()] for group in body.strip().split("\n\n")]
    return [([word for word, _ in group], [tag for _, tag in group]) for group in groups]


def parts(rows: Rows, fold: int) -> tuple[Rows, Rows]:
    """What is learned from, and what judges."""
    order = list(range(len(rows)))
    random.Random(7).shuffle(order)
    judged = set(order[fold - 1 :: FOLDS])
    train = [row for i, row in enumerate(rows) if i not in judged]
    return train, [rows[i] for i in sorted(judged)]


def spans(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """First word, the one after the last, and kind of each span of B- and I- tags."""
    found, start = set(), 0
    for i, tag in enumerate([*tags, "O"]):
        if i and tags[i - 1] != "O" and not (tag.startswith("I-") and tag[2:] == tags[i - 1][2:]):
            found.add((start, i, tags[i - 1][2:]))
        if not tag.startswith("I-"):
            start = i
    return found


def measured(kind: str, truth: list[Any], answers: list[Any]) -> tuple[float, float]:
    """The two measures of a kind of labels, in percent (of numbers the second is an error)."""
    if kind == "number":
        wanted, given = np.array(truth, float), np.array(answers, float)
        rest = ((wanted - given) ** 2).sum() / ((wanted - wanted.mean()) ** 2).sum()
        return 100 * (1 - float(rest)), float(np.abs(wanted - given).mean())
    if kind == "tag":
        true = [{(i, *span) for span in spans(tags)} for i, tags in enumerate(truth)]
        told = [{(i, *span) for span in spans(tags)} for i, tags in enumerate(answers)]
        right = sum(len(a & b) for a, b in zip(true, told, strict=True))
        f1 = 200 * right / max(1, sum(map(len, true)) + sum(map(len, told)))
        flat = [a == b for x, y in zip(truth, answers, strict=True) for a, b in zip(x, y, strict=True)]
        return f1, 100 * statistics.fmean(flat)
    from sklearn.metrics import f1_score

    right = statistics.fmean(a == b for a, b in zip(truth, answers, strict=True))
    return 100 * right, 100 * float(f1_score(truth, answers, average="macro", zero_division=0.0))


def of_words(words: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The usual features of each word: itself, its ends, its shape and its neighbours."""
    for i, word in enumerate(words):
        row = {"bias": 1.0, "lower": word.lower(), "first": i == 0, "last": i == len(words) - 1}
        row |= {f"suffix{n}": word[-n:] for n in (1, 2, 3)} | {f"prefix{n}": word[:n] for n in (1, 2, 3)}
        for name, at in (("", i), ("-1", i - 1), ("+1", i + 1)):
            if 0 <= at < len(words):
                near = words[at]
                row |= {f"{name}lower": near.lower(), f"{name}title": near.istitle()}
                row |= {f"{name}upper": near.isupper(), f"{name}digit": near.isdigit()}
        yield row


def peer(name: str, train: Rows, texts: list[Any]) -> list[Any]:
    """The answers of a model of others."""
    known, labels = zip(*train, strict=True)
    if name == "crfsuite":
        import sklearn_crfsuite

        crf = sklearn_crfsuite.CRF(c1=0.1, c2=0.1, max_iterations=200, all_possible_transitions=True)
        crf.fit([list(of_words(words)) for words in known], labels)
        return list(crf.predict([list(of_words(words)) for words in texts]))
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline, make_union
    from sklearn.svm import LinearSVC

    columns = make_union(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"[\w']+|[^\w\s]"),
        TfidfVectorizer(ngram_range=(2, 5), sublinear_tf=True, analyzer="char_wb"),
    )
    ends = {
        "svm": LinearSVC(),
        "logistic": LogisticRegression(C=10, max_iter=1000),
        "ridge": Ridge(1.0, solver="sparse_cg"),
    }
    pipe = make_pipeline(columns, ends[name])
    pipe.fit(known, [float(label) for label in labels] if name == "ridge" else labels)
    return list(pipe.predict(texts))


def answered(kind: str, model: str, train: Rows, texts: list[Any], settings: dict[str, Any]) -> list[Any]:
    if model in PEERS:
        return peer(model, train, texts)
    if kind == "tag":
        return list(an.Tagger(model, **settings).fit(train).predict(texts))
    if kind == "number":
        settings = {"target": "number", **settings}
        train = [(text, float(label)) for text, label in train]
    return list(an.Classifier(model, **settings).fit(train).predict(texts))


def setting(text: str) -> tuple[str, Any]:
    key, _, value = text.partition("=")
    for kind in (int, float):
        try:
            return key, kind(value)
        except ValueError:
            continue
    return key, {"true": True, "false": False}.get(value, value)


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("folder", type=Path)
    given.add_argument("--models", nargs="+", required=True)
    given.add_argument("--sets", nargs="+", default=[], help="names of sets; all by default")
    given.add_argument("--kind", choices=["class", "number", "tag"], default="class")
    given.add_argument("--folds", nargs="+", type=int, default=[1], help="of 1 to 5: which judge")
    given.add_argument("--set", nargs="+", type=setting, default=[], metavar="NAME=VALUE", dest="settings")
    asked = given.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    paths = sorted(asked.folder.glob("*.conll" if asked.kind == "tag" else "*.tsv"))
    paths = [path for path in paths if path.stem.endswith("-number") == (asked.kind == "number")]
    paths = [path for path in paths if not asked.sets or path.stem in asked.sets]
    found: dict[str, list[tuple[float, float]]] = {model: [] for model in asked.models}
    for path in paths:
        rows = read(path)
        for model in asked.models:
            values, begun = [], time.monotonic()
            try:
                for fold in asked.folds:
                    train, judges = parts(rows, fold)
                    texts, truth = map(list, zip(*judges, strict=True))
                    answers = answered(asked.kind, model, train, texts, dict(asked.settings))
                    values.append(measured(asked.kind, truth, answers))
            except AnaphoraError as error:
                print(f"{path.stem}  {model}: {error}", flush=True)
                continue
            seconds = (time.monotonic() - begun) / len(values)
            found[model].append(tuple(map(statistics.fmean, zip(*values, strict=True))))  # type: ignore[arg-type]
            first, second = found[model][-1]
            each = ", ".join(f"{value:.1f}" for value, _ in values)
            print(f"{path.stem}  {model}  {first:.1f} ({each})  {second:.2f}  {seconds:.0f} s", flush=True)
    for model, means in found.items():
        if means:
            first, second = map(statistics.fmean, zip(*means, strict=True))
            print(f"mean of {len(means)} sets  {model}  {first:.2f}  {second:.2f}")


if __name__ == "__main__":
    main()
