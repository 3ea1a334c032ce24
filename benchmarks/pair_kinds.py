"""Pairs of many kinds, as users bring them: catalogues of messages, numbers and dates in words, other scripts, identifiers, sums, sentences.

    pip install --target packages --no-deps Django Sphinx wagtail trytond num2words docopt babel roman cyrtranslit korean-romanizer Unidecode
    python benchmarks/pair_kinds.py make pairs --packages packages        # writes a .tsv for each kind; other .tsv files may be added
    python benchmarks/pair_kinds.py simple pairs                          # copying, and the target of the most similar training source
    python benchmarks/pair_kinds.py train pairs [--only KIND …] [--rows 250] [--seeds 1 2] [--set NAME=VALUE …] [--variant NAME] [--test]

Of each file at most 3 500 rows are taken, in one fixed order: 300 of them or a fifth are the test rows, 200 of the others or a fifth choose settings, and the rest is
learned from. ``--test`` learns from all but the test rows, and judges those: to be looked at once. ``--rows`` learns from the first so many. Training holds its own
dev rows out of what it learns from. A line for each training: exact match, chrF, how many of the outputs whose source has placeholders, numbers or addresses have the same ones,
and the seconds of training.
"""

from __future__ import annotations

import argparse
import datetime
import random
import re
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import anaphora as an
from anaphora.data.sources.opening import open_source
from anaphora.kinds.measures.texts import translation_measures
from anaphora.tasks.suiting.remembered import Remembered
from fsdd_holdout import value

Pairs = list[tuple[str, str]]
MOST, TEST, CHOOSING = 3500, 300, 200
ORDER = 7  # seed of the order in which rows are drawn
PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|%[sd]|\{\w*\}|https?://\S+|</?\w[^>]*>|\d+")


# ------------------------------------------------------------------ the kinds


def messages(packages: Path, package: str, language: str) -> Pairs:
    files = sorted((packages / package).rglob("*.po"))
    chosen = [path for path in files if language in (path.stem, path.parent.parent.name)]
    rows = (row for path in chosen for row in open_source(path, bad_rows="skip"))
    return [(" ".join(source.split()), " ".join(target.split())) for source, target in rows]


def words_of(packages: Path, language: str, pattern: str) -> list[str]:
    """The different words of a language in the catalogues of Django and Wagtail."""
    rows = messages(packages, "django", language) + messages(packages, "wagtail", language)
    return sorted({word for _, target in rows for word in re.findall(pattern, target.lower())})


def numbers(draw: random.Random, language: str) -> Iterator[tuple[str, str]]:
    from num2words import num2words  # type: ignore[import-not-found]

    for _ in range(4000):
        number = int(10 ** (6 * draw.random()))
        yield str(number), num2words(number, lang=language)


def dates(draw: random.Random) -> Iterator[tuple[str, str]]:
    from babel.dates import format_date  # type: ignore[import-not-found]

    for _ in range(2500):
        day = datetime.date(1900, 1, 1) + datetime.timedelta(draw.randrange(45_000))
        form, language = draw.choice(("full", "long", "medium")), draw.choice(("en", "de", "fr", "es", "fi"))
        yield format_date(day, form, locale=language), day.isoformat()


def sums(draw: random.Random) -> Iterator[tuple[str, str]]:
    for _ in range(4000):
        a, b, minus = draw.randrange(100), draw.randrange(100), draw.random() < 0.5
        yield f"{a}{'-' if minus else '+'}{b}", str(a - b if minus else a + b)


def identifiers() -> Pairs:
    """Names of Python's own modules, and their words: ``readLineBuffer``, ``read line buffer``."""
    text = "".join(
        path.read_text(encoding="utf-8", errors="ignore")
        for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    )
    names = sorted(set(re.findall(r"\b[A-Za-z][a-z]+(?:[A-Z]+[a-z]+)+\b", text)))
    return [
        (name, re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name).lower()) for name in names
    ]


def romanised(packages: Path) -> Pairs:
    from korean_romanizer.romanizer import Romanizer  # type: ignore[import-not-found]

    return [(word, Romanizer(word).romanize()) for word in words_of(packages, "ko", "[가-힣]{2,}")]


def latin(packages: Path) -> Pairs:
    import cyrtranslit  # type: ignore[import-not-found]

    return [(word, cyrtranslit.to_latin(word, "ru")) for word in words_of(packages, "ru", "[а-яё]{4,}")]


def unaccented(packages: Path) -> Pairs:
    from unidecode import unidecode  # type: ignore[import-not-found]

    words = sorted({word for one in ("cs", "pl", "vi") for word in words_of(packages, one, r"\w{4,}")})
    return [(word, unidecode(word)) for word in words if word != unidecode(word)]


def roman() -> Pairs:
    from roman import toRoman  # type: ignore[import-not-found]

    return [(str(number), toRoman(number)) for number in range(1, 4000)]


