"""Compressed files and arrays: bounded before they are unpacked, and read back as they were written."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import zipfile
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from anaphora.data.files import TextFile
from anaphora.errors import DataError
from anaphora.files import Refused
from anaphora.files.arrays import load_arrays, load_npy, load_npz
from anaphora.files.unpacking import unpacked, unpacked_to_disk, unpacking


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
