"""The one door for files: what is refused, what is bounded, and that nothing goes around it."""

from __future__ import annotations

import ast
import bz2
import errno
import gzip
import io
import json
import lzma
import os
import socket
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

import anaphora
from anaphora.data.files import TextFile
from anaphora.errors import DataError, SettingsError
from anaphora.files import Refused, limits, open_plain, open_stream, parse_json, read_bytes, streamed
from anaphora.files.arrays import load_arrays, load_npy, load_npz
from anaphora.files.unpacking import unpacked, unpacked_to_disk, unpacking

SOURCE = Path(anaphora.__file__).parent


# ---------------------------------------------------------------- opening


def test_a_plain_file_is_read(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100_000)
    assert read_bytes(path) == b"x" * 100_000
    (tmp_path / "b").symlink_to(path)
    assert read_bytes(tmp_path / "b") == read_bytes(path)
    with streamed(path) as file:
        assert file.read(3) == b"xxx"


@pytest.mark.parametrize("reader", [read_bytes, open_plain, load_npy, load_npz, load_arrays, unpacked])
def test_what_is_no_plain_file_is_refused_by_name(tmp_path, monkeypatch, reader):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    os.mkdir("folder")
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind("socket")
    os.symlink("/dev/zero", "zeros")
    os.symlink("pipe", "link")
    for name, kind in {
        "pipe": "a named pipe",
        "link": "a named pipe",
        "folder": "a folder",
        "socket": "a socket",
        "zeros": "a device",
        "/dev/null": "a device",
    }.items():
        with pytest.raises(Refused) as caught:
            reader(name)
        assert caught.value.strerror == f"is {kind}, not a plain file"
        assert caught.value.filename == name


def test_a_link_is_refused_where_it_must_not_be_followed(tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    (tmp_path / "c").symlink_to(tmp_path / "nowhere")
    for name in ("b", "c"):
        for flags in (os.O_RDONLY, os.O_RDWR | os.O_CREAT):
            with pytest.raises(Refused, match="is a link"):
                open_plain(tmp_path / name, flags, follow=False)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("name", ["a\0b", "half \ud800", "n" * 300, "none", "file/below"])
def test_names_that_are_none(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path("file").write_bytes(b"")
    for reader in (read_bytes, open_stream):
        with pytest.raises(OSError):
            reader(name)


def test_a_size_is_refused_before_memory_is_taken(tmp_path, monkeypatch):
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(Refused, match=r"holds 1\.0 TiB, more than the .* set ANAPHORA_MAX_BYTES"):
        read_bytes(tmp_path / "sparse")
    (tmp_path / "a").write_bytes(b"x" * 2000)
    with pytest.raises(Refused, match="more than 100 bytes") as caught:
        read_bytes(tmp_path / "a", most=100)
    assert caught.value.errno == errno.EFBIG
    monkeypatch.setenv("ANAPHORA_MAX_BYTES", "1K")
    with pytest.raises(Refused, match=r"holds 2\.0 KiB, more than the 1\.0 KiB"):
        read_bytes(tmp_path / "a")
    monkeypatch.setenv("ANAPHORA_MAX_BYTES", "1 MiB")
    assert len(read_bytes(tmp_path / "a")) == 2000


@pytest.mark.parametrize("text", ["many", "-1", "1.5G", "9" * 30, "٣"])
def test_a_limit_that_is_no_number(monkeypatch, text):
    monkeypatch.setenv("ANAPHORA_MAX_BYTES", text)
    with pytest.raises(
        SettingsError, match=r"ANAPHORA_MAX_BYTES=.* is not a number; write ANAPHORA_MAX_BYTES=8G"
    ):
        limits()


# ---------------------------------------------------------------- JSON


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("[" * 200 + "]" * 200, "nested too deeply"),
        ('{"a":' * 200 + "1" + "}" * 200, "nested too deeply"),
        ("12345678901234567890123", "12345678901234567890123 is too large"),
        ("-9223372036854775809", "too large"),
        ("1e999", "1e999 is too large"),
        ("1" * 6000, "too large"),
        ("NaN", "NaN is not a number of JSON"),
        ("[-Infinity]", "-Infinity is not"),
        ('"\\ud800"', "half a character"),
        ('{"\\uDFFF": 1}', "half a character"),
        ('"\ud800"', "half a character"),
        (b'"\xff"', "not UTF-8"),
        (b'"' + b"x" * 100 + b'"', "longer than 90 bytes"),
        ("[1, 2,]", "Expecting value"),
        ("", "Expecting value"),
    ],
)
def test_json_that_is_refused(text, reason):
    with pytest.raises(ValueError, match=reason):
        parse_json(text, most=90 if isinstance(text, bytes) else 1 << 20)


