"""Tables with a separator (CSV): the separator, the quotes, and whether the first row is a header."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import itertools
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any, BinaryIO

from anaphora.data.files import BROKEN, LONGEST_ROW, TextFile
from anaphora.data.numeric import is_number
from anaphora.data.sources.formats import Format
from anaphora.data.sources.roles import USUAL, with_parts
from anaphora.data.sources.sheet import CutSheet, Hints, Record
from anaphora.errors import DataError

# Whether the first row of a table holds names of columns, by comparison with the rows below it.

ROWS = 200
"""Rows below the first that are looked at."""
FEW, MANY = 3, 20
"""Values from which all of them are a rule, and from which a value that never comes is no chance."""
_OFTEN = (
    "word words lemma lemmas form forms tag pos ner upos xpos features token title body summary name surname value date time "
    "id index number count kind type group topic subject author language lang country city code note notes comments "
    "english french german spanish italian portuguese dutch russian chinese japanese korean arabic turkish polish "
    "swedish danish norwegian finnish czech greek hebrew hindi latin ukrainian "
    "en fr de es it pt nl ru zh ja ko ar tr pl sv da no fi cs el he hi la uk"
)
_NAMES = frozenset(_OFTEN.split())
"""Names that columns often have beside those of `USUAL`; one of them alone may be a word of the data."""
_ENDS = tuple(".!?…。！？")


def like_data(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str | None:
    """What makes the first row look like data rather than ``names``, if anything does; ``rows`` stand below it."""
    for column, title in enumerate(names):
        values = _below(rows, column, len(names))
        if is_number(title) and values and all(map(is_number, values)):
            return f"{title} stands above numbers"
        if len(title) > 60 or len(title.split()) > 8:
            return f"{title[:24]!r} … is a sentence"
        if (
            title.endswith(_ENDS)
            and values
            and sum(value.endswith(_ENDS) for value in values) * 2 >= len(values)
        ):
            return f"{title} ends like the sentences below"
        if title and values.count(title) > 1 and len(set(values)) <= len(values) / 2:
            return f"{title} is also a value below"
        if (shape := _code(title)) and values and all(_code(value) == shape for value in values):
            return f"{title} is numbered like the values below"
        if (ending := _ending(title)) and values and all(_ending(value) == ending for value in values):
            return f"{title} is a file like those below"
    return None


def like_names(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the values below tell that the first row holds names of columns:

    - a column of numbers, or one of few values that come again and again, without the first of them;
    - an underscore that no value below has;
    - in each column a single word above texts of several words.
    """
    columns = [(title, _below(rows, column, len(names))) for column, title in enumerate(names)]
    columns = [(title, values) for title, values in columns if title]
    if any(len(values) < FEW for _, values in columns):
        return False
    for title, values in columns:
        if not is_number(title) and all(map(is_number, values)):
            return True
        if "_" in title.strip("_") and not any("_" in value for value in values):
            return True
        if len(values) >= MANY and title not in values and len(set(values)) * 5 <= len(values):
            return True
    return bool(columns) and all(_above_texts(title, values) for title, values in columns)


def known_names(names: Sequence[str]) -> bool:
    """Whether the first row has a usual name of a column, or only names that columns often have, or two such names and more than half."""
    lower = [title.lower() for title in names if title.strip()]
    often = sum(one in _NAMES for one in lower)
    return any(one in USUAL for one in lower) or often == len(lower) or (often > 1 and often * 2 > len(lower))


def shown(names: Sequence[str]) -> str:
    """A row in one line."""
    return " ".join(", ".join(name[:40] for name in names[:20]).split())


def _below(rows: Sequence[Sequence[str]], column: int, width: int) -> list[str]:
    return [row[column].strip() for row in rows if len(row) == width]


def _above_texts(title: str, values: Sequence[str]) -> bool:
    several = sum(" " in value for value in values)
    return title.replace("-", "").isalnum() and len(values) >= MANY and several * 10 >= len(values) * 9


def _code(text: str) -> str:
    """``LJ001-0001`` → ``LJ#-#``: the shape of a name with numbers in it; nothing for other names."""
    found = re.sub(r"\d{2,}", "#", text)
    return found if found.count("#") > 1 else ""


def _ending(text: str) -> str:
    """``.wav`` of the name of a file, nothing of other texts."""
    found = PurePath(text).suffix.lower()
    return found if 2 < len(found) < 6 and found[1:].isalnum() and not is_number(text) else ""


# CSV: values between commas, semicolons, tabs or bars; a header; fields in quotes may hold delimiters and line ends.

LOOK = 1 << 16
"""Bytes below the first row that are compared with it."""
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_SAID = re.compile(r'"?sep=([^\r\n])"?[ \t]*\r?\n', re.IGNORECASE)
"""A first line that names the delimiter, as Excel reads and writes it."""


