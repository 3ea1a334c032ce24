"""Tab-separated pairs: source, tab, target; further columns are left out."""

from __future__ import annotations

import numpy as np

from anaphora.data.file_pairs import FilePairs, FileRows
from anaphora.data.files import TextFile, Verdict
from anaphora.data.lines import SPACE, TAB, Lines, scan
from anaphora.data.pairs import Pair


class _Columns:
    """Rejects rows that have not as many columns as the first one, or nothing in one of the first two."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, lines: Lines) -> None:
        tabs = np.flatnonzero(lines.array == TAB)
        first = np.searchsorted(tabs, lines.starts)
        columns = np.searchsorted(tabs, lines.ends) - first + 1
        filled = lines.ends > lines.starts
        if not self.count:
            several = columns[filled & (columns > 1)]
            self.count = int(several[0]) if len(several) else 0
        wanted = self.count or 2
        for index in np.flatnonzero(filled & (columns != wanted)).tolist():
            lines.reject(index, "wrong number of columns", f"{columns[index]} where {wanted} are wanted")
        rows = np.flatnonzero(filled & (columns == wanted))
        if not len(rows):
            return
        starts, first = lines.starts[rows], first[rows]
        middle = tabs[first]
        ends = tabs[first + 1] if wanted > 2 else lines.ends[rows]
        # A side is blank only if it begins with a space or has no length: few rows need a closer look.
        last = len(lines.array) - 1
        doubtful = (middle == starts) | (middle + 1 == ends)
        doubtful |= (lines.array[starts] == SPACE) | (lines.array[np.minimum(middle + 1, last)] == SPACE)
        for i in np.flatnonzero(doubtful).tolist():
            for name, begin, end in (("source", starts[i], middle[i]), ("target", middle[i] + 1, ends[i])):
                if not lines.data[begin:end].strip():
                    lines.reject(int(rows[i]), "an empty side", name)


def read_tsv(file: TextFile, bad_rows: str) -> FilePairs:
    """Index the rows of ``file``; none of its text is held."""
    verdict, columns = Verdict(file.name, bad_rows), _Columns()
    table = scan(file, verdict, columns)
    verdict.require(len(table.starts))
    facts = {
        "kind": "tsv",
        "bad_rows": bad_rows,
        "skipped": dict(verdict.skipped),
        "columns_left_out": columns.count - 2,
    }
    return FilePairs(FileRows(file, table.starts, table.sizes), _parse, table.text_bytes, facts)


def _parse(rows: list[str]) -> list[Pair]:
    pairs: list[Pair] = []
    for row in rows:
        source, target, *_ = row.split("\t", 2)
        pairs.append((source, target))
    return pairs
