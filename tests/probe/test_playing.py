"""Reels: the equations that are found, their numbers against those of the model, and what has none."""

from __future__ import annotations

import contextlib
import itertools

import numpy as np
import pytest
import torch
from torch import nn

import anaphora as an
from anaphora.errors import AnaphoraError, DataError
from anaphora.models.classical.hmm.tagger import HMMTagger
from anaphora.nn import GRU, LSTM, Affine, Cell, Recurrent, inside
from anaphora.nn.attention import MultiHead
from anaphora.nn.cells.scanned import LRU
from anaphora.nn.positions import Alibi, Rotary
from anaphora.probe.playing.cells import play_cell
from anaphora.probe.playing.classical import play_tagger
from anaphora.probe.playing.notes import play_collapse, reels_of, seeing
from anaphora.probe.playing.reel import Equation, Reel
from anaphora.search import ctc_greedy


def played(cell, steps=6, seed=0):
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(steps, cell.inputs, generator=draw)
    states = [torch.randn(steps, width, generator=draw) for width in cell.widths]
    with torch.no_grad():
        new = cell.advance(x, tuple(states))
    return play_cell(cell, x, states, new, steps=list(map(str, range(steps))), title="cell"), new


def test_the_lstm_has_the_equations_of_the_lectures_and_their_numbers():
    torch.manual_seed(1)
    reel, new = played(LSTM(3, 4))
    assert [str(one) for one in reel.equations] == [
        "c̃ = tanh(W_c̃ x + U_c̃ h′ + b_c̃)",
        "i = σ(W_i x + U_i h′ + b_i)",
        "f = σ(W_f x + U_f h′ + b_f)",
        "c = f ∘ c′ + i ∘ c̃",
        "o = σ(W_o x + U_o h′ + b_o)",
        "h = o ∘ tanh(c)",
    ]
    v = reel.values
    np.testing.assert_allclose(v["c"], v["f"] * v["c′"] + v["i"] * v["c̃"], atol=1e-6)
    np.testing.assert_allclose(v["f"], 1 / (1 + np.exp(-v["a_f"])), atol=1e-6)
    np.testing.assert_allclose(v["h"], new[0].numpy(), atol=1e-6)
    assert reel.max_difference < 1e-6
    assert reel.value("c", step=3, unit=2) == pytest.approx(float(new[1][2, 1]))


def test_the_gru_and_cells_with_vectors_of_parameters():
    assert "h = (1 − u) ∘ h′ + u ∘ h̃" in repr(played(GRU(3, 4))[0])
    reel, new = played(
        LRU(3, 4)
    )  # two vectors come from one parameter: each has a name and a value of its own
    assert str(reel.equations[0]).startswith("re = c ∘ re′ − s ∘ im′")
    v = reel.values
    written = v["c"] * v["re′"] - v["s"] * v["im′"] + v["scale"] * v["a_re"]
    np.testing.assert_allclose(written, new[1].numpy(), atol=1e-5)


class Forgetful(Cell):
    """A cell of a user's own, with names of its own."""

    state = ("h",)

    def setup(self, inputs, hidden):
        self.both = Affine(inputs, hidden, 2 * hidden, blocks=2)
        self.rate = nn.Parameter(torch.linspace(0.1, 0.9, hidden))

    def step(self, x, h):
        door, fresh = self.both(x, h).chunk(2, -1)
        door = torch.sigmoid(door)
        kept = self.rate * door * h
        return kept + (1 - door) * torch.relu(fresh)


def test_a_cell_of_ones_own_has_its_own_drawing():
    reel, _ = played(Forgetful(2, 3))
    assert {str(one) for one in reel.equations} == {
        "door = σ(W_door x + U_door h′ + b_door)",
        "kept = rate ∘ door ∘ h′",
        "fresh = W_fresh x + U_fresh h′ + b_fresh",
        "h = kept + (1 − door) ∘ relu(fresh)",
    }
    assert reel.equations[-1].reads == ["kept", "door", "fresh"]
    np.testing.assert_allclose(reel.values["rate"][0], [0.1, 0.5, 0.9], atol=1e-6)


class Sorting(Cell):
    state = ("h",)

    def setup(self, inputs, hidden):
        self.a = Affine(inputs, hidden, hidden)

    def step(self, x, h):
        return torch.sort(self.a(x, h), dim=-1).values


def test_a_cell_that_cannot_be_traced_has_its_states():
    reel, new = played(Sorting(2, 3))
    assert "cannot be traced" in reel.note
    np.testing.assert_allclose(reel.values["h"], new[0].numpy())