class CsvTable(CutSheet):
    """The records of a file as the csv module parses them.

    Columns named by number (``"2"``) belong to a file without a header. Otherwise a first row that looks like data is
    an error, and one that neither its words nor the rows below tell for names is taken for them with a warning. Values between bars are never in quotes, as in ``metadata.csv`` of speech corpora.
    """

    kind = "csv"

    def __init__(self, path: str | Path, folder: Path | None, hints: Hints, file: TextFile | None = None):
        self.file = file or TextFile(path, folder)
        self.name = self.file.name
        known = hints.facts or {}
        head = self.file.at(self.file.begin, LOOK).decode("utf-8", errors="replace")
        said = _SAID.match(head)
        self._begins = 2 if said else 1
        """The line of the first row."""
        if said:
            head = head[said.end() :]
            known = {"delimiter": self._by_name(said[1]), **known}
        # A run of an earlier version did not say its delimiter: it was the commonest of three in the first line.
        first = head.partition("\n")[0]
        self.delimiter = str(
            known.get("delimiter") or (max(",;\t", key=first.count) if hints.facts else _delimiter(head))
        )
        self._quoting: Any = csv.QUOTE_NONE if self.delimiter == "|" else csv.QUOTE_MINIMAL
        self.header = known.get("header", hints.header) is not False
        with contextlib.closing(self.file.stream()) as stream, large_fields():
            lines = _LineFeed(self.file, stream, self._begins)
            self.names = _header(self.name, self._reader(iter(lines)), lines)
            if "header" not in known and hints.header is None:
                self.header = self._has_header(hints, lines.place)
        if not self.header:
            self.names = [str(number) for number in range(1, len(self.names) + 1)]
        self.facts = {"delimiter": self.delimiter, "header": self.header}

    def records(self) -> Iterator[Record]:
        with contextlib.closing(self.file.stream()) as stream, large_fields():
            lines = _LineFeed(self.file, stream, self._begins)
            self.file.digest = hashlib.sha256(self.file.at(0, lines.place))
            lines.digest = True
            reader = self._reader(iter(lines))
            if self.header:
                next(reader, None)
            while True:
                start, number, lines.problem = lines.place, lines.number + 1, None
                try:
                    row = next(reader, None)
                except csv.Error as error:  # a quote that is not closed swallows the lines below it
                    for line in range(number, max(number, lines.number) + 1):
                        yield Record(line, None, ("broken quotes", str(error)))
                    continue
                if row is None:
                    return
                problem = lines.problem
                if row and problem is None and len(row) != len(self.names):
                    wanted = (
                        f"the header has {len(self.names)}"
                        if self.header
                        else f"the first has {len(self.names)}"
                    )
                    problem = "wrong number of columns", f"{len(row)} where {wanted}"
                if row or problem:
                    yield Record(number, row, problem, start, lines.place - start)

    def parse(self, rows: list[str]) -> list[list[str]]:
        with large_fields():
            return [next(self._reader([row])) for row in rows]

    def detected(self) -> str:
        return f"{DELIMITERS[self.delimiter]}, {'header' if self.header else 'no header'}"

    def heading(self, answer: str) -> str | None:
        return self._line([*self.names, answer]) if self.header else None

    def answered(self, values: list[str], answer: str) -> str:
        return self._line([*values, answer])

    def _by_name(self, delimiter: str) -> str:
        """The delimiter that the first line names, if it is one."""
        if delimiter in DELIMITERS:
            return delimiter
        raise DataError(
            f"{self.name}:1: sep={delimiter} names no delimiter known here; use one of comma, semicolon, tab and bar."
        )

    def _reader(self, lines: Any) -> Any:
        return csv.reader(lines, delimiter=self.delimiter, strict=True, quoting=self._quoting)

    def _line(self, row: Sequence[str]) -> str:
        if self._quoting == csv.QUOTE_NONE:
            return self.delimiter.join(row)
        text = io.StringIO()
        csv.writer(text, delimiter=self.delimiter).writerow(
            row
        )  # its own line end: fields with one get quotes
        return text.getvalue().removesuffix("\r\n")

    def _has_header(self, hints: Hints, below: int) -> bool:
        """Whether the first row is a header; a `DataError` where it looks like data and no setting numbers the columns."""
        trained = [str((hints.learnt or {}).get(key) or "") for key in ("source_field", "target_field")]
        named = hints.named or with_parts(trained)
        if set(named) & set(self.names):
            return True
        numbered = bool(named) and all(name.replace("+", "").isdecimal() for name in named)
        if numbered and any(title.lower() in USUAL for title in self.names):
            raise DataError(
                f"{self.name}:{self._begins}: the first row is a header ({shown(self.names)}); name the columns by it, "
                "since numbers are for files without one."
            )
        if numbered:
            return False
        rows = self._rows_below(below)
        if (reason := like_data(self.names, rows)) is not None:
            if self.delimiter == "|":  # speech corpora have no headers: name, text, text as it is read
                return False
            raise DataError(
                f"{self.name}:{self._begins}: the first row looks like data, not like a header ({' '.join(reason.split())}); add one, or give "
                "columns by number: --source-field 1."
            )
        if rows and not known_names(self.names) and not like_names(self.names, rows):
            warnings.warn(
                f"{self.name}:{self._begins}: the first row ({shown(self.names)}) is read as names of columns, not as data; if it is data, "
                "add a row of names above it, or give the columns by number (--source-field 1); if it is not, give the names themselves",
                stacklevel=1,
            )
        return True

    def _rows_below(self, below: int) -> list[list[str]]:
        """Rows to compare the first with."""
        text = self.file.at(below, LOOK).decode("utf-8", errors="replace").splitlines(keepends=True)
        try:
            reader = csv.reader(text, delimiter=self.delimiter, quoting=self._quoting)
            return [row for row in itertools.islice(reader, ROWS) if len(row) == len(self.names)]
        except csv.Error:
            return []


