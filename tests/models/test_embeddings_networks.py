"""GloVe's counts and steps against brute force, the two networks' gradients against autograd."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import anaphora as an
from anaphora.models.embeddings import glove
from anaphora.models.embeddings.glove import count_cooccurrences
from anaphora.models.embeddings.glove_updates import fit_pairs
from anaphora.models.embeddings.neural_lm import (
    adagrad,
    language_gradients,
    pair_up,
    ranking_gradients,
    windows_of,
)
from anaphora.models.embeddings.text import read_text

texts = st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=12), min_size=1, max_size=10)


def brute_force(sentences: list[list[str]], words: list[str], window: int) -> np.ndarray:
    whole = np.zeros((len(words), len(words)))
    for sentence in sentences:
        known = [words.index(w) for w in sentence if w in words]
        for s, a in enumerate(known):
            for t, b in enumerate(known):
                if s != t and abs(s - t) <= window:
                    whole[a, b] += 1 / abs(s - t)
    return whole


@given(texts, st.integers(1, 5), st.integers(1, 2))
@settings(max_examples=60)
def test_counts_are_those_of_brute_force(sentences: list[list[str]], window: int, min_count: int) -> None:
    if max(np.unique([w for s in sentences for w in s], return_counts=True)[1]) < min_count:
        return
    text = read_text(sentences, min_count=min_count)
    found = count_cooccurrences(text, window)
    np.testing.assert_allclose(found.dense(), brute_force(sentences, text.words, window), rtol=1e-6)
    assert len(found.pairs) == np.count_nonzero(np.triu(found.dense()))


def test_counts_that_do_not_fit_are_merged_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    sentences = [[f"w{i}" for i in random.integers(0, 90, 30)] for _ in range(100)]
    text = read_text(sentences)
    whole = count_cooccurrences(text, 4)
    monkeypatch.setattr(glove, "PART", 500)
    parts = count_cooccurrences(text, 4, spill=tmp_path, slots=1 << 10)
    assert isinstance(parts.pairs, np.memmap)
    assert not isinstance(whole.pairs, np.memmap)
    np.testing.assert_array_equal(parts.pairs["row"], whole.pairs["row"])  # even the order is the same
    np.testing.assert_allclose(parts.pairs["count"], whole.pairs["count"], rtol=1e-6)
    assert not list(tmp_path.iterdir())


def test_a_step_of_glove_is_adagrad_on_its_loss() -> None:
    random = np.random.default_rng(1)
    words, width = 5, 6
    rows, columns = np.array([0, 2, 1], np.int32), np.array([3, 2, 4], np.int32)
    counts = np.array([3.0, 40.0, 0.5], np.float32)
    given_weights = [
        random.standard_normal(shape).astype(np.float32) for shape in ((words, width),) * 2 + ((words,),) * 2
    ]
    seen = [np.full_like(weight, 2.0) for weight in given_weights]
    wanted = [torch.tensor(weight, dtype=torch.double) for weight in given_weights]
    squares = [torch.full_like(weight, 2.0) for weight in wanted]
    total = 0.0
    for i, j, x in ((0, 3, 3.0), (3, 0, 3.0), (2, 2, 40.0), (1, 4, 0.5), (4, 1, 0.5)):
        leaves = [weight.clone().requires_grad_() for weight in wanted]
        w, c, b, d = leaves
        loss = 0.5 * min(1.0, (x / 10) ** 0.75) * (w[i] @ c[j] + b[i] + d[j] - np.log(x)) ** 2
        loss.backward()
        total += loss.item()
        for weight, leaf, square in zip(wanted, leaves, squares, strict=True):
            assert leaf.grad is not None
            weight -= 0.1 * leaf.grad / square.sqrt()
            square += leaf.grad**2
    terms, loss = fit_pairs(rows, columns, counts, *given_weights, *seen, 10.0, 0.75, 0.1)
    assert terms == 5
    assert loss == pytest.approx(total, rel=1e-5)
    for found, weight in zip([*given_weights, *seen], [*wanted, *squares], strict=True):
        np.testing.assert_allclose(found, weight, atol=1e-5)


def leaves_of(shapes: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    return {
        name: torch.randn(shape, dtype=torch.double).mul(0.5).requires_grad_()
        for name, shape in shapes.items()
    }


def spread(shape: tuple[int, ...], ids: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.double).index_add_(0, ids.reshape(-1), gradient.flatten(0, -2))


@pytest.mark.parametrize("direct", [False, True])
def test_the_language_model_has_the_gradients_of_autograd(direct: bool) -> None:
    shapes: dict[str, tuple[int, ...]] = {"table": (9, 3), "hidden": (12, 5), "hidden_bias": (5,), "output": (5, 9), "output_bias": (9,)}  # fmt: skip
    weights = leaves_of({**shapes, **({"direct": (12, 9)} if direct else {})})
    contexts, targets = torch.randint(9, (7, 4)), torch.randint(9, (7,))
    x = weights["table"][contexts].flatten(1)
    y = (
        torch.tanh(x @ weights["hidden"] + weights["hidden_bias"]) @ weights["output"]
        + weights["output_bias"]
    )
    y = y + x @ weights["direct"] if direct else y
    loss = F.cross_entropy(y, targets, reduction="sum")
    loss.backward()
    with torch.no_grad():
        value, found = language_gradients(weights, contexts, targets)
    assert value == pytest.approx(loss.item())
    found["table"] = spread((9, 3), contexts, found["table"])
    assert set(found) == set(weights)
    for name, weight in weights.items():
        torch.testing.assert_close(found[name], weight.grad)


def test_the_ranking_model_has_the_gradients_of_autograd() -> None:
    weights = leaves_of({"table": (9, 3), "hidden": (27, 5), "hidden_bias": (5,), "output": (5,)})
    with torch.no_grad():
        weights["output"] *= 4  # so that some windows are already ranked well enough
    windows, wrong = torch.randint(9, (20, 9)), torch.randint(9, (20,))
    spoilt = windows.clone()
    spoilt[:, 4] = wrong

    def score(ids: torch.Tensor) -> torch.Tensor:
        x = weights["table"][ids].flatten(1)
        return torch.tanh(x @ weights["hidden"] + weights["hidden_bias"]) @ weights["output"]

    margins = 1 - score(windows) + score(spoilt)
    assert (margins < 0).any()
    assert (margins > 0).any()
    loss = F.relu(margins).sum()
    loss.backward()
    with torch.no_grad():
        value, found = ranking_gradients(weights, windows, wrong)
    assert value == pytest.approx(loss.item())
    found["table"] = spread((9, 3), pair_up(windows, wrong), found["table"])
    for name, weight in weights.items():
        torch.testing.assert_close(found[name], weight.grad)


def test_adagrad_is_that_of_torch_and_leaves_other_rows_alone() -> None:
    table, dense = torch.randn(6, 3), torch.randn(4)
    weights, seen = (
        {"table": table.clone(), "dense": dense.clone()},
        {"table": torch.zeros(6, 3), "dense": torch.zeros(4)},
    )
    leaves = [table.clone().requires_grad_(), dense.clone().requires_grad_()]
    optimizer = torch.optim.Adagrad(leaves, lr=0.1, eps=1e-8)
    for _ in range(3):
        ids, rows, other = torch.tensor([[0, 2], [2, 5]]), torch.randn(2, 2, 3), torch.randn(4)
        leaves[0].grad, leaves[1].grad = spread((6, 3), ids, rows.double()).float(), other.clone()
        optimizer.step()
        adagrad(weights, seen, {"table": rows, "dense": other}, ids, 0.1)
    torch.testing.assert_close(weights["table"], leaves[0].detach())
    torch.testing.assert_close(weights["dense"], leaves[1].detach())
    assert torch.equal(weights["table"][1], table[1])


def test_windows_end_where_sentences_do() -> None:
    ids = np.array([2, 7, 8, 3, 2, 9, 3], np.int32)  # <s> 7 8 </s> <s> 9 </s>
    assert windows_of(ids, slice(0, 7), 2, 0).tolist() == [
        [2, 2, 2], [2, 2, 7], [2, 7, 8], [7, 8, 3], [2, 2, 2], [2, 2, 9], [2, 9, 3],
    ]  # fmt: skip
    assert windows_of(ids, slice(1, 3), 1, 2).tolist() == [[2, 7, 8, 3], [7, 8, 3, 3]]
    assert windows_of(ids, slice(5, 6), 2, 2).tolist() == [[2, 2, 9, 3, 3]]


def test_the_language_model_is_one() -> None:
    text = ["the cat sat", "the dog ran", "a cat sat", "a dog ran"] * 50
    model = an.NeuralLM(8, hidden=16, min_count=1, epochs=20, direct=True).fit(text)
    (after_cat, after_dog), (begin,) = model.predict(["the cat", "a dog"], n=9), model.predict([""], n=2)
    assert (after_cat[0][0], after_dog[0][0]) == ("sat", "ran")
    assert {word for word, _ in begin} == {"the", "a"}
    assert sum(p for _, p in after_cat) == pytest.approx(1, abs=0.01)
    found = model.score(text)
    assert found["perplexity"] == pytest.approx(np.exp(found["loss"]))
    assert found["perplexity"] == pytest.approx(
        4 ** (1 / 4), rel=0.05
    )  # four sentences of four symbols, all alike
    assert model.score(["a zebra"])["perplexity"] > 2
