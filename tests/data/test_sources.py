"""One `Source` under all data: every opener gives the same rows, says what it read, and is opened again."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import itertools
import json
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import anaphora as an
from anaphora.cli.answering import respond
from anaphora.data.asked import asked_batches
from anaphora.data.sources import formats
from anaphora.data.sources.labelled import LABELLED_READER, open_labelled
from anaphora.data.sources.opening import ROW_READER, open_source
from anaphora.data.sources.roles import LABELLED
from anaphora.data.sources.sheet import XY
from anaphora.data.split import Split
from anaphora.errors import DataError
from anaphora.kinds.kind import given_inputs

Rows = list[tuple[str, str]]
ROWS: Rows = [
    ('a good, "fine" film', "good"),
    ("a bad\nfilm", "bad"),
    ("größe; x|y", "good"),
    ("awful", "bad"),
] * 3


def columns(rows: Rows) -> dict[str, list[str]]:
    return {"text": [text for text, _ in rows], "label": [label for _, label in rows]}


def as_csv(rows: Rows, delimiter: str = ",", end: str = "\n") -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator=end).writerows([("text", "label"), *rows])
    return text.getvalue()


def as_lines(rows: Rows) -> str:
    return "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)


def written(name: str, content: Callable[[Rows], bytes]) -> Callable[[Rows, Path], Any]:
    def write(rows: Rows, folder: Path) -> Any:
        (folder / name).write_bytes(content(rows))
        return folder / name

    return write


def zipped(rows: Rows) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.csv", as_csv(rows))
        archive.writestr("__MACOSX/._a.csv", b"\0")
    return packed.getvalue()


def zst(rows: Rows) -> bytes:
    return bytes(pytest.importorskip("zstandard").compress(as_csv(rows).encode()))


def parquet(rows: Rows) -> bytes:
    pa = pytest.importorskip("pyarrow")
    held = io.BytesIO()
    pytest.importorskip("pyarrow.parquet").write_table(pa.table(columns(rows)), held, row_group_size=2)
    return held.getvalue()


def feather(rows: Rows) -> bytes:
    pa = pytest.importorskip("pyarrow")
    held = io.BytesIO()
    pytest.importorskip("pyarrow.feather").write_feather(pa.table(columns(rows)), held)
    return held.getvalue()


FILES: dict[str, Callable[[Rows, Path], Any]] = {
    "comma": written("a.csv", lambda rows: as_csv(rows).encode()),
    "semicolon": written("b.csv", lambda rows: as_csv(rows, ";").encode()),
    "delimiter in the first line": written("n.csv", lambda rows: b"sep=;\r\n" + as_csv(rows, ";").encode()),
    "tab": written("c.csv", lambda rows: as_csv(rows, "\t").encode()),
    "BOM and CRLF": written("d.csv", lambda rows: as_csv(rows, end="\r\n").encode("utf-8-sig")),
    "UTF-16": written("e.csv", lambda rows: as_csv(rows).encode("utf-16")),
    "gz": written("f.csv.gz", lambda rows: gzip.compress(as_csv(rows).encode())),
    "bz2": written("f.csv.bz2", lambda rows: bz2.compress(as_csv(rows).encode())),
    "xz": written("f.csv.xz", lambda rows: lzma.compress(as_csv(rows).encode())),
    "zst": written("g.csv.zst", zst),
    "zip": written("h.csv.zip", zipped),
    "JSON lines": written("i.jsonl", lambda rows: as_lines(rows).encode()),
    "JSON": written("j.json", lambda rows: json.dumps([{"text": a, "label": b} for a, b in rows]).encode()),
    "Parquet": written("k.parquet", parquet),
    "Parquet by content": written("l.data", parquet),
    "Feather": written("m.feather", feather),
}
OBJECTS: dict[str, Callable[[Rows, Path], Any]] = {
    "pandas": lambda rows, _: pytest.importorskip("pandas").DataFrame(columns(rows)),
    "polars": lambda rows, _: pytest.importorskip("polars").DataFrame(columns(rows)),
    "polars, lazy": lambda rows, _: pytest.importorskip("polars").LazyFrame(columns(rows)),
    "Arrow": lambda rows, _: pytest.importorskip("pyarrow").table(columns(rows)),
    "Hugging Face": lambda rows, _: pytest.importorskip("datasets").Dataset.from_dict(columns(rows)),
    "dictionaries": lambda rows, _: [{"n": 1, "text": a, "label": b} for a, b in rows],
    "generator of dictionaries": lambda rows, _: ({"text": a, "label": b} for a, b in rows),
    "mapping": lambda rows, _: columns(rows),
}
PLAIN: dict[str, Callable[[Rows, Path], Any]] = {
    "pairs": lambda rows, _: rows,
    "generator": lambda rows, _: iter(rows),
    "(X, y)": lambda rows, _: XY([a for a, _ in rows], np.array([b for _, b in rows])),
    "DataLoader": lambda rows, _: torch.utils.data.DataLoader(rows, batch_size=3),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", [*FILES, *OBJECTS, *PLAIN])
def test_every_opener_gives_the_same_rows_and_opens_them_again(name: str, tmp_path: Path) -> None:
    make = {**FILES, **OBJECTS, **PLAIN}[name]
    found = open_labelled(make(ROWS, tmp_path), spill=tmp_path / "run" / "data")
    assert not found.holds_vectors
    assert list(found) == ROWS
    assert [row.values for row in found.rows(9)] == ROWS[9:]
    assert [column.role for column in found.columns] == ["source", "target"]
    description = json.loads(json.dumps(found.describe()))
    again = ROW_READER.reopen_one(description, roles=LABELLED, spill=tmp_path / "run" / "data")
    assert list(again) == ROWS
    assert again.describe()["sha256"] == description["sha256"]
    if name in FILES:
        make([*ROWS[:-1], ("awful", "good")], tmp_path)
        with pytest.raises(DataError, match="has changed since the run began"):
            ROW_READER.reopen_one(description, roles=LABELLED)


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1).filter(str.strip)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6))
@pytest.mark.parametrize("name", [*FILES, *OBJECTS])
def test_what_train_accepts_predict_reads_as_the_same_inputs(
    name: str, rows: Rows, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    make = {**FILES, **OBJECTS}[name]
    source = open_labelled(make(rows, tmp_path))
    texts = [text for text, _ in source.read(range(len(source)))]
    assert texts == [text for text, _ in rows]
    if name in FILES:
        batches = asked_batches(str(make(rows, tmp_path)), source.describe(), most=4)
        assert [one.text for batch in batches for one in batch] == texts
    else:
        assert given_inputs(make(rows, tmp_path), source.describe()) == texts


def test_splits_of_a_set_are_found(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    parts = {"train": ROWS[:8], "validation": ROWS[8:]}
    both = datasets.DatasetDict({k: datasets.Dataset.from_dict(columns(rows)) for k, rows in parts.items()})
    train, dev = LABELLED_READER.training(both, None, Split("rows", 0, 1), spill=tmp_path)
    assert list(train.read(range(8))) == ROWS[:8]
    assert list(dev.read(range(4))) == ROWS[8:]


NEW_FORMAT = '''
"""Key=value rows between lines of dashes."""
from anaphora.data.files import TextFile
from anaphora.data.sources.formats import Format
from anaphora.data.sources.sheet import ObjectSheet

def _open(path, folder, hints):
    blocks = [block for block in TextFile(path, folder).whole().decode().split("---\\n") if block.strip()]
    rows = [dict(line.split("=", 1) for line in block.splitlines()) for block in blocks]
    return ObjectSheet(str(path), list(rows[0]), lambda: rows, kind="keyed", form="keys and values")

FORMAT = Format("keyed", (".keyed",), _open, about="key=value")
'''


def test_a_new_format_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of CONTRIBUTING: a module with a FORMAT in the folder of the formats, and nothing else."""
    folder = tmp_path / "formats"
    folder.mkdir()
    (folder / "keyed.py").write_text(NEW_FORMAT)
    formats.formats.cache_clear()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(formats, "__path__", [*formats.__path__, str(folder)])
            path = tmp_path / "train.keyed"
            path.write_text("".join(f"text=word {i}\nlabel={'ab'[i % 2]}\n---\n" for i in range(24)))
            model = an.Classifier("bow", embedding=4, steps=2, tokens="word", device="cpu")
            model.fit(path, out=tmp_path / "run")
            assert model.score(path)["examples"] == 24
            answered = [one.text for one in respond(an.load(tmp_path / "run"), str(path), {})]
            predicted = model.predict([f"word {i}" for i in range(24)])
            assert [json.loads(line)["prediction"] for line in answered] == predicted
            assert an.Classifier.resume(tmp_path / "run", steps=3).result_.steps == 3
    finally:
        formats.formats.cache_clear()
    with pytest.raises(DataError, match=r"the ending \.keyed does not tell the form"):
        open_source(tmp_path / "train.keyed")