def test_numbers_that_are_not_the_models_own_are_refused():
    cell = LSTM(3, 4)
    x, zero = torch.ones(2, 3), torch.zeros(2, 4)
    with pytest.raises(AnaphoraError, match="from the model's own"):
        play_cell(cell, x, [zero, zero], [zero + 1, zero], steps=["a", "b"], title="cell")
    with pytest.raises(AnaphoraError, match="which has no value"):
        Reel("t", ["a"], [Equation("y", [{"ref": "z"}])], {}, 1)


def test_both_directions_are_played_as_they_read():
    torch.manual_seed(0)
    layer = Recurrent(LSTM(3, 4), bidirectional=True).eval()
    x = torch.randn(1, 5, 3)
    from anaphora.nn import inside

    with torch.no_grad(), seeing(layer) as seen, inside.record():
        y, _ = layer(x)
    parts = reels_of(layer, seen, lambda axis, n: [str(i) for i in range(n)])
    names = list(parts)
    assert names == ["layer 1, forward (LSTM)", "layer 1, backward (LSTM)"]
    ahead, back = (parts[name]() for name in names)
    assert (ahead.steps, back.steps) == (["0", "1", "2", "3", "4"], ["4", "3", "2", "1", "0"])
    np.testing.assert_allclose(ahead.values["h"], y[0, :, :4].numpy(), atol=1e-6)
    np.testing.assert_allclose(back.values["h"], y[0, :, 4:].flip(0).numpy(), atol=1e-6)
    np.testing.assert_allclose(back.values["h′"][1:], back.values["h"][:-1], atol=1e-6)
    assert not back.values["h′"][0].any()


def test_the_forward_recursion_of_an_hmm_is_its_filter():
    model = an.HMM(2, emissions="categorical").fit([[0, 1, 2, 0, 1, 1]])
    reel = an.play(model, [0, 2, 1, 1])
    np.testing.assert_allclose(reel.values["α"], model.filter([0, 2, 1, 1]), atol=1e-9)
    v = reel.values
    np.testing.assert_allclose(v["p"][1:], v["α′"][1:] @ reel.matrices["A"].T, atol=1e-12)
    np.testing.assert_allclose(v["α"], v["u"] / v["Z"], atol=1e-12)
    assert int(v["δ"][-1].argmax()) == model.predict([0, 2, 1, 1], method="viterbi")[-1]


@pytest.mark.parametrize("order", [2, 3])
def test_the_recursion_of_a_tagger_ends_in_its_marginals(order):
    rules = (np.ones(2, bool), np.ones((2, 2), bool), np.ones(2, bool))
    sentences = [(["a", "b", "c"], ["X", "Y", "X"]), (["b", "a"], ["Y", "X"]), (["c"], ["Y"])]
    tagger = HMMTagger.fit(sentences, words=["a", "b", "c"], tags=["X", "Y"], order=order, rules=rules)
    words = ["b", "c", "a"]
    reel = play_tagger(tagger, words)
    # brute force over all tag sequences, without the end of the sentence
    moves, emitted = np.exp(tagger._log_moves), np.exp(tagger._emissions(words))
    shares = np.zeros(2)
    for path in itertools.product(range(2), repeat=3):
        chain = [2] * (order - 1) + list(path)
        p = np.prod([moves[tuple(chain[t : t + order])] for t in range(3)])
        shares[path[-1]] += p * np.prod([emitted[t, tag] for t, tag in enumerate(path)])
    np.testing.assert_allclose(reel.values["α"][-1], shares / shares.sum(), atol=1e-12)
    assert reel.names == ["X", "Y"]
    assert reel.max_difference is not None
    assert reel.max_difference < 1e-12


def test_the_update_of_a_kalman_filter_adds_up():
    y = np.array([1.0, 2.0, np.nan, 2.5])
    model = an.Kalman.local_trend()
    reel = an.play(model, y)
    v = reel.values
    np.testing.assert_allclose(v["m"], v["m⁻"] + v["K"] * v["e"], rtol=1e-6)
    np.testing.assert_allclose(v["m"], model.filter(y[:, None]).mean, rtol=1e-9)
    assert v["e"][2] == 0
    assert "without an observation" in reel.note


def test_the_collapse_writes_what_a_greedy_search_finds():
    draw = np.random.default_rng(0)
    logits = draw.normal(size=(12, 4)) * 2
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    reel = play_collapse(shares, ["–", "a", "b", "c"], 0)
    (best,) = ctc_greedy(torch.from_numpy(np.log(shares))[None])
    assert reel.texts["text"][-1] == "".join("–abc"[s] for s in best[0].tokens)
    assert reel.names == ["–", "a", "b", "c"]