def test_json_that_is_read():
    assert parse_json(b'\xef\xbb\xbf{"a": [1, -2.5, "\\ud83d\\ude00", null, true]}') == {
        "a": [1, -2.5, "😀", None, True]
    }
    assert parse_json("[" * 100 + "]" * 100)
    assert parse_json('["' + "[" * 5000 + '"]') == ["[" * 5000]
    assert parse_json("1" * 30, numbers=False) == int("1" * 30)
    assert parse_json('{"a": 1, "a": 2}', pairs=len) == 2


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**63), 2**63 - 1)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
        ),
    )
)
def test_json_comes_back_as_it_was(document):
    assert parse_json(json.dumps(document)) == document


# ---------------------------------------------------------------- compressed files


def test_a_gzip_bomb_is_stopped(tmp_path, monkeypatch):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(bytes(1 << 22)))
    assert unpacked(path) == bytes(1 << 22)  # few enough, whatever the ratio
    monkeypatch.setattr("anaphora.files.bounds.SMALL", 1 << 20)
    for reader in (unpacked, lambda path: unpacked_to_disk(path, tmp_path)):
        with pytest.raises(
            Refused, match=r"unpacks to \d\.0 MiB or more, over 100 times its size; .* ANAPHORA_MAX_RATIO"
        ):
            reader(path)
    assert os.listdir(tmp_path) == ["a.gz"]
    monkeypatch.setenv("ANAPHORA_MAX_RATIO", "2000")
    assert len(unpacked(path)) == 1 << 22
    monkeypatch.setenv("ANAPHORA_MAX_BYTES", "1M")
    with pytest.raises(Refused, match="more than the 1"):
        unpacked(path)


def test_a_compressed_file_is_read_line_by_line_within_its_limits(tmp_path, monkeypatch):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"one\n" + b"x" * (1 << 21) + b"\n"))
    with unpacking(path) as file:
        assert file.readline() == b"one\n"
        assert len(file.readline()) == (1 << 21) + 1
    monkeypatch.setattr("anaphora.files.bounds.SMALL", 1 << 20)
    with unpacking(path) as file, pytest.raises(Refused, match="ANAPHORA_MAX_RATIO"):
        file.read()


@pytest.mark.parametrize(("ending", "pack"), [(".bz2", bz2.compress), (".xz", lzma.compress)])
def test_bz2_and_xz_are_read_whole_or_refused(tmp_path, monkeypatch, ending, pack):
    path, text = tmp_path / f"a{ending}", bytes(range(256)) * 5000
    path.write_bytes(pack(text) + pack(b"") + pack(b"more"))  # one stream after another, as `cat` makes them
    assert unpacked(path) == text + b"more"
    path.write_bytes(pack(text) + bytes(8))  # filled up
    assert unpacked(path) == text
    whole = pack(text)
    for damaged in (
        whole[: len(whole) // 2],
        whole[:-1],
        b"",
        b"no such thing",
        whole + b"no such thing",
        whole[:40] + b"\xff" * 20 + whole[60:],
    ):
        path.write_bytes(damaged)
        with pytest.raises((EOFError, zlib.error)):
            unpacked(path)
        with pytest.raises(
            DataError, match=f"a{ending} is damaged and cannot be unpacked .*; make it again"
        ) as told:
            TextFile(path)
        assert "\n" not in str(told.value)
    path.write_bytes(pack(bytes(1 << 22)))
    monkeypatch.setattr("anaphora.files.bounds.SMALL", 1 << 20)
    with pytest.raises(Refused, match="over 100 times its size"):
        unpacked(path)


def test_an_xz_file_that_wants_a_gigabyte_to_be_unpacked_is_refused(tmp_path):
    wide = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 20}]
    packed = bytearray(lzma.compress(b"text", filters=wide))
    assert packed[12:17] == b"\x02\x00\x21\x01\x10"  # the head of the block: LZMA2, one byte of size, 1 MiB
    packed[16] = 36  # 1 GiB
    packed[20:24] = zlib.crc32(packed[12:20]).to_bytes(4, "little")
    (tmp_path / "a.xz").write_bytes(packed)
    with pytest.raises(zlib.error, match="it wants over 256 MiB of memory"):
        unpacked(tmp_path / "a.xz")


# ---------------------------------------------------------------- arrays


@given(
    arrays_of.arrays(
        st.sampled_from(["<f4", ">f8", "|u1", "<i8", "<U3", "|b1", "<c8"]),
        arrays_of.array_shapes(min_dims=0, min_side=0),
    )
)
def test_arrays_come_back_as_they_were(tmp_path_factory, array):
    path = tmp_path_factory.mktemp("npy") / "a.npy"
    for one in (array, np.asfortranarray(array)):
        np.save(path, one)
        found = load_npy(path)
        assert (found.dtype, found.shape) == (one.dtype, one.shape)
        np.testing.assert_array_equal(found, one)


