"""Two files whose lines belong together."""

from __future__ import annotations

import numpy as np

from anaphora.data.file_pairs import FileRows, ParallelPairs
from anaphora.data.files import TextFile, Verdict
from anaphora.data.lines import SPACE, Lines, LineTable, scan
from anaphora.errors import DataError


def read_parallel(source: TextFile, target: TextFile, bad_rows: str) -> ParallelPairs:
    """Index both files. A line that cannot be used in one takes its partner with it."""
    tables: list[LineTable] = []
    verdicts = [Verdict(file.name, bad_rows) for file in (source, target)]
    for file, verdict in zip((source, target), verdicts, strict=True):
        tables.append(scan(file, verdict, _reject_blank, keep_all=True))
    counts = [len(table.good) for table in tables]
    if counts[0] != counts[1]:
        raise DataError(
            f"{source.name} has {counts[0]} lines but {target.name} has {counts[1]}; line i of both must belong "
            "together."
        )
    good = tables[0].good & tables[1].good
    rows = [
        FileRows(file, table.starts[good], table.sizes[good])
        for file, table in zip((source, target), tables, strict=True)
    ]
    skipped = {verdict.name: dict(verdict.skipped) for verdict in verdicts if verdict.skipped}
    both = Verdict(f"{source.name} with {target.name}", bad_rows)
    both.skipped = verdicts[0].skipped + verdicts[1].skipped
    both.require(len(rows[0]))
    facts = {"kind": "parallel", "bad_rows": bad_rows, "skipped": skipped}
    return ParallelPairs(rows[0], rows[1], sum(table.text_bytes for table in tables), facts)


def _reject_blank(lines: Lines) -> None:
    doubtful = (lines.ends == lines.starts) | (lines.array[lines.starts] == SPACE)
    for index in np.flatnonzero(doubtful).tolist():
        if not lines.text(index).strip():
            lines.reject(index, "an empty side")
