"""Word vectors and n-gram models through ``an.load``, and one sentence for what is not read."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import anaphora as an
from anaphora.errors import AnaphoraError

VECTORS = {"the": [0.5, -1.0, 2.0], "cat": [1.5, 0.25, -0.125]}
TEXT = "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in VECTORS.items())
ARPA = "\\data\\\nngram 1=4\nngram 2=1\n\n\\1-grams:\n-1\t<unk>\n-99\t<s>\t-0.3\n-0.7\t</s>\n-0.3\tcat\t-0.2\n\n\\2-grams:\n-0.1\t<s> cat\n\n\\end\\\n"  # fmt: skip


@pytest.mark.parametrize(
    "name", ["vectors.vec", "glove.txt", "vectors.vec.gz", "vectors.bin", "saved.safetensors"]
)
def test_vectors_of_words(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name == "vectors.bin":
        an.WordVectors(VECTORS, np.array(list(VECTORS.values()), "f4")).write(path, binary=True)
    elif name == "saved.safetensors":
        an.WordVectors(VECTORS, np.array(list(VECTORS.values()), "f4")).save(path)
    else:
        text = TEXT if name == "glove.txt" else f"2 3\n{TEXT}"
        path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    found = an.load(path)
    assert isinstance(found, an.WordVectors)
    assert found.words == list(VECTORS)
    np.testing.assert_array_equal(found["cat"], np.array(VECTORS["cat"], "f4"))


@pytest.mark.parametrize("name", ["model.arpa", "model.lm", "model.arpa.gz"])
def test_an_arpa_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(ARPA.encode()) if name.endswith("gz") else ARPA.encode())
    found = an.load(path)
    assert isinstance(found, an.NGram)
    assert found.log_prob(["cat"], base=10) == pytest.approx(-0.1 - 0.2 - 0.7)


def content(name: str, data: bytes) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(data)
        return folder / name

    return write


DAMAGES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "fastText's own": (content("lid.176.ftz", (793712314).to_bytes(4, "little") + b"\x0c\0\0\0"), "fastText's own format"),
    "KenLM": (content("lm.binary", b"mmap lm http://kheafield.com/code format version 5\n\0"), "a binary of KenLM"),
    "cut-off vectors": (content("v.vec", b"3 3\nthe 1 2 3\ncat 1 2 3\n"), "promises 3 vectors"),
    "a number missing": (content("v.txt", b"the 1 2 3\ncat 1 2\n"), ":2: "),
    "no number": (content("v.txt", b"2 3\nthe 1 2 3\ncat 1 x 3\n"), "not 3 numbers after the word 'cat'"),
    "cut-off arpa": (content("m.arpa", ARPA[:60].encode()), "m.arpa:"),
    "empty arpa": (content("m.arpa", b"words\n"), "there is no .data. line"),
    "damaged gz": (content("v.vec.gz", gzip.compress(b"2 3\nthe 1 2 3\n" * 99)[:40]), "damaged and cannot be unpacked"),
    "not gz": (content("v.vec.gz", b"plain"), "damaged|cannot be read"),
    "prose": (content("a.txt", b"It was the best of times.\n"), "no file of weights that is read here"),
    "empty": (content("a.txt", b""), "is empty"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_what_cannot_be_read_is_said_in_one_sentence(name: str, tmp_path: Path) -> None:
    write, sentence = DAMAGES[name]
    path = write(tmp_path)
    with pytest.raises(AnaphoraError, match=sentence) as caught:
        an.load(path)
    assert "\n" not in str(caught.value)
    assert "a.txt" in str(caught.value) or path.name in str(caught.value)
