"""Encoder-decoder models: the same numbers whole or step by step, alone or in a batch; and they learn."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.engine.backends.reference import reverse_rows
from anaphora.errors import AnaphoraError
from anaphora.models.bridge import Bridge, HandOver
from anaphora.models.decoders import AttentionDecoder, BahdanauDecoder, RecurrentDecoder, TransformerDecoder
from anaphora.models.encoders import RecurrentEncoder, TransformerEncoder
from anaphora.models.seq2seq import Seq2Seq
from anaphora.models.whisper import PromptedDecoder
from anaphora.nn import (
    GRU,
    LSTM,
    Elman,
    Embedding,
    Output,
    Recurrent,
    attention,
    inside,
    positions,
    transformer,
)
from anaphora.nn.cell import Cell

V, E, H = 11, 10, 12
BOS, EOS = 2, 3


def plain(cell: type[Cell] = Elman, layers: int = 1, reverse: bool = False, tied: bool = False) -> Seq2Seq:
    encoder = RecurrentEncoder(Embedding(V, E), Recurrent(cell(E, H), layers=layers), reverse=reverse)
    recurrent, embedding = Recurrent(cell(E, H), layers=layers), Embedding(V, E)
    output = Output(E, V, tied=embedding) if tied else Output(H, V)
    bridge = HandOver(encoder.recurrent, recurrent)
    return Seq2Seq(encoder, RecurrentDecoder(embedding, recurrent, output, bridge=bridge))


def attentive(
    score: str, feeding: bool = False, cell: type[Cell] = LSTM, layers: int = 1, lexical: bool = False
) -> Seq2Seq:
    reader = Recurrent(cell(E, H // 2), layers=layers, bidirectional=True)
    encoder = RecurrentEncoder(Embedding(V, E), reader, symbols=lexical)
    recurrent = Recurrent(cell(E + E if feeding else E, H), layers=layers)
    embedding = Embedding(V, E)
    scores = {
        "dot": attention.Dot,
        "bilinear": lambda: attention.Bilinear(H, reader.output_size),
        "additive": lambda: attention.Additive(H, reader.output_size, 9),
        "hard": lambda: attention.Hard(attention.Dot()),
    }
    decoder = AttentionDecoder(
        embedding,
        recurrent,
        scores[score](),
        Output(E, V, tied=embedding),
        bridge=Bridge(reader, recurrent),
        annotations=reader.output_size,
        input_feeding=feeding,
        lexical=E if lexical else 0,
    )
    return Seq2Seq(encoder, decoder)


def bahdanau(cell: type[Cell] = GRU, layers: int = 1) -> Seq2Seq:
    reader = Recurrent(GRU(E, 7), bidirectional=True)
    encoder = RecurrentEncoder(Embedding(V, E), reader)
    recurrent = Recurrent(cell(E + encoder.width, H), layers=layers)
    decoder = BahdanauDecoder(
        Embedding(V, E),
        recurrent,
        attention.Additive(H, encoder.width, 9),
        Output(E, V),
        bridge=Bridge(reader, recurrent),
        annotations=encoder.width,
    )
    return Seq2Seq(encoder, decoder)


def transformers(norm_first: bool = False, layers: int = 2) -> Seq2Seq:
    def heads() -> attention.MultiHead:
        return attention.MultiHead(H, 2)

    def feed() -> transformer.FeedForward:
        return transformer.FeedForward(H, 24)

    embedding = Embedding(V, H, scaled=True)
    encoder = transformer.TransformerEncoder(
        transformer.EncoderLayer(heads(), feed(), norm_first=norm_first), layers
    )
    layer = transformer.DecoderLayer(heads(), heads(), feed(), norm_first=norm_first)
    decoder = transformer.TransformerDecoder(layer, layers)
    return Seq2Seq(
        TransformerEncoder(embedding, encoder, positions=positions.Sinusoidal(H)),
        TransformerDecoder(
            embedding, decoder, Output(H, V, tied=embedding), positions=positions.Sinusoidal(H)
        ),
    )


MODELS: dict[str, Callable[[], Seq2Seq]] = {
    "rnn": plain,
    "lstm reversed, two layers": lambda: plain(LSTM, 2, reverse=True),
    "lstm tied": lambda: plain(LSTM, tied=True),
    "lstm, dot": lambda: attentive("dot"),
    "lstm, bilinear, two layers": lambda: attentive("bilinear", layers=2),
    "gru, additive": lambda: attentive("additive", cell=GRU),
    "lstm, bilinear, input feeding": lambda: attentive("bilinear", feeding=True),
    "lstm, hard": lambda: attentive("hard"),
    "lstm, dot, lexical": lambda: attentive("dot", lexical=True),
    "lstm, bilinear, input feeding, lexical": lambda: attentive("bilinear", feeding=True, lexical=True),
    "bahdanau": bahdanau,
    "bahdanau, two layers of lstm": lambda: bahdanau(LSTM, 2),
    "transformer": transformers,
    "transformer, norm first": lambda: transformers(norm_first=True),
}
ATTENTIVE = [name for name in MODELS if not name.startswith(("rnn", "lstm reversed", "lstm tied"))]


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Seq2Seq:
    return MODELS[request.param]().eval()


def batch(rows: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """source ``(rows, 6)`` of lengths 6, 4, 2, 1, …, padded with 0, and target_in ``(rows, 5)``."""
    lengths = torch.tensor([6, 4, 2, 1] * (rows // 4))
    source = torch.randint(4, V, (rows, 6)) * attention.masks.padding(lengths, 6)
    target = torch.randint(4, V, (rows, 5))
    target[:, 0] = BOS
    return source, lengths, target


def test_steps_equal_the_whole(model: Seq2Seq) -> None:
    source, lengths, target = batch()
    whole = torch.log_softmax(model(source, lengths, target), -1)
    state = model.start(model.encode(source, lengths))
    for t, symbols in enumerate(target.unbind(1)):
        log_probs, state = model.step(symbols, state)
        assert log_probs.dtype == torch.float32
        torch.testing.assert_close(log_probs, whole[:, t], rtol=0, atol=1e-5)


def test_states_follow_their_rows(model: Seq2Seq) -> None:
    """A search repeats, drops and reorders hypotheses: each must keep its own past and its own source."""
    source, lengths, target = batch()
    rows = torch.tensor([2, 0, 0, 3, 1])
    state = model.start(model.encode(source, lengths))
    for symbols in target[:, :2].unbind(1):
        _, state = model.step(symbols, state)
    moved, state = model.step(target[rows, 2], state.select(rows))
    whole = torch.log_softmax(model(source, lengths, target), -1)
    torch.testing.assert_close(moved, whole[rows, 2], rtol=0, atol=1e-5)
    again = torch.tensor([1, 2, 4])  # the rows of item 0 twice, then item 1
    moved, _ = model.step(target[rows[again], 3], state.select(again))
    torch.testing.assert_close(moved, whole[rows[again], 3], rtol=0, atol=1e-5)


def test_a_row_does_not_depend_on_its_batch(model: Seq2Seq) -> None:
    source, lengths, target = batch()
    together = model(source, lengths, target)
    for row, length in enumerate(lengths.tolist()):
        alone = model(source[row : row + 1, :length], lengths[row : row + 1], target[row : row + 1])
        torch.testing.assert_close(alone[0], together[row])


def test_what_is_in_the_padding_does_not_matter(model: Seq2Seq) -> None:
    source, lengths, target = batch()
    spoilt = source.masked_fill(~attention.masks.padding(lengths, 6), 9)
    assert torch.equal(model(spoilt, lengths, target), model(source, lengths, target))


def test_no_place_sees_what_it_has_to_predict(model: Seq2Seq) -> None:
    source, lengths, target = batch()
    changed = target.clone()
    changed[:, 3:] = 5
    torch.testing.assert_close(model(source, lengths, changed)[:, :3], model(source, lengths, target)[:, :3])


def test_every_parameter_has_a_gradient(model: Seq2Seq) -> None:
    model.train()
    model(*batch()).sin().sum().backward()
    silent = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert silent == []


@pytest.mark.parametrize("name", ATTENTIVE)
def test_alignment(name: str) -> None:
    model = MODELS[name]().eval()
    source, lengths, target = batch()
    weights = model.alignment(source, lengths, target)
    assert weights.shape == (4, 5, 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones(4, 5))
    padding = ~attention.masks.padding(lengths, 6)
    assert (weights.transpose(1, 2)[padding] == 0).all()
    with inside.record() as notes:
        recorded = model(source, lengths, target)
    torch.testing.assert_close(recorded, model(source, lengths, target), rtol=0, atol=1e-5)
    assert {"weights"} <= {note.name for note in notes}


def test_alignment_of_one_head_and_layer() -> None:
    model = transformers().train()
    source, lengths, target = batch()
    heads = torch.stack([model.alignment(source, lengths, target, layer=0, head=h) for h in range(2)])
    torch.testing.assert_close(heads.mean(0), model.alignment(source, lengths, target, layer=0))
    assert not torch.allclose(heads.mean(0), model.alignment(source, lengths, target))
    assert model.training


def test_a_model_without_attention_says_so() -> None:
    with pytest.raises(AnaphoraError, match="no attention, so there is no alignment"):
        plain().alignment(*batch())


def test_scheduled_sampling_feeds_the_models_own_symbols(model: Seq2Seq) -> None:
    source, lengths, target = batch()
    forced = model(source, lengths, target)
    assert torch.equal(model(source, lengths, target, teacher_forcing=1.0), forced)
    own = model(source, lengths, target, teacher_forcing=0.0)
    if isinstance(model.decoder, TransformerDecoder):
        fed = torch.cat(
            (target[:, :1], forced.argmax(-1)[:, :-1]), 1
        )  # two passes: its choices under the truth
    else:
        fed = torch.cat((target[:, :1], own.argmax(-1)[:, :-1]), 1)  # its choices under its own choices
    torch.testing.assert_close(own, model(source, lengths, fed), rtol=0, atol=1e-5)


def test_scheduled_sampling_tosses_a_coin_per_place(model: Seq2Seq) -> None:
    source, lengths, target = batch()
    torch.manual_seed(5)
    mixed = model(source, lengths, target, teacher_forcing=0.5)
    torch.manual_seed(5)
    coins = torch.rand(target.shape) < 0.5
    base = model(source, lengths, target) if isinstance(model.decoder, TransformerDecoder) else mixed
    own = torch.cat((target[:, :1], base.argmax(-1)[:, :-1]), 1)
    expected = model(source, lengths, torch.where(coins, target, own))
    torch.testing.assert_close(mixed, expected, rtol=0, atol=1e-5)


def test_reversed_rows_keep_their_padding() -> None:
    x = torch.tensor([[1, 2, 3], [4, 5, 0], [6, 0, 0]]).unsqueeze(-1)
    lengths = torch.tensor([3, 2, 1])
    assert reverse_rows(x, lengths).squeeze(-1).tolist() == [[3, 2, 1], [5, 4, 0], [6, 0, 0]]
    assert torch.equal(reverse_rows(reverse_rows(x, lengths), lengths), x)


def test_a_reversed_source_is_read_backwards() -> None:
    model = plain(LSTM, reverse=True).eval()
    source = torch.tensor([[4, 5, 6, 7]])
    lengths = torch.tensor([4])
    backwards = model.encode(source, lengths)
    model.encoder.reverse = False
    forwards = model.encode(source.flip(1), lengths)
    torch.testing.assert_close(backwards.last[0], forwards.last[0])
    torch.testing.assert_close(backwards.annotations, forwards.annotations.flip(1))


def test_bridge_by_hand() -> None:
    """Two layers, both directions, to one layer: the top layer's final states of both, through W."""
    reader = Recurrent(LSTM(E, 3), layers=2, bidirectional=True)
    writer = Recurrent(LSTM(E, 4))
    bridge = Bridge(reader, writer)
    memory = RecurrentEncoder(Embedding(V, E), reader)(*batch()[:2])
    h, c = bridge(memory)
    top = [torch.cat((state[2], state[3]), -1) for state in memory.last]
    torch.testing.assert_close(h, torch.tanh(bridge.maps[0](top[0]))[None])
    torch.testing.assert_close(c, bridge.maps[1](top[1])[None])


