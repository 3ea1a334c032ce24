"""Scenes: what the captions, questions and places say is read back from the pixels and from each other."""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from anaphora.data.corpora import SPLITS
from anaphora.data.corpora.shapes import COLOURS, CORPUS, NOISE, Scene
from anaphora.data.pictures import png_bytes


def named(caption: str) -> frozenset[str]:
    """The objects a caption names: three words after each "a"."""
    words = caption.split()
    return frozenset(" ".join(words[i + 1 : i + 4]) for i, word in enumerate(words) if word == "a")


@pytest.mark.parametrize(("variant", "fewest", "most"), [("few", 1, 3), ("crowded", 4, 6)])
def test_places_are_where_the_pixels_are(variant: str, fewest: int, most: int) -> None:
    for scene in CORPUS.generate(variant, "train", 200):
        assert scene.picture.shape == (64, 64, 3)
        assert fewest <= len(scene.objects) <= most
        picture = scene.picture.astype(int)
        ground = np.median(picture, axis=(0, 1))
        outside = np.ones((64, 64), dtype=bool)
        for item in scene.objects:
            x, y = (int(value) for value in item.centre)
            off = picture[y, x] - np.array(COLOURS[item.colour])
            assert abs(off).max() <= 18 + NOISE + 1
            left, top, right, bottom = np.array(item.box) + np.array(
                [-0.5, -0.5, 0.5, 0.5]
            )  # where edges fade out
            outside[max(int(top), 0) : int(np.ceil(bottom)), max(int(left), 0) : int(np.ceil(right))] = False
        assert abs(picture[outside] - ground).max() <= 2 * NOISE + 1


def test_captions_name_every_object_once_and_spans_point_at_the_words() -> None:
    for scene in CORPUS.generate("few", "dev", 100) + CORPUS.generate("crowded", "dev", 50):
        assert len(scene.captions) == (1 if len(scene.objects) == 1 else 2)
        for reference, caption in enumerate(scene.captions):
            words = caption.split()
            for item in scene.objects:
                first, end = item.spans[reference]
                assert words[first:end] == [item.size, item.colour, item.shape]
            assert len(named(caption)) == len(scene.objects) == caption.split().count("a")


def test_relations_agree_with_the_places() -> None:
    """Read back by centres alone: the same row of cells means less than half a cell apart in y."""
    for scene in CORPUS.generate("crowded", "train", 200):
        words = scene.captions[0].split()
        for before, after in zip(scene.objects, scene.objects[1:], strict=False):
            between = " ".join(words[before.spans[0][1] : after.spans[0][0] - 1])
            same_row = int(before.centre[1] // 16) == int(after.centre[1] // 16)
            assert between == ("left of" if same_row else "above")
            assert not same_row or before.centre[0] + 8 < after.centre[0]
            assert same_row or before.centre[1] + 8 < after.centre[1]
        turned = {"left": "right", "above": "below"}
        there = [turned[word] for word in words if word in turned]
        assert [word for word in scene.captions[1].split() if word in turned.values()] == there


def right_answer(question: str, scene: Scene) -> str:
    """The answer from the places alone."""
    words = question.split()
    items = scene.objects
    if words[:2] == ["what", "colour"]:
        (only,) = [item.colour for item in items if item.shape == words[4]]
        return only
    if words[:2] == ["what", "shape"]:
        (only,) = [item.shape for item in items if item.colour == words[4]]
        return only
    if words[:2] == ["what", "size"]:
        (only,) = [item.size for item in items if [item.colour, item.shape] == words[4:6]]
        return only
    if words[:2] == ["how", "many"]:
        count = sum(words[2] in (f"{item.shape}s", f"{item.shape}es") for item in items)
        return "none one two three four five six".split()[count]  # noqa: SIM905
    if words[:2] == ["is", "there"]:
        return "yes" if any([item.colour, item.shape] == words[3:5] for item in items) else "no"
    axis = 0 if "left" in words else 1
    a, b = words[2:4], words[-3:-1]
    first, second = (
        next(item for item in items if [item.colour, item.shape] == which).centre[axis] for which in (a, b)
    )
    assert abs(first - second) > 8
    return "yes" if first < second else "no"


def test_answers_are_the_only_right_ones() -> None:
    kinds = set()
    scenes = CORPUS.generate("few", "test", 150) + CORPUS.generate("crowded", "test", 150)
    for scene in scenes:
        for question, answer in scene.questions:
            assert answer == right_answer(question, scene), (question, scene.captions[0])
            kinds.add(" ".join(question.split()[:2]))
    assert kinds == {"what colour", "what shape", "what size", "how many", "is there", "is the"}
    for kind in ("is there", "is the"):
        said = [a for s in scenes for q, a in s.questions if q.startswith(kind)]
        assert 0.4 < said.count("yes") / len(said) < 0.6  # about 300 and 550 answers: 3.5 deviations and more


def test_splits_share_no_set_of_objects() -> None:
    found = {split: {named(s.captions[0]) for s in CORPUS.generate("few", split, 300)} for split in SPLITS}
    assert not found["train"] & found["dev"]
    assert not found["train"] & found["test"]
    assert not found["dev"] & found["test"]


def test_the_same_scenes_for_ever_and_the_first_ones_first() -> None:
    many, few = CORPUS.generate("few", "test", 300), CORPUS.generate("few", "test", 7)
    assert all((a.picture == b.picture).all() for a, b in zip(many, few, strict=False))
    assert [(s.captions, s.questions) for s in many[:7]] == [(s.captions, s.questions) for s in few]
    digest = hashlib.sha256(b"".join(scene.picture.tobytes() for scene in many))
    digest.update(json.dumps([[s.captions, s.questions] for s in many]).encode())
    assert digest.hexdigest()[:16] == "d11b22baf26cab42"


def test_png_holds_the_pixels() -> None:
    """Read by hand: the lines of the one data chunk, each after its filter byte."""
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    data = png_bytes(pixels)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (3, 2)
    begin = data.index(b"IDAT") + 4
    (length,) = struct.unpack(">I", data[begin - 8 : begin - 4])
    lines = zlib.decompress(data[begin : begin + length])
    assert lines == b"\0" + pixels[0].tobytes() + b"\0" + pixels[1].tobytes()
    with pytest.raises(ValueError, match="uint8"):
        png_bytes(pixels.astype(float))


def test_a_folder_holds_all_there_is(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    CORPUS.write(tmp_path / "scenes", "few", "dev", 5)
    scenes = CORPUS.generate("few", "dev", 5)
    rows = [line.split("\t") for line in (tmp_path / "scenes/captions.tsv").read_text().splitlines()]
    assert [row[1:] for row in rows] == [scene.captions for scene in scenes]
    for row, scene in zip(rows, scenes, strict=True):
        assert (np.asarray(image.open(tmp_path / "scenes" / row[0])) == scene.picture).all()
    asked = [line.split("\t") for line in (tmp_path / "scenes/questions.tsv").read_text().splitlines()]
    assert [tuple(row[1:]) for row in asked] == [pair for scene in scenes for pair in scene.questions]
    places = [json.loads(line) for line in (tmp_path / "scenes/places.jsonl").read_text().splitlines()]
    assert places[3]["objects"][0]["box"] == list(scenes[3].objects[0].box)
