"""Labelled data in every form: what is read, what is refused and in which words, and opening it again."""

from __future__ import annotations

import gzip
import json
import struct
import warnings

import numpy as np
import pytest
from data_folders import text_folder

from anaphora.data.batches.padded import LabelledBatch, labelled_batches
from anaphora.data.corpora import CORPORA
from anaphora.data.corpora.algorithms import balanced
from anaphora.data.corpora.sentences import BAD, GOOD
from anaphora.data.labelled_targets import UNKNOWN, Targets
from anaphora.data.sources.labelled import LABELLED_READER, open_labelled
from anaphora.data.split import Split
from anaphora.data.symbols import EOS, PAD
from anaphora.errors import DataError

SEQUENCES = [np.arange(6.0).reshape(3, 2), np.ones((1, 2)), -np.ones((4, 2))]
LABELS = ["up", "flat", "flat"]


def same(rows, sequences=SEQUENCES, labels=LABELS):
    found = rows.read(range(len(rows)))
    assert [label for _, label in found] == labels
    for (x, _), expected in zip(found, sequences, strict=True):
        np.testing.assert_array_equal(x, expected)
        assert x.dtype == np.float32


def write_list(folder, names, separator="\t", head=""):
    text = "".join(f"{name}{separator}{label}\n" for name, label in zip(names, LABELS, strict=True))
    return head + text


# ---------------------------------------------------------------------- forms


def test_texts_come_from_every_form_pairs_come_in(tmp_path):
    (tmp_path / "a.tsv").write_text("good film\tpos\nbad film\tneg\n")
    (tmp_path / "a.csv").write_text("id,label,text\n1,pos,good film\n2,neg,bad film\n")
    (tmp_path / "a.jsonl").write_text(
        '{"label": "pos", "text": "good film"}\n{"label": "neg", "text": "bad film"}\n'
    )
    for name in ("a.tsv", "a.csv", "a.jsonl"):
        assert list(open_labelled(tmp_path / name)) == [("good film", "pos"), ("bad film", "neg")]
    assert list(open_labelled([("good film", 1), ("bad film", 0)])) == [("good film", "1"), ("bad film", "0")]
    assert list(open_labelled([("a", ["x", "y"]), ("b", [])])) == [("a", "x|y"), ("b", "-")]


@pytest.mark.parametrize("ending", ["npy", "csv"])
def test_a_list_of_files_with_their_labels(tmp_path, ending):
    for number, x in enumerate(SEQUENCES):
        path = tmp_path / f"{number}.{ending}"
        if ending == "npy":
            np.save(path, x)
        else:
            np.savetxt(path, x, delimiter=",", header="a,b" if number else "", comments="")
    names = [f"{number}.{ending}" for number in range(3)]
    (tmp_path / "list.tsv").write_text(write_list(tmp_path, names))
    (tmp_path / "list.csv").write_text(write_list(tmp_path, names, ",", "path,label\n"))
    same(open_labelled(tmp_path / "list.tsv"))
    same(open_labelled(tmp_path / "list.csv"))


def test_folders_by_label(tmp_path):
    for name, x, label in zip("abc", SEQUENCES, LABELS, strict=True):
        (tmp_path / label).mkdir(exist_ok=True)
        np.save(tmp_path / label / f"{name}.npy", x)
    same(open_labelled(tmp_path), [SEQUENCES[1], SEQUENCES[2], SEQUENCES[0]], ["flat", "flat", "up"])


def test_arrays_in_one_file_padded_or_end_to_end(tmp_path):
    padded = np.zeros((3, 4, 2))
    lengths = np.array([3, 1, 4])
    for row, x in enumerate(SEQUENCES):
        padded[row, : len(x)] = x
    np.savez(tmp_path / "a.npz", X=padded, y=np.array(LABELS), lengths=lengths)
    np.savez(tmp_path / "b.npz", X=np.concatenate(SEQUENCES), y=np.array(LABELS), lengths=lengths)
    same(open_labelled(tmp_path / "a.npz"))
    same(open_labelled(tmp_path / "b.npz"))
    np.savez(tmp_path / "c.npz", X=np.arange(6).reshape(2, 3), y=np.array([7, 8]))
    same(open_labelled(tmp_path / "c.npz"), [[[0], [1], [2]], [[3], [4], [5]]], ["7", "8"])