def test_bridge_from_fewer_states_and_layers() -> None:
    reader, writer = Recurrent(GRU(E, 3)), Recurrent(LSTM(E, 4), layers=2)
    memory = RecurrentEncoder(Embedding(V, E), reader)(*batch()[:2])
    assert [tuple(state.shape) for state in Bridge(reader, writer)(memory)] == [(2, 4, 4), (2, 4, 4)]
    with pytest.raises(ValueError, match="use Bridge"):
        HandOver(reader, writer)


@pytest.mark.parametrize("name", MODELS)
def test_it_learns_to_copy_eight_sequences(name: str) -> None:
    torch.manual_seed(1)
    model = MODELS[name]().train()
    lengths = torch.tensor([2, 3, 4, 5] * 2)
    body = torch.randint(4, V, (8, 5))
    source = torch.where(torch.arange(6) < lengths[:, None], F.pad(body, (0, 1)), 0)
    source.scatter_(1, lengths[:, None], EOS)
    target_in = torch.cat((torch.full((8, 1), BOS), source[:, :-1]), 1)
    real = torch.arange(6) <= lengths[:, None]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(400):
        logits = model(source, lengths + 1, target_in)
        loss = F.cross_entropy(logits[real], source[real])
        if step % 20 == 0 and torch.equal(logits.argmax(-1)[real], source[real]) and loss < 0.3:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert torch.equal(model(source, lengths + 1, target_in).argmax(-1)[real], source[real])


