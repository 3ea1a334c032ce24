"""X4, X8, I6, F4, F8: bombs, devices and pipes as data are refused in one sentence, within 300 MB of memory."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from anaphora.data.series_readers import open_series
from anaphora.data.sources.labelled import open_labelled
from anaphora.data.sources.opening import open_source
from anaphora.errors import DataError

ROOM = 300 << 20
CHILD = f"""
import json, resource, sys
import numpy as np, soundfile, torch, PIL.Image
from anaphora.data.audio.files import read_audio
from anaphora.data.sources.labelled import open_labelled
from anaphora.data.pictures import read_picture
from anaphora.data.sources.opening import open_source
from anaphora.data.series_readers import open_series
from anaphora.data.text import open_text
from anaphora.errors import AnaphoraError
torch.set_num_threads(1)
readers = {{
    "series": open_series, "labelled": open_labelled, "pairs": open_source, "text": open_text,
    "sound": lambda path: read_audio(path, rate=16000), "picture": lambda path: read_picture(path, size=(8, 8)),
}}
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + {ROOM},) * 2)
for line in sys.stdin:
    kind, path = json.loads(line)
    try:
        readers[kind](path)
        print(json.dumps("read"), flush=True)
    except AnaphoraError as error:
        print(json.dumps(str(error)), flush=True)
    except BaseException as error:
        print(json.dumps(f"FAULT {{type(error).__name__}}: {{error}}"), flush=True)
"""


def zeros(pieces: int) -> bytes:
    """A gzip file of ``pieces`` MiB of zeros: that many members, each a thousandth of what it unpacks to."""
    return gzip.compress(bytes(1 << 20)) * pieces


def npy_head(shape) -> bytes:
    text = repr({"descr": "|u1", "fortran_order": False, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def archive(path: Path, size: int) -> None:
    """A bomb of ``size`` MiB whose directory tells the truth."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file,
        file.open("X.npy", "w") as inside,
    ):
        inside.write(npy_head((size << 20,)))
        for _ in range(size):
            inside.write(bytes(1 << 20))