class _LineFeed:
    """Lines for the csv module, which says when a record ends; this knows where in the file that is."""

    def __init__(self, file: TextFile, stream: BinaryIO, begins: int):
        """``begins``: the number of the line to begin with."""
        self._file, self._stream = file, stream
        self.place = stream.seek(file.begin)
        for _ in range(1, begins):
            self.place += len(stream.readline(LOOK))
        self.number = begins - 1
        self.digest = False
        """Whether the lines count for the fingerprint of the file."""
        self.problem: tuple[str, str] | None = None
        """What was wrong with a line since this was last set to None."""

    def __iter__(self) -> Iterator[str]:
        while line := self._read():
            self.number += 1
            if len(line) == LONGEST_ROW and not line.endswith(b"\n"):
                self.problem = ("a row that is too long", f"more than {LONGEST_ROW >> 20} MiB")
                while (rest := self._read()) and not rest.endswith(b"\n"):
                    pass
                line = b"\n"
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError as error:
                broken = self.place - len(line) + error.start
                detail = f"byte 0x{line[error.start]:02X}, number {broken} of the file"
                self.problem = (BROKEN, detail)
                yield line.decode("utf-8", errors="replace")

    def _read(self) -> bytes:
        line = self._stream.readline(LONGEST_ROW)
        if self.digest:
            self._file.digest.update(line)
        self.place += len(line)
        return line


def _delimiter(head: str) -> str:
    """The delimiter that cuts most of the first rows into the same number of columns, more than one."""
    lines = head.splitlines()[: 50 if head.count("\n") > 1 else None]
    lines = lines[:-1] if len(lines) > 2 and len(head) >= LOOK // 2 else lines
    best, found = ",", (0, 0)
    for delimiter in DELIMITERS:
        quoting: Any = csv.QUOTE_NONE if delimiter == "|" else csv.QUOTE_MINIMAL
        try:
            widths = Counter(
                len(row) for row in csv.reader(lines, delimiter=delimiter, quoting=quoting) if row
            )
        except csv.Error:
            continue
        width = len(lines[0].split(delimiter)) if lines else 1
        rows = max((count for columns, count in widths.items() if columns > 1), default=0)
        if rows and (rows, width) > found:
            best, found = delimiter, (rows, width)
    return best


def _header(name: str, records: Iterator[list[str]], lines: _LineFeed) -> list[str]:
    try:
        header = [title.strip() for title in next(records, [])]
    except csv.Error as error:
        raise DataError(f"{name}:1: the header cannot be read ({error}); correct its quotes.") from None
    if lines.problem:
        reason, detail = lines.problem
        raise DataError(f"{name}:1: {reason} in the header ({detail}); save the file as UTF-8 with a header.")
    return header


@contextlib.contextmanager
def large_fields() -> Iterator[None]:
    """The csv module's limit on a field is one number for the whole process; put it back afterwards."""
    before = csv.field_size_limit(LONGEST_ROW)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _looks(head: bytes) -> bool:
    """A first line without tabs that has usual names between commas: ``image,caption``."""
    first = head.partition(b"\n")[0].decode("utf-8-sig", errors="replace").strip().lower()
    names = {title.strip(' "') for title in re.split("[,;|]", first)}
    return "\t" not in first and len(names & USUAL) > 1


FORMAT = Format("csv", (".csv",), CsvTable, looks=_looks, about="named columns")
