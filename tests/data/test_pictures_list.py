"""Lists of pictures with texts: rows about one picture come together, what is bad is named or counted, and a list
can be opened again."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from anaphora.data.pictures import PictureList
from anaphora.data.pictures_readers import PICTURE_READER, open_pictures
from anaphora.data.split import Split
from anaphora.errors import DataError

Image = pytest.importorskip("PIL.Image")
READ = {"role": "train", "size": (8, 8), "texts": "questions"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pictures").mkdir()
    for number in range(6):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / "pictures" / f"{number}.png")
    (tmp_path / "pictures" / "broken.png").write_bytes((tmp_path / "pictures" / "1.png").read_bytes()[:45])
    return tmp_path


def listing(folder: Path, *rows: str) -> Path:
    path = folder / "list.tsv"
    path.write_text("".join(row + "\n" for row in rows), encoding="utf-8")
    return path


def test_rows_about_one_picture_come_together(folder):
    path = listing(
        folder,
        "pictures/1.png\twhat is it\tred",
        "pictures/2.png\thow many\t2\tcount",
        "",
        "pictures/1.png\twhere\tleft",
    )
    found = open_pictures(path, **READ)
    assert len(found) == 2
    assert found.rows == 3
    assert found.texts == [[("what is it", "red"), ("where", "left")], [("how many", "2", "count")]]
    assert found.load(1)[0, 0].tolist() == [2, 0, 0]


def test_captions_may_stand_in_columns_or_in_rows(folder):
    path = listing(folder, "pictures/1.png\tone\tanother", "pictures/2.png\ttwo", "pictures/1.png\ta third")
    found = open_pictures(path, **{**READ, "texts": "captions"})
    assert found.texts == [[("one",), ("another",), ("a third",)], [("two",)]]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("pictures/1.png", "wrong number of columns"),
        ("pictures/1.png\tonly a question", "wrong number of columns"),
        ("pictures/1.png\ta\tb\tc\td", "wrong number of columns"),
        ("pictures/1.png\t \tb", "an empty column"),
        ("\ta\tb", "an empty column"),
        ("pictures/9.png\ta\tb", "there is no such picture"),
        ("pictures/broken.png\ta\tb", "is damaged"),
        ("pictures\ta\tb", "is not a file"),
    ],
)
def test_a_bad_row_is_named_or_left_out_and_counted(folder, row, told):
    path = listing(folder, "pictures/1.png\ta\tb", row, "pictures/2.png\ta\tb")
    with pytest.raises(DataError, match=told) as caught:
        open_pictures(path, **READ)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert "\n" not in str(caught.value)
    found = open_pictures(path, **READ, bad_rows="skip")
    assert len(found) == 2
    assert sum(found.describe()["skipped"].values()) == 1


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b"\n\n", "no usable row"),
        (b"a question\nanother\n", "wrong number of columns"),
        (b"pictures/1.png\ta\xff\tb\n", "broken UTF-8"),
        (b"gone.png\ta\tb\ngone2.png\ta\tb\n", "no such picture"),
    ],
)
def test_lists_without_pictures(folder, content, told):
    path = folder / "list.tsv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=told):
        open_pictures(path, **READ)
    with pytest.raises(DataError, match=r"no usable row|is empty"):
        open_pictures(path, **READ, bad_rows="skip")


def test_other_data_are_refused(folder):
    for data, told in [
        (folder / "none.tsv", "cannot be read"),
        (folder / "none", "is not there"),
        (folder / "pictures", "does not end in .tsv"),
        ("numbers", "numbers holds no pictures"),
        (7, "A int does not hold pictures"),
        ([("text",)], "not a picture with its texts"),
        ([(np.zeros((8, 8)), "question")], "1 texts where"),
        ([(np.zeros((8, 8)), "question", 3)], "a int where a text is wanted"),
        ([(np.zeros((8, 8)), "question", " ")], "an empty side"),
        ([], "no usable row"),
        ([("nowhere.png", "a", "b")], "no such picture"),
    ]:
        with pytest.raises(DataError, match=told):
            open_pictures(data, **READ)


def test_beyond_the_room_pictures_are_read_again(folder):
    picture = np.full((8, 8, 3), 7, np.uint8)
    Image.fromarray(picture).save(folder / "x.png")
    found = PictureList((8, 8), {}, kept_bytes=picture.nbytes)
    for _ in range(2):
        found.add(picture, [("a",)], folder / "x.png")
    assert found._pixels[0] is not None
    assert found._pixels[1] is None
    assert (found.load(1) == picture).all()


def test_examples_from_python_are_kept_for_a_resume(folder):
    arrays = [np.full((8, 8, 3), i, np.uint8) for i in range(5)]
    examples = [(x, f"question {i}", "yes") for i, x in enumerate(arrays)]
    examples.append((arrays[0], "another", "no"))
    spill = folder / "data"
    read = {"size": (8, 8), "texts": "questions", "bad_rows": "strict"}
    train, dev = PICTURE_READER.training(examples, None, Split("rows", 2, 1), spill=spill, **read)
    assert (len(train), len(dev)) == (3, 2)
    described = json.loads(json.dumps({"train": train.describe(), "valid": dev.describe()}))
    again, dev_again = PICTURE_READER.reopen(described, spill)
    assert (again.texts, dev_again.texts) == (train.texts, dev.texts)
    assert all((again.load(i) == train.load(i)).all() for i in range(3))
    moved = folder / "elsewhere"
    spill.rename(moved)
    assert len(PICTURE_READER.reopen(described, moved)[0]) == 3
    shown = {json.dumps(texts) for texts in dev.texts} & {json.dumps(texts) for texts in train.texts}
    assert not shown  # no picture is in both


def test_changed_pictures_are_noticed(folder):
    path = listing(folder, *(f"pictures/{i}.png\ta\tb" for i in range(6)), "gone.png\ta\tb")
    read = {"size": (8, 8), "texts": "questions", "bad_rows": "skip", "spill": None}
    train, dev = PICTURE_READER.training(path, None, Split("rows", 0, 1), **read)
    described = {"train": train.describe(), "valid": dev.describe()}
    PICTURE_READER.reopen(described)
    Image.new("RGB", (8, 8), (9, 9, 9)).save(folder / "pictures" / "3.png")
    with pytest.raises(DataError, match="has changed since the run began"):
        PICTURE_READER.reopen(described)