def test_json_lines_and_python(tmp_path):
    rows = zip(SEQUENCES, LABELS, strict=True)
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"sequence": x.tolist(), "label": label}) + "\n" for x, label in rows)
    )
    same(open_labelled(tmp_path / "a.jsonl"))
    same(open_labelled(list(zip(SEQUENCES, LABELS, strict=True))))
    same(open_labelled((np.ones((3, 2, 2)), LABELS)), [np.ones((2, 2))] * 3)


def write_idx(path, values):
    head = struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    with gzip.open(path, "wb") as file:
        file.write(head + values.astype(np.uint8).tobytes())


def test_digits_in_idx_files_by_rows_or_pixels(tmp_path):
    images = np.arange(12).reshape(2, 2, 3)
    write_idx(tmp_path / "images-idx3-ubyte.gz", images)
    write_idx(tmp_path / "labels-idx1-ubyte.gz", np.array([5, 0]))
    pair = (tmp_path / "images-idx3-ubyte.gz", tmp_path / "labels-idx1-ubyte.gz")
    same(open_labelled(pair), list(images), ["5", "0"])
    same(open_labelled(pair, scan="pixels"), [x.reshape(6, 1) for x in images], ["5", "0"])
    np.savez(tmp_path / "colours.npz", X=np.arange(24).reshape(2, 2, 3, 2), y=[1, 2])
    rows = open_labelled(tmp_path / "colours.npz").column(0)[0]
    pixels = open_labelled(tmp_path / "colours.npz", scan="pixels").column(0)[0]
    np.testing.assert_array_equal(rows, np.arange(12).reshape(2, 6))
    np.testing.assert_array_equal(pixels, np.arange(12).reshape(6, 2))


# ---------------------------------------------------------------------- what is refused


def refused(told, data, **options):
    with pytest.raises(DataError, match=told) as caught:
        open_labelled(data, **options)
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text


def test_bad_vectors_are_refused_in_one_sentence(tmp_path):
    nan = np.array([[1.0, np.nan]])
    refused("train example 1 holds NaN or infinity", [(nan, "a")])
    refused(
        "sequence 2 has 3 features where the first has 2", [(np.ones((2, 2)), "a"), (np.ones((2, 3)), "b")]
    )
    refused("shape", [(np.ones((0, 2)), "a")])
    refused("train example 2 is not a pair", [(np.ones((1, 2)), "a"), np.ones(3)])
    refused("equal rows", [([[1, 2], [3]], "a")])
    refused("1 labels", (np.ones((2, 2, 2)), ["a"]))
    (tmp_path / "ragged.csv").write_text("1,2\n3\n")
    (tmp_path / "words.csv").write_text("1,2\n3,four\n")
    (tmp_path / "list.tsv").write_text("ragged.csv\tx\n")
    refused("row 2 of numbers has 1 columns where the first has 2", tmp_path / "list.tsv")
    (tmp_path / "list.tsv").write_text("words.csv\tx\n")
    refused("'four', which is no number", tmp_path / "list.tsv")
    (tmp_path / "list.tsv").write_text("gone.npy\tx\n")
    refused("there is no such file", tmp_path / "list.tsv")
    (tmp_path / "list.tsv").write_text("gone.npy\n")
    refused("wrong number of columns", tmp_path / "list.tsv")