@pytest.mark.cuda
@pytest.mark.parametrize("name", [name for name in MODELS if "hard" not in name])
def test_on_a_gpu(name: str) -> None:
    """The same numbers as on the CPU, whole and step by step."""
    model = MODELS[name]().eval()
    source, lengths, target = batch()
    with torch.no_grad():
        expected = torch.log_softmax(model(source, lengths, target), -1)
        model.cuda()
        source, lengths, target = source.cuda(), lengths.cuda(), target.cuda()
        whole = torch.log_softmax(model(source, lengths, target), -1)
        torch.testing.assert_close(whole.cpu(), expected, rtol=0, atol=1e-4)
        state = model.start(model.encode(source, lengths))
        for t, symbols in enumerate(target.unbind(1)):
            log_probs, state = model.step(symbols, state)
            torch.testing.assert_close(log_probs, whole[:, t], rtol=0, atol=1e-4)


def test_steps_of_a_decoder_that_never_writes_some_symbols_keep_its_log_p() -> None:
    """As in Whisper: the rest is not scaled up to 1, or scores and beams would differ from those of its authors."""
    plain, (source, lengths, _) = transformers().eval(), batch()
    parts = plain.decoder
    decoder = PromptedDecoder(
        parts.embedding, parts.stack, parts.output, positions=parts.positions, prompt=[5], never=[6, 7]
    )
    model = Seq2Seq(plain.encoder, decoder).eval()
    memory = model.encode(source, lengths)
    log_probs, state = model.step(torch.full((4,), BOS), model.start(memory))
    for begun in (torch.tensor([[BOS, 5]] * 4), torch.tensor([[BOS, 5, 8]] * 4)):
        expected = plain.decoder(begun, memory)[:, -1].log_softmax(-1)
        expected[:, [6, 7]] = -torch.inf
        torch.testing.assert_close(log_probs, expected, atol=1e-5, rtol=1e-5)
        log_probs, state = model.step(torch.full((4,), 8), state)