def wav(rate: int, samples: int) -> bytes:
    form = struct.pack("<HHIIHH", 1, 1, rate, rate * 2, 2, 16)
    body = b"WAVEfmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", 2 * samples)
    return (
        b"RIFF" + struct.pack("<I", len(body) + 2 * samples) + body + bytes(range(250)) * (2 * samples // 250)
    )


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(bytes(1000)))
        + chunk(b"IEND", b"")
    )


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What a process of little memory says to each hostile file."""
    folder = tmp_path_factory.mktemp("hostile")
    archive(folder / "bomb.npz", 320)
    (folder / "lies.npy").write_bytes(npy_head((1 << 44,)))
    (folder / "bomb.tsv.gz").write_bytes(zeros(400))
    (folder / "bomb.tsv.bz2").write_bytes(bz2.compress(bytes(1 << 22)) * 100)
    (folder / "bomb.tsv.xz").write_bytes(lzma.compress(bytes(1 << 22), preset=0) * 100)
    (folder / "bomb-idx3-ubyte.gz").write_bytes(zeros(400))
    (folder / "rolls.json").write_text('{"train": ' + "[" * 100_000)
    (folder / "slow.wav").write_bytes(wav(rate=1, samples=8000))
    (folder / "claims.wav").write_bytes(wav(rate=8000, samples=250)[:-400])
    (folder / "huge.png").write_bytes(png(60_000, 60_000))
    for ending in (".npy", ".npz", ".tsv", ".csv", ".json", ".txt", ".wav", ".png"):
        os.mkfifo(folder / f"pipe{ending}")
        (folder / f"zeros{ending}").symlink_to("/dev/zero")
    asked = [
        ("series", "bomb.npz"), ("labelled", "bomb.npz"), ("series", "lies.npy"), ("pairs", "bomb.tsv.gz"), ("pairs", "bomb.tsv.bz2"), ("text", "bomb.tsv.xz"),
        ("text", "bomb.tsv.gz"), ("labelled", "bomb-idx3-ubyte.gz"), ("series", "rolls.json"), ("sound", "slow.wav"),
        ("sound", "claims.wav"), ("picture", "huge.png"),
    ]  # fmt: skip
    for name in ("pipe", "zeros"):
        asked += [("series", f"{name}{ending}") for ending in (".npy", ".npz", ".csv", ".json")]
        asked += [("labelled", f"{name}{ending}") for ending in (".npz", ".tsv", ".csv")]
        asked += [
            ("pairs", f"{name}.tsv"),
            ("text", f"{name}.txt"),
            ("sound", f"{name}.wav"),
            ("picture", f"{name}.png"),
        ]
    lines = "".join(json.dumps((kind, str(folder / name))) + "\n" for kind, name in asked)
    done = subprocess.run(
        [sys.executable, "-c", CHILD], input=lines, capture_output=True, text=True, timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"},
    )  # fmt: skip
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(said) == len(asked), done.stderr
    return {f"{kind} {name}": text for (kind, name), text in zip(asked, said, strict=True)}


@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("series bomb.npz", "over 100 times its size"),
        ("labelled bomb.npz", "over 100 times its size"),
        ("series lies.npy", "promises 16.0 TiB"),
        ("pairs bomb.tsv.gz", "over 100 times its size"),
        ("pairs bomb.tsv.bz2", "over 100 times its size"),
        ("text bomb.tsv.xz", "over 100 times its size"),
        ("text bomb.tsv.gz", "over 100 times its size"),
        ("series rolls.json", "nested too deeply"),
        ("sound slow.wav", "too long at 16000 Hz"),
        ("sound claims.wav", "cut off"),
        ("picture huge.png", "million pixels"),
    ],
)
def test_a_bomb_is_refused_and_the_limit_named(answers, case, text):
    assert text in answers[case]


def test_every_hostile_file_gives_one_sentence(answers):
    for case, text in answers.items():
        assert not text.startswith("FAULT"), (case, text)
        assert text != "read", case
        assert text.endswith((".", "?")), (case, text)
        assert "\n" not in text, (case, text)
    for case in (case for case in answers if "pipe" in case):
        assert "named pipe" in answers[case] or "is not a file" in answers[case], (case, answers[case])


@pytest.mark.parametrize(
    "notes", ["1e999", "12345678901234567890123", "60.5", '"60"', "[60]", "null", "true", "NaN"]
)
def test_notes_that_are_none(tmp_path, notes):
    (tmp_path / "a.json").write_text(f'{{"train": [[[60], [{notes}]]]}}')
    with pytest.raises(DataError, match=r"a\.json: (is not JSON|piece 1 of train is not)"):
        open_series(tmp_path / "a.json")


@pytest.mark.parametrize(
    "splits", ['{"train": 5}', '{"train": {"a": 1}}', '{"train": "abc"}', '{"train": null}']
)
def test_a_split_that_is_no_list(tmp_path, splits):
    (tmp_path / "a.json").write_text(splits)
    with pytest.raises(DataError, match=r"a\.json: the split train is not a list of pieces"):
        open_series(tmp_path / "a.json")


def test_complex_numbers_keep_their_imaginary_part_or_are_refused(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((4, 1), dtype=np.complex64))
    with pytest.raises(DataError, match="is not an array of numbers"):
        open_series(tmp_path / "a.npy")
    np.savez(tmp_path / "a.npz", X=np.ones((4, 2, 1), dtype=np.complex64), y=[1, 2, 1, 2])
    with pytest.raises(DataError, match="holds complex numbers"):
        open_labelled(tmp_path / "a.npz")


def test_numbers_that_do_not_fit_the_model_are_refused_with_their_step(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.array([[[1.0], [1e300]]]), y=[1])
    with pytest.raises(DataError, match=r"sequence 1 holds NaN or infinity \(step 2\)"):
        open_labelled(tmp_path / "a.npz")


def test_what_is_compressed_well_and_small_is_read(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.tile([0.0, 1.0], 1 << 16)[:, None])  # far over 100 : 1
    assert len(open_series(tmp_path / "a.npz")) == 1 << 17
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"a\n" + b"1\n2\n" * 50_000))
    assert len(open_series(tmp_path / "b.csv.gz")) == 100_000


@pytest.mark.parametrize("kind", ["words repeated", "zeros"])
def test_a_bomb_of_parquet_is_refused_before_it_is_unpacked(tmp_path, monkeypatch, kind):
    """A few hundred bytes: one long text that many rows name, or texts of zeros."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("anaphora.files.bounds.SMALL", 1 << 20)
    column = arrow.array(["x" * 10_000] * 400 if kind == "words repeated" else ["0" * 4_000_000])
    if kind == "words repeated":
        column = column.dictionary_encode()
    table = arrow.table({"source": column, "target": ["b"] * len(column)})
    parquet.write_table(table, tmp_path / "a.parquet", compression="zstd")
    assert (tmp_path / "a.parquet").stat().st_size < 10_000
    with pytest.raises(DataError, match="ANAPHORA_MAX_RATIO"):
        open_source(tmp_path / "a.parquet")