def test_archives_come_back_as_they_were(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(6).reshape(2, 3), y=np.array(["a", "bc"]))
    found = load_arrays(tmp_path / "a.npz")
    assert found["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["y"].tolist() == ["a", "bc"]


def head(shape, dtype="<f8", version=1):
    text = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    length = len(text).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + text


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (head((1 << 50,)), "promises 8192.0 TiB and the file has"),
        (head((1 << 40, 1 << 40)), "promises"),
        (head((-1,)), "shape"),
        (head((4,)) + b"1234", "promises 32 bytes"),
        (head((2,), "|O") + bytes(64), "Python objects"),
        (head((1 << 40,), "|V0"), "empty"),
        (head((2,), version=2)[:9], "EOF"),
        (b"\x93NUMPY\x09\x00", "9.0"),
        (b"no array", "magic string"),
        (b"", "EOF"),
    ],
)
def test_arrays_whose_heads_lie(tmp_path, content, reason):
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises((ValueError, EOFError), match=reason):
        load_npy(tmp_path / "a.npy")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", content)
    with pytest.raises((ValueError, EOFError), match=reason.replace("the file has", "")):
        load_npz(tmp_path / "a.npz")


def test_an_archive_bomb_is_refused_by_its_directory(tmp_path, monkeypatch):
    monkeypatch.setattr("anaphora.files.bounds.SMALL", 1 << 20)
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(1 << 18))
    with pytest.raises(Refused, match=r"unpacks to 2\.0 MiB or more, over 100 times its size"):
        load_npz(tmp_path / "a.npz")
    twice = io.BytesIO()
    with zipfile.ZipFile(twice, "w") as archive:
        archive.writestr("a.npy", b"1")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("a.npy", b"2")
    (tmp_path / "b.npz").write_bytes(twice.getvalue())
    with pytest.raises(ValueError, match="same name"):
        load_npz(tmp_path / "b.npz")


# ---------------------------------------------------------------- nothing goes around the door

READING = {
    ("np", "load"), ("np", "loadtxt"), ("np", "genfromtxt"), ("np", "fromfile"), ("np", "memmap"), ("mmap", "mmap"),
    ("os", "open"), ("io", "open"), ("io", "FileIO"), ("gzip", "open"), ("bz2", "open"), ("lzma", "open"),
    ("zipfile", "ZipFile"), ("tarfile", "open"), ("wave", "open"), ("shelve", "open"), ("sqlite3", "connect"),
    ("shutil", "unpack_archive"), ("json", "load"), ("json", "loads"), ("tomllib", "load"), ("pickle", "load"),
    ("pickle", "loads"), ("torch", "load"), ("Image", "open"), ("soundfile", "SoundFile"), ("soundfile", "read"),
}  # fmt: skip
FUNCTIONS = {"open", "load_file", "safe_open", "ZipFile", "GzipFile"}
TABLES = {
    "read_csv", "read_table", "read_parquet", "scan_parquet", "scan_csv", "read_feather", "read_ipc", "scan_ipc",
    "read_json", "read_ndjson", "read_excel", "read_pickle", "ParquetFile", "ParquetDataset", "OSFile", "memory_map",
}  # fmt: skip
AROUND = {
    # of what the door opened
    "data/pictures.py": {"Image.open"},
    "data/audio/files.py": {"soundfile.SoundFile"},
    "data/sources/formats/columnar.py": {".ParquetFile()"},
    "foreign/weights/torch_file.py": {"torch.load", "zipfile.ZipFile"},
    "foreign/weights/kinds.py": {"zipfile.ZipFile"},
    "foreign/weights/hdf5.py": {"zipfile.ZipFile"},
    # of nameless files and arrays that the program itself has just written
    "data/text_stream.py": {"np.memmap"},
    "models/classical/ngram/disk.py": {"np.memmap"},
    "models/embeddings/cooccurrence.py": {"np.memmap"},
    "data/vocabularies.py": {"json.loads"},
    "data/bpe_dropout.py": {"json.loads"},
    "learn/pictures.py": {".read_text()"},
    "learn/site/build.py": {".read_text()"},
    "data/tokenizers.py": {"json.loads"},
    "training/state.py": {"json.loads"},
    "training/launch.py": {"json.loads"},  # what another process of the job kept in torchrun's store
    "training/learner.py": {"json.loads"},
    "training/callbacks.py": {"json.loads"},
    "foreign/tokens.py": {"json.loads"},
    "tasks/begun/language.py": {"json.loads"},
    "kernels/packed/memory.py": {"mmap.mmap"},  # memory without a file
    "cli/writing.py": {"json.loads"},
    "tasks/bulk/outfile.py": {"json.loads"},
    "tasks/bulk/values.py": {"json.loads"},
    "tasks/exporting/archive.py": {".read_bytes()"},
    "tasks/exporting/ctranslate2.py": {".read_bytes()", ".read_text()", "json.loads"},
    "kernels/toolchain/compiler.py": {
        ".read_bytes()",
        ".read_text()",
    },  # a compiler's result, in a private folder
    # the package's own files
    "studio/app.py": {".read_bytes()"},
    "serving/pages.py": {".read_bytes()"},
    "kernels/decode/cuda.py": {".read_text()"},
    "kernels/selective/gpu.py": {".read_text()"},
    "kernels/selective/native.py": {".read_text()"},
    "kernels/matrix_scan/native.py": {".read_text()"},
    "kernels/recurrence/backends/scan/source_cuda.py": {".read_text()"},
    "kernels/sound/native.py": {".read_text()"},
    "kernels/grid/native.py": {".read_text()"},
    "kernels/crf/native.py": {".read_text()"},
    "kernels/ctc/loss_gpu.py": {".read_text()"},
    "kernels/transducer/loss_gpu.py": {".read_text()"},
    "kernels/transducer/native.py": {".read_text()"},
    "kernels/packed/native.py": {".read_text()"},
    "kernels/embeddings/windows.py": {".read_text()"},
    "kernels/recurrence/backends/c/source.py": {".read_text()"},
    "kernels/recurrence/backends/persistent/source.py": {".read_text()"},
    "kernels/recurrence/backends/scan/source_c.py": {".read_text()"},
    # files of the kernel and devices, by names that are written here
    "_cpu.py": {".read_text()"},
    "kernels/toolchain/isa.py": {".read_text()"},
    "cli/health.py": {".read_text()"},
    "cli/failures.py": {"os.open"},
    # doors of their own
    "training/durable.py": {"os.open"},  # makes new files (O_EXCL) and opens folders to sync them
    "kernels/toolchain/cache.py": {
        "os.open",
        "open",
    },  # stricter: also the owner and the mode of every folder
}
DOOR = {"files"}
READS_NOTHING = {"journal", "self", "again", "RunFolder"}
"""Objects of ours whose ``open`` goes through the door."""


