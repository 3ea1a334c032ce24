"""Lists of recordings: lengths known from heads, features as asked for, bad files counted, the same when reopened."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from anaphora.data.audio.features import MFCC, LogMel
from anaphora.data.audio.recordings_readers import (
    RECORDING_READER,
    open_recordings,
)
from anaphora.data.corpora import CORPORA
from anaphora.data.corpora.sound_corpus import write_wav
from anaphora.data.corpora.tones import CORPUS
from anaphora.data.split import Split
from anaphora.errors import DataError

pytest.importorskip("soundfile")
SPOKEN = CORPUS.generate(CORPUS.default_variant, "train", 6)


def features(rate):
    return LogMel(rate, bins=20)


def listed(folder, rows=None, name="list.tsv"):
    """A folder of WAV files with their list."""
    CORPUS.write(folder, CORPUS.default_variant, "train", len(SPOKEN))
    if rows is not None:
        (folder / name).write_text("".join(f"{path}\t{text}\n" for path, text in rows), encoding="utf-8")
    return folder / name


def test_a_folder_and_a_recording_are_no_list(tmp_path):
    listed(tmp_path)
    for what, path in (("a folder", tmp_path), ("a recording", tmp_path / "00001.wav")):
        with pytest.raises(DataError, match=f"is {what}; give a list, a table"):
            open_recordings(path, features=features)


def test_a_list_of_files(tmp_path):
    found = open_recordings(listed(tmp_path), features=features)
    assert (len(found), found.kind, found.rate, found.width, found.skipped) == (6, "audio", 8000, 20, 0)
    assert found.transcripts == [text for _, text in SPOKEN]
    assert found.names[0] == "00001.wav"
    assert found.seconds == pytest.approx(sum(len(x) for x, _ in SPOKEN) / 8000)
    for i, (x, _) in enumerate(SPOKEN):
        np.testing.assert_array_equal(found.wave(i), x)
        frames = found.load(i)
        assert frames.dtype == np.float32
        assert frames.shape == (found.lengths[i], 20)
        np.testing.assert_array_equal(frames, LogMel(8000, bins=20)(torch.from_numpy(x)[None])[0][0].numpy())


def test_lengths_are_known_at_every_rate(tmp_path):
    path = listed(tmp_path)
    for front in (LogMel(16_000, bins=20), LogMel(11_025, bins=20), MFCC(7000, bins=20, hop=0.02)):
        found = open_recordings(path, features=front)
        assert [len(found.load(i)) for i in range(6)] == found.lengths.tolist()
        assert len(found.wave(0)) == -(-len(SPOKEN[0][0]) * front.rate // 8000)


def test_named_fields(tmp_path):
    listed(tmp_path)
    (tmp_path / "list.csv").write_text("said,who,sound\nthe dog,x,00001.wav\na cat,y,00002.wav\n")
    found = open_recordings(
        tmp_path / "list.csv", features=features, source_field="sound", target_field="said"
    )
    assert found.transcripts == ["the dog", "a cat"]
    assert RECORDING_READER.reopen_one(found.describe(), features=features).transcripts == found.transcripts


def test_files_that_cannot_be_used(tmp_path):
    (tmp_path / "words.wav").write_text("no sound at all")
    (tmp_path / "old.mp3").write_bytes(b"ID3")
    rows = [("00001.wav", "a"), ("gone.wav", "b"), ("words.wav", "c"), ("00002.wav", "d"), ("old.mp3", "e")]
    path = listed(tmp_path, rows)
    with pytest.raises(DataError) as caught:
        open_recordings(path, features=features)
    assert f"{path}:2: a recording that cannot be used" in str(caught.value)
    assert "gone.wav: there is no such file" in str(caught.value)
    assert 'set bad_rows="skip"' in str(caught.value)
    found = open_recordings(path, features=features, bad_rows="skip")
    assert (found.transcripts, found.skipped) == (["a", "d"], 3)
    assert found.describe()["skipped"] == {"a recording that cannot be used": 3}
    assert RECORDING_READER.reopen_one(found.describe(), features=features).names == [
        "00001.wav",
        "00002.wav",
    ]
    with pytest.raises(DataError, match="no usable row"):
        open_recordings(listed(tmp_path, rows[1:3]), features=features, bad_rows="skip")


def test_a_list_that_is_none(tmp_path):
    (tmp_path / "list.tsv").write_text("00001.wav\n")
    with pytest.raises(DataError, match="wrong number of columns"):
        open_recordings(tmp_path / "list.tsv", features=features)
    with pytest.raises(DataError, match="neither a file nor an embedded corpus"):
        open_recordings("tonnes", features=features)
    with pytest.raises(DataError, match="int cannot be read as recordings"):
        open_recordings(7, features=features)


@pytest.mark.parametrize(
    ("data", "lengths"),
    [
        ([(x, text) for x, text in SPOKEN], [LogMel(8000, bins=20).frames(len(x)) for x, _ in SPOKEN]),
        ([((np.zeros(16_000, np.float32), 16_000), "hush")], [98]),
        ([(np.zeros((7, 3)), "up"), (np.ones((5, 3)), "down")], [7, 5]),
    ],
    ids=["samples", "samples and rate", "frames"],
)
def test_arrays_are_kept_for_another_time(tmp_path, data, lengths):
    front = LogMel(8000, bins=20)
    held = open_recordings(data, features=front)
    spilled = open_recordings(data, features=front, spill=tmp_path / "data")
    again = RECORDING_READER.reopen_one(json.loads(json.dumps(spilled.describe())), features=front)
    for one in (held, spilled, again):
        assert one.lengths.tolist() == lengths
        assert one.transcripts == [text for _, text in data]
        np.testing.assert_array_equal(one.load(0), held.load(0))
    with pytest.raises(DataError, match="given from Python and not kept"):
        RECORDING_READER.reopen_one(held.describe(), features=front)
    moved = tmp_path / "moved"
    (tmp_path / "data").rename(moved)
    assert len(RECORDING_READER.reopen_one(spilled.describe(), features=front, spill=moved)) == len(data)


def test_paths_from_python(tmp_path):
    listed(tmp_path)
    pairs = [(tmp_path / "00001.wav", "a"), (str(tmp_path / "00002.wav"), "b")]
    found = open_recordings(pairs, features=features, spill=tmp_path / "data")
    assert RECORDING_READER.reopen_one(found.describe(), features=features).transcripts == ["a", "b"]
    alone = open_recordings([tmp_path / "00001.wav", SPOKEN[1][0]], features=features, rate=8000)
    assert alone.transcripts == ["", ""]
    assert alone.lengths.tolist() == found.lengths.tolist()
    with pytest.raises(DataError, match="files and arrays mixed"):
        open_recordings([(tmp_path / "00001.wav", "a"), SPOKEN[0]], features=features, spill=tmp_path)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (
            [(np.zeros((3, 2)), "a"), (np.zeros((3, 4)), "b")],
            "has 4 numbers in a frame where the first has 2",
        ),
        ([(np.zeros(300), "a"), (np.zeros((3, 4)), "b")], "both sound and frames"),
        ([(np.full(300, np.nan), "a")], r"train recordings:1: .*NaN or infinity"),
        ([((np.zeros(300), 0), "a")], "has a rate of 0"),
        ([17], "no pair of an input and its transcript but of the type int"),
        ([(np.zeros(0), "a")], r"has the shape \(0,\)"),
        ([], "no usable row"),
    ],
)
def test_inputs_from_python_that_cannot_be_used(data, told):
    with pytest.raises(DataError, match=told):
        open_recordings(data, features=features)


def test_ready_made_frames_and_pen_strokes_take_the_same_road(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(12.0).reshape(6, 2))
    (tmp_path / "b.csv").write_text("x,y\n1,2\n3,4\n5,6\n")
    (tmp_path / "list.tsv").write_text("a.npy\tone\nb.csv\ttwo\n")
    found = open_recordings(tmp_path / "list.tsv", features=features)
    assert (found.kind, found.width, found.lengths.tolist(), found.features) == ("features", 2, [6, 3], None)
    np.testing.assert_array_equal(found.load(1), [[1, 2], [3, 4], [5, 6]])
    with pytest.raises(DataError, match=r"a.npy holds features, not sound"):
        found.wave(0)


def test_held_out_and_opened_again(tmp_path):
    path = listed(tmp_path)
    train, dev = RECORDING_READER.training(path, None, Split("rows", 2, 3), features=features)
    assert (len(train), len(dev)) == (4, 2)
    assert sorted(train.transcripts + dev.transcripts) == sorted(text for _, text in SPOKEN)
    described = json.loads(json.dumps({"train": train.describe(), "valid": dev.describe()}))
    again = RECORDING_READER.reopen(described, features=features)
    assert [one.transcripts for one in again] == [train.transcripts, dev.transcripts]
    np.testing.assert_array_equal(again[1].load(1), dev.load(1))
    write_wav(tmp_path / "00003.wav", SPOKEN[2][0][::-1], 8000)  # as long as before, but another sound
    with pytest.raises(DataError, match="has changed since the run began"):
        RECORDING_READER.reopen(described, features=features)
    with pytest.raises(DataError, match="does not say what its data was"):
        RECORDING_READER.reopen({}, features=features)


def test_a_corpus_brings_its_own_dev_recordings(monkeypatch):
    small = dataclasses.replace(CORPUS, sizes={"train": 5, "dev": 3, "test": 2})
    monkeypatch.setitem(CORPORA, "tones", small)
    train, dev = RECORDING_READER.training("tones", None, Split("rows"), features=features)
    assert (len(train), len(dev)) == (5, 3)
    described = {"train": train.describe(), "valid": dev.describe()}
    again = RECORDING_READER.reopen(described, features=features)
    assert again[1].transcripts == dev.transcripts


def test_dev_recordings_of_another_rate_are_heard_as_the_training_recordings_are(tmp_path):
    train, dev = listed(tmp_path), tmp_path / "dev.tsv"
    write_wav(tmp_path / "dev.wav", SPOKEN[0][0], 16_000)
    dev.write_text("dev.wav\tas fast again\n")
    parts = RECORDING_READER.training(train, dev, Split("rows"), features=features)
    described = {"train": parts[0].describe(), "valid": parts[1].describe()}
    again = RECORDING_READER.reopen(described, features=parts[0].features)
    for one, other in (parts, again):
        assert other.features is one.features
        assert len(other.wave(0)) == -(-len(SPOKEN[0][0]) // 2)


def test_memory_for_features_is_bounded(tmp_path):
    path = listed(tmp_path)
    found = open_recordings(path, features=features)
    found._budget = int(found.lengths[0]) * 20 * 4 + 10
    assert found.load(0) is found.load(0)
    assert found.load(1) is not found.load(1)
    np.testing.assert_array_equal(found.load(1), found.load(1))


def test_a_file_that_changes_while_it_is_used(tmp_path):
    found = open_recordings(listed(tmp_path), features=features)
    write_wav(tmp_path / "00002.wav", SPOKEN[1][0][:500], 8000)
    with pytest.raises(DataError, match="was changed while it was in use"):
        found.load(1)
