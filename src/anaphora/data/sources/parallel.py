"""Two files whose lines belong together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.files import TextFile, Verdict
from anaphora.data.lines import SPACE, Lines, scan
from anaphora.data.sources.indexed import FileRows
from anaphora.data.table import PAIR, Table, Values
from anaphora.errors import DataError


class ParallelTable(Table):
    """Line i of one file with line i of another. A line that cannot be used in one takes its partner with it."""

    columns = PAIR

    def __init__(self, paths: Sequence[str | Path], bad_rows: str, spill: Path | None):
        files = [TextFile(Path(str(path)), spill) for path in paths]
        verdicts = [Verdict(file.name, bad_rows) for file in files]
        tables = [
            scan(file, verdict, _reject_blank, keep_all=True)
            for file, verdict in zip(files, verdicts, strict=True)
        ]
        counts = [len(table.good) for table in tables]
        if counts[0] != counts[1]:
            raise DataError(
                f"{files[0].name} has {counts[0]} lines but {files[1].name} has {counts[1]}; line i of both must belong "
                "together."
            )
        good = tables[0].good & tables[1].good
        self._sides = [
            FileRows(file, table.starts[good], table.sizes[good])
            for file, table in zip(files, tables, strict=True)
        ]
        both = Verdict(" with ".join(file.name for file in files), bad_rows)
        both.skipped = verdicts[0].skipped + verdicts[1].skipped
        both.require(len(self))
        skipped = {verdict.name: dict(verdict.skipped) for verdict in verdicts if verdict.skipped}
        self.facts: dict[str, Any] = {"kind": "parallel", "bad_rows": bad_rows, "skipped": skipped}
        self.text_bytes = sum(table.text_bytes for table in tables)

    def __len__(self) -> int:
        return len(self._sides[0])

    def read(self, indices: Sequence[int]) -> list[Values]:
        return list(zip(*(side.read(indices) for side in self._sides), strict=True))

    def place(self, index: int) -> str:
        return self._sides[0].place(index)

    def describe(self) -> dict[str, Any]:
        files = [side.file for side in self._sides]
        prints = [file.fingerprint() for file in files]
        both = {key: [one[key] for one in prints] for key in ("bytes", "sha256")}
        return {**self.facts, "paths": [file.path for file in files], "rows": len(self), **both}


def _reject_blank(lines: Lines) -> None:
    doubtful = (lines.ends == lines.starts) | (lines.array[lines.starts] == SPACE)
    for index in np.flatnonzero(doubtful).tolist():
        if not lines.text(index).strip():
            lines.reject(index, "an empty side")
