"""Files of words: n-gram models in ARPA's format, and vectors of words as word2vec, GloVe and fastText exchange them."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

from anaphora.errors import RunError
from anaphora.files import clause
from anaphora.files.opening import streamed
from anaphora.files.unpacking import packed_ending, unpacking
from anaphora.models.classical.ngram import NGram
from anaphora.models.embeddings.pretrained import read_any
from anaphora.models.embeddings.vectors import WordVectors

_HEAD = 1 << 16
_FASTTEXT = (793712314).to_bytes(4, "little")
_KENLM = b"mmap lm http://kheafield.com/code"
_ARPA = re.compile(rb"^\\data\\\s*$", re.MULTILINE)
_VECTORS = re.compile(rb"\s*\d+\s+\d+\s*|\S+(\s+[-+]?[\d.]+([eE][-+]?\d+)?){2,}\s*")
"""The first line of vectors: how many of which width, or a word and numbers."""


def of_words(path: Path) -> NGram | WordVectors | None:
    """An `NGram` of an ARPA file, `WordVectors` of a file of vectors (both also packed), None for another file.

    Raises an `AnaphoraError` in one sentence where the file is one of these and cannot be used.
    """
    head = _head(path)
    if head.startswith(_FASTTEXT):
        raise RunError(
            f"{path} is a model in fastText's own format, which is not read; give its vectors as text (the .vec file)."
        )
    if head.startswith(_KENLM):
        raise RunError(f"{path} is a binary of KenLM; give the ARPA file, or use an.search.KenLM.")
    if _ARPA.search(head) or (path.name.removesuffix(packed_ending(path)).endswith(".arpa") and head):
        return NGram.read_arpa(path)
    first, more, _ = head.partition(b"\n")
    if _saved(head) or _VECTORS.fullmatch(first if more else first.rpartition(b" ")[0]):
        return read_any(path)
    return None


def _saved(head: bytes) -> bool:
    """Whether it is what `WordVectors.save` writes."""
    return head[8:9] == b"{" and head[5:8] == b"\0\0\0" and b'"vectors"' in head and b'"words"' in head


def _head(path: Path) -> bytes:
    try:
        with unpacking(path) if packed_ending(path) else streamed(path) as file:
            return file.read(_HEAD)
    except (EOFError, zlib.error) as error:
        raise RunError(f"{path} is damaged and cannot be unpacked ({error}); use another copy.") from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {clause(error)}; check the path.") from None
