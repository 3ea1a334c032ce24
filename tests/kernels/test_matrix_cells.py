"""Cells whose state is a matrix: what the engine sees in them, and that it computes what the loop computes."""

from __future__ import annotations

import copy
import pickle
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matrix_cells import HIDDEN, INPUTS, Drawn, Recipe, recipes
from torch import Tensor
from torch.nn import functional as F

import anaphora as an
from anaphora import nn
from anaphora.engine.dispatch import force
from anaphora.nn import contract, outer


def results(
    layer: nn.Recurrent, x: Tensor, lengths: Tensor | None, initial: tuple[Tensor, ...]
) -> list[Tensor]:
    """y, the last states, and the gradients of x, the initial states and all weights."""
    leaves = [t.detach().requires_grad_() for t in (x, *initial)]
    y, last = layer(leaves[0], lengths, tuple(leaves[1:]))
    torch.manual_seed(9)
    loss = sum((t * torch.randn(t.shape).to(t)).sum() for t in (y, *last))  # the same on every device
    grads = torch.autograd.grad(loss, [*leaves, *layer.parameters()], allow_unused=True)  # type: ignore[arg-type]
    return [y, *last, *(torch.zeros(()).double() if g is None else g for g in grads)]


def drawn_case(
    recipe: Recipe, time: int, both: bool, ragged: bool, seed: int
) -> tuple[nn.Recurrent, Tensor, Tensor | None, tuple[Tensor, ...]]:
    torch.manual_seed(seed)
    layer = nn.Recurrent(Drawn(INPUTS, HIDDEN, recipe=recipe), bidirectional=both).double()
    x = torch.randn(3, time, INPUTS, dtype=torch.float64)
    lengths = torch.tensor([time, 0, (time + 1) // 2]) if ragged else None
    initial = tuple(torch.randn_like(s) for s in layer.initial_state(3, x))
    return layer, x, lengths, initial


CASE = (recipes(False), st.integers(5, 37), st.booleans(), st.booleans(), st.integers(0, 10**6))


@settings(deadline=None, max_examples=12)
@given(*CASE)
def test_a_scan_equals_the_loop(recipe: Recipe, time: int, both: bool, ragged: bool, seed: int) -> None:
    check_scan(recipe, time, both, ragged, seed)


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(*CASE)
def test_two_hundred_scans_equal_the_loop(
    recipe: Recipe, time: int, both: bool, ragged: bool, seed: int
) -> None:
    check_scan(recipe, time, both, ragged, seed)


def check_scan(recipe: Recipe, time: int, both: bool, ragged: bool, seed: int) -> None:
    """Outputs, last states and all gradients; a padded step is never read."""
    layer, x, lengths, initial = drawn_case(recipe, time, both, ragged, seed)
    with force("reference"):
        expected = results(layer, x, lengths, initial)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        why = layer.explain(x, lengths)
        found = results(layer, x, lengths, initial)
    assert why.backends[0] == ("matrix" if recipe.kind == "scan" else "reference"), why
    text = str(why)
    assert f"S: {recipe.kind}" in text or (recipe.decay == "nothing left" and "S: map" in text), why
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


@settings(deadline=None, max_examples=12)
@given(recipes(True), st.integers(2, 9), st.integers(0, 10**6))
def test_what_is_not_affine_is_a_loop_and_runs(recipe: Recipe, time: int, seed: int) -> None:
    layer, x, lengths, initial = drawn_case(recipe, time, False, True, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        why = layer.explain(x, lengths)
        found = results(layer, x, lengths, initial)
    assert why.backends == ("reference",)
    assert "S: loop (not a scan: " in str(why)
    with force("reference"):
        for ours, theirs in zip(found, results(layer, x, lengths, initial), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@settings(deadline=None, max_examples=10)
@given(recipes(False), st.integers(2, 12), st.integers(0, 10**6))
def test_steps_and_pieces_equal_the_whole(recipe: Recipe, time: int, seed: int) -> None:
    layer, x, _, initial = drawn_case(recipe, time, False, False, seed)
    layer.eval()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole, last = layer(x, None, initial)
        state, ys = initial, []
        for xt in x.unbind(1):
            y, state = layer.step(xt, state)
            ys.append(y)
        torch.testing.assert_close(torch.stack(ys, 1), whole, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(state, last, rtol=1e-9, atol=1e-9)
        first, middle = layer(x[:, :1], None, initial)
        rest, end = layer(x[:, 1:], None, middle)
        torch.testing.assert_close(torch.cat((first, rest), 1), whole, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(end, last, rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------------- one cell, by hand
class Delta(nn.Cell):
    """S' = α S (I − β k kᵀ) + β v kᵀ, written as keys by values."""

    state = ("h", "S")

    def setup(
        self, inputs: int, hidden: int, *, heads: int = 2, whole: bool = False, noise: bool = False
    ) -> None:
        self.shapes = {"S": (heads, hidden // heads, hidden // heads)}
        self.project = nn.Affine(inputs, 3 * hidden)
        self.gates = nn.Affine(inputs, 2 * heads)
        self.whole, self.noise = whole, noise

    def step(self, x: Tensor, h: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
        heads, d, _ = self.shapes["S"]
        q, k, v = self.project(x).unflatten(-1, (3, heads, d)).unbind(1)
        alpha, beta = torch.sigmoid(self.gates(x)).unflatten(-1, (2, heads, 1)).unbind(1)
        if self.noise:
            v = F.dropout(v)
        k = F.normalize(k, dim=-1)
        S = alpha[..., None] * S
        S = S + outer(k, beta * (v - contract(k, S)))
        return (S.sum(-2) if self.whole else contract(q, S)).flatten(1), S


def test_the_gated_delta_rule_is_found_and_explained() -> None:
    layer = nn.Recurrent(Delta(4, 6))
    why = str(layer.explain(torch.randn(2, 5, 4)))
    assert "matrix (the step once for all steps" in why
    assert "S: scan (matrix, delta rule, decay by head)" in why
    assert "h: map" in why
    few = layer.explain(torch.randn(2, 4, 4)).choices[0]
    assert few.backend == "reference"
    assert "faster one after the other" in few.others["matrix"]


def test_what_reads_the_matrix_as_a_whole_is_told_what_to_use() -> None:
    layer = nn.Recurrent(Delta(4, 6, whole=True))
    with pytest.warns(UserWarning, match="state 1 is read as a whole; read it by contract"):
        why = layer.explain(torch.randn(2, 5, 4))
    assert "h: loop (not a scan: S is read as a whole; read it by contract)" in str(why)
    assert layer(torch.randn(2, 5, 4))[0].shape == (2, 5, 6)


def test_random_numbers_within_the_step_keep_the_loop() -> None:
    layer = nn.Recurrent(Delta(4, 6, noise=True))
    with pytest.warns(UserWarning, match="draws random numbers"):
        assert layer.explain(torch.randn(2, 5, 4)).backends == ("reference",)
    torch.manual_seed(3)
    found = layer(torch.ones(1, 2, 4))[0]
    torch.manual_seed(3)
    with force("reference"):
        assert torch.equal(layer(torch.ones(1, 2, 4))[0], found)


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rule", ["add", "delta"])
@pytest.mark.parametrize("decay", ["head", "channel", "signed", "resets", "each"])
def test_a_scan_in_float32_equals_the_loop_in_float64(
    decay: str, rule: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer than a chunk, so that a GPU's fused kernels take part; and again, to the same bits."""
    if rule == "delta" and decay == "each":
        return
    if device == "cuda":
        monkeypatch.setattr(torch.backends.cuda.matmul, "fp32_precision", "ieee")
    layer, x, lengths, initial = drawn_case(Recipe(decay, "one", rule, "new", ("last",)), 90, True, True, 0)
    assert lengths is not None
    layer.float().double()
    x, *initial = [t.float().double() for t in (x, *initial)]
    with force("reference"):
        expected = results(layer, x, lengths, tuple(initial))
    layer.to(device, torch.float32)
    there = [t.to(device, torch.float32) for t in (x, *initial)]
    assert layer.explain(there[0]).backends == ("matrix", "matrix")
    found = results(layer, there[0], lengths.to(device), tuple(there[1:]))
    for ours, theirs in zip(found, expected, strict=True):
        assert float((ours.double().cpu() - theirs).detach().norm()) < 2e-4 * float(
            1e-3 + theirs.detach().norm()
        )
    again = results(layer, there[0], lengths.to(device), tuple(there[1:]))
    assert all(torch.equal(a, b) for a, b in zip(found[:4], again[:4], strict=True))


def test_padding_is_never_read() -> None:
    layer = nn.Recurrent(Delta(4, 6), layers=2, bidirectional=True)
    x, lengths = torch.randn(3, 9, 4), torch.tensor([9, 0, 4])
    spoilt = x.clone()
    spoilt[1], spoilt[2, 4:] = torch.nan, torch.inf
    spoilt.requires_grad_()
    y, last = layer(spoilt, lengths)
    grads = torch.autograd.grad(y.sum() + sum(s.sum() for s in last), [spoilt, *layer.parameters()])
    assert all(g.isfinite().all() for g in grads)
    assert not grads[0][2, 4:].any()
    torch.testing.assert_close(y, layer(x, lengths)[0])


def test_states_are_flat_outside_and_noise_fits_them() -> None:
    layer = nn.Recurrent(Delta(4, 6), layers=2, zoneout=(0.1, 0.2), recurrent_dropout=0.3)
    y, last = layer(torch.randn(2, 5, 4))
    assert [tuple(s.shape) for s in last] == [(2, 2, 6), (2, 2, 18)]
    assert y.isfinite().all()
    layer.eval()
    x = torch.randn(2, 5, 4)
    with force("reference"):
        expected = layer(x)[0]
    torch.testing.assert_close(layer(x)[0], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"needs one tensor \[\(2, 2, 6\), \(2, 2, 18\)\]"):
        layer(x, None, (last[0], last[0]))


def test_an_estimator_takes_such_a_cell(tmp_path: Path) -> None:
    """It trains, answers the same after it was saved and loaded, and generates with a state of constant size."""
    tiny = {"steps": 3, "valid_every": 3, "save_every": 3, "hidden": 8, "batch_tokens": 64}
    pairs = [("a good film", "pos"), ("a bad film", "neg")] * 4
    m = an.Classifier("lstm", cell=Delta, **tiny).fit(pairs, valid=pairs)
    m.save(tmp_path / "m")
    again = an.load(tmp_path / "m", cell=Delta)
    assert (again.predict_proba(["a good film"]) == m.predict_proba(["a good film"])).all()  # type: ignore[attr-defined]
    text = [("a b", "b a"), ("b b a", "a b b")] * 4
    translator = an.Translator("lstm-attention", cell=Delta, **tiny).fit(
        text, valid=text
    )  # a bridge to the decoder
    assert len(translator.predict(["a b"])) == 1
    lm = an.LanguageModel("lstm", cell=Delta, **tiny).fit(["abab", "baba"] * 8, valid=["abab"])
    assert len(lm.sample("ab", length=5, seed=0)[0]) >= 1


def test_copies_second_derivatives_and_layers_around_it() -> None:
    layer = nn.Recurrent(Delta(4, 6)).double()
    x = torch.randn(1, 5, 4, dtype=torch.float64, requires_grad=True)
    y = layer(x)[0]
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(x)[0], y)
    assert torch.autograd.gradgradcheck(lambda v: layer(v)[0], (x,))
    block = nn.linear.CellLayer(Delta(4, 6))
    whole, _ = block(torch.randn(2, 5, 4))
    assert whole.shape == (2, 5, 4)


def test_wrong_shapes_are_refused() -> None:
    class First(nn.Cell):
        state = ("S",)

        def setup(self, inputs: int, hidden: int) -> None:
            self.shapes = {"S": (2, 2)}

    class Unknown(nn.Cell):
        def setup(self, inputs: int, hidden: int) -> None:
            self.shapes = {"S": (2, 2)}

    class Other(Delta):
        def step(self, x: Tensor, h: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
            return h, S.sum(-1)

    with pytest.raises(ValueError, match="put a vector first"):
        First(3, 4)
    with pytest.raises(ValueError, match="not among its states"):
        Unknown(3, 4)
    with pytest.raises(ValueError, match="returned S with the shape"):
        nn.Recurrent(Other(4, 6))(torch.randn(1, 3, 4))
