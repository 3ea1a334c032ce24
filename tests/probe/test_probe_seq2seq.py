"""The probe on models small enough to know what it must find."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from anaphora.data.symbols import BOS, EOS
from anaphora.errors import AnaphoraError
from anaphora.models.bridge import Bridge
from anaphora.models.decoders import (
    AttentionDecoder,
    BahdanauDecoder,
    Decoder,
    RecurrentDecoder,
    TransformerDecoder,
)
from anaphora.models.encoders import RecurrentEncoder, TransformerEncoder
from anaphora.models.seq2seq import Seq2Seq
from anaphora.nn import (
    LSTM,
    DecoderLayer,
    Embedding,
    EncoderLayer,
    FeedForward,
    Output,
    Recurrent,
    attention,
    inside,
)
from anaphora.nn.positions import Sinusoidal
from anaphora.nn.transformer import TransformerDecoder as DecoderStack
from anaphora.nn.transformer import TransformerEncoder as EncoderStack
from anaphora.probe.seq2seq import probe_seq2seq, weights_hash
from anaphora.probe.trace import Trace
from anaphora.search import beam

V = 9


class Scores(nn.Module):
    """Attention by the distance of two symbols; notes a row per step, as a recurrent decoder does."""

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        weights = torch.softmax(-(query[:, :, None] - keys[:, None, :]).abs().float(), -1)
        inside.note(self, "weights", weights)
        return weights


class StepDecoder(nn.Module):
    """p(next | symbol, source): the attended source symbol is likely, the weights are learned."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Scores()
        self.dropout = nn.Dropout(0.9)  # would make two runs differ if the probe forgot eval()
        self.out = nn.Linear(1, V)
        self.attentions = [self.attention]

    def forward(self, source: Tensor, target_in: Tensor) -> Tensor:
        steps = []
        for symbol in target_in.unbind(1):
            weights = self.attention(symbol[:, None], source)
            inside.note(self, "states", weights[:, 0])
            steps.append(self.out(self.dropout(torch.matmul(weights, source[..., None].float())[:, 0])))
        return torch.stack(steps, 1)


class Tiny(nn.Module):
    def __init__(self, secret: float = 0.0) -> None:
        super().__init__()
        self.encoder = nn.Identity()
        self.decoder = StepDecoder()
        self.secret = secret  # added to the logits only when somebody looks

    def forward(
        self, source: Tensor, source_lengths: Tensor, target_in: Tensor, target_lengths: Tensor
    ) -> Tensor:
        assert source_lengths.tolist() == [source.shape[1]]
        assert target_lengths.tolist() == [target_in.shape[1]]
        assert (target_in[0, 0], source[0, -1]) == (BOS, EOS)
        return self.decoder(source, target_in) + (self.secret if inside.recording() else 0.0)


def probe(model: nn.Module, **options: object) -> Trace:
    return probe_seq2seq(model, [5, 7], ["fünf", "sieben"], [5, 6, 8], ["five", "six", "eight"], **options)  # type: ignore[arg-type]


def test_the_alignment_is_what_the_attention_noted() -> None:
    model = Tiny().train()
    trace = probe(model)
    assert model.training
    assert trace.tokens == {
        "source": ["fünf", "sieben", "</s>"],
        "target": ["five", "six", "eight", "</s>"],
        "fed": ["<s>", "five", "six", "eight"],
    }
    decoder_reads, source = [BOS, 5, 6, 8], [5, 7, EOS]
    scores = np.exp([[-abs(q - k) for k in source] for q in decoder_reads])
    np.testing.assert_allclose(trace.array("alignment"), scores / scores.sum(1, keepdims=True), atol=1e-6)
    assert trace.array("decoder_states", "layer", "fed", "unit").shape == (1, 4, 3)
    assert trace.facts["alignment"] == "attention"
    assert trace.max_difference == 0.0


def test_log_probs_and_the_most_probable_symbols() -> None:
    model = Tiny().eval()
    trace = probe(model)
    source, target_in = torch.tensor([[5, 7, EOS]]), torch.tensor([[BOS, 5, 6, 8]])
    expected = model.decoder(source, target_in)[0].log_softmax(-1)
    np.testing.assert_allclose(
        trace.array("log_probs"), expected[torch.arange(4), torch.tensor([5, 6, 8, EOS])].detach(), atol=1e-6
    )
    assert trace.array("top_symbols").tolist() == expected.topk(5).indices.tolist()
    assert (np.diff(trace.array("top_log_probs"), axis=1) <= 0).all()
    assert trace.tables["top"][0]["pieces"] == [str(i) for i in trace.array("top_symbols")[0]]


def test_a_model_that_behaves_differently_when_watched_is_refused() -> None:
    with pytest.raises(AnaphoraError, match=r"max \|Δ\| = 0\.01"):
        probe(Tiny(secret=0.01))
    assert probe(Tiny(secret=5e-5)).max_difference == pytest.approx(5e-5, rel=0.01)


def test_the_search_tree_becomes_a_table() -> None:
    row = torch.tensor([[0.1, 0.1, 0.1, 0.5, 0.2]]).log()
    (nbest,) = beam(
        lambda symbols, state: (row.expand(len(symbols), -1), state),
        None,
        start=torch.tensor([BOS]),
        eos=EOS,
        width=2,
        max_length=2,
        n_best=2,
        keep_tree=True,
    )
    trace = probe(Tiny(), nbest=nbest, pieces=lambda ids: [f"w{i}" for i in ids])
    assert trace.facts["output"] == "found by the search"
    assert trace.tables["nbest"][0]["score"] == pytest.approx(math.log(0.5))
    first = trace.tables["beam"][:5]
    assert [(n["fate"], n["piece"]) for n in first] == [
        ("kept", "w4"),
        ("finished", "</s>"),
        ("pruned", "w0"),
        ("pruned", "w1"),
        ("pruned", "w2"),
    ]
    assert {n["parent"] for n in trace.tables["beam"] if n["step"] == 1} == {0}