def test_bad_array_files_are_refused_in_one_sentence(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"PK nonsense")
    refused("cannot be read", tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", X=np.ones((2, 2)))
    refused("must hold X .* and y", tmp_path / "b.npz")
    np.savez(tmp_path / "c.npz", X=np.ones((2, 2)), y=[1, 2, 3])
    refused("2 sequences and labels of the shape", tmp_path / "c.npz")
    np.savez(tmp_path / "d.npz", X=np.array([{"a": 1}], dtype=object), y=[1])  # pickled: never loaded
    refused("cannot be read", tmp_path / "d.npz")
    np.save(tmp_path / "e.npy", np.ones((2, 2)))
    refused("has no labels beside it", tmp_path / "e.npy")
    (tmp_path / "x-idx1-ubyte").write_bytes(b"\0\0\x08\x01\0\0\0\x09ab")
    refused("its head promises", (tmp_path / "x-idx1-ubyte", tmp_path / "e.npy"))
    (tmp_path / "empty").mkdir()
    refused("one folder per label", tmp_path / "empty")
    (tmp_path / "a.jsonl").write_text(
        '{"sequence": [[1]], "label": 1}\n{"sequence": [[NaN]], "label": 1}\nx\n'
    )
    refused("a.jsonl:2: the sequence holds NaN", tmp_path / "a.jsonl")
    assert len(open_labelled(tmp_path / "a.jsonl", bad_rows="skip")) == 1


# ---------------------------------------------------------------------- opening again


@pytest.mark.parametrize("form", ["tsv", "npz", "folder", "python", "adding:10", "reviews"])
def test_a_run_opens_its_data_again_and_notices_a_change(tmp_path, form):
    data = form
    if form == "tsv":
        data = tmp_path / "a.tsv"
        data.write_text("".join(f"word {i}\t{i % 2}\n" for i in range(60)))
    elif form == "npz":
        data = tmp_path / "a.npz"
        np.savez(data, X=np.random.rand(60, 3, 2), y=np.arange(60) % 2)
    elif form == "folder":
        data = text_folder(tmp_path / "films", 30)
    elif form == "python":
        data = [(np.full((1 + i % 3, 2), i), i % 2) for i in range(60)]
    train, dev = LABELLED_READER.training(data, None, Split("rows", 0, 1), spill=tmp_path / "data")
    described = json.loads(json.dumps({"train": train.describe(), "valid": dev.describe()}))
    again, dev_again = LABELLED_READER.reopen(described, tmp_path / "data")
    for first, second in ((train, again), (dev, dev_again)):
        assert first.describe() == second.describe()
        for (x, label), (y, other) in zip(first.read([0, 1]), second.read([0, 1]), strict=True):
            np.testing.assert_array_equal(x, y)
            assert label == other
    if form in ("tsv", "npz", "folder"):
        if form == "tsv":
            data.write_text("other\t1\nwords\t0\n")
        elif form == "folder":
            (data / "pos" / "0.txt").write_text("other words")
        else:
            np.savez(data, X=np.random.rand(60, 3, 2), y=np.arange(60) % 2)
        with pytest.raises(DataError, match="has changed since the run began"):
            LABELLED_READER.reopen(described)


def test_as_many_rows_are_held_out_as_asked_for():
    data = [(np.full((1, 1), i), i % 2) for i in range(50)]
    for asked, held in ((0, 2), (20, 20)):
        train, dev = LABELLED_READER.training(data, None, Split("rows", asked, 1))
        assert (len(train), len(dev)) == (50 - held, held)
        values = sorted(float(x[0, 0]) for part in (train, dev) for x in part.column(0))
        assert values == list(range(50))
    with pytest.raises(DataError, match="50 of 50 rows cannot be held out"):
        LABELLED_READER.training(data, None, Split("rows", 50, 1))


# ---------------------------------------------------------------------- targets and batches


def test_classes_are_in_order_and_unknown_ones_marked():
    targets = Targets.learn("class", ["b", "a", "b"])
    assert targets.names == ("a", "b")
    assert targets.encode(["b", "c"]).tolist() == [1, UNKNOWN]
    assert Targets.learn("class", ["10", "9", "10"]).names == ("9", "10")  # as numbers
    assert Targets.from_json(json.loads(json.dumps(targets.to_json()))) == targets


def test_several_classes_and_numbers():
    targets = Targets.learn("classes", ["funny|short", "-", "funny"])
    assert targets.names == ("funny", "short")
    assert targets.encode(["short | funny", "-", "new"]).tolist() == [[1, 1], [0, 0], [0, 0]]
    numbers = Targets.learn("number", ["1", "3"])
    assert (numbers.mean, numbers.scale) == (2, 1)
    assert numbers.encode(["4"]).tolist() == [2]
    assert numbers.numbers(np.array([[2.0]])).tolist() == [4]


@pytest.mark.parametrize(
    ("kind", "labels", "told"),
    [
        ("class", ["a"] * 5, "All 5 training examples have the label a"),
        ("class", ["a"], "The only training example has the label a"),
        ("classes", ["-"] * 5, "no label"),
        ("number", ["1", "x"], "Example 2 has the label 'x', which is no number"),
        ("number", ["1", "nan"], "must be finite"),
        ("number", ["1", "1.0"], "nothing to learn"),
        ("class", [f"{i}.5" for i in range(30)], "30 examples have 30 different labels"),
    ],
)
def test_labels_nothing_can_be_learnt_from(kind, labels, told):
    with pytest.raises(DataError, match=told) as caught:
        Targets.learn(kind, labels)
    assert str(caught.value).endswith(".")


def test_labels_that_a_slip_of_the_hand_tells_apart_are_reported():
    with pytest.warns(UserWarning, match=r"are different classes here: 'Pos' and 'pos', 'neg' and 'neg '$"):
        found = Targets.learn("class", ["pos", "neg", "neg ", "Pos"])
    assert found.names == ("Pos", "neg", "neg ", "pos")


def test_a_label_made_of_others_is_reported():
    with pytest.warns(
        UserWarning, match=r"the label 'a\|b' is one class here, though its parts are labels too"
    ):
        Targets.learn("class", ["a", "b", "a|b"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Targets.learn("class", ["a|x", "b"])
        Targets.learn("classes", ["a", "b", "a|b"])


def test_a_batch_is_padded_and_knows_its_lengths():
    batch = LabelledBatch([np.array([7, 8]), np.array([9])], np.array([0, 1]), [4, 2])
    source, lengths = batch.tensors()
    assert source.tolist() == [[7, 8, EOS], [9, EOS, PAD]]
    assert lengths.tolist() == [3, 2]
    assert batch.shard(1, 2).indices == [2]
    vectors, lengths = LabelledBatch([np.ones((1, 2)), np.ones((2, 2))], np.array([0, 1]), [0, 1]).tensors()
    assert vectors.tolist() == [[[1, 1], [0, 0]], [[1, 1], [1, 1]]]
    assert lengths.tolist() == [1, 2]


def test_batches_visit_every_example_once_an_epoch_and_go_on_from_a_state():
    inputs = [np.arange(1 + i % 7) for i in range(100)]
    batches = labelled_batches(inputs, np.arange(100), batch_tokens=40, max_tokens=10, seed=3)
    seen = []
    while batches.epoch == 0:
        state, batch = batches.state(), next(batches)
        if batches.epoch == 0:
            seen += batch.indices
            assert batch.targets.tolist() == batch.indices
    assert sorted(seen) == list(range(100))
    batches.restore(state)
    assert next(batches).indices == batch.indices


# ---------------------------------------------------------------------- corpora


def test_half_of_the_brackets_are_balanced_and_counts_do_not_tell():
    corpus = CORPORA["brackets"]
    for variant in corpus.variants:
        rows = corpus.generate(variant, "dev", 300, 1)
        for text, label in rows:
            symbols = text.split()
            assert balanced(symbols) == (label == "balanced")
            assert balanced(sorted(symbols, key="([{abcdef}])".index)) or variant == "nested"
            for pair in ("()", "[]", "{}"):
                assert text.count(pair[0]) == text.count(pair[1])
        assert 0.4 < np.mean([label == "balanced" for _, label in rows]) < 0.6


def test_parity_and_recall_follow_their_rules():
    for text, label in CORPORA["parity"].generate("24", "train", 200, 1):
        assert (label == "odd") == text.split().count("1") % 2
    for text, label in CORPORA["recall"].generate("30", "train", 50, 1):
        assert text.split()[0] == label
        assert len(text.split()) == 31


def test_adding_adds_the_marked_numbers():
    for x, answer in CORPORA["adding"].generate("100", "dev", 100):
        assert x.shape == (110, 2)
        marked = np.flatnonzero(x[:, 1])
        assert len(marked) == 2
        assert marked[0] < 10 <= marked[1]
        assert float(answer) == pytest.approx(0.5 + x[marked, 0].sum() / 4, abs=1e-6)
    corpus = CORPORA["adding"]
    answers = [float(a) for _, a in corpus.generate("10", "train", 4000)]
    assert np.mean(np.abs(np.array(answers) - 0.5) < 0.04) == pytest.approx(0.154, abs=0.02)  # as it says
    written = [json.loads(line) for line in corpus.text("10", "test", 3).splitlines()]
    for row, (x, answer) in zip(written, corpus.generate("10", "test", 3), strict=True):
        assert np.array_equal(np.array(row["sequence"], np.float32), x)
        assert row["label"] == answer


def test_reviews_use_every_frame_for_praise_and_blame():
    """What denies is followed by praise as often as by blame, so it leans to no side by itself."""
    rows = CORPORA["reviews"].generate("english", "train", 4000, 1)
    for word in ("lacking", "without", "never", "not", "trace"):
        labels = [label for text, label in rows if word in text.split() and " but " not in text]
        assert len(labels) > 40
        assert 0.4 < labels.count("positive") / len(labels) < 0.6
    plain = [
        (text, label)
        for text, label in rows
        if text.startswith("what we get is") and not set(text.split()) & {"but", "despite", "forget"}
    ]
    for text, label in plain:
        words = text.replace(",", "").split()
        assert bool(set(words) & set(GOOD)) == (label == "positive")
        assert bool(set(words) & set(BAD)) == (label == "negative")
