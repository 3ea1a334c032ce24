"""The text that vectors are trained on: files, sentences or an embedded corpus, as one long row of ids."""

from __future__ import annotations

import os
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data import corpora
from anaphora.data.lines import lines_of
from anaphora.data.symbols import BOS, EOS, SPELLINGS, UNK
from anaphora.errors import DataError
from anaphora.models.classical.ngram.disk import count_symbols
from anaphora.models.classical.ngram.text import learn

Array = np.ndarray[Any, Any]
Sentence = str | Sequence[str]
Data = str | Path | Iterable[str | Path] | Iterable[Sentence]
"""A path, several paths, the name of an embedded corpus, or sentences: texts, or lists of words."""

FIRST = len(SPELLINGS)
"""The id of the most frequent word in `Text.ids`."""
SPILL_FROM = 1 << 30
"""Files of more bytes than this are kept on disk even if no folder was given."""


@dataclass(frozen=True)
class Text:
    """A text in numbers: each sentence from <s> to </s>, rare words as <unk>, the others from `FIRST` on."""

    ids: Array
    """``(tokens,)`` int32, in memory or in a nameless file."""
    words: list[str]
    """The most frequent first; the id of ``words[i]`` is ``FIRST + i``."""
    counts: Array
    """How often each of them occurs, ``(V,)`` int64."""


def sentences_of(data: Data, *, lowercase: bool = False) -> Iterator[list[str]]:
    """The sentences that ``data`` names, each a list of words; of a corpus, the sources of its training pairs."""
    for sentence in _sentences(data):
        if isinstance(sentence, str):
            words = (sentence.lower() if lowercase else sentence).split()
        elif isinstance(sentence, Iterable) and not isinstance(sentence, bytes):
            words = list(sentence)
            words = [w.lower() if isinstance(w, str) else w for w in words] if lowercase else words
        else:
            raise DataError(f"A sentence is {sentence!r}; give texts, or lists of words.")
        if words and not isinstance(words[0], str):
            raise DataError(f"A sentence begins with {words[0]!r}; give words, which are strings.")
        if words:  # a blank line is no sentence
            yield words


def _sentences(data: Any) -> Iterator[Any]:
    if isinstance(data, str):
        name, _, variant = data.partition(":")
        if name in corpora.CORPORA:
            return _generated(*corpora.find(name, variant or None))
        if not os.path.exists(data):
            known = ", ".join(corpora.CORPORA)
            raise DataError(f"{data[:200]} is neither a file nor an embedded corpus; those are {known}.")
    paths = _paths(data)
    if paths:
        return (line for path in paths for _, line in lines_of(path))
    if not isinstance(data, Iterable) or isinstance(data, bytes):
        raise DataError(
            f"A {type(data).__name__} is no text; give a path, sentences or the name of a corpus."
        )
    return iter(data)


def _generated(corpus: corpora.Embedded, variant: str) -> Iterator[str]:
    if isinstance(corpus, corpora.Corpus):
        return (source for source, _ in corpora.generate(corpus.name, variant))
    if "language" not in corpus.tasks:
        raise DataError(f"{corpus.name} holds no sentences; it is for `train {corpus.tasks[0]}`.")
    return iter(corpus.text(variant, "train", corpus.sizes["train"]).splitlines())


def _paths(data: Any) -> list[str | Path]:
    """Those that ``data`` names; strings in a list are paths if they all are files, and sentences if not."""
    if isinstance(data, str | Path):
        return [data]
    if not isinstance(data, list | tuple) or not all(isinstance(one, str | Path) for one in data):
        return []
    whole = all(isinstance(one, Path) or (len(one) < 4096 and os.path.isfile(one)) for one in data)
    return list(data) if whole else []


def read_again(data: Data) -> Data:
    """``data``, or, where it can be read only once, its sentences in a list."""
    return list(data) if isinstance(data, Iterator) else data  # type: ignore[return-value]


def spill_folder(data: Data, spill: str | Path | None) -> Path | None:
    """Where what grows with the text is to be kept: the folder ``spill``, one for temporary files, or memory."""
    if spill is not None:
        if not Path(spill).is_dir():
            raise DataError(f"{spill} is not a folder; give spill one that is there.")
        return Path(spill)
    return Path(tempfile.gettempdir()) if sum(map(_bytes, _paths(data))) > SPILL_FROM else None


def read_text(
    data: Data,
    *,
    lowercase: bool = False,
    min_count: int = 1,
    vocab_size: int | None = None,
    spill: str | Path | None = None,
) -> Text:
    """Number the words of ``data`` by their frequency, reading it once.

    What grows with the text are four bytes a token: in memory, or in a nameless file of the folder ``spill``, or of
    the system's folder for temporary files where large files are read.
    """
    folder = spill_folder(data, spill)
    known = None if vocab_size is None else vocab_size + FIRST
    given = sentences_of(data, lowercase=lowercase)
    ids, words = learn(given, "word", vocab_size=known, min_count=min_count, spill=folder)
    assert words.spellings is not None
    if words.size == FIRST:
        remedy = f"lower min_count, which is {min_count}" if min_count > 1 else "give more text"
        raise DataError(f"No word of the text occurs often enough; {remedy}.")
    return Text(ids, words.spellings[FIRST:], count_symbols(ids, words.size)[FIRST:])


def encode_text(data: Data, words: Sequence[str], *, lowercase: bool = False) -> Text:
    """Another text in the numbers of ``words``."""
    known = {word: FIRST + i for i, word in enumerate(words)}
    flat = array("i")
    for sentence in sentences_of(data, lowercase=lowercase):
        flat.append(BOS)
        flat.extend(known.get(word, UNK) for word in sentence)
        flat.append(EOS)
    if not flat:
        raise DataError("The text holds no sentence; give at least one.")
    ids = np.array(flat, dtype=np.int32)
    return Text(ids, list(words), count_symbols(ids, FIRST + len(words))[FIRST:])


def blocks(text: Text, size: int) -> list[slice]:
    """The text in pieces of ``size`` tokens, wherever that cuts it."""
    return [slice(begin, min(begin + size, len(text.ids))) for begin in range(0, len(text.ids), size)]


def _bytes(path: str | Path) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0  # opening it raises the error