def test_a_model_without_attention_has_no_alignment() -> None:
    class Silent(Tiny):
        def forward(self, source: Tensor, *rest: Tensor) -> Tensor:
            return self.decoder.out(rest[1][..., None].float())

    trace = probe(Silent())
    assert "alignment" not in trace.arrays
    assert trace.facts["alignment"] is None


def test_an_alignment_of_another_shape_is_refused() -> None:
    class Wrong(Tiny):
        def forward(self, source: Tensor, *rest: Tensor) -> Tensor:
            return super().forward(source, *rest)[:, :1] + super().forward(source, *rest)

    with pytest.raises(AnaphoraError, match=r"noted an alignment of shape .* note \(batch, target, source\)"):
        probe(Wrong())


def test_the_hash_names_the_weights() -> None:
    torch.manual_seed(1)
    one, other = Tiny(), Tiny()
    assert weights_hash(one) != weights_hash(other)
    other.load_state_dict(one.state_dict())
    assert weights_hash(one) == weights_hash(other) == probe(one).facts["model"]


# ---------------------------------------------------------------------- the library's own models

D = 8


def recurrent_model(
    decoder_class: type[Decoder], *, layers: int = 1, reverse: bool = False, **options: bool
) -> Seq2Seq:
    """A small encoder-decoder with attention of either kind, or without."""
    both = decoder_class is not RecurrentDecoder
    reader = Recurrent(LSTM(D, D), layers=layers, bidirectional=both)
    encoder = RecurrentEncoder(Embedding(V, D), reader, reverse=reverse)
    fed = D if options.get("input_feeding") else encoder.width if decoder_class is BahdanauDecoder else 0
    writer = Recurrent(LSTM(D + fed, D), layers=layers)
    parts: tuple[nn.Module, ...] = (Embedding(V, D), writer, Output(D, V))
    if decoder_class is RecurrentDecoder:
        return Seq2Seq(encoder, RecurrentDecoder(*parts, bridge=Bridge(reader, writer)))
    look = attention.Additive(D, encoder.width, D)
    bridge = Bridge(reader, writer)
    made = decoder_class(*parts[:2], look, parts[2], bridge=bridge, annotations=encoder.width, **options)
    return Seq2Seq(encoder, made)


def transformer_model(layers: int = 2, heads: int = 2) -> Seq2Seq:
    def many() -> attention.MultiHead:
        return attention.MultiHead(D, heads)

    encoder = EncoderStack(EncoderLayer(many(), FeedForward(D, 16)), layers)
    decoder = DecoderStack(DecoderLayer(many(), many(), FeedForward(D, 16)), layers)
    positions = Sinusoidal(D)
    return Seq2Seq(
        TransformerEncoder(Embedding(V, D), encoder, positions=positions),
        TransformerDecoder(Embedding(V, D), decoder, Output(D, V), positions=positions),
    )


MODELS: dict[str, Callable[[], Seq2Seq]] = {
    "attention": lambda: recurrent_model(AttentionDecoder, layers=2),
    "attention with input feeding": lambda: recurrent_model(AttentionDecoder, input_feeding=True),
    "bahdanau": lambda: recurrent_model(BahdanauDecoder),
    "transformer": transformer_model,
}


@pytest.mark.parametrize("kind", MODELS)
def test_the_trace_of_every_attentive_model_is_its_alignment(kind: str) -> None:
    model = MODELS[kind]()
    trace = probe(model)
    source, target_in = torch.tensor([[5, 7, EOS]]), torch.tensor([[BOS, 5, 6, 8]])
    own = model.alignment(source, torch.tensor([3]), target_in)[0]
    np.testing.assert_allclose(trace.array("alignment", "target", "source"), own, atol=1e-6)
    np.testing.assert_allclose(trace.array("alignment").sum(1), np.ones(4), atol=1e-6)
    assert trace.max_difference is not None
    assert trace.max_difference <= 1e-5
    assert trace.view("alignment").svg().count("data-v=") == 4 * 3


def test_a_transformer_shows_every_layer_and_head() -> None:
    trace = probe(transformer_model(layers=2, heads=2))
    assert trace.array("cross_attention", "layer", "head", "target", "source").shape == (2, 2, 4, 3)
    assert trace.array("self_attention", "layer", "head", "fed", "key").shape == (2, 2, 4, 4)
    assert trace.array("encoder_attention", "layer", "head", "query", "key").shape == (2, 2, 3, 3)
    assert trace.array("decoder_states", "layer", "fed", "unit").shape == (2, 4, D)
    assert np.triu(trace.array("self_attention")[0, 0], 1).max() == 0.0  # nothing looks ahead
    np.testing.assert_allclose(trace.array("alignment"), trace.array("cross_attention")[-1].mean(0))
    assert trace.facts["alignment"] == "attention, mean of the 2 heads of layer 2"


def test_a_recurrent_model_without_attention_shows_its_states() -> None:
    model = recurrent_model(RecurrentDecoder, layers=2, reverse=True)
    trace = probe(model)
    assert "alignment" not in trace.arrays
    states = trace.array("encoder_states", "layer", "source", "unit")
    assert states.shape == (2, 3, D)
    annotations = model.eval().encode(torch.tensor([[5, 7, EOS]]), torch.tensor([3])).annotations
    np.testing.assert_allclose(states[-1], annotations[0].detach(), atol=1e-6)  # in the source's order
    with pytest.raises(AnaphoraError, match="the model has no attention"):
        trace.view("alignment")
