"""Language models: left to right only, alike whole or symbol by symbol, trained in pieces as in one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from anaphora import nn, search
from anaphora.data.symbols import PAD
from anaphora.models.language import Language, RecurrentBody, TransformerBody
from anaphora.models.language_masked import MaskedLanguage, hide
from anaphora.models.language_window import WindowBody
from anaphora.nn.embedding import Embedding, Output
from anaphora.nn.positions import Sinusoidal

SYMBOLS, WIDTH = 11, 8


def made(kind: str, context: int = 32, **noise: Any) -> Language:
    torch.manual_seed(3)
    embedding = Embedding(SYMBOLS, WIDTH, scaled=True)
    body: Any
    if kind == "transformer":
        layer = nn.EncoderLayer(
            nn.attention.MultiHead(WIDTH, 2), nn.FeedForward(WIDTH, 16), dropout=0.0, norm_first=True
        )
        stack = nn.TransformerEncoder(layer, 2)
        body = TransformerBody(embedding, stack, positions=Sinusoidal(WIDTH), context=context)
    elif kind.startswith("window"):
        body = WindowBody(embedding, 3, 12, direct=kind.endswith("direct"))
    else:
        cells = {"elman": nn.Elman, "lstm": nn.LSTM, "gru": nn.GRU}
        body = RecurrentBody(embedding, nn.Recurrent(cells[kind](WIDTH, 12), layers=2), **noise)
    return Language(body, Output(WIDTH, SYMBOLS, tied=embedding)).eval()


KINDS = ["elman", "lstm", "gru", "window", "window direct", "transformer"]


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_what_comes_later_changes_nothing_before(kind: str) -> None:
    model = made(kind)
    symbols = torch.randint(4, SYMBOLS, (3, 20))
    other = symbols.clone()
    other[:, 12:] = torch.randint(4, SYMBOLS, (3, 8))
    one, two = model(symbols), model(other)
    assert torch.equal(one[:, :12], two[:, :12])
    assert not torch.allclose(one[:, 13:], two[:, 13:])


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_symbol_by_symbol_equals_the_whole(kind: str) -> None:
    """For the Transformer: kept keys and values give what reading everything again gives."""
    model = made(kind)
    symbols = torch.randint(4, SYMBOLS, (3, 20))
    whole = model(symbols).log_softmax(-1)
    state = model.start(3)
    for t, column in enumerate(symbols.unbind(1)):
        log_probs, state = model.step(column, state)
        torch.testing.assert_close(log_probs, whole[:, t], atol=1e-5, rtol=0)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(3))


@torch.no_grad()
def test_past_its_context_a_transformer_goes_on_from_half_a_window() -> None:
    model = made("transformer", context=8)
    symbols = torch.randint(4, SYMBOLS, (2, 23))
    state = model.start(2)
    for t, column in enumerate(symbols.unbind(1)):
        log_probs, state = model.step(column, state)
        first = 0 if t < 8 else 4 * (t // 4) - 4  # re-read at 8, 12, 16 …, each time from four symbols on
        again = model(symbols[:, first : t + 1]).log_softmax(-1)[:, -1]
        torch.testing.assert_close(log_probs, again, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_rows_of_a_state_can_be_picked(kind: str) -> None:
    model = made(kind)
    state = model.start(3)
    for _ in range(4):
        _, state = model.step(torch.randint(4, SYMBOLS, (3,)), state)
    picked = search.select_rows(state, torch.tensor([2, 0, 2]))
    symbols = torch.tensor([5, 6, 7])
    whole, _ = model.step(symbols, state)
    part, _ = model.step(symbols[[2, 0, 2]], picked)
    torch.testing.assert_close(part, whole[[2, 0, 2]])


@pytest.mark.parametrize("kind", ["elman", "lstm", "gru", "window"])
def test_a_carried_state_makes_pieces_equal_the_whole(kind: str) -> None:
    model = made(kind)
    symbols = torch.randint(4, SYMBOLS, (2, 18))
    whole = model(symbols)
    carried, parts = None, []
    for piece in symbols.split(5, 1):
        hidden, reading = model.read(piece, carried)
        carried = reading.carried
        parts.append(model.output(hidden))
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-5, rtol=0)


def test_a_window_reads_what_the_equation_says() -> None:
    """y_t = tanh(H [e_{t−2}; e_{t−1}; e_t] + d), with PAD before the first symbol."""
    model = made("window").double()
    body, e = model.body, model.body.embedding
    symbols = torch.tensor([[5, 6, 7, 8]])
    y = body.read(symbols).states[0]
    for t in range(4):
        before = [PAD, PAD, 5, 6, 7, 8][t : t + 3]
        expected = torch.tanh(body.hidden(torch.cat([e(torch.tensor(s)) for s in before])))
        torch.testing.assert_close(y[t], expected)


def test_noise_is_for_training_only_and_words_are_dropped_whole() -> None:
    model = made("lstm", word_dropout=0.5)
    symbols = torch.randint(4, SYMBOLS, (2, 9))
    assert torch.equal(model(symbols), model(symbols))
    model.train()
    assert not torch.equal(model(symbols), model(symbols))
    seen: list[torch.Tensor] = []
    model.body.recurrent.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    model(symbols)
    gone = (seen[0] == 0).all(-1)
    assert gone.any()
    for symbol in symbols.unique():
        assert len(gone[symbols == symbol].unique()) == 1  # everywhere, or nowhere


def test_locked_dropout_drops_the_same_units_at_all_steps() -> None:
    model = made("lstm", dropout=0.5, locked=True).train()
    seen: list[torch.Tensor] = []
    model.body.recurrent.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    model(torch.randint(4, SYMBOLS, (2, 9)))
    gone = seen[0] == 0
    assert gone.any()
    assert (gone == gone[:, :1]).all()


def test_hidden_symbols_are_a_share_and_mostly_shown_as_pad() -> None:
    torch.manual_seed(0)
    symbols = torch.randint(4, 60, (100, 200))
    symbols[:, 0] = 2
    shown, counted = hide(symbols, 0.15, 60)
    assert not counted[:, 0].any()
    assert counted.float().mean() == pytest.approx(0.15, abs=0.01)
    assert (shown[~counted] == symbols[~counted]).all()
    at = shown[counted]
    assert (at == PAD).float().mean() == pytest.approx(0.8, abs=0.02)
    assert (at == symbols[counted]).float().mean() == pytest.approx(0.1, abs=0.02)


@torch.no_grad()
def test_a_masked_model_sees_both_sides() -> None:
    layer = nn.EncoderLayer(nn.attention.MultiHead(WIDTH, 2), nn.FeedForward(WIDTH, 16))
    from anaphora.models.encoders import TransformerEncoder

    embedding = Embedding(SYMBOLS, WIDTH, scaled=True)
    body = TransformerEncoder(embedding, nn.TransformerEncoder(layer, 1), positions=Sinusoidal(WIDTH))
    model = MaskedLanguage(body, Output(WIDTH, SYMBOLS, tied=embedding), context=16).eval()
    symbols = torch.randint(4, SYMBOLS, (2, 10))
    other = symbols.clone()
    other[:, 9] = 4 + (other[:, 9] - 3) % 7
    lengths = torch.tensor([10, 10])
    assert not torch.allclose(model(symbols, lengths)[:, 0], model(other, lengths)[:, 0])
