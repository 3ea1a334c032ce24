"""Make corpora of about 1 M words in the manner of the Penn Treebank, for recipes of language models of words.

    python benchmarks/word_corpora.py running wikitext2/train.txt wikitext2/valid.txt build/ptb-like
    python benchmarks/word_corpora.py lines tatoeba/fra.txt build/sentences --words 1000000

``running`` takes the first ``--words`` of a training text and 74 000 of its dev text; ``lines`` takes the distinct sentences of the first
column of a table (``--column`` another), in a random order, a twentieth of them as dev text. Both lowercase, separate punctuation, write numbers as
N and words outside the ``--vocabulary`` commonest as <unk>; one sentence or paragraph a line. The folder gets train.txt and valid.txt.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

WORD = re.compile(r"<unk>|[^\W_]+(?:['’][^\W\d_]+)?|[^\w\s]")
NUMBER = re.compile(r"\d[\d.,]*(?:st|nd|rd|th|s)?")
DEV_WORDS = 74_000


def words_of(line: str, *, separated: bool) -> list[str]:
    """The words of a line, lowercased, numbers as N; ``separated``: they stand between spaces already, with @-@ and the like inside numbers."""
    line = line.lower()
    words = re.sub(r" @([-.,])@ ", r"\1", line).split() if separated else WORD.findall(line)
    return ["N" if NUMBER.fullmatch(word) else word for word in words]


def first(lines: Iterable[list[str]], count: int) -> list[list[str]]:
    """The lines that hold the first ``count`` words."""
    found, seen = [], 0
    for line in lines:
        if seen >= count:
            break
        if line:
            found.append(line)
            seen += len(line) + 1
    return found


def write(folder: Path, train: list[list[str]], dev: list[list[str]], vocabulary: int) -> None:
    """Both texts, with the commonest words of the training text alone."""
    counts = Counter(word for line in train for word in line)
    kept = {word for word, _ in counts.most_common(vocabulary)}
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in (("train.txt", train), ("valid.txt", dev)):
        texts = (" ".join(word if word in kept else "<unk>" for word in line) for line in lines)
        (folder / name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        words = sum(len(line) + 1 for line in lines)
        unknown = sum(word not in kept or word == "<unk>" for line in lines for word in line)
        print(f"{folder / name}: {words:,} words and line ends, {unknown / words:.1%} <unk>")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=("running", "lines"))
    parser.add_argument("files", nargs="+", type=Path, help="the text or texts, then the folder to write")
    parser.add_argument("--words", type=int, default=930_000)
    parser.add_argument("--vocabulary", type=int, default=10_000)
    parser.add_argument("--column", type=int, default=0)
    given = parser.parse_args()
    *files, folder = given.files
    if len(files) != (2 if given.kind == "running" else 1):
        parser.error("running takes a training text and a dev text, lines one table; then the folder")
    texts = [file.read_text(encoding="utf-8").splitlines() for file in files]
    if given.kind == "running":
        train, dev = ([words_of(line, separated=True) for line in text] for text in texts)
        write(folder, first(train, given.words), first(dev, DEV_WORDS), given.vocabulary)
    else:
        lines = list(dict.fromkeys(line.split("\t")[given.column] for line in texts[0]))
        random.Random(1).shuffle(lines)
        found = first((words_of(line, separated=False) for line in lines), given.words)
        held = len(found) // 20
        write(folder, found[held:], found[:held], given.vocabulary)


if __name__ == "__main__":
    main()
