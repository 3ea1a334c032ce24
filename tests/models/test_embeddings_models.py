"""Models of word vectors: what they learn, that it is the same every time, and how they are kept."""

from __future__ import annotations

import gzip
import hashlib
import json
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import anaphora as an
from anaphora.data.corpora import SPLITS, generate, kin
from anaphora.models.embeddings import windows
from anaphora.models.embeddings.model import VectorModel
from anaphora.models.embeddings.word2vec import BLOCK, huffman, kept_share

MODELS = [an.Word2Vec, an.GloVe, an.NeuralLM, an.RankingLM]
TINY = {"embedding": 8, "epochs": 2, "min_count": 1}
SENTENCES = [source.split() for source, _ in generate("kin", size=300)]


def learnt(model: type[VectorModel], **settings: object) -> VectorModel:
    return model(**(TINY | settings)).fit(SENTENCES)  # type: ignore[arg-type]


# -- what they learn


def test_king_less_man_and_woman_is_queen(tmp_path: Path) -> None:
    model = an.Word2Vec(50, seed=3).fit("kin")
    assert model.analogy("man", "king", "woman", 1)[0][0] == "queen"
    assert model.analogy("france", "paris", "spain", 1, exclude=False)[0][0] == "madrid"
    asked = tmp_path / "questions.txt"
    asked.write_text(
        "".join(
            f": {name}\n" + "".join(" ".join(q) + "\n" for q in qs) for name, qs in kin.questions().items()
        )
    )
    found = model.evaluate_analogies(asked)
    assert found["coverage"] == 1
    assert found["accuracy"] > 0.95
    assert found["honest"] <= found["accuracy"]
    assert set(found["sections"]) == {"he-she", "country-capital", "country-language"}


@pytest.mark.parametrize(
    "model",
    [
        an.Word2Vec(16, method="cbow", epochs=10, min_count=1),
        an.Word2Vec(16, loss="hierarchical", epochs=20, min_count=1),
        an.Word2Vec(16, method="cbow", loss="hierarchical", epochs=5, min_count=1),
        an.GloVe(16, min_count=1, epochs=40, lr=0.2),
        an.NeuralLM(16, hidden=20, epochs=6, min_count=1),
        an.RankingLM(16, hidden=20, epochs=6, min_count=1),
    ],
    ids=lambda m: type(m).__name__,
)
def test_every_way_tells_two_kinds_of_words_apart(model: VectorModel) -> None:
    """Colours and days stand in the same places as others of their kind; which one is drawn at random."""
    random = np.random.default_rng(0)
    colours, days = ["red", "blue", "green", "white"], ["monday", "friday", "sunday", "tuesday"]
    text = []
    for _ in range(1500):
        colour, day = colours[random.integers(4)], days[random.integers(4)]
        text.append([f"the {colour} ball is painted", f"on {day} they went out"][random.integers(2)])
    model.fit(text)
    assert model.losses[-1] < model.losses[0]
    for kind in (colours, days):
        assert {w for w, _ in model.most_similar(kind[0], 3)} == set(kind[1:])


def test_losses_do_not_depend_on_the_number_of_workers() -> None:
    text = [source for source, _ in generate("kin", size=6000)]
    assert sum(len(line.split()) + 2 for line in text) > 4 * BLOCK
    one, three = (an.Word2Vec(32, epochs=2, workers=n).fit(text) for n in (1, 3))
    np.testing.assert_allclose(one.losses, three.losses, rtol=0.02)
    glove, more = (an.GloVe(16, epochs=3, workers=n).fit(text) for n in (1, 3))
    np.testing.assert_allclose(glove.losses, more.losses, rtol=0.02)


@pytest.mark.parametrize("model", MODELS)
def test_the_same_seed_gives_the_same_bits(model: type[VectorModel]) -> None:
    first, second, other = learnt(model), learnt(model), learnt(model, seed=1)
    assert np.array_equal(first.vectors.matrix, second.vectors.matrix)
    assert first.losses == second.losses
    assert not np.array_equal(first.vectors.matrix, other.vectors.matrix)


def test_another_process_finds_the_same_vectors(tmp_path: Path) -> None:
    code = (
        "import anaphora as an, hashlib; m = an.Word2Vec(8, epochs=2, min_count=1).fit('kin'); "
        "print(hashlib.sha256(m.vectors.matrix.tobytes()).hexdigest())"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in (1, 2)
    ]
    assert runs[0].stdout == runs[1].stdout


