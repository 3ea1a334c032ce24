"""Word vectors: neighbours and analogies by hand, evaluation, files, and the manners of it all."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

import anaphora as an
from anaphora.errors import AnaphoraError, DataError, RunError, SettingsError
from anaphora.models.embeddings.pretrained import pretrained
from anaphora.models.embeddings.vectors import ranks, spearman

WORDS = ["man", "woman", "king", "queen", "apple"]
SQUARE = np.array([[1, 0, 1], [-1, 0, 1], [1, 1, 1], [-1, 1, 1], [0, -1, -1]], np.float32)
"""Sex, rank, person."""


@pytest.fixture
def vectors() -> an.WordVectors:
    return an.WordVectors(WORDS, SQUARE)


# -- questions


def test_neighbours_by_hand(vectors: an.WordVectors) -> None:
    assert vectors.similarity("man", "woman") == pytest.approx(0)
    assert vectors.similarity("man", "king") == pytest.approx(2 / 6**0.5)
    found = vectors.most_similar("king", 2)
    assert [w for w, _ in found] == ["man", "queen"]
    assert found[1][1] == pytest.approx(1 / 3)
    assert [w for w, _ in vectors.most_similar(np.array([0, -5.0, -5.0]), 1)] == ["apple"]
    assert len(vectors.most_similar("king", 100)) == 4
    assert vectors[["man", "apple"]].tolist() == [[1, 0, 1], [0, -1, -1]]


def test_analogies_with_and_without_the_words_of_the_question(vectors: an.WordVectors) -> None:
    units = SQUARE / np.linalg.norm(SQUARE, axis=1, keepdims=True)
    wanted = units[2] - units[0] + units[1]
    cosines = units @ (wanted / np.linalg.norm(wanted))
    honest = vectors.analogy("man", "king", "woman", 5, exclude=False)
    assert dict(honest) == pytest.approx(dict(zip(WORDS, cosines.tolist(), strict=True)), abs=1e-6)
    assert [w for w, _ in vectors.analogy("man", "king", "woman")] == ["queen", "apple"]
    assert [w for w, _ in honest] == [WORDS[i] for i in np.argsort(-cosines)]


def test_ranks_and_their_correlation() -> None:
    assert ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1, 3.5, 2]
    assert spearman(np.array([1, 2, 3, 4]), np.array([1, 4, 9, 16])) == pytest.approx(1)
    assert spearman(np.array([1, 2, 3]), np.array([1, 3, 2])) == pytest.approx(0.5)  # 1 − 6 · 2 / (3 · 8)
    assert np.isnan(spearman(np.array([1.0, 1.0]), np.array([1.0, 2.0])))
    stats = pytest.importorskip("scipy.stats")
    a, b = np.random.default_rng(0).integers(0, 9, (2, 50))
    assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)


def test_similarity_is_compared_with_people(vectors: an.WordVectors, tmp_path: Path) -> None:
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("# judged by nobody\nMan\tking\t9\nman\twoman\t5.0\nqueen\tapple\t1\nman\tzebra\t3\n")
    assert vectors.evaluate_similarity(pairs, lowercase=True) == {
        "spearman": pytest.approx(1.0), "coverage": 0.75, "pairs": 4, "found": 3,
    }  # fmt: skip
    assert vectors.evaluate_similarity(pairs)["found"] == 2
    pairs.write_text("word1,word2,score\nman,king,9\nman,woman,5\n")
    assert vectors.evaluate_similarity(pairs)["pairs"] == 2


def test_analogies_are_counted_by_section(vectors: an.WordVectors, tmp_path: Path) -> None:
    asked = tmp_path / "questions.txt"
    asked.write_text(
        ": royal\nman king woman queen\nwoman queen man king\n: fruit\nman king woman apple\nman king pear x\n"
    )
    found = vectors.evaluate_analogies(asked)
    assert found["sections"]["royal"] == {
        "accuracy": 1,
        "honest": 1,
        "coverage": 1,
        "questions": 2,
        "found": 2,
    }
    assert found["sections"]["fruit"] == {
        "accuracy": 0,
        "honest": 0,
        "coverage": 0.5,
        "questions": 2,
        "found": 1,
    }
    assert (found["accuracy"], found["coverage"]) == (pytest.approx(2 / 3), 0.75)
    assert vectors.evaluate_analogies(asked, vocab_size=3)["found"] == 0
    drawn = an.WordVectors(["a", "b", "c", "d"], np.array([[1, 0], [1, 0.1], [0, 1], [0.5, 1]], np.float32))
    asked.write_text("a b c d\n")  # b − a + c is nearer to c itself than to d
    told = drawn.evaluate_analogies(asked)
    assert (told["accuracy"], told["honest"]) == (1, 0)


# -- files


@pytest.mark.parametrize("name", ["v.txt", "v.bin", "v.txt.gz", "v.bin.gz", "v.vec"])
def test_files_come_back_to_the_last_bit(name: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    words = ["a", "ü", "日本", "<unk>", "1", "new_york", "-0.5"]
    matrix = (random.standard_normal((7, 5)) * 10.0 ** random.integers(-30, 30, (7, 5))).astype(np.float32)
    made = an.WordVectors(words, matrix)
    made.write(tmp_path / name)
    again = an.WordVectors.read(tmp_path / name)
    assert again.words == words
    assert np.array_equal(again.matrix, matrix)
    first = (tmp_path / name).read_bytes()
    made.write(tmp_path / name)
    assert (tmp_path / name).read_bytes() == first
    part = an.WordVectors.read(tmp_path / name, only=["ü", "1", "zebra"])
    assert part.words == ["ü", "1"]
    assert np.array_equal(part.matrix, matrix[[1, 4]])
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_bytes_of_the_two_forms(vectors: an.WordVectors, tmp_path: Path) -> None:
    vectors.write(tmp_path / "v.txt")
    assert (tmp_path / "v.txt").read_text() == (
        "5 3\nman 1.0 0.0 1.0\nwoman -1.0 0.0 1.0\nking 1.0 1.0 1.0\nqueen -1.0 1.0 1.0\napple 0.0 -1.0 -1.0\n"
    )
    vectors.write(tmp_path / "v.bin")
    records = [
        word.encode() + b" " + row.astype("<f4").tobytes() for word, row in zip(WORDS, SQUARE, strict=True)
    ]
    assert (tmp_path / "v.bin").read_bytes() == b"5 3\n" + b"".join(records)
    (tmp_path / "c.bin").write_bytes(
        b"5 3\n" + b"".join(r + b"\n" for r in records)
    )  # as word2vec itself writes
    assert np.array_equal(an.WordVectors.read(tmp_path / "c.bin").matrix, SQUARE)
    (tmp_path / "glove.txt").write_text("the 1 2 3\n. . . 4 5 6\n\n")  # no head, and a word with blanks in it
    glove = an.WordVectors.read(tmp_path / "glove.txt")
    assert glove.words == ["the", ". . ."]
    assert glove["the"].tolist() == [1, 2, 3]


@pytest.mark.parametrize("binary", [False, True])
def test_gensim_reads_ours_and_writes_the_same_bytes(
    vectors: an.WordVectors, binary: bool, tmp_path: Path
) -> None:
    gensim = pytest.importorskip("gensim.models")
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    vectors.write(ours, binary=binary)
    kept = gensim.KeyedVectors.load_word2vec_format(str(ours), binary=binary)
    assert kept.index_to_key == WORDS
    assert np.array_equal(kept.vectors, SQUARE)
    kept.save_word2vec_format(str(theirs), binary=binary)
    assert theirs.read_bytes() == ours.read_bytes()
    assert kept.most_similar("king", topn=3)[0][0] == vectors.most_similar("king", 3)[0][0]
    near = kept.most_similar(positive=["king", "woman"], negative=["man"], topn=2)
    for mine, other in zip(vectors.analogy("man", "king", "woman", 2), near, strict=True):
        assert mine == (other[0], pytest.approx(other[1], abs=1e-6))


BROKEN = {
    "empty": (b"", "not a file of word vectors"),
    "prose": (b"The cat sat on the mat.\nIt was red.\n", "not 5 numbers after the word 'The'"),
    "ragged": (b"2 3\na 1 2 3\nb 1 2\n", r":3: 2 numbers where 3 belong"),
    "longer": (b"a 1 2 3\nb 1 2 3 x\n", r":2: not 3 numbers after the word 'b 1'"),
    "nan": (b"2 2\na 1 2\nb nan 1\n", "the vector of 'b' holds a number that is not finite"),
    "infinite": (b"1 2\na 1e99 2\n", "not finite"),
    "twice": (b"a 1 2\na 3 4\n", ":2: the word 'a' is there twice"),
    "short": (b"3 2\na 1 2\nb 1 2\n", "promises 3 vectors, but there are 2"),
    "long": (b"1 2\na 1 2\nb 1 2\n", "promises 1 vectors, but there are 2"),
    "width": (b"1 0\na\n", "vectors of 0 numbers cannot be"),
    "bytes": (b"2 2\na \x00\x00\x80?\x00\x00\x80?b \x00\x00", "ends after 1 of 2 vectors"),
    "more": (b"1 1\na \x00\x00\x80?b \x00\x00\x80?", "goes on after its 1 vectors"),
    "utf-8": (b"1 1\n\xff\xfe \x00\x00\x80?", "a word in broken UTF-8"),
    "binary nan": (b"1 1\na \x00\x00\xc0\x7f", "not finite"),
    "no word": (b"1 1\n" + b"\x01" * 200_000, "no word where one belongs|ends after 0"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("packed", [False, True])
def test_broken_files_are_named_in_a_sentence(name: str, packed: bool, tmp_path: Path) -> None:
    content, message = BROKEN[name]
    path = tmp_path / ("v.vec.gz" if packed else "v.vec")
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(DataError, match=message) as raised:
        an.WordVectors.read(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_other_things_that_are_no_files(vectors: an.WordVectors, tmp_path: Path) -> None:
    for path, message in ((tmp_path / "none", "cannot be read: no such file"), (tmp_path, "is a folder")):
        with pytest.raises(DataError, match=message):
            an.WordVectors.read(path)
    (tmp_path / "v.gz").write_bytes(b"not packed")
    with pytest.raises(DataError, match="damaged"):
        an.WordVectors.read(tmp_path / "v.gz")
    with pytest.raises(DataError, match="cannot be written"):
        vectors.write(tmp_path / "no" / "v.txt")
    with pytest.raises(DataError, match="white space in it"):
        an.WordVectors(["new york"], SQUARE[:1]).write(tmp_path / "v.txt")
    assert not (tmp_path / "v.txt").exists()
    (tmp_path / "x").write_bytes(b"12345")
    with pytest.raises(RunError, match="damaged, or not written by anaphora"):
        an.WordVectors.load(tmp_path / "x")


def test_saved_vectors_come_back(tmp_path: Path) -> None:
    made = an.WordVectors(["new york", "\n", "ü"], SQUARE[:3])
    made.save(tmp_path / "v.safetensors")
    again = an.WordVectors.load(tmp_path / "v.safetensors")
    assert again.words == made.words
    assert np.array_equal(again.matrix, made.matrix)


# -- vectors for another vocabulary


@pytest.mark.parametrize("form", ["v.txt", "v.bin.gz", "saved", "vectors"])
def test_a_vocabulary_gets_the_vectors_it_has_words_for(
    form: str, vectors: an.WordVectors, tmp_path: Path
) -> None:
    source: object = vectors
    if form == "saved":
        vectors.save(tmp_path / form)
    elif form != "vectors":
        vectors.write(tmp_path / form)
    source = vectors if form == "vectors" else tmp_path / form
    spellings = ["<pad>", "<unk>", "<s>", "</s>", " king", " Apple", " zebra", "queen"]
    found = pretrained(source, spellings, width=3)  # type: ignore[arg-type]
    assert found.matrix.shape == (8, 3)
    assert np.array_equal(found.matrix[[4, 5, 7]], SQUARE[[2, 4, 3]])
    assert found.known.tolist() == [False] * 4 + [True, True, False, True]
    assert (found.found, found.missing) == (3, ["zebra"])
    assert not found.matrix[0].any()
    assert found.matrix[6].any()
    assert str(found) == "3 of 4 words have vectors of width 3"
    assert np.array_equal(pretrained(source, spellings, seed=0).matrix, found.matrix)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="width 3 where 50 is wanted; set embedding=3"):
        pretrained(source, spellings, width=50)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="none of the"):
        pretrained(source, [*spellings[:4], "zebra"])  # type: ignore[arg-type]
    with pytest.raises(DataError, match="cannot be read: no such file"):
        pretrained(tmp_path / "none", spellings)


# -- manners


def test_words_that_are_not_there(vectors: an.WordVectors) -> None:
    with pytest.raises(AnaphoraError, match=r"'quen' is not among the 5 words; did you mean queen\?"):
        vectors.most_similar("quen")
    with pytest.raises(AnaphoraError, match="check its spelling"):
        vectors.similarity("man", "xyzzy")
    with pytest.raises(AnaphoraError, match="ask for 1 or more"):
        vectors.most_similar("man", 0)
    with pytest.raises(DataError, match="give 3 numbers"):
        vectors.most_similar(np.zeros(4))
    assert "quen" not in vectors


@pytest.mark.parametrize(
    ("words", "matrix", "message"),
    [
        (["a"], SQUARE, "1 words do not go with vectors of shape"),
        ([], np.zeros((0, 3)), "0 words"),
        (["a", "a"], SQUARE[:2], "'a' is there twice"),
        (["a", "b"], [[1, 2], [3, np.nan]], "vector of 'b' holds a number that is not finite"),
    ],
)
def test_words_and_vectors_must_belong_together(words: list[str], matrix: np.ndarray, message: str) -> None:
    with pytest.raises(DataError, match=message):
        an.WordVectors(words, np.asarray(matrix))


@pytest.mark.parametrize("model", [an.Word2Vec, an.GloVe, an.NeuralLM, an.RankingLM])
def test_texts_that_teach_nothing(model: type, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "blank.txt").write_text("\n \n")
    (tmp_path / "broken.txt").write_bytes(b"a b\n\xff\n")
    for data, message in (
        ([], "holds no sentence"),
        (iter([]), "holds no sentence"),
        (tmp_path / "empty.txt", "is empty"),
        (tmp_path / "blank.txt", "holds no sentence"),
        (tmp_path / "broken.txt", "broken.txt:2: broken UTF-8"),
        (tmp_path / "none.txt", "cannot be read"),
        ("no such thing", "neither a file nor an embedded corpus; those are numbers"),
        (["a b c d"], "No word of the text occurs often enough; lower min_count, which is 5"),
        ([[1, 2, 3]], "give words, which are strings"),
        ([["a", 2]], "strings"),
        (7, "no text; give a path"),
        ([7], "A sentence is 7"),
        (["<s> a"], "<s> is added where it belongs"),
    ):
        with pytest.raises(DataError, match=message) as raised:
            model().fit(data)
        assert "\n" not in str(raised.value)
    with pytest.raises(DataError, match="is not a folder"):
        model().fit(["a"] * 9, spill=tmp_path / "none")
    with pytest.raises(AnaphoraError, match=f"This {model.__name__} is not trained yet"):
        model().most_similar("a")


def test_one_word_alone() -> None:
    for model in (an.Word2Vec, an.GloVe):
        with pytest.raises(DataError, match=r"two or more|stand together"):
            model(min_count=1).fit(["a"])
    with pytest.raises(DataError, match="No two words of the text are known"):
        an.Word2Vec(min_count=1).fit(["a b"]).score(["x y"])


@pytest.mark.parametrize(
    ("model", "setting", "message"),
    [
        (an.Word2Vec, {"method": "glove"}, "method must be one of skipgram, cbow, not 'glove'"),
        (an.Word2Vec, {"loss": "softmax"}, "loss must be one of negative, hierarchical"),
        (
            an.Word2Vec,
            {"window": 0, "embedding": 0},
            "embedding must be 1 or more.*\n.*window must be from 1",
        ),
        (an.Word2Vec, {"negative": 2.5}, "negative must be from 1 to 1000"),
        (an.Word2Vec, {"subsample": -1}, "subsample must be at least 0"),
        (an.Word2Vec, {"lr": 0}, "lr must be above 0"),
        (an.Word2Vec, {"workers": 0}, "workers must be 1 or more"),
        (
            an.Word2Vec,
            {"lr": "fast", "seed": None},
            "lr must be a number or None, not 'fast'.\n.*seed must be a number, not None",
        ),
        (an.Word2Vec, {"lowercase": 1}, "lowercase must be True or False, not 1"),
        (an.Word2Vec, {"window": True}, "window must be a number, not True"),
        (an.Word2Vec, {"lr": float("nan")}, "lr must be above 0"),
        (an.GloVe, {"x_max": 0}, "x_max must be above 0"),
        (an.GloVe, {"epochs": 0}, "epochs must be 1 or more"),
        (an.NeuralLM, {"history": 0}, "history must be from 1"),
        (an.NeuralLM, {"hidden": 0}, "hidden must be 1 or more"),
        (an.RankingLM, {"window": 0, "batch": 0}, "batch must be 1"),
        (an.RankingLM, {"vocab_size": 0}, "vocab_size must be 1 or more"),
        (an.Phrases, {"passes": 0, "threshold": -1}, "threshold must be above 0.*\n.*passes"),
    ],
)
def test_settings_that_cannot_be(model: type, setting: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        model(**setting)