def test_a_stream_without_end_is_an_error_and_no_long_wait(monkeypatch, tmp_path):
    monkeypatch.setattr("anaphora.data.sources.opening.MOST_ROWS", 50)
    endless = ((f"a {i}", f"b {i}") for i in itertools.count())
    with pytest.raises(DataError, match=r"gave 50 rows and has not ended; give a part .* itertools\.islice"):
        open_source(endless, spill=tmp_path)
    assert not list(tmp_path.iterdir())
    assert len(open_source(itertools.islice(((f"a {i}", "b") for i in itertools.count()), 50))) == 50


def test_a_large_group_of_parquet_is_read_through_a_buffer(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = 4000
    table = pa.table({"source": [f"{i} " + "x" * 2000 for i in range(rows)], "target": ["y"] * rows})
    parquet.write_table(
        table, tmp_path / "one.parquet", row_group_size=rows, compression="none", use_dictionary=False
    )
    read = _most_bytes_read_at_once(tmp_path / "one.parquet")
    assert read < 3 << 20  # the column's part of the group has 8 MB
    assert len(open_source(tmp_path / "one.parquet")) == rows


def _most_bytes_read_at_once(path):
    from anaphora.data.sources.formats import columnar

    class Watched(io.BufferedReader):
        most = 0

        def read(self, size=-1, /):
            found = super().read(size)
            Watched.most = max(Watched.most, len(found))
            return found

    with Watched(io.FileIO(path)) as file:
        for _ in columnar._batches(file, columnar.PARQUET, lambda size: None):
            pass
    return Watched.most
