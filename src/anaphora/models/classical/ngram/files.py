"""Files of n-gram models: our own folders, and ARPA."""

from __future__ import annotations

import hashlib
import json
import math
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as read_safetensors
from safetensors.numpy import save as write_safetensors

from anaphora.data.files import lines_of
from anaphora.data.symbols import BOS, PAD, SPELLINGS, UNK
from anaphora.errors import DataError, RunError
from anaphora.files import clause, parse_json, read_bytes
from anaphora.files.arrays import check_header
from anaphora.files.schemas import checked
from anaphora.files.writing import make_folder, replace_file, replacing
from anaphora.models.classical.arrays import reading
from anaphora.models.classical.ngram.counts import Words
from anaphora.models.classical.ngram.table import LEAST, BackoffTable

# ----------------------------------------------------------------------------
# An n-gram model on disk: ``ngram.json`` (settings, words, checksum) and ``ngram.safetensors`` (the arrays).

FORMAT = 1
ARRAYS = ("parent", "word", "suffix", "log_prob", "backoff")


@dataclass(frozen=True)
class _Note:
    """What ``ngram.json`` must hold besides its format and the checksum."""

    settings: dict[str, Any]
    discounts: list[tuple[float, float, float]]
    symbols: int
    words: list[str] | None


def save(
    folder: str | Path, settings: dict[str, Any], discounts: list[Any], words: Words, table: BackoffTable
) -> None:
    """Arrays first, then the JSON that vouches for them by their checksum."""
    folder = Path(folder)
    arrays = {name: np.ascontiguousarray(getattr(table, name)) for name in ARRAYS}
    data = write_safetensors({**arrays, "bounds": np.array(table.bounds, dtype=np.int64)})
    note = {
        "format": FORMAT,
        "settings": settings,
        "discounts": discounts,
        "symbols": words.size,
        "words": words.spellings,
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    try:
        make_folder(folder)
        replace_file(folder / "ngram.safetensors", data)
        replace_file(folder / "ngram.json", json.dumps(note, ensure_ascii=False).encode())
    except OSError as error:
        reason = clause(error)
        raise RunError(f"{folder}: cannot be written ({reason}); see to it and try again.") from error


def load(folder: str | Path) -> tuple[dict[str, Any], list[Any], Words, BackoffTable]:
    """Settings, discounts, vocabulary and table; a `RunError` in one sentence where they are not sound."""
    folder = Path(folder)
    try:
        note = parse_json(read_bytes(folder / "ngram.json"))
        data = read_bytes(folder / "ngram.safetensors")
    except OSError as error:
        reason = clause(error)
        raise RunError(f"{folder}: no n-gram model can be read here ({reason}); check the path.") from None
    except ValueError as error:
        raise RunError(f"{folder / 'ngram.json'}: damaged (not JSON: {error}); use another copy.") from None
    if not isinstance(note, dict) or note.get("format") != FORMAT:
        raise RunError(f"{folder / 'ngram.json'}: not in format {FORMAT}; install the version that wrote it.")
    if hashlib.sha256(data).hexdigest() != note.get("sha256"):
        raise RunError(f"{folder}: ngram.safetensors is not the one ngram.json belongs to; use another copy.")
    with reading(folder):
        check_header(data)
        arrays = read_safetensors(data)
        table = BackoffTable(
            **{name: arrays[name] for name in ARRAYS}, bounds=arrays["bounds"].tolist()
        ).checked()
        known = checked(_Note, note)
        if known.symbols != table.symbols or (known.words is not None and len(known.words) != known.symbols):
            raise ValueError(f"symbols is {known.symbols}, and the table has {table.symbols}")
        return known.settings, known.discounts, Words(known.symbols, known.words), table


# ----------------------------------------------------------------------------
# N-gram models in ARPA files: the text form that SRILM, KenLM and their like exchange.
#
# \data\
# ngram 1=5
# \1-grams:
# -0.52   the   -0.30        log₁₀ p, the words, log₁₀ of the backoff weight (0 where it is left out)
# \end\

Array = np.ndarray[Any, Any]

NEVER = -99.0
"""How the files write log₁₀ 0, for <s>."""
NO_UNKNOWN = -100.0
"""log₁₀ p(<unk>) where the file has none (a closed vocabulary): small, but not zero."""
SPACE = "<space>"
"""The spelling of the blank in a model of characters."""


def write_arpa(path: str | Path, table: BackoffTable, words: Words, tokens: str) -> None:
    """Every number with as many digits as it takes to read the same one back."""
    spell = _spellings(words, tokens, path)
    try:
        with replacing(Path(path), text=True) as file:
            file.write("\\data\\\n")
            for n in range(1, table.order + 1):
                missing = 1 if n == 1 else 0  # <pad> is ours alone
                file.write(f"ngram {n}={table.bounds[n + 1] - table.bounds[n] - missing}\n")
            texts = [""]
            for n in range(1, table.order + 1):
                file.write(f"\n\\{n}-grams:\n")
                texts = _write_order(file, table, n, texts, spell)
            file.write("\n\\end\\\n")
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror or error}; check the path.") from None


