"""What a search did, where it is known: a table of next symbols, rules that forbid, posteriors set by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from meaning import shown
from torch import nn

import anaphora as an
from anaphora.data.symbols import EOS
from anaphora.models.memory import Memory
from anaphora.probe.answers import outputs_of
from anaphora.probe.ctc import probe_ctc
from anaphora.probe.seq2seq import search_tables
from anaphora.probe.trace import Array, Trace
from anaphora.search import beam
from anaphora.settings import build
from anaphora.settings.search import CompleteSearch
from anaphora.tasks import steering

A, B, AB = 4, 5, 6
SPELLINGS = {2: "<s>", EOS: "</s>", A: "a", B: "b", AB: "ab"}
"""The text ab is spelled in two ways: a then b, and ab at once."""
NEXT = {
    (): {A: 0.6, B: 0.3, AB: 0.1},
    (A,): {B: 0.55, EOS: 0.45},
    (B,): {EOS: 0.95, A: 0.05},
    (AB,): {EOS: 1.0},
    (A, B): {EOS: 1.0},
    (B, A): {EOS: 1.0},
}
"""p of the next symbol after what was written: ab 0.33 + 0.1, a 0.27, b 0.285, ba 0.015."""


def spell(ids):
    return [SPELLINGS.get(i, f"<{i}>") for i in ids]


def after(history):
    row = torch.full((7,), -math.inf)
    for symbol, p in NEXT[tuple(history)].items():
        row[symbol] = math.log(p)
    return row


def written(width, **options):
    """The search of the table with a beam so wide."""

    def step(symbols, state):
        grown = torch.cat([state, symbols[:, None]], 1)
        return torch.stack([after([s for s in row if s > EOS]) for row in grown.tolist()]), grown

    settings = {"eos": EOS, "max_length": 4, "length_penalty": 0.0, "keep_tree": True, **options}
    (found,) = beam(
        step, torch.zeros(1, 0, dtype=torch.long), start=torch.tensor([2]), width=width, **settings
    )
    return Trace({}, {}, {"task": "toy"}, search_tables(found, spell))


class Table(nn.Module):
    """The table as the decoder of a translator: it reads nothing."""

    places = None

    @property
    def decoder(self):
        return self

    def start(self, memory):
        return torch.zeros(1, 0, dtype=torch.long)

    def step(self, symbols, state):
        grown = torch.cat([state, symbols[:, None]], 1)
        return torch.stack([after([s for s in row if s > EOS]) for row in grown.tolist()]), grown


class Tokenizer:
    size = 7

    def pieces(self, ids):
        return spell(ids)

    def encode(self, text):
        return [{"a": A, "b": B}[letter] for letter in text]

    def decode(self, ids):
        return "".join(SPELLINGS[i] for i in ids if i > EOS)


@pytest.fixture
def steer(monkeypatch):
    """`an.steer` of the table."""

    def task_of(m, x, width, length_penalty):
        settings = build(
            CompleteSearch, {"beam": width or 2, "length_penalty": 0.0, **m.search}, owner="test"
        )
        memory = Memory(torch.zeros(1, 1, 1), torch.ones(1, 1, dtype=torch.bool))
        t = Tokenizer()
        return steering._Task(t, spell, t.encode, Table(), memory, m.limit, settings)

    class Model:
        command = "translate"
        model_ = Table()
        settings_ = SimpleNamespace(model="table", seed=1, batch_invariant=False)

        def __init__(self, search, limit):
            self.search, self.limit = search, limit

        def _check_trained(self):
            pass

    monkeypatch.setattr(steering, "_task_of", task_of)

    def steered(*, search=None, limit=4, **options):
        return an.steer(Model(search or {}, limit), "x", **options).facts

    return steered


def test_view_beam_lists_all_that_was_finished_and_what_reads_the_same_once():
    """D7: with room for six all outputs are finished; ab comes in two spellings, of which the better is p = 0.33."""
    trace = written(6)
    drawn = shown(trace, "beam")
    assert [text for text, _ in drawn.chart.outputs] == ["a b (2 ways)", "b", "a", "b a"]
    scores = [math.exp(score) for _, score in drawn.chart.outputs]
    assert scores == pytest.approx([0.33, 0.285, 0.27, 0.015])
    drawn.says("a b (2 ways)", "b a")
    assert [(row["text"], row["ways"]) for row in outputs_of(trace)] == [
        ("ab", 2),
        ("b", 1),
        ("a", 1),
        ("ba", 1),
    ]
    way = [node.piece for node in drawn.chart.nodes if node.best]
    assert way == ["a", "b", "</s>"]  # of the output alone


def test_view_beam_drops_what_a_narrow_beam_has_no_room_for():
    drawn = shown(written(1), "beam")
    fates = {(n.step, n.piece): n.fate for n in drawn.chart.nodes}
    assert fates[0, "a"] == "kept"
    assert fates[0, "b"] == "pruned"
    assert [text for text, _ in drawn.chart.outputs] == ["a b"]
    assert all(n.best == (n.fate != "pruned") for n in drawn.chart.nodes)


def test_A13_D3_steering_tells_rule_setting_search_and_model_apart(steer):
    """A greedy search of the table finds ab (0.33), which is the best there is; b has 0.285, ba 0.015."""
    assert steer(beam=1, reference="ab")["verdict"] == "found"
    assert steer(beam=1, reference="b")["verdict"] == "model error"
    # without a after the start, ab at once has 0.1, and what was wanted, p = 0.33, is forbidden: no search would find it
    for width in (1, 5):
        facts = steer(beam=width, ban=[[A]], reference="ab")
        assert facts["found"]["text"] == "b"
        assert facts["verdict"] == "rule"
        assert facts["because"] == "your rules do not allow 'a' at place 1 of it."
    assert (
        steer(ban=[[B, EOS]], reference="b")["because"] == "your rules do not allow the end at place 2 of it."
    )
    assert steer(force={2: "a"}, reference="ab")["verdict"] == "rule"
    assert steer(force={3: "</s>"}, reference="b")["verdict"] == "rule"
    # rules that allow what was wanted leave the question open
    assert steer(ban=[[A, B]], beam=1, reference="b")["verdict"] == "search error"
    assert steer(ban=[[A, B]], beam=3, reference="b")["verdict"] == "found"
    # a setting of the search
    facts = steer(search={"min_length": 3}, beam=5, reference="b")
    assert (facts["verdict"], facts["because"]) == (
        "setting",
        "it has 2 symbols with its end, and min_length = 3 asks for more.",
    )
    assert steer(limit=2, beam=5, reference="ab")["verdict"] == "setting"


def test_view_sampling_of_three_shares_under_top_k_and_temperature():
    """p = ½, ¼, ¼: 1.5 bits. Of the two best ⅔ and ⅓ are drawn; at T = ½ p² / Σ p²."""
    logs = np.log([[0.5, 0.25, 0.25]])
    tables = {"top": [{"pieces": ["x", "y", "z"], "log_probs": logs[0].tolist()}]}
    trace = Trace({"time": ["a"]}, {"sorted_log_probs": Array(("time", "rank"), logs)}, {}, tables)
    drawn = shown(trace, "sampling", top_k=2)
    bars = drawn.called("After", "a")
    assert bars.names == ["x", "y", "z"]
    assert bars.series["model"] == pytest.approx([0.5, 0.25, 0.25])
    assert bars.series["drawn from"] == pytest.approx([2 / 3, 1 / 3, 0])
    assert "2 of 3 symbols can be drawn" in bars.subtitle
    assert drawn.called("Entropy").lines[0].y == pytest.approx([1.5])
    colder = shown(trace, "sampling", temperature=0.5).called("After")
    assert colder.series["drawn from"] == pytest.approx([2 / 3, 1 / 6, 1 / 6])


def posteriors():
    """Four frames: a for certain, a again, blank, b."""
    shares = np.full((4, 3), 1e-12)
    shares[[0, 1, 2, 3], [1, 1, 0, 2]] = 1.0
    return np.log(shares)


def test_view_ctc_of_posteriors_set_by_hand_collapses_a_a_blank_b():
    drawn = shown(probe_ctc(posteriors(), [1, 2], symbols=["-", "a", "b"]), "ctc")
    lines = {line.name: line.y for line in drawn.charts[0].lines}
    assert lines["blank"] == pytest.approx([0, 0, 1, 0], abs=1e-9)
    assert lines["a"] == pytest.approx([1, 1, 0, 0], abs=1e-9)
    assert lines["b"] == pytest.approx([0, 0, 0, 1], abs=1e-9)
    lattice = drawn.called("Lattice")
    assert lattice.rows == ["0: -", "1: a", "2: -", "3: b", "4: -"]
    assert lattice.path == [1, 1, 2, 3]
    expected = np.zeros((5, 4))
    expected[[1, 1, 2, 3], [0, 1, 2, 3]] = 1
    np.testing.assert_allclose(lattice.values, expected, atol=1e-6)
    assert "best path: a a - b" in lattice.subtitle
    drawn.says("a b")


def test_view_prefixes_shows_when_each_beginning_takes_over():
    drawn = shown(probe_ctc(posteriors(), [1, 2], symbols=["-", "a", "b"]), "prefixes", width=3)
    bars = drawn.called("After frame 4 of 4")
    assert bars.names[0] == "ab"
    assert bars.series["ends in its last symbol"][0] == pytest.approx(1)
    assert bars.series["ends in a blank"][0] == pytest.approx(0, abs=1e-9)
    course = drawn.called("Prefixes over time")
    rows = dict(zip(course.rows, course.values.tolist(), strict=True))
    assert rows["a"] == pytest.approx([1, 1, 1, 0], abs=1e-6)
    assert rows["ab"] == pytest.approx([0, 0, 0, 1], abs=1e-6)
    third = shown(
        probe_ctc(posteriors(), [1, 2], symbols=["-", "a", "b"]), "prefixes", width=3, frame=3
    ).called("After frame 3")
    assert third.names[0] == "a"
    assert third.series["ends in a blank"][0] == pytest.approx(1)
    drawn.says("at the end: ab")


def test_view_crf_of_two_words_follows_its_scores_and_what_is_forbidden():
    """Words say x, then y by 2; a move from x to y costs 3. The chain stays in x: e² against e¹ and less."""
    free = {"start": (("state",), np.zeros(2)), "end": (("state",), np.zeros(2))}
    arrays = {
        "chain_emissions": Array(("place", "state"), np.array([[2.0, 0.0], [0.0, 2.0]])),
        "chain_moves": Array(("state", "to"), np.array([[0.0, -3.0], [0.0, 0.0]])),
        **{f"chain_{name}": Array(*found) for name, found in free.items()},
        **{f"chain_{name}_rule": Array(*found) for name, found in free.items()},
        "chain_move_rule": Array(("state", "to"), np.zeros((2, 2))),
    }
    trace = Trace(
        {"state": ["x", "y"], "time": ["u", "v"], "place": ["u", "v"]}, arrays, {"tags": ["x", "x"]}
    )
    drawn = shown(trace, "crf")
    scores = {("x", "x"): 2.0, ("x", "y"): 1.0, ("y", "x"): 0.0, ("y", "y"): 2.0}
    total = sum(map(math.exp, scores.values()))
    marginals = drawn.called("Marginals")
    assert marginals.rows == ["x", "y"]
    assert marginals.columns == ["u", "v"]
    first_x = (math.exp(2) + math.exp(1)) / total
    last_x = (math.exp(2) + math.exp(0)) / total
    np.testing.assert_allclose(marginals.values, [[first_x, last_x], [1 - first_x, 1 - last_x]], rtol=1e-6)
    assert marginals.path == [0, 0]
    drawn.says(f"log p = {2 - math.log(total):.4f}")
    without = shown(trace, "crf", forbid="x>x")
    assert without.called("Marginals").path == [1, 1]
    without.says("u: x → y; v: x → y")
