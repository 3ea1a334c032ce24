"""The text that vectors are trained on: how it is read, its phrases, and the threads that pass over it."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from anaphora.data import corpora
from anaphora.data.files import lines_of
from anaphora.data.symbols import BOS, EOS, SPELLINGS, UNK
from anaphora.errors import AnaphoraError, DataError, SettingsError
from anaphora.models.classical.ngram.counts import count_levels, count_levels_on_disk, count_symbols, learn

# ----------------------------------------------------------------------------
# The text that vectors are trained on: files, sentences or an embedded corpus, as one long row of ids.

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


# ----------------------------------------------------------------------------
# Pairs of words that are one thing, as "new york": found by how often they stand together (Mikolov 2013).


class Phrases:
    """Joins neighbours that occur together far more often than apart.

        score(a, b) = (c(a b) − min_count) / (c(a) c(b)) · N       N: words in the text

    From left to right, a word belongs to one phrase at most.

    Args:
        min_count: pairs that occur less often are no phrases.
        threshold: a pair is a phrase where its score is above it.
        passes: with 2, phrases are joined again ("new_york" "times").
        joiner: what stands between the words of a phrase.
        lowercase: whether words are lower-cased first.

    Raises a `SettingsError` for numbers that make no sense.

    >>> phrases = an.Phrases(min_count=1, threshold=1).fit(["new york is big", "i like new york"] * 3)
    >>> phrases("new york is new")
    ['new_york', 'is', 'new']
    """

    def __init__(
        self,
        *,
        min_count: int = 5,
        threshold: float = 100.0,
        passes: int = 1,
        joiner: str = "_",
        lowercase: bool = False,
    ):
        problems = [
            sentence
            for wrong, sentence in (
                (min_count < 1, f"min_count must be 1 or more, not {min_count}."),
                (not threshold > 0, f"threshold must be above 0, not {threshold}."),
                (passes < 1, f"passes must be 1 or more, not {passes}."),
            )
            if wrong
        ]
        if problems:
            raise SettingsError(problems)
        self.min_count, self.threshold, self.passes = min_count, threshold, passes
        self.joiner, self.lowercase = joiner, lowercase
        self._found: list[dict[tuple[str, str], float]] = []

    def fit(self, data: Data, *, spill: str | Path | None = None) -> Phrases:
        """Find the phrases of ``data`` (see `Word2Vec.fit`), which is read once per pass; ``spill`` as there."""
        folder = spill_folder(data, spill)
        data = read_again(data)
        self._found = []
        for _ in range(self.passes):
            known = self._found
            given = sentences_of(data, lowercase=self.lowercase)
            text = read_text((_joined(words, known, self.joiner) for words in given), spill=folder)
            symbols = FIRST + len(text.words)
            if folder is None:
                pairs = count_levels(text.ids, 2, symbols)[1]
            else:
                pairs = count_levels_on_disk(text.ids, 2, symbols, folder)[1]
            real = (pairs.parent >= FIRST) & (pairs.word >= FIRST) & (pairs.count >= self.min_count)
            a, b = pairs.parent[real] - FIRST, pairs.word[real] - FIRST
            apart = text.counts[a].astype(float) * text.counts[b]
            scores = (pairs.count[real] - self.min_count) / apart * int(text.counts.sum())
            chosen = zip(*(x[scores > self.threshold].tolist() for x in (a, b, scores)), strict=True)
            self._found = [*known, {(text.words[i], text.words[j]): score for i, j, score in chosen}]
        return self

    @property
    def found(self) -> dict[tuple[str, str], float]:
        """The pairs that are joined, of all passes, and their scores, the highest first."""
        if not self._found:
            raise AnaphoraError("These Phrases know none yet; call fit first.")
        every = {pair: score for one in self._found for pair, score in one.items()}
        return dict(sorted(every.items(), key=lambda item: (-item[1], item[0])))

    def __call__(self, sentence: str | Sequence[str]) -> list[str]:
        """One sentence with its phrases joined."""
        return next(self.transform([sentence]))

    def transform(self, data: Data) -> Iterator[list[str]]:
        """All sentences of ``data`` with their phrases joined, one at a time."""
        self.found  # noqa: B018  raises where there are none
        for words in sentences_of(data, lowercase=self.lowercase):
            yield _joined(words, self._found, self.joiner)


def _joined(words: list[str], found: Sequence[dict[tuple[str, str], Any]], joiner: str) -> list[str]:
    for pairs in found:
        out: list[str] = []
        free = False  # whether the last word may still be joined
        for word in words:
            if free and (out[-1], word) in pairs:
                out[-1], free = f"{out[-1]}{joiner}{word}", False
            else:
                out.append(word)
                free = True
        words = out
    return words


# ----------------------------------------------------------------------------
# Blocks of work over threads, and what is said while they go by.

Given = TypeVar("Given")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Progress:
    """Where training stands."""

    epoch: int
    """From 1."""
    epochs: int
    share: float
    """Of all the work, 0 to 1."""
    loss: float
    """Mean of this epoch so far."""
    per_second: float
    """Tokens (of GloVe: counts) since training began."""


Listener = Callable[[Progress], Any]


def in_order(work: Callable[[Given], Made], jobs: Iterable[Given], workers: int) -> Iterator[Made]:
    """What ``work`` makes of each of ``jobs``, in their order, on ``workers`` threads; never many jobs ahead."""
    if workers == 1:
        yield from map(work, jobs)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[Made]] = deque()
        try:
            for job in jobs:
                waiting.append(pool.submit(work, job))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


@contextmanager
def listening(progress: bool | Listener) -> Iterator[Listener]:
    """The listener: the given one, a moving line on stderr (``True``), or none."""
    if callable(progress):
        yield progress
        return
    if not progress:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = Console(file=sys.stderr, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(24), TimeRemainingColumn(compact=True))
    with Bar(*columns, console=console, transient=False, refresh_per_second=4) as bar:
        task = bar.add_task("reading", total=1.0)

        def show(now: Progress) -> None:
            words = f"epoch {now.epoch}/{now.epochs}  loss {now.loss:.4f}  {now.per_second:,.0f}/s"
            bar.update(task, description=words, completed=now.share)

        yield show


class Tally:
    """Adds up the losses of an epoch and tells how far it is."""

    def __init__(self, listener: Listener, epochs: int, size: int):
        self._tell, self._epochs = listener, epochs
        self.size = size
        """How much work an epoch is, in the units of `add`."""
        self._epoch = self._done = 0
        self._began = time.monotonic()
        self._loss, self._terms = 0.0, 0
        self.losses: list[float] = []
        """Mean loss of each epoch."""

    def begin_epoch(self) -> None:
        self._epoch, self._loss, self._terms = self._epoch + 1, 0.0, 0

    def add(self, size: int, terms: int, loss: float) -> None:
        """``size`` of the epoch's work is done: ``terms`` losses with this sum."""
        self._done, self._terms, self._loss = self._done + size, self._terms + terms, self._loss + loss
        seconds = max(time.monotonic() - self._began, 1e-9)
        share = min(self._done / (self.size * self._epochs), 1.0)
        self._tell(Progress(self._epoch, self._epochs, share, self.mean, self._done / seconds))

    @property
    def mean(self) -> float:
        return self._loss / self._terms if self._terms else float("nan")

    def end_epoch(self) -> None:
        self.losses.append(self.mean)