def _write_order(file: Any, table: BackoffTable, n: int, texts: list[str], spell: list[str]) -> list[str]:
    """Write the n-grams of one order; ``texts`` are those of the order below. Gives this order's."""
    low, high = table.bounds[n], table.bounds[n + 1]
    below = table.bounds[n - 1]
    columns = (table.parent, table.word, table.log_prob, table.backoff)
    found = []
    for parent, word, log_prob, backoff in zip(*(c[low:high].tolist() for c in columns), strict=True):
        text = f"{texts[parent - below]} {spell[word]}" if n > 1 else spell[word]
        found.append(text)
        if n == 1 and word == PAD:
            continue
        p = NEVER if log_prob == -math.inf else log_prob
        file.write(f"{p!r}\t{text}\t{backoff!r}\n" if n < table.order else f"{p!r}\t{text}\n")
    return found


def _spellings(words: Words, tokens: str, path: str | Path) -> list[str]:
    if words.spellings is None:
        return [*SPELLINGS, *(str(i) for i in range(len(SPELLINGS), words.size))]
    blanks = {" ": SPACE} if tokens == "char" else {}
    spelled = [blanks.get(word, word) for word in words.spellings]
    for word in spelled:
        if word.split() != [word]:
            raise DataError(
                f"{path}: the word {word!r} holds white space, which ARPA files cannot write; rename it."
            )
    return spelled


class _Reader:
    """The lines of a file with a hold on where we are."""

    def __init__(self, path: str | Path):
        self.path, self.number = path, 0
        self._source: Iterator[tuple[int, str]] = lines_of(path)

    def line(self) -> str:
        """The next line that is not blank."""
        for number, line in self._source:
            self.number = number
            if line and not line.isspace():
                return line
        raise self.wrong(r"the file ends before \end\ ", "it is cut off; get another copy")

    def wrong(self, what: str, remedy: str = "correct the file") -> DataError:
        return DataError(f"{self.path}:{max(self.number, 1)}: {what.strip()}; {remedy}.")


def read_arpa(path: str | Path, tokens: str = "word") -> tuple[BackoffTable, Words]:
    r"""Table and vocabulary of an ARPA file; whatever stands before ``\data\`` is skipped."""
    reader = _Reader(path)
    sizes, header = _read_sizes(reader)
    ids = {spelling: i for i, spelling in enumerate(SPELLINGS)}
    ids["<UNK>"] = UNK
    builder: _Builder | None = None
    for n, size in enumerate(sizes, start=1):
        if header != f"\\{n}-grams:":
            raise reader.wrong(f"expected \\{n}-grams: here, not {header[:40]!r}")
        # grown row by row: a damaged header may promise more n-grams than there is memory for
        rows, log_probs, backoffs, lines = [], array("d"), array("d"), array("q")
        for i in range(size):
            words, log_prob, backoff = _read_row(reader, n, i, size)
            log_probs.append(log_prob)
            backoffs.append(backoff)
            lines.append(reader.number)
            if n == 1:
                word = " " if tokens == "char" and words[0] == SPACE else words[0]
                rows.append([ids.setdefault(word, len(ids) - 1)])  # <UNK> is no word of its own
            else:
                try:
                    rows.append([ids[" " if tokens == "char" and w == SPACE else w] for w in words])
                except KeyError as error:
                    raise reader.wrong(f"{error} is not among the 1-grams") from None
        header = reader.line().strip()
        builder = builder or _Builder(path, len(ids) - 1)
        columns = (np.array(column) for column in (log_probs, backoffs, lines))
        builder.add(np.array(rows, dtype=np.int64).reshape(size, n), *columns)
    if header != "\\end\\":
        raise reader.wrong(f"expected \\end\\ here, not {header[:40]!r}: more n-grams than \\data\\ says")
    assert builder is not None
    del ids["<UNK>"]
    return builder.table(), Words(len(ids), list(ids))


def _read_sizes(reader: _Reader) -> tuple[list[int], str]:
    """How many n-grams of each order there are, and the line after that."""
    while True:
        try:
            if reader.line().strip() == "\\data\\":
                break
        except DataError:
            raise reader.wrong("there is no \\data\\ line", "give an ARPA file") from None
    sizes: list[int] = []
    while match := re.fullmatch(r"ngram\s+(\d+)\s*=\s*(\d+)", line := reader.line().strip()):
        if int(match[1]) != len(sizes) + 1:
            raise reader.wrong(f"expected the number of {len(sizes) + 1}-grams here")
        sizes.append(int(match[2]))
    if not sizes:
        raise reader.wrong("expected ngram 1=… here")
    return sizes, line


