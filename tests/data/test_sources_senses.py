"""Tables of pictures and recordings as public corpora come: captions, questions, transcripts, folders by class."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

import anaphora as an
from anaphora.cli.answering import respond
from anaphora.data.asked import list_lines
from anaphora.data.audio.features import LogMel
from anaphora.data.audio.recordings_readers import RECORDING_READER, open_recordings
from anaphora.data.corpora.sound_corpus import write_wav
from anaphora.data.pictures_readers import PICTURE_READER, open_pictures
from anaphora.data.sources.labelled import open_labelled
from anaphora.data.sources.roles import CAPTIONED, QUESTIONS, SPOKEN
from anaphora.data.split import Split
from anaphora.errors import DataError


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "Images").mkdir()
    for number in range(4):
        image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / "Images" / f"{number}.png")
    return tmp_path


CAPTIONS = {
    "captions.txt": 'image,caption\n0.png,"a dog, running"\n0.png,a dog\n1.png,a cat\n',
    "results.csv": "image_name| comment_number| comment\n0.png| 0| a dog, running\n0.png| 1| a dog\n1.png| 0| a cat\n",
    "tokens.txt": "0.png#0\ta dog, running\n0.png#1\ta dog\n1.png#0\ta cat\n",
    "captions.jsonl": '{"image": "0.png", "caption": "a dog, running"}\n{"image": "0.png", "caption": "a dog"}\n'
    '{"image": "1.png", "caption": "a cat"}\n',
    "captions.tsv": "image\tcaption\n0.png\ta dog, running\n0.png\ta dog\n1.png\ta cat\n",
}


@pytest.mark.parametrize("name", CAPTIONS)
def test_captions_as_public_corpora_come(name: str, pictures: Path) -> None:
    path = pictures / name
    path.write_text(CAPTIONS[name])
    found = open_pictures(path, role="train", size=(8, 8), texts="captions")
    told = sorted(text for about in found.texts for (text,) in about)
    assert told == ["a cat", "a dog", "a dog, running"]
    asked = [line for batch in list_lines(str(path), CAPTIONED[:1], found.describe()) for line in batch]
    assert [line.split("\t")[0].partition("#")[0] for line in asked] == ["0.png", "0.png", "1.png"]


def test_questions_in_json_lines_are_trained_on_and_answered(pictures: Path) -> None:
    rows = [
        {"image": f"{i % 4}.png", "question": f"is it {i}", "answer": i % 2, "more": None} for i in range(12)
    ]
    path = pictures / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = {"size": (8, 8), "texts": "questions", "bad_rows": "strict"}
    train, dev = PICTURE_READER.training(path, None, Split("rows", 0.25, 1), **read)
    assert (len(train), len(dev)) == (3, 1)
    assert train.texts[0][0] == ("is it 0", "0") or dev.texts[0][0] == ("is it 0", "0")
    described = json.loads(json.dumps({"train": train.describe(), "valid": dev.describe()}))
    assert PICTURE_READER.reopen(described)[0].texts == train.texts
    asked = [line for batch in list_lines(str(path), QUESTIONS[:2], train.describe()) for line in batch]
    assert asked == [f"{row['image']}\t{row['question']}" for row in rows]
    named = [{"p": str(pictures / "Images" / row["image"]), "q": row["question"], "a": "x"} for row in rows]
    given = open_pictures(
        named,
        role="train",
        size=(8, 8),
        texts="questions",
        picture_field="p",
        source_field="q",
        target_field="a",
    )
    assert given.rows == 12


def test_a_folder_of_pictures_names_the_odd_one_or_leaves_it_out(pictures: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    folder = pictures / "classes"
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for number in range(3):
            image.new("L", (4, 4), number).save(folder / name / f"{number}.png")
    image.new("L", (5, 4)).save(folder / "cat" / "a.png")
    with pytest.raises(DataError, match=r"cat/a.png has 5 .* where most have 4|cat/a.png has .*--skip-bad"):
        open_labelled(folder, scan="picture")
    found = open_labelled(folder, scan="picture", bad_rows="skip")
    assert found.holds_vectors
    assert len(found) == 6 + 1 - 1 + 0
    assert found.describe()["skipped"] == {"another size than most": 1}
    (folder / "dog" / "b.png").write_bytes(b"no picture")
    found = open_labelled(folder, scan="picture", bad_rows="skip")
    assert found.describe()["skipped"] == {"a file that cannot be used": 1, "another size than most": 1}


def test_idx_is_known_by_its_content(tmp_path: Path) -> None:
    images = np.arange(24, dtype=np.uint8).reshape(3, 2, 4)
    head = struct.pack(">BBBB3I", 0, 0, 8, 3, 3, 2, 4)
    (tmp_path / "digits").write_bytes(head + images.tobytes())
    (tmp_path / "answers").write_bytes(struct.pack(">BBBBI", 0, 0, 8, 1, 3) + bytes([1, 0, 1]))
    found = open_labelled((tmp_path / "digits", tmp_path / "answers"))
    assert found.holds_vectors
    assert found.column(1) == ["1", "0", "1"]
    assert np.array_equal(found.column(0)[2], images[2])


@pytest.fixture
def speech(tmp_path: Path) -> Path:
    pytest.importorskip("soundfile")
    (tmp_path / "wavs").mkdir()
    for number in range(1, 5):
        write_wav(tmp_path / "wavs" / f"LJ001-{number:04}.wav", np.zeros(1600, np.float32), 8000)
    lines = [f'LJ001-{i:04}|He said "{i}",|he said {i}' for i in range(1, 5)]
    (tmp_path / "metadata.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_metadata_with_bars_names_the_recordings_of_wavs(speech: Path) -> None:
    features = LogMel(8000)
    path = speech / "metadata.csv"
    found = open_recordings(path, features=features)
    assert found.transcripts == [f"he said {i}" for i in range(1, 5)]
    assert (
        list(RECORDING_READER.reopen_one(found.describe(), features=features).transcripts)
        == found.transcripts
    )
    written = open_recordings(path, features=features, source_field="1", target_field="2")
    assert written.transcripts[0] == 'He said "1",'
    asked = [line for batch in list_lines(str(path), SPOKEN[:1], found.describe()) for line in batch]
    assert asked == [f"LJ001-{i:04}" for i in range(1, 5)]
    table = [{"audio": {"array": np.zeros(800), "sampling_rate": 8000}, "sentence": "a"}] * 2
    assert open_recordings(table, features=features).transcripts == ["a", "a"]


def test_a_transcriber_answers_the_list_it_was_trained_on(speech: Path) -> None:
    model = an.Transcriber("bilstm-ctc", hidden=4, layers=1, steps=1, device="cpu", bins=8)
    model.fit(speech / "metadata.csv", out=speech / "run")
    answers = list(respond(an.load(speech / "run"), str(speech / "metadata.csv"), {}))
    assert [Path(one.record["file"]).name for one in answers] == [f"LJ001-{i:04}.wav" for i in range(1, 5)]


def test_a_list_whose_columns_say_nothing_is_told_what_to_call_them(tmp_path: Path) -> None:
    """What asks for answers has no option that names a column."""
    path = tmp_path / "list.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"list\.csv has the columns a, b; call what is to be read path\.$"):
        list(list_lines(str(path), SPOKEN[:1], {}))


@pytest.mark.parametrize(
    ("row", "told"),
    [(",2", "a.csv:3: path is empty"), ("b.wav", "a.csv:3: wrong number of columns")],
)
def test_a_row_that_names_no_recording_is_told(tmp_path, row, told):
    (tmp_path / "a.csv").write_text(f"path,take\na.wav,1\n{row}\n")
    with pytest.raises(DataError, match=told):
        list(list_lines(str(tmp_path / "a.csv"), SPOKEN[:1], {}))
