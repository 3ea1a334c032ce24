"""Files larger than memory: opened, learned from and cut into batches with a small part of them held."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from anaphora.data.batches.padded import ReadBatches, labelled_batches, labels_of
from anaphora.data.batches.pooled import Input
from anaphora.data.sources.labelled import LABELLED_READER
from anaphora.data.sources.opening import ROW_READER
from anaphora.data.split import Split
from anaphora.data.table import Table

ROWS = 12_000


@pytest.fixture(scope="module")
def text() -> list[str]:
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefgh", k=7)) for _ in range(500)]
    return [" ".join(draw.choices(words, k=draw.randint(80, 160))) for _ in range(ROWS)]


def encode(texts: object) -> list[Input]:
    return [np.zeros(len(text.split()), np.int32) for text in texts]  # type: ignore[attr-defined]


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_a_part_of_the_file_is_in_memory(form: str, text: list[str], tmp_path: Path) -> None:
    path = tmp_path / f"a.{form}"
    if form == "csv":
        path.write_text("text,label\n" + "".join(f"{one},{i % 3}\n" for i, one in enumerate(text)))
    elif form == "jsonl":
        path.write_text("".join(f'{{"text": "{one}", "label": {i % 3}}}\n' for i, one in enumerate(text)))
    else:
        pa = pytest.importorskip("pyarrow")
        table = pa.table({"text": text, "label": [i % 3 for i in range(ROWS)]})
        pytest.importorskip("pyarrow.parquet").write_table(table, path, row_group_size=500)
    tracemalloc.start()
    try:
        train, _ = LABELLED_READER.training(path, None, Split("rows", 100, 1), spill=tmp_path / "run")
        assert isinstance(train, Table)
        assert train.text_bytes > 8_000_000
        labels = np.array([int(label) for label in labels_of(train)])
        batches = ReadBatches(train, encode, labels, batch_tokens=4096, max_tokens=200, seed=1, pool=500)
        seen = [i for _ in range(60) for i in next(batches).indices]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(seen) == len(set(seen))
    # A chunk of 16 MiB would hold the whole of JSON lines; what matters is that rows as objects are few.
    assert peak < (6e6 if form == "csv" else 40e6)


def test_read_and_held_batches_are_the_same_stream(tmp_path: Path) -> None:
    draw = random.Random(2)
    rows = [(" ".join("ab"[draw.randrange(2)] for _ in range(draw.randint(1, 9))), "x") for _ in range(90)]
    train, _ = ROW_READER.training(rows, None, Split("rows", 10, 1), spill=tmp_path)
    texts = [a for a, _ in train]
    truth = np.arange(len(texts))
    read = ReadBatches(train, encode, truth, batch_tokens=20, max_tokens=8, seed=3)
    held = labelled_batches(encode(texts), truth, batch_tokens=20, max_tokens=8, seed=3)
    for number in range(100):
        a, b = next(read), next(held)
        assert a.indices == b.indices
        assert a.targets.tolist() == b.targets.tolist()
        if number == 50:
            state = held.state()
            assert read.state() == state
            read = ReadBatches(train, encode, truth, batch_tokens=20, max_tokens=8, seed=3)
            read.restore(state)