def _read_row(reader: _Reader, n: int, done: int, size: int) -> tuple[list[str], float, float]:
    line = reader.line()
    fields = line.split()
    if line.startswith("\\") and len(fields) == 1:
        raise reader.wrong(
            f"{done} {n}-grams before this line, but \\data\\ says {size}", "it is cut; get another copy"
        )
    if len(fields) not in (n + 1, n + 2):
        raise reader.wrong(f"{len(fields)} fields in a row of {n}-grams, not {n + 1} or {n + 2}")
    try:
        log_prob, backoff = float(fields[0]), float(fields[n + 1]) if len(fields) == n + 2 else 0.0
    except ValueError:
        raise reader.wrong("a probability or a backoff weight is not a number") from None
    if not (log_prob == -math.inf or LEAST <= log_prob <= 0) or not LEAST <= backoff <= -LEAST:
        raise reader.wrong(
            f"log10 p = {fields[0]} is above 0 or below {LEAST:.0f}, or a weight is beyond these"
        )
    return fields[1 : n + 1], log_prob if log_prob > -math.inf else NO_UNKNOWN, backoff


class _Builder:
    """Sorts the orders of a file into a `BackoffTable`."""

    def __init__(self, path: str | Path, symbols: int):
        self.path, self.symbols = path, symbols
        self.keys: list[Array] = []  # of the orders from 2 on, sorted
        self.bounds = [0, 1]
        zero = np.zeros(1, dtype=np.int64)
        self.columns: list[list[Array]] = [[zero], [zero], [zero], [np.zeros(1)], [np.zeros(1)]]

    def add(self, rows: Array, log_probs: Array, backoffs: Array, lines: Array) -> None:
        """The n-grams ``rows (size, n)`` of the next order."""
        size, n = rows.shape
        parent = self._find(rows[:, :-1])
        self._refuse(parent < 0, lines, "the words before the last are not an n-gram of the file")
        keys = parent * self.symbols + rows[:, -1]
        by_key = np.argsort(keys, kind="stable")
        keys, lines = keys[by_key], lines[by_key]
        self._refuse(np.diff(keys, prepend=-1) == 0, lines, "the n-gram is there twice")
        if n == 1:
            rows, log_probs, backoffs, by_key = self._all_words(rows[:, 0], log_probs, backoffs)
            parent, size = np.zeros(self.symbols, dtype=np.int64), self.symbols
        else:
            self.keys.append(keys)
        suffix = np.full(size, -1, dtype=np.int64)
        for shorter in range(1, n + 1):
            suffix = np.where(suffix < 0, self._find(rows[:, shorter:]), suffix)
        values = (parent, rows[:, -1], suffix, log_probs, backoffs)
        for column, value in zip(self.columns, values, strict=True):
            column.append(value[by_key])
        self.bounds.append(self.bounds[-1] + size)

    def _all_words(
        self, words: Array, log_probs: Array, backoffs: Array
    ) -> tuple[Array, Array, Array, Array]:
        """The unigrams by id, with those of our special symbols that the file does not have."""
        p, weight = np.full(self.symbols, -np.inf), np.zeros(self.symbols)
        p[UNK] = NO_UNKNOWN
        p[words], weight[words] = log_probs, backoffs
        p[[PAD, BOS]] = -np.inf
        places = np.arange(self.symbols)
        p[(p == -np.inf) & (places != PAD) & (places != BOS)] = NO_UNKNOWN
        return places[:, None], p, weight, places

    def _find(self, rows: Array) -> Array:
        """The node of each row of words; −1 where there is none."""
        if not rows.shape[1]:
            return np.zeros(len(rows), dtype=np.int64)
        node = 1 + rows[:, 0]
        for j in range(1, rows.shape[1]):
            keys = self.keys[j - 1]
            wanted = node * self.symbols + rows[:, j]
            place = np.searchsorted(keys, wanted)
            there = (
                (node >= 0) & (keys[np.minimum(place, len(keys) - 1)] == wanted) if len(keys) else node < -1
            )
            node = np.where(there, place + self.bounds[j + 1], -1)
        return node

    def _refuse(self, bad: Array, lines: Array, what: str) -> None:
        if bad.any():
            raise DataError(f"{self.path}:{int(lines[bad].min())}: {what}; correct the file.")

    def table(self) -> BackoffTable:
        parent, word, suffix, log_prob, backoff = (np.concatenate(column) for column in self.columns)
        parent, word, suffix = (a.astype(np.int32) for a in (parent, word, suffix))
        return BackoffTable(parent, word, suffix, log_prob, backoff, self.bounds)
