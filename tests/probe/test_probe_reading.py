"""Looking into models that read: what is noted equals what is computed, and known answers come out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import anaphora as an
from anaphora.errors import AnaphoraError
from anaphora.models.encoders import RecurrentEncoder, TransformerEncoder
from anaphora.nn import Recurrent, transformer
from anaphora.nn.attention import MultiHead
from anaphora.nn.embedding import Embedding, Output
from anaphora.nn.positions import Sinusoidal
from anaphora.probe.noted import inner_arrays, run_noted
from anaphora.probe.reading import ablation, add_next_symbols, probe_reading
from anaphora.views.gates import memory, saturation
from anaphora.views.registry import picture

SYMBOLS = torch.tensor([[4, 7, 5, 9, 6, 4]])
PLACES = ["d", "g", "e", "i", "f", "d"]


class Reader(nn.Module):
    """An encoder with an output layer: logits of a symbol at every place."""

    def __init__(self, encoder, symbols=10):
        super().__init__()
        self.encoder, self.output = encoder, Output(encoder.width, symbols)

    def forward(self, symbols):
        lengths = torch.tensor([symbols.shape[1]])
        return self.output(self.encoder(symbols, lengths).annotations)


def recurrent(cell, **options):
    torch.manual_seed(0)
    layers = Recurrent(cell(6, 5), **options)
    return Reader(RecurrentEncoder(Embedding(10, 6), layers)).eval()


def attentive():
    torch.manual_seed(0)
    layer = transformer.EncoderLayer(MultiHead(8, 2), transformer.FeedForward(8, 16))
    stack = transformer.TransformerEncoder(layer, 3)
    return Reader(TransformerEncoder(Embedding(10, 8), stack, positions=Sinusoidal(8))).eval()


def losses(logits):
    """−log p of the symbol that was read, at every place."""
    return nn.functional.cross_entropy(logits[0], SYMBOLS[0], reduction="none")


def probe(model, **options):
    return probe_reading(
        model, lambda: model(SYMBOLS), places=PLACES, facts={"task": "t"}, losses=losses, **options
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: recurrent(an.nn.Elman),
        lambda: recurrent(an.nn.LSTM, layers=2),
        lambda: recurrent(an.nn.GRU, bidirectional=True),
        attentive,
    ],
)
def test_the_probe_equals_the_model(make):
    model = make()
    trace, output = probe(model)
    torch.testing.assert_close(output, model(SYMBOLS), atol=1e-5, rtol=0)
    assert trace.max_difference <= 1e-5
    assert trace.arrays["states"].values.shape[1] == len(PLACES)


def test_gates_of_a_hand_set_lstm_are_saturated_as_set():
    layer = Recurrent(an.nn.LSTM(2, 4))
    cell = layer.cells[0]
    with torch.no_grad():
        for weight in cell.parameters():
            weight.zero_()
        # PyTorch's order of gates is input, forget, candidate, output
        native = layer.to_torch()
        native.bias_ih_l0.copy_(torch.tensor([-20.0] * 4 + [20.0] * 4 + [0.0] * 8))
    layer = Recurrent.from_torch(native)
    arrays, _ = inner_arrays(run_noted(layer, lambda: layer(torch.randn(1, 9, 2))[0]))
    assert saturation(arrays["gate_forget"].values[0]) == [(1.0, 0.0)] * 4
    assert saturation(arrays["gate_input"].values[0]) == [(0.0, 1.0)] * 4
    assert saturation(arrays["gate_output"].values[0]) == [(0.0, 0.0)] * 4
    np.testing.assert_allclose(arrays["gate_output"].values, 0.5)


def test_implied_memory_by_hand():
    assert memory(math.exp(-1 / 7)) == pytest.approx(7)
    assert memory(1.0) == math.inf
    assert memory(0.0) == 0.0


def test_lstm_states_follow_from_the_gates_that_are_shown():
    model = recurrent(an.nn.LSTM)
    trace, _ = probe(model)
    gate = {name: trace.arrays[f"gate_{name}"].values[0] for name in ("input", "forget", "output")}
    cells, states = trace.arrays["cells"].values[0], trace.arrays["states"].values[0]
    before = np.vstack([np.zeros((1, 5)), cells[:-1]])
    np.testing.assert_allclose(
        cells, gate["forget"] * before + gate["input"] * trace.arrays["candidate"].values[0], atol=1e-6
    )
    np.testing.assert_allclose(states, gate["output"] * np.tanh(cells), atol=1e-6)


def test_gates_are_what_comes_of_their_preactivations():
    for cell, gates in ((an.nn.LSTM, ("input", "forget", "output")), (an.nn.GRU, ("reset", "update"))):
        trace, _ = probe(recurrent(cell))
        for gate in gates:
            before, after = trace.array(f"pre_{gate}"), trace.array(f"gate_{gate}")
            np.testing.assert_allclose(1 / (1 + np.exp(-before)), after, atol=1e-6)
    trace, _ = probe(recurrent(an.nn.Elman))
    np.testing.assert_allclose(np.tanh(trace.array("pre_state")), trace.array("states"), atol=1e-6)


def test_jacobians_are_those_of_the_layer():
    trace, _ = probe(recurrent(an.nn.GRU), what=("jacobians",))
    own, products = trace.array("jacobian_norms"), trace.array("jacobian_products")
    assert own.shape == products.shape == (6,)
    assert products[-1] == 1
    assert (products[:-1] <= np.cumprod(own[1:][::-1])[::-1] + 1e-6).all()


def test_attention_of_every_head_sums_to_one():
    trace, _ = probe(attentive())
    attention = trace.arrays["attention"].values
    assert attention.shape == (3, 2, 6, 6)
    np.testing.assert_allclose(attention.sum(-1), 1, atol=1e-6)


def test_silencing_a_head_is_taking_its_columns_out_of_the_projection():
    model = attentive()
    rows = ablation(model, lambda: model(SYMBOLS), losses)
    assert [(r["layer"], r["head"]) for r in rows] == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)]
    usual = float(losses(model(SYMBOLS)).mean().detach())
    attention = [m for m in model.modules() if isinstance(m, MultiHead)][1]
    with torch.no_grad():
        kept = attention.outward.weight.clone()
        attention.outward.weight[:, 4:] = 0.0
        without = float(losses(model(SYMBOLS)).mean())
        attention.outward.weight.copy_(kept)
    assert rows[3]["loss"] == pytest.approx(without - usual, abs=1e-6)
    assert float(losses(model(SYMBOLS)).mean().detach()) == usual  # nothing is left behind


def test_gradients_through_inputs_and_states():
    trace, _ = probe(recurrent(an.nn.GRU), what=("gradients",))
    for name in ("input_gradients", "state_gradients"):
        values = trace.array(name, "step", "time")
        assert np.all(values[np.triu_indices(6, 1)] == 0)
        assert np.all(values[np.tril_indices(6)] > 0)
    both, _ = probe(recurrent(an.nn.GRU, bidirectional=True), what=("gradients",))
    assert "state_gradients" not in both.arrays
    assert (both.array("input_gradients", "step", "time") > 0).all()  # both directions reach everywhere


def test_what_is_asked_for_must_exist():
    with pytest.raises(AnaphoraError, match="gradients, jacobians, ablation"):
        probe(recurrent(an.nn.Elman), what=("gradient",))


def test_next_symbols_are_the_models_distribution():
    model = recurrent(an.nn.LSTM)
    trace, output = probe(model)
    trace = add_next_symbols(trace, output[0], lambda ids: [str(i) for i in ids])
    shares = output[0].softmax(-1)
    for place in range(6):
        row = trace.tables["top"][place]
        assert row["pieces"][0] == str(int(shares[place].argmax()))
        assert math.exp(row["log_probs"][0]) == pytest.approx(float(shares[place].max()), rel=1e-5)
    np.testing.assert_allclose(np.exp(trace.array("sorted_log_probs")).sum(-1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("states", {}),
        ("states", {"of": "cells", "unit": 3}),
        ("gates", {}),
        ("gradients", {}),
        ("sampling", {"temperature": 0.5, "top_k": 3, "place": 2}),
    ],
)
def test_every_view_of_a_recurrent_reader_is_drawn(name, options):
    trace, output = probe(recurrent(an.nn.LSTM, layers=2), what=("gradients",))
    drawn = picture(add_next_symbols(trace, output[0], lambda ids: [f"<{i}>" for i in ids]), name, **options)
    assert drawn.svg().startswith("<svg")
    assert drawn.text(80, colour=False)
    assert "max |Δ|" in drawn.html()


@pytest.mark.parametrize(
    ("name", "options"), [("heads", {}), ("heads", {"layer": 2, "head": 1}), ("positions", {})]
)
def test_every_view_of_an_attentive_reader_is_drawn(name, options):
    trace, _ = probe(attentive(), what=("ablation",))
    drawn = picture(trace, name, **options)
    assert drawn.svg().startswith("<svg")
    assert drawn.csv().count("\n") > 6
    if not options and name == "heads":
        assert "Δloss" in drawn.text(100, colour=False)


@pytest.mark.parametrize(
    ("make", "name", "told"),
    [
        (attentive, "gates", "none of its layers has gates"),
        (attentive, "beam", "without a beam search"),
        (attentive, "sampling", "does not name its next symbol"),
        (lambda: recurrent(an.nn.GRU), "heads", "Transformers have them"),
        (lambda: recurrent(an.nn.GRU), "positions", "no vectors of positions are added"),
        (lambda: recurrent(an.nn.Elman), "gates", "none of its layers has gates"),
        (lambda: recurrent(an.nn.Elman), "gradients", r"needs a trace of probe\(…, what=\('gradients',\)\)"),
        (lambda: recurrent(an.nn.GRU), "hmm", "no hidden Markov model"),
        (lambda: recurrent(an.nn.GRU), "kalman", "no Kalman filter"),
        (lambda: recurrent(an.nn.GRU), "ctc", "no CTC outputs"),
        (lambda: recurrent(an.nn.GRU), "embeddings", "of one input"),
    ],
)
def test_views_say_why_not(make, name, told):
    trace, _ = probe(make())
    with pytest.raises(AnaphoraError, match=told):
        picture(trace, name)


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("states", {"layer": 9}, "layers 1 to 1"),
        ("states", {"unit": 99}, "units 1 to 5"),
        ("states", {"side": "middle"}, "encoder or decoder"),
        ("states", {"units": 0}, "from 1 to 256"),
        ("states", {"colour": 1}, "no option colour"),
        ("gates", {"layer": 0}, "layers 1 to 1"),
    ],
)
def test_options_that_cannot_be(name, options, told):
    trace, _ = probe(recurrent(an.nn.LSTM))
    with pytest.raises(AnaphoraError, match=told):
        picture(trace, name, **options)
