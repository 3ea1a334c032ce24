"""Running text: read exactly, cut into streams and windows that miss nothing, the same again after a restart."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anaphora.data import text as text_module
from anaphora.data.batches import stream as text_stream
from anaphora.data.batches.stream import (
    LineBatches,
    StreamBatches,
    WindowBatches,
    encode_lines,
    encode_stream,
)
from anaphora.data.corpora import CORPORA, SPLITS
from anaphora.data.corpora import corpus as python_source
from anaphora.data.split import Split, split
from anaphora.data.text import TEXT_READER, open_text
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import DataError

POEM = "Two roads diverged\n\n  in a   yellow wood,\n\tAnd sorry I could\nnot travel both - é\n"


def raw(kind: str, text: str = POEM * 3, size: int = 80) -> Tokenizer:
    return Tokenizer.train([text], kind=kind, vocab_size=size, raw=True)


@pytest.mark.parametrize("kind", ["char", "bpe"])
@given(st.text(alphabet=" \n\tabc.,<-é", max_size=60))
@example("  a\n\n  b   - c <s>\n ")
def test_raw_text_comes_back_exactly(kind: str, text: str) -> None:
    alphabet = " \n\tabc.,<-é<s>"
    tokenizer = Tokenizer.train([alphabet * 3], kind=kind, vocab_size=60, raw=True)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode_array(text).tolist() == tokenizer.encode(text)


def test_raw_words_keep_lines_and_single_spaces() -> None:
    tokenizer = raw("word")
    ids = tokenizer.encode(POEM)
    assert tokenizer.decode(ids) == tokenizer.normalized(POEM)
    assert tokenizer.decode(ids).startswith("Two roads diverged\n\nin a yellow wood,\nAnd sorry")
    assert ids.count(tokenizer.line_break) == POEM.count("\n")


@pytest.mark.parametrize("kind", ["char", "word", "bpe"])
def test_a_raw_tokenizer_is_read_back(kind: str) -> None:
    first = raw(kind)
    again = Tokenizer.from_json(first.to_json())
    assert again.raw
    assert again.encode(POEM) == first.encode(POEM)
    changed = json.loads(first.to_json())
    changed["pre_tokenizer"]["pattern"] = {"Regex": "."}
    with pytest.raises(DataError):
        Tokenizer.from_json(json.dumps(changed))


def test_byte_pairs_of_low_lower_newest_widest() -> None:
    words = ["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3
    tokenizer = Tokenizer.train(["\n".join(words) + "\n"], kind="bpe", vocab_size=60, raw=True)
    merges = [tuple(pair) for pair in json.loads(tokenizer.to_json())["model"]["merges"]]
    assert merges[:3] == [("e", "s"), ("es", "t"), ("l", "o")]  # 9, 9 and 7 times


def test_files_folders_and_lists_hold_the_same_text(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo")  # the last line has no end
    with gzip.open(tmp_path / "b.txt.gz", "wb") as file:
        file.write(b"\xef\xbb\xbfthree\r\nfour\r\n")
    whole = "one\ntwo\nthree\nfour\n"
    both = (tmp_path / "a.txt", tmp_path / "b.txt.gz")
    for data in (both, tmp_path, whole.splitlines()):
        text = open_text(data)
        assert "".join(text.blocks()) == whole
        assert (len(text), text.characters) == (4, len(whole))


def test_blocks_of_any_size_hold_the_same_text(tmp_path, monkeypatch) -> None:
    path = tmp_path / "poem.txt"
    path.write_text(POEM + "é" * 50)
    for size in (7, 16, 1000):
        monkeypatch.setattr(text_module, "BLOCK", size)
        assert "".join(open_text(path).blocks()) == POEM + "é" * 50 + "\n"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(b"", "is empty"), (b"good\nb\xffd\n", ":2: broken UTF-8"), (b"a\nb\0c\n", ":2: a NUL character")],
)
def test_what_is_no_text_is_named_with_its_line(tmp_path, content: bytes, sentence: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=sentence):
        open_text(path)


def test_bad_lines_can_be_skipped(tmp_path) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(b"good\nb\xffd\nfine\n")
    text = open_text(path, bad_rows="skip")
    assert "".join(text.blocks()) == "good\nfine\n"
    assert text.describe()["skipped"] == {"broken UTF-8": 1}


def test_the_end_of_running_text_is_held_out() -> None:
    text = open_text([f"line {i}" for i in range(100)])
    train, dev = split(text, Split("stream end", 0.1))
    parts = ["".join(part.blocks()) for part in (train, dev)]
    assert "".join(parts) == "".join(text.blocks())
    assert parts[1].startswith("line 9")
    assert 9 <= len(dev) <= 10
    assert [len(part) for part in (train, dev)] == [part.count("\n") for part in parts]
    assert [part.characters for part in (train, dev)] == list(map(len, parts))


def test_of_one_long_line_the_end_is_held_out_too() -> None:
    train, dev = split(open_text(["ab" * 50]), Split("stream end", 0.1))
    assert ["".join(part.blocks()) for part in (train, dev)] == [("ab" * 50)[:90], ("ab" * 50)[90:] + "\n"]


def test_of_separate_lines_some_are_held_out(tmp_path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("".join(f"line {i}\n" for i in range(200)))
    train, dev = split(open_text(path), Split("stream lines", 0.1, 3))
    lines = ["".join(part.blocks()).splitlines() for part in (train, dev)]
    assert len(lines[1]) == len(dev) == 20
    assert len(lines[0]) == len(train) == 180
    assert sorted(lines[0] + lines[1]) == sorted(f"line {i}" for i in range(200))
    again = TEXT_READER.reopen({"train": train.describe(), "valid": dev.describe()})
    assert ["".join(part.blocks()).splitlines() for part in again] == lines


def test_text_that_changed_is_not_opened_again(tmp_path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    told = {"train": open_text(path).describe(), "valid": open_text(path).describe()}
    path.write_text("one\ntwe\n")
    with pytest.raises(DataError, match="has changed since the run began"):
        TEXT_READER.reopen(told)


def test_streams_go_on_where_they_stopped_and_reach_every_symbol() -> None:
    ids = np.arange(100, 204)  # 103 symbols to predict
    batches = StreamBatches(ids, rows=4, steps=6, seed=1)
    first = [next(batches) for _ in range(5)]
    assert [b.inputs.shape for b in first] == [(4, 6)] * 4 + [(4, 1)]
    assert [b.fresh for b in first] == [True] + [False] * 4
    rows = np.concatenate([b.targets for b in first], 1)
    assert rows.ravel().tolist() == list(range(101, 201))  # 25 for each of 4 streams
    assert (np.concatenate([b.inputs for b in first], 1) + 1 == rows).all()
    second = next(batches)
    assert batches.epoch == 1
    assert second.fresh


@pytest.mark.parametrize("kind", [StreamBatches, WindowBatches])
def test_a_restored_stream_gives_the_batches_that_would_have_followed(kind) -> None:
    ids = np.arange(1000)
    batches = kind(ids, rows=3, steps=10, seed=5)
    for _ in range(47):
        next(batches)
    place = batches.state()
    expected = [next(batches) for _ in range(40)]
    other = kind(ids, rows=3, steps=10, seed=5)
    other.restore(place)
    for one in expected:
        again = next(other)
        assert (again.inputs == one.inputs).all()
        assert (again.targets == one.targets).all()
        assert again.fresh == one.fresh


def test_windows_hold_each_symbol_once_in_an_epoch_and_are_cut_elsewhere_in_the_next() -> None:
    ids = np.arange(1 + 12 * 10)
    batches = WindowBatches(ids, rows=2, steps=10, seed=1)
    epochs: dict[int, list[int]] = {}
    for batch in (next(batches) for _ in range(16)):
        epochs.setdefault(batches.epoch, []).extend(batch.targets.ravel().tolist())
    for targets in list(epochs.values())[:2]:
        assert len(targets) == len(set(targets)) >= 100
    begins = {min(t) % 10 for t in epochs.values()}
    assert len(begins) > 1


def test_shards_are_the_same_streams_every_time() -> None:
    batches = StreamBatches(np.arange(500), rows=5, steps=10, seed=1)
    one, two = next(batches), next(batches)
    for batch in (one, two):
        assert [batch.shard(i, 2).indices for i in range(2)] == [[0, 2, 4], [1, 3]]
    assert (two.shard(1, 2).inputs[:, 0] == one.shard(1, 2).targets[:, -1]).all()


def test_a_text_too_large_for_memory_is_encoded_into_a_file(tmp_path, monkeypatch) -> None:
    text = open_text(POEM.splitlines() * 20, spill=tmp_path)
    tokenizer = raw("char")
    held = encode_stream(text, tokenizer)
    monkeypatch.setattr(text_stream, "HELD_TEXT", 10)
    spilled = encode_stream(text, tokenizer)
    assert isinstance(spilled, np.memmap)
    assert spilled.dtype == np.uint16
    assert (spilled == held).all()
    assert tokenizer.decode(held[1:].tolist()) == "".join(text.blocks())


def test_lines_are_sequences_of_their_own() -> None:
    text = open_text(["ab", "", "abc", "b"])
    tokenizer = Tokenizer.train(["abc"], kind="char", vocab_size=20)
    rows = encode_lines(text, tokenizer)
    assert [len(row) for row in rows] == [2, 3, 1]
    batch = next(LineBatches(rows, batch_tokens=100, max_tokens=10, seed=1))
    inputs, targets = batch.tensors("cpu")
    assert batch.symbols == 2 + 3 + 1 + 3 == int((targets != 0).sum())
    assert (inputs[:, 0] == 2).all()
    assert (targets == 3).any(1).all()


def test_the_corpus_python_is_source_text_whose_files_are_in_one_split_only() -> None:
    corpus = CORPORA["python"]
    files = {split: set(python_source._files(split)) for split in SPLITS}
    assert not files["train"] & files["dev"]
    assert not (files["train"] | files["dev"]) & files["test"]
    assert sum(map(len, files.values())) == len(python_source._files(None)) > 100
    assert any("import " in line for line in corpus.show("code", "dev", 500))
    names = {split: corpus.show("names", split, 300) for split in SPLITS}
    together = [name for some in names.values() for name in some]
    assert len(set(together)) == len(together) == 900
    assert all(name.isidentifier() for name in together)
