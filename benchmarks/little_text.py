"""How much text a network needs to be better than counts: presets of `LanguageModel` on beginnings of several corpora.

    python benchmarks/little_text.py build/data --tokens char --sizes 10000 30000 --models ngram lstm
    python benchmarks/little_text.py build/data --tokens word --corpora wikitext2 captions --models ngram "lstm weight_decay=0.3" --seeds 1 2

A model may be followed by its settings. ``--sizes`` counts characters, or words for other tokens. Each corpus is cut there, and a tenth of it becomes dev text as
``train`` takes it; other text of the corpus judges. Prints the loss in nats a symbol on that text, that without unknown symbols, bits per character, and
seconds on one thread; at last the mean loss of each model over the corpora. The folder holds the unpacked archives of the corpora.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import anaphora as an
from anaphora.data.symbols import UNK
from anaphora.tasks.language.log_probs import encoded, log_probs

JUDGES = {"char": 60_000, "word": 12_000, "bpe": 12_000}
"""Characters, or words, that judge."""


def lines(path: Path, encoding: str = "utf-8") -> list[str]:
    return path.read_text(encoding=encoding).splitlines()


def shuffled(found: list[str]) -> list[str]:
    """Each once, in a random order that is always the same."""
    found = list(dict.fromkeys(found))
    random.Random(5).shuffle(found)
    return found


def sentences(path: Path, column: int) -> list[str]:
    return shuffled([line.split("\t")[column] for line in lines(path)])


def spelled(path: Path) -> list[str]:
    return shuffled([line.split()[0] for line in lines(path, "latin-1") if line.split()[0].isalpha()])


def treebank(path: Path) -> list[str]:
    """The sentences of a CoNLL-U file, spaces between their words."""
    found: list[list[str]] = [[]]
    for line in lines(path):
        fields = line.split("\t")
        if len(fields) > 1 and fields[0].isdigit():
            found[-1].append(fields[1])
        elif not line and found[-1]:
            found.append([])
    return [" ".join(words) for words in found if words]


CORPORA: dict[str, tuple[str, Any]] = {
    "shakespeare": ("tinyshakespeare/input.txt", lines),
    "wikitext2": ("wikitext2/train.txt", lines),
    "english": ("tatoeba-fra/fra.txt", lambda path: sentences(path, 0)),
    "french": ("tatoeba-fra/fra.txt", lambda path: sentences(path, 1)),
    "words": ("cmudict/cmudict.dict", spelled),
    "treebank": ("ud-ewt/en_ewt-ud-train.conllu", treebank),
    "captions": ("multi30k-en-de/tok/train.lc.norm.tok.de", lines),
}
OF_WORDS = ("wikitext2", "english", "french", "treebank", "captions", "shakespeare")
OF_LETTERS = ("shakespeare", "wikitext2", "french", "words", "treebank")


def cut(found: list[str], size: int, tokens: str) -> tuple[str, str]:
    """So much of the beginning to learn from, and as many symbols as judge from the end."""

    def first(given: list[str], most: int) -> str:
        kept, seen = [], 0
        for line in given:
            if seen >= most:
                break
            kept.append(line)
            seen += len(line) + 1 if tokens == "char" else len(line.split()) + 1
        return "\n".join(kept) + "\n"

    text, judge = first(found, size), first(found[::-1], JUDGES[tokens])
    return (text[:size] if tokens == "char" else text), judge


def settings(written: str) -> dict[str, str]:
    name, *pairs = written.split()
    return {"model": name, **dict(pair.split("=", 1) for pair in pairs)}


def measured(given: dict[str, Any], text: Path, judge: Path) -> tuple[float, float, float, float]:
    """Loss, loss without unknown symbols, bits per character, seconds."""
    begun = time.monotonic()
    m = an.LanguageModel(**given).fit(str(text))
    seconds = time.monotonic() - begun
    opened = m._open_test(str(judge), None)
    rows, characters = encoded(m, opened)
    if not m._direct:
        m.model_.eval()
    values = np.concatenate(log_probs(m, m.model_, rows))
    ids = np.concatenate([np.asarray(row)[1:] for row in rows])
    known = values[ids != UNK]
    return -values.mean(), -known.mean(), -values.sum() / np.log(2) / characters, seconds


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--tokens", choices=sorted(JUDGES), default="char")
    asked.add_argument("--corpora", nargs="+", choices=sorted(CORPORA))
    asked.add_argument("--sizes", nargs="+", type=int, default=[10_000, 30_000, 100_000])
    asked.add_argument("--models", nargs="+", default=["ngram", "lstm"])
    asked.add_argument("--seeds", nargs="+", type=int, default=[1])
    given = asked.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    corpora = given.corpora or (OF_LETTERS if given.tokens == "char" else OF_WORDS)
    work = Path(tempfile.mkdtemp())
    for size in given.sizes:
        losses: dict[str, list[float]] = {model: [] for model in given.models}
        for name in corpora:
            file, read = CORPORA[name]
            text, judge = work / "train.txt", work / "judge.txt"
            for path, part in zip(
                (text, judge), cut(read(given.folder / file), size, given.tokens), strict=True
            ):
                path.write_text(part, encoding="utf-8")
            for model in given.models:
                for seed in given.seeds:
                    chosen = {"tokens": given.tokens, "seed": seed, **settings(model)}
                    if chosen["model"] != "ngram":
                        chosen["threads"] = 1
                    loss, known, bits, seconds = measured(chosen, text, judge)
                    losses[model].append(loss)
                    print(
                        f"{name}  {size}  {model}  seed {seed}  {loss:.4f}  known {known:.4f}  bpc {bits:.3f}  {seconds:.1f} s",
                        flush=True,
                    )
        for model, values in losses.items():
            print(f"mean  {size}  {model}  {statistics.fmean(values):.4f}", flush=True)


if __name__ == "__main__":
    main()