def calls(tree):
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name):
            if function.id in FUNCTIONS and not writes(node.args[1:2], node.keywords):
                yield function.id
            continue
        if not isinstance(function, ast.Attribute):
            continue
        name = function.attr
        owner = function.value.id if isinstance(function.value, ast.Name) else ""
        if (owner, name) in READING:
            if not writes(node.args[1:2], node.keywords):
                yield f"{owner}.{name}"
        elif name in TABLES:
            yield f".{name}()"
        elif name in ("read_text", "read_bytes"):
            if not node.args:  # RunFolder.read_text has a name, and goes through the door
                yield f".{name}()"
        elif (
            name == "open"
            and owner not in READS_NOTHING
            and not writes(node.args[:1], node.keywords)
            and not (len(node.args) == 1 and not isinstance(node.args[0], ast.Constant))
        ):
            yield ".open()"


def writes(mode, keywords):
    """Whether a file is opened for writing alone."""
    mode = [*mode, *(keyword.value for keyword in keywords if keyword.arg == "mode")]
    text = mode[0].value if mode and isinstance(mode[0], ast.Constant) else ""
    return isinstance(text, str) and bool(set(text) & set("wax")) and "+" not in text


def test_files_are_read_through_the_door_only():
    around = {}
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        if name.partition("/")[0] not in DOOR and (found := set(calls(ast.parse(path.read_text("utf-8"))))):
            around[name] = found
    assert around == AROUND


def test_the_check_of_the_door_sees_what_it_forbids():
    for text in ("open('x')", "open(p, 'r+b')", "np.load(p)", "p.read_text()", "p.read_bytes()", "p.open('rb')", "p.open()", "gzip.open(p)", "json.loads(s)", "p.open(encoding='utf-8')", "load_file(p)", "wave.open(p)", "pl.read_parquet(p)", "np.memmap(p, mode='r+')", "open(p, mode='r')"):  # fmt: skip
        assert list(calls(ast.parse(text))), text
    for text in (
        "journal.open(mark)",
        "RunFolder.open(path)",
        "p.open('wb')",
        "open(p, 'w', encoding='utf-8')",
        "wave.open(p, 'wb')",
        "run.read_text('config.json')",
        "archive.open(entry)",
    ):
        assert not list(calls(ast.parse(text))), text