@pytest.mark.parametrize("settings", [{}, {"method": "cbow"}, {"loss": "hierarchical"}])
def test_without_a_compiler_the_same_is_learnt(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = learnt(an.Word2Vec, **settings)
    monkeypatch.setattr(windows.library, "functions", lambda *_: None)
    plain = learnt(an.Word2Vec, **settings)
    np.testing.assert_allclose(plain.losses, usual.losses, rtol=1e-5)
    np.testing.assert_allclose(plain.vectors.matrix, usual.vectors.matrix, atol=1e-5)


# -- the text they read


@pytest.mark.parametrize("model", MODELS)
def test_every_form_of_data_is_the_same_text(model: type[VectorModel], tmp_path: Path) -> None:
    lines = [" ".join(words) for words in SENTENCES]
    plain, packed, two = tmp_path / "a.txt", tmp_path / "a.txt.gz", tmp_path / "b.txt"
    plain.write_text("\n".join(lines) + "\n\n", encoding="utf-8")
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    parts = tmp_path / "first.txt", two
    parts[0].write_text("\n".join(lines[:100]))
    parts[1].write_text("\n".join(lines[100:]))
    wanted = learnt(model).vectors
    forms = (plain, str(plain), packed, list(parts), [str(p) for p in parts], lines, (w for w in SENTENCES))
    for data in forms:
        found = model(**TINY).fit(data).vectors  # type: ignore[arg-type]
        assert found.words == wanted.words
        assert np.array_equal(found.matrix, wanted.matrix)


@pytest.mark.parametrize("model", MODELS)
def test_a_text_on_disk_gives_the_same_vectors(model: type[VectorModel], tmp_path: Path) -> None:
    spilt = model(**TINY).fit(SENTENCES, spill=tmp_path)  # type: ignore[arg-type]
    assert np.array_equal(spilt.vectors.matrix, learnt(model).vectors.matrix)
    assert not list(tmp_path.iterdir())


def test_words_are_ranked_by_count_and_rare_ones_left_out() -> None:
    text = ["b b b a a c", "B a b"]
    assert an.Word2Vec(min_count=2).fit(text).vectors.words == ["b", "a"]
    assert an.Word2Vec(min_count=1, lowercase=True).fit(text).vectors.words == ["b", "a", "c"]
    assert an.Word2Vec(min_count=1, vocab_size=2).fit(text).vectors.words == ["b", "a"]


def test_frequent_words_are_kept_less_often() -> None:
    counts = np.array([900, 90, 10])
    share = kept_share(counts, 0.01)
    by_hand = [(0.01 / f) ** 0.5 + 0.01 / f for f in (0.9, 0.09, 0.01)]
    np.testing.assert_allclose(share, np.minimum(by_hand, 1))
    assert share[0] == pytest.approx(0.10541 + 0.01111, abs=1e-4)
    assert np.all(kept_share(counts, 0.0) == 1)


def test_rarer_predictions_where_frequent_words_are_left_out() -> None:
    """With t = 0.01 the only word of the text is kept with probability 0.1 + 0.01."""
    text = [["a"] * 999 + ["b"]] * 50
    model = an.Word2Vec(8, min_count=1, subsample=0.01, window=1, epochs=1).fit(text)
    kept = model.score(text)["predictions"] / 2
    assert kept == pytest.approx(50_000 * 0.11, rel=0.05)


def best_tree(counts: list[int]) -> int:
    """The least Σ count · length of any binary tree, by trying all ways to join two parts."""
    if len(counts) == 1:
        return 0
    costs = []
    for i in range(len(counts)):
        for j in range(i):
            rest = [c for k, c in enumerate(counts) if k not in (i, j)]
            costs.append(counts[i] + counts[j] + best_tree([*rest, counts[i] + counts[j]]))
    return min(costs)


@pytest.mark.parametrize("counts", [[5, 3], [1, 1, 1, 1], [9, 4, 3, 1], [20, 9, 8, 7, 1], [6, 5, 4, 3, 2, 1]])
def test_no_tree_has_shorter_paths_than_huffmans(counts: list[int]) -> None:
    start, node, label = huffman(np.array(counts))
    assert sum(c * n for c, n in zip(counts, np.diff(start), strict=True)) == best_tree(counts)
    codes = ["".join("01"[int(x)] for x in label[a:b]) for a, b in pairwise(start)]
    assert not any(a != b and b.startswith(a) for a in codes for b in codes)
    assert sum(0.5 ** len(code) for code in codes) == 1
    assert set(node.tolist()) == set(range(len(counts) - 1))


def test_phrases_by_hand() -> None:
    """c(new york) = 6, c(new) = 8, c(york) = 6, N = 40: (6 − 1) / 48 · 40 = 4.17."""
    text = ["we love new york today"] * 6 + ["a new day begins here"] * 2
    found = an.Phrases(min_count=1, threshold=4.0).fit(text)
    assert found.found[("new", "york")] == pytest.approx(5 / 48 * 40)
    assert ("a", "new") not in found.found
    assert found("in new york new day") == ["in", "new_york", "new", "day"]
    twice = an.Phrases(min_count=1, threshold=2.0, passes=2).fit(text)
    assert any("_" in a or "_" in b for a, b in twice.found)
    assert "new_york" in " ".join(twice("we love new york today"))


def test_phrases_become_words_of_a_model(tmp_path: Path) -> None:
    """c(new york) = 20 and N = 4080: (20 − 5) / 400 · 4080 = 153, above the usual 100."""
    text = ["we saw new york"] * 20 + [
        " ".join(f"w{(7 * i + j) % 97}" for j in range(20)) for i in range(200)
    ]
    model = an.Word2Vec(8, min_count=1, phrases=1).fit(
        line for line in text
    )  # read once, though it is needed twice
    assert "new_york" in model
    assert "york" not in model
    assert an.Phrases().fit(text, spill=tmp_path).found == an.Phrases().fit(text).found


# -- keeping them


@pytest.mark.parametrize("model", MODELS)
def test_what_is_saved_comes_back(model: type[VectorModel], tmp_path: Path) -> None:
    path = tmp_path / "vectors.safetensors"
    made = learnt(model)
    made.save(path)
    again = model.load(path)
    assert again.settings() == made.settings()
    assert again.losses == made.losses
    assert again.score(SENTENCES) == made.score(SENTENCES)
    alone = an.WordVectors.load(path)
    assert alone.words == made.vectors.words
    assert np.array_equal(alone.matrix, made.vectors.matrix)
    with pytest.raises(an.AnaphoraError, match=f"holds the vectors of a {model.__name__}"):
        next(m for m in MODELS if m is not model).load(path)
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(an.AnaphoraError, match="damaged"):
        model.load(path)


@pytest.mark.parametrize("model", MODELS)
def test_a_listener_hears_how_far_it_is(model: type[VectorModel], capsys: pytest.CaptureFixture[str]) -> None:
    told: list[object] = []
    model(**TINY).fit(SENTENCES, progress=told.append)  # type: ignore[arg-type]
    shares = [p.share for p in told]  # type: ignore[attr-defined]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1, abs=0.01)
    assert told[-1].epoch == told[-1].epochs == 2  # type: ignore[attr-defined]
    assert capsys.readouterr() == ("", "")
    model(**TINY).fit(SENTENCES, progress=True)  # type: ignore[arg-type]
    out, err = capsys.readouterr()
    assert not out
    assert "epoch 2/2" in err


def test_settings_can_be_written_as_json() -> None:
    for model in MODELS:
        made = model()
        assert type(made)(**json.loads(json.dumps(made.settings()))).settings() == made.settings()


def test_kin_has_the_same_sentences_for_ever() -> None:
    """Published figures name the corpus; the sentences behind them must not move."""
    pairs = [generate("kin", None, split, size=200) for split in SPLITS]
    assert hashlib.sha256(json.dumps(pairs).encode()).hexdigest()[:16] == "103445e3baa981a6"


def test_kin_tells_every_word_often() -> None:
    counts = Counter(word for source, _ in generate("kin") for word in source.split())
    nouns = {w for male, female, _ in kin.PEOPLE.values() for w in (male, female)}
    nouns |= {w for country, facts in kin.COUNTRIES.items() for w in (country, *facts[:2])}
    assert min(counts[w] for w in nouns) > 100
    asked = kin.questions()
    assert ("man", "woman", "king", "queen") in asked["he-she"]
    assert {len(q) for q in asked.values()} == {16 * 15}