def kinds(packages: Path) -> dict[str, Callable[[], Iterable[tuple[str, str]]]]:
    draw = random.Random(ORDER)
    return {
        "django-de": lambda: messages(packages, "django", "de"),
        "sphinx-fr": lambda: messages(packages, "sphinx", "fr"),
        "wagtail-fi": lambda: messages(packages, "wagtail", "fi"),
        "tryton-es": lambda: messages(packages, "trytond", "es"),
        "wagtail-ru": lambda: messages(packages, "wagtail", "ru"),
        "numbers-en": lambda: numbers(draw, "en"),
        "words-de": lambda: ((text, number) for number, text in numbers(draw, "de")),
        "dates": lambda: dates(draw),
        "roman": roman,
        "sums": lambda: sums(draw),
        "identifiers": identifiers,
        "cyrillic": lambda: latin(packages),
        "hangul": lambda: romanised(packages),
        "accents": lambda: unaccented(packages),
    }


ROWS = {
    "numbers-en": 1500,
    "words-de": 1500,
    "roman": 1500,
    "cyrillic": 1500,
    "hangul": 1500,
    "accents": 1500,
}
"""Fewer rows than `MOST`: such pairs are often few."""


def make(folder: Path, packages: Path) -> None:
    sys.path.insert(0, str(packages))
    folder.mkdir(exist_ok=True)
    for name, pairs in kinds(packages).items():
        first: dict[str, str] = {}
        for source, target in pairs():
            first.setdefault(source.strip(), target.strip())
        rows = [(source, target) for source, target in first.items() if source and target]
        random.Random(ORDER).shuffle(rows)
        rows = rows[: ROWS.get(name, MOST)]
        text = "".join(f"{source}\t{target}\n" for source, target in rows)
        (folder / f"{name}.tsv").write_text(text, encoding="utf-8")
        print(f"{name:12} {len(rows):5} pairs, such as {rows[0]}", flush=True)


# ------------------------------------------------------------------ what is measured


def parts(path: Path, *, test: bool, rows: int | None) -> tuple[Pairs, Pairs]:
    """The pairs to learn from and those that are judged."""
    lines = path.read_text(encoding="utf-8").splitlines()
    pairs = [(one[0], one[1]) for one in (line.split("\t") for line in lines) if len(one) >= 2]
    random.Random(ORDER).shuffle(pairs)
    pairs = pairs[:MOST]
    held = min(TEST, len(pairs) // 5)
    judged, known = pairs[:held], pairs[held:]
    if not test:
        held = min(CHOOSING, len(known) // 5)
        judged, known = known[:held], known[held:]
    return known[:rows], judged


def kept(sources: Iterable[str], outputs: Iterable[str]) -> float | None:
    """Outputs with the placeholders of their source, in percent of those whose source has any."""
    found = [
        sorted(wanted) == sorted(PLACEHOLDER.findall(output))
        for source, output in zip(sources, outputs, strict=True)
        if (wanted := PLACEHOLDER.findall(source))
    ]
    return 100 * statistics.mean(found) if found else None


def report(name: str, sources: list[str], outputs: list[str], references: list[str], rest: str = "") -> None:
    scores, same = translation_measures(outputs, references).report, kept(sources, outputs)
    shown = "     " if same is None else f"{same:5.1f}"
    print(
        f"{name:34} exact {scores['exact_match']:5.1f}  chrF {scores['chrf']:5.1f}  kept {shown}{rest}",
        flush=True,
    )


def train(path: Path, given: argparse.Namespace) -> None:
    known, judged = parts(path, test=given.test, rows=given.rows)
    sources, references = [source for source, _ in judged], [target for _, target in judged]
    for seed in given.seeds:
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            settings: dict[str, Any] = {"threads": 1, **dict(given.set)}
            m = an.Translator(given.model, seed=seed, **settings)
            m.fit(known, out=Path(folder) / "run", verbose=False)
            seconds = time.perf_counter() - began
            name = f"{path.stem} {given.variant} {len(known)} seed {seed}"
            rest = f"  {m.result_.steps} steps, {seconds:.0f} s"
            report(name, sources, m.predict(sources), references, rest)


def simple(path: Path, given: argparse.Namespace) -> None:
    known, judged = parts(path, test=given.test, rows=given.rows)
    sources, references = [source for source, _ in judged], [target for _, target in judged]
    memory = Remembered([source for source, _ in known])
    places = [memory.nearest(source) for source in sources]
    report(f"{path.stem} copied", sources, sources, references)
    nearest = ["" if place is None else known[place][1] for place in places]
    report(f"{path.stem} nearest of {len(known)}", sources, nearest, references)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("make", "simple", "train"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--packages", type=Path, default=Path("packages"))
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--model", default="lstm-attention")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--variant", default="", help="a name for the lines")
    parser.add_argument("--test", action="store_true", help="judge the test rows")
    parser.add_argument("--set", nargs="*", type=value, default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    if given.what == "make":
        make(given.folder, given.packages)
        return
    for path in sorted(given.folder.glob("*.tsv")):
        if not given.only or path.stem in given.only:
            (train if given.what == "train" else simple)(path, given)


if __name__ == "__main__":
    main()