def test_a_window_keeps_the_numbers_of_its_steps():
    values = {"h": np.arange(4000.0).reshape(1000, 4)}
    reel = Reel("t", [str(i) for i in range(1000)], [], values, 4)
    assert reel.window() is reel
    from anaphora.probe.playing import reel as module

    usual = module.MOST_NUMBERS
    module.MOST_NUMBERS = 40
    try:
        cut = reel.window(500)
    finally:
        module.MOST_NUMBERS = usual
    assert (cut.first, len(cut.steps), cut.all_steps) == (500, 10, 1000)
    assert cut.value("h", 501, 2) == reel.value("h", 501, 2) == 2001.0
    assert cut.json()["steps"][0] == "500"


def test_what_goes_nowhere_step_by_step_is_refused():
    counted = an.LanguageModel(model="ngram").fit(["abab abc\n" * 20])
    with pytest.raises(DataError, match="goes step by step"):
        an.play(counted, "a")


class Looks(torch.nn.Module):
    """One attention with two heads by itself."""

    def __init__(self, **options):
        super().__init__()
        torch.manual_seed(0)
        self.attention = MultiHead(8, 2, **options)

    def forward(self, x):
        return self.attention(x, causal=True)[0]


def looked(model, x, change=None):
    """The reels of a model that looks from five places at five, perhaps with other weights than it computed."""
    with torch.no_grad(), seeing(model) as seen, inside.record(), contextlib.ExitStack() as held:
        if change is not None:
            held.enter_context(inside.changing(change))
        model(x)
    return reels_of(model, seen, lambda axis, n: [f"{axis} {i}" for i in range(n)])


@pytest.mark.parametrize("options", [{}, {"positions": Rotary()}, {"positions": Alibi(2)}], ids=str)
def test_D6_the_scores_of_a_head_come_from_its_queries_and_keys(options):
    """The proof compares α of q · k with the model's own α; it used to take the logarithm of the one to get the other back."""
    model, x = Looks(**options).eval(), torch.randn(1, 5, 8)
    reel = looked(model, x)["attention attention, head 2"]()
    own = model.attention(x, causal=True, weights=True)[1][0, 1].detach().numpy()
    np.testing.assert_allclose(reel.values["α"], own, atol=1e-6)
    assert 0 < reel.max_difference < 1e-6
    assert [e.name for e in reel.equations] == ["e", "m", "w", "Z", "α"]
    # every number follows from those before it, and Z is a sum, not 1
    e = reel.values["q"] @ reel.matrices["K"].T + reel.values.get("b", 0.0)
    hidden = np.triu(np.ones((5, 5), bool), 1)
    np.testing.assert_allclose(reel.values["e"], np.where(hidden, -1e9, e), atol=1e-6)
    assert np.abs(reel.values["Z"] - 1).max() > 0.1
    assert reel.steps == reel.names == [f"time {i}" for i in range(5)]


def test_D6_weights_that_do_not_come_from_the_scores_are_refused():
    """Attention that was put in place of the model's own has no such scores; the circular proof passed it with 5e-8."""

    def other(module, name, value, place):
        return torch.full_like(value, 0.2) if name == "weights" else value

    reels = looked(Looks().eval(), torch.randn(1, 5, 8), other)
    with pytest.raises(AnaphoraError, match="from the model's own"):
        reels["attention attention, head 1"]()


def test_D6_attention_without_scores_claims_no_proof():
    from anaphora.nn.attention import Dot, Hard

    torch.manual_seed(0)
    model = Hard(Dot()).eval()
    with torch.no_grad(), seeing(model) as seen, inside.record():
        model(torch.randn(1, 3, 4), torch.randn(1, 3, 4))
    ((_, made),) = reels_of(model, seen, lambda axis, n: [axis] * n).items()
    assert made().max_difference is None
    assert list(made().values) == ["α"]
    assert "not the scores" in made().note


@pytest.mark.parametrize("norm_first", [True, False])
def test_D6_what_a_sublayer_adds_is_what_its_function_gave(norm_first):
    torch.manual_seed(0)
    layer = an.nn.EncoderLayer(MultiHead(8, 2), an.nn.FeedForward(8, 16), norm_first=norm_first)
    model, x = an.nn.TransformerEncoder(layer, 2).eval(), torch.randn(1, 4, 8)
    with torch.no_grad(), seeing(model) as seen, inside.record():
        model(x)
    reel = reels_of(model, seen, lambda axis, n: [str(i) for i in range(n)])
    reel = next(made for name, made in reel.items() if "place 2" in name)()
    first = model.layers[0]
    with torch.no_grad():
        given = first.around_attention.norm(x) if norm_first else x
        said = first.attention(given)[0][0, 1].numpy()
    np.testing.assert_allclose(reel.values["f"][0], said, atol=1e-6)
    assert reel.max_difference < 1e-6
