"""The one door for files: what is refused, what is bounded, and which JSON is read."""

from __future__ import annotations

import errno
import json
import os
import socket
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anaphora.errors import SettingsError
from anaphora.files import Refused, limits, open_plain, open_stream, parse_json, read_bytes, streamed
from anaphora.files.arrays import load_arrays, load_npy, load_npz
from anaphora.files.unpacking import unpacked

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


@pytest.mark.parametrize("size", [0, 10, 200_000])
def test_an_array_ends_where_its_head_says(tmp_path, size):
    numbers = np.arange(size, dtype=np.float64)
    np.save(tmp_path / "numbers.npy", numbers)
    with open(tmp_path / "numbers.npy", "ab") as longer:
        longer.write(bytes(24))
    np.testing.assert_array_equal(load_npy(tmp_path / "numbers.npy"), numbers)


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
