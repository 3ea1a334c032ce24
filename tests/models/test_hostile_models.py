"""Saved classical models from strangers: sealed again around wrong content, FIFOs, links to devices, bombs."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import os

import numpy as np
import pytest
import torch
from safetensors.numpy import load as parse_arrays
from safetensors.numpy import save as pack_arrays
from safetensors.torch import save_file
from torch import nn

import anaphora as an
from anaphora.errors import DataError, RunError
from anaphora.models.classical.arrays import load_arrays, save_arrays
from anaphora.models.classical.hmm import HMM
from anaphora.models.classical.kalman import Kalman
from anaphora.models.classical.ngram import NGram
from anaphora.models.classical.var import VAR
from anaphora.models.embeddings.glove import GloVe
from anaphora.models.embeddings.pretrained import read_any
from anaphora.models.embeddings.vectors import KIND, WordVectors
from anaphora.models.embeddings.word2vec import Word2Vec
from anaphora.models.seeing import read_picture_weights
from anaphora.probe.trace import Trace
from anaphora.settings.files import read_toml

TEXT = ["a b a b c", "b a c", "c b a", "a c a b"] * 3


@pytest.fixture(scope="module")
def ngram(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ngram")
    NGram(3).fit(TEXT).save(folder)
    return folder


def resealed(folder, change=lambda arrays: None, note=lambda note: None):
    """The model of ``folder`` after ``change`` of its arrays and ``note`` of its JSON, with a checksum that fits."""
    arrays = {k: v.copy() for k, v in parse_arrays((folder / "ngram.safetensors").read_bytes()).items()}
    change(arrays)
    data = pack_arrays(arrays)
    document = json.loads((folder / "ngram.json").read_bytes())
    document["sha256"] = hashlib.sha256(data).hexdigest()
    note(document)
    made = folder / "changed"
    made.mkdir(exist_ok=True)
    (made / "ngram.safetensors").write_bytes(data)
    (made / "ngram.json").write_text(json.dumps(document))
    return made


def put(name, place, value):
    def change(arrays):
        arrays[name][place] = value

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (put("suffix", -1, 1 << 30), "suffix"),  # read far beyond the arrays by the kernels
        (put("suffix", 5, -7), "suffix"),
        (put("suffix", 9, 9), "suffix"),  # a walk without end
        (put("parent", -1, 1 << 30), "parent"),
        (put("parent", 3, -1), "parent"),
        (put("word", 12, 1 << 20), "word"),  # written beyond the row of a distribution
        (put("word", 12, -3), "word"),
        (put("word", 2, 0), "word"),
        (put("bounds", 2, 1 << 40), "bounds"),
        (put("bounds", 0, 1), "bounds"),
        (put("log_prob", 3, np.nan), "log_prob"),
        (put("log_prob", 3, 1.0), "log_prob"),
        (put("log_prob", 3, -1e300), "log_prob"),  # a perplexity beyond float64 was an OverflowError
        (put("backoff", 3, 1e300), "backoff"),
        (put("backoff", 3, np.inf), "backoff"),
        (lambda a: a.update(bounds=a["bounds"].astype(np.float32)), "bounds"),
        (lambda a: a.update(backoff=a["backoff"][:-1]), "backoff"),
        (lambda a: a.update(word=a["word"].astype(np.float32)), "word"),
        (lambda a: a.update(word=a["word"][None]), "bounds"),
        (lambda a: a.pop("suffix"), "'suffix' is missing"),
    ],
)
def test_a_table_that_the_kernels_would_walk_out_of_is_refused(ngram, change, reason):
    with pytest.raises(RunError, match=rf"damaged \(.*{reason}") as caught:
        NGram.load(resealed(ngram, change))
    assert "\n" not in str(caught.value)


def test_a_perplexity_beyond_float64_is_infinite(ngram):
    """X5: each logarithm may be, and their mean is too small for 10 to the power of it."""
    model = NGram.load(resealed(ngram, put("log_prob", slice(4, None), -900.0)))
    assert model.score(["c c c c"])["perplexity"] == np.inf
    assert model.perplexity(["c c c c"]) == np.inf


def test_a_chain_of_suffixes_longer_than_the_kernel_keeps_is_refused(ngram):
    """`spread` keeps 64 nodes of a chain: 70 unigrams, each the suffix of the next, wrote beyond them."""
    symbols = 80
    nodes = np.arange(symbols + 1)
    arrays = {
        "parent": np.zeros(symbols + 1, np.int32),
        "word": np.maximum(nodes - 1, 0).astype(np.int32),
        "suffix": np.maximum(nodes - 1, 0).astype(np.int32),
        "log_prob": np.zeros(symbols + 1),
        "backoff": np.zeros(symbols + 1),
        "bounds": np.array([0, 1, symbols + 1]),
    }
    made = resealed(
        ngram, lambda a: (a.clear(), a.update(arrays)), lambda n: n.update(symbols=symbols, words=None)
    )
    with pytest.raises(RunError, match="suffix of a 1-gram is not shorter"):
        NGram.load(made)
    arrays["suffix"][:] = 0
    made = resealed(
        ngram, lambda a: (a.clear(), a.update(arrays)), lambda n: n.update(symbols=symbols, words=None)
    )
    assert NGram.load(made).table.symbols == symbols


@pytest.mark.parametrize(
    ("key", "value"),
    [("symbols", 10**9), ("symbols", "9"), ("words", []), ("words", [1]), ("words", {}), ("settings", []), ("settings", {"order": "x"}), ("discounts", [[1]]), ("discounts", 5)],
)  # fmt: skip
def test_an_ngram_note_of_wrong_types_is_damage(ngram, key, value):
    with pytest.raises(RunError, match="damaged"):
        NGram.load(resealed(ngram, note=lambda note: note.update({key: value})))


def test_an_ngram_note_without_an_end_is_damage(ngram):
    made = resealed(ngram)
    (made / "ngram.json").write_text("[" * 100_000)
    with pytest.raises(RunError, match="nested too deeply"):
        NGram.load(made)


def test_a_language_run_whose_table_is_wrong_is_refused(tmp_path):
    from anaphora.training.weights import load_weights, save_weights

    model = an.LanguageModel(model="ngram", order=2).fit(TEXT)
    model.save(tmp_path / "run")
    path = tmp_path / "run" / "model.safetensors"
    tensors, facts = load_weights(path)
    tensors["suffix"][-1] = 1 << 30
    save_weights(path, tensors, facts=facts)
    with pytest.raises(RunError, match="suffix"):
        an.load(tmp_path / "run")


# ---------------------------------------------------------------- named arrays in one file


def saved(tmp_path):
    y = np.cumsum(np.random.default_rng(0).standard_normal((40, 2)), axis=0)
    models = {
        "Kalman": Kalman.local_level(),
        "VAR": VAR(2).fit(y),
        "hmm": HMM(2, emissions="categorical", symbols=2).set(
            start=[0.5, 0.5], transitions=[[0.9, 0.1], [0.2, 0.8]], probabilities=[[0.5, 0.5], [0.1, 0.9]]
        ),
    }
    for name, model in models.items():
        model.save(tmp_path / name)
    return models


WRONG = [None, -1, 10**6, "x", [], {}, 1.5, True]


def test_classical_models_with_wrong_facts_or_arrays_are_refused_in_a_sentence(tmp_path):
    refused = 0
    for kind, model in saved(tmp_path).items():
        arrays, facts = load_arrays(tmp_path / kind, kind)
        cases = [(arrays, {**facts, name: wrong}) for name in facts for wrong in WRONG]
        cases += [(arrays, {k: v for k, v in facts.items() if k != name}) for name in facts]
        for name, array in arrays.items():
            odd = [array[None], array.reshape(-1)[:1], array.astype(np.int8), np.full_like(array, np.nan)]
            cases += [({**arrays, name: one}, facts) for one in odd]
            cases.append(({k: v for k, v in arrays.items() if k != name}, facts))
        for some, other in cases:
            save_arrays(tmp_path / "changed", kind, some, other)
            with contextlib.suppress(RunError):  # and of no other kind
                type(model).load(tmp_path / "changed")
                continue
            refused += 1
    assert refused > 60


def test_a_regression_that_gives_no_finite_coefficients_is_refused(tmp_path):
    """X5: every number of the factor is finite, what is solved with it is not, and eigenvalues were a LinAlgError."""
    saved(tmp_path)
    arrays, facts = load_arrays(tmp_path / "VAR", "VAR")
    arrays = {"triangle": arrays["triangle"].copy()}
    arrays["triangle"][1, 1], arrays["triangle"][1, -1] = 1e-300, 1e300
    save_arrays(tmp_path / "changed", "VAR", arrays, facts)
    with pytest.raises(RunError, match="coefficients that are not finite"):
        VAR.load(tmp_path / "changed")


@pytest.mark.parametrize("size", [1e30, 1e-30])
def test_vectors_too_large_or_small_to_square_in_float32_have_a_direction(size):
    """X8: their lengths were ∞ or 0, and every similarity 0 without a word."""
    vectors = WordVectors(["a", "b", "c"], np.array([[1, 1], [2, 2], [1, -1]]) * size)
    assert vectors.similarity("a", "b") == pytest.approx(1)
    assert vectors.most_similar("a", 1)[0][0] == "b"


@pytest.mark.parametrize("kind", [Word2Vec, GloVe])
def test_vectors_whose_weights_have_another_shape_are_refused(tmp_path, kind):
    """Compiled code scores with these weights and trusts their shapes."""
    model = kind(embedding=4, epochs=1, min_count=1).fit(TEXT)
    model.save(tmp_path / "a")
    assert kind.load(tmp_path / "a").score(TEXT)["loss"] == pytest.approx(model.score(TEXT)["loss"])
    arrays, facts = load_arrays(tmp_path / "a", KIND)
    for name in (name for name in arrays if name.startswith("weights.")):
        for odd in (arrays[name][:1], arrays[name].astype(np.float64) + 0.5, arrays[name] * 0 - 1):
            if name != "weights.counts" and odd.shape == arrays[name].shape and odd.dtype == np.float32:
                continue  # numbers like others
            save_arrays(tmp_path / "b", KIND, {**arrays, name: odd}, facts)
            with pytest.raises(RunError, match="weights"):
                kind.load(tmp_path / "b")


def test_words_of_vectors_nested_without_end(tmp_path):
    deep = np.frombuffer(b"[" * 100_000, np.uint8)
    save_arrays(tmp_path / "a", KIND, {"vectors": np.ones((1, 2)), "words": deep}, {"model": "WordVectors"})
    with pytest.raises(RunError, match="nested too deeply"):
        WordVectors.load(tmp_path / "a")


# ---------------------------------------------------------------- what is no plain file, and bombs


@pytest.mark.parametrize(
    ("reader", "inside"),
    [
        (Kalman.load, ""),
        (WordVectors.load, ""),
        (WordVectors.read, ""),
        (read_any, ""),
        (NGram.load, "ngram.json"),
        (Trace.load, "trace.json"),
        (lambda path: read_picture_weights(path, nn.Linear(2, 2)), ""),
        (read_toml, ""),
    ],
)
@pytest.mark.parametrize("kind", ["pipe", "zeros"])
def test_what_is_no_plain_file_is_refused_at_once(tmp_path, reader, inside, kind):
    path = tmp_path / (inside or "file")
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    with pytest.raises(an.AnaphoraError, match=r"is a (named pipe|device), not a plain file"):
        reader(tmp_path if inside else path)


def test_a_bomb_of_word_vectors_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("anaphora.files.bounds.SMALL", 1 << 20)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"a 1 2\n" + b" " * (1 << 22)))
    with pytest.raises(DataError, match="ANAPHORA_MAX_RATIO"):
        WordVectors.read(tmp_path / "a.txt.gz")


def test_picture_weights_that_are_no_floating_point_numbers(tmp_path):
    network = nn.Linear(2, 2)
    for odd in (torch.ones(2, 2, dtype=torch.int8), torch.full((2, 2), torch.nan)):
        save_file({"weight": odd, "bias": torch.zeros(2)}, tmp_path / "a")
        with pytest.raises(DataError, match=r"weight holds .* give a file of floating-point weights"):
            read_picture_weights(tmp_path / "a", network)
