"""Tagged sentences that come one by one, from Python or from pairs of texts: checked, held or written as columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from anaphora.data.files import Verdict
from anaphora.data.sources.roles import text_problem
from anaphora.data.spilling import written_whole
from anaphora.errors import DataError

Pair = tuple[str, str]
Sentence = tuple[Sequence[str] | str, Sequence[str] | str]
_BREAK = re.compile(r"[\t\n\r]")


def hold_sentences(sentences: Iterable[Sentence], verdict: Verdict) -> list[Pair]:
    """The sentences as pairs of words and tags separated by tabs."""
    found = list(_checked(sentences, verdict))
    verdict.require(len(found))
    return found


def spill_sentences(sentences: Iterable[Sentence], verdict: Verdict, path: Path) -> Path:
    """Write the sentences as columns to ``path``; the file appears when it is complete, or not at all."""
    rows = 0
    with written_whole(path) as file:
        for words, tags in _checked(sentences, verdict):
            both = zip(words.split("\t"), tags.split("\t"), strict=True)
            file.write("".join(f"{word}\t{tag}\n" for word, tag in both) + "\n")
            rows += 1
        verdict.require(rows)
    return path


def split_words(sentence: object) -> list[str] | None:
    """The words of a text with spaces, or of a list of texts; None where it is neither."""
    if isinstance(sentence, str):
        return sentence.removesuffix("\t").split("\t") if "\t" in sentence else sentence.split()
    if isinstance(sentence, Sequence) and all(isinstance(word, str) for word in sentence):
        return list(sentence)
    return None


def given_sentences(sentences: Iterable[object]) -> list[list[str]]:
    """The words of each sentence as it is given from Python, or a `DataError` for what is none."""
    if isinstance(sentences, str):
        raise DataError("predict takes a list of sentences: write [sentence] for a single one.")
    if not isinstance(sentences, Iterable):
        raise DataError(f"predict takes a list of sentences, not a {type(sentences).__name__}.")
    found = []
    for number, sentence in enumerate(sentences, start=1):
        words = split_words(sentence)
        if words is None:
            raise DataError(
                f"input {number} is a {type(sentence).__name__}; give a text or a list of words for each sentence."
            )
        if problem := next((p for p in map(word_problem, words) if p), None):
            raise DataError(f"input {number} has {problem}; correct it.")
        found.append(words)
    return found


def word_problem(word: str) -> str | None:
    """Why a text cannot be a word, if it cannot."""
    problem = text_problem(word)
    if problem == "an empty side":
        return "an empty word"
    return problem or ("a tab or line break inside a word" if _BREAK.search(word) else None)


def _checked(sentences: Iterable[Sentence], verdict: Verdict) -> Iterator[Pair]:
    for number, sentence in enumerate(sentences, start=1):
        sides = _sides(sentence)
        if isinstance(sides, str):
            verdict.reject(number, sides)
            continue
        words, tags = sides
        problem = next((p for p in map(word_problem, [*words, *tags]) if p), None)
        if not words:
            verdict.reject(number, "an empty sentence")
        elif len(words) != len(tags):
            verdict.reject(number, "not one tag for each word", f"{len(words)} words, {len(tags)} tags")
        elif problem:
            verdict.reject(number, problem)
        else:
            yield "\t".join(words), "\t".join(tags)


def _sides(sentence: object) -> tuple[list[str], list[str]] | str:
    if not isinstance(sentence, tuple | list) or len(sentence) != 2:
        return f"not a pair of words and tags but a {type(sentence).__name__}"
    words, tags = map(split_words, sentence)
    if words is None or tags is None:
        return "words and tags must be lists of texts, or texts with spaces between"
    return words, tags
