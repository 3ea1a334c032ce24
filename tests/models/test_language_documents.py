"""QK-norm and document masks of Transformer language models."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch.nn import functional as F

import anaphora as an
from anaphora.errors import AnaphoraError, SettingsError
from anaphora.models.language import DocumentBody, document_numbers
from anaphora.models.rows import LanguageRows
from anaphora.nn.attention import MultiHead, NormedMultiHead
from anaphora.settings.language import LanguageSettings
from anaphora.tasks.language.build import build_language

SIZES = {"hidden": 8, "heads": 2, "layers": 2, "feedforward": 12, "context": 12, "dropout": 0.0}


def network(model="transformer", **given):
    torch.manual_seed(0)
    net = build_language(LanguageSettings(model=model, **{**SIZES, **given}), 20, line_break=4).eval()
    for name, parameter in net.named_parameters():
        if name.endswith(("query_norm.weight", "key_norm.weight")):
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return net


# ---------------------------------------------------------------- QK-norm
def test_queries_and_keys_are_normalised_by_head():
    torch.manual_seed(1)
    attention = NormedMultiHead(6, 2)
    torch.nn.init.uniform_(attention.query_norm.weight)
    x = torch.randn(1, 4, 6)
    q, k, v = attention.inward(x)[0].split(6, -1)  # (time, width) each
    found = []
    for head in (slice(0, 3), slice(3, 6)):
        one, other = (t[:, head] / (t[:, head].square().mean(-1, keepdim=True) + 1e-6).sqrt() for t in (q, k))
        scores = (one * attention.query_norm.weight) @ (other * attention.key_norm.weight).T / math.sqrt(3)
        found.append(scores.softmax(-1) @ v[:, head])
    torch.testing.assert_close(attention(x)[0][0], attention.outward(torch.cat(found, -1)))
    with pytest.raises(ValueError, match="its own sequence only"):
        attention(x, x)


def test_scores_do_not_grow_with_the_weights():
    attention = NormedMultiHead(8, 2)
    x = torch.randn(2, 5, 8)
    before = attention(x, weights=True)[1]
    with torch.no_grad():
        attention.inward.weight[:16] *= 50
    torch.testing.assert_close(attention(x, weights=True)[1], before, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "alibi"])
@pytest.mark.parametrize("documents", ["none", "blank"])
def test_reading_stepping_and_rows_agree(positions, documents):
    net = network(positions=positions, qk_norm=True, documents=documents)
    assert all(type(layer.attention) is NormedMultiHead for layer in net.body.stack.layers)
    symbols = torch.tensor([[5, 6, 4, 4, 7, 8, 4, 9, 4, 4, 10]])
    with torch.no_grad():
        wanted = net(symbols).log_softmax(-1)[0]
        rows = LanguageRows(net)
        state, paged = net.start(1), rows.start(1)
        for place, symbol in enumerate(symbols[0]):
            log_probs, state = net.step(symbol[None], state)
            torch.testing.assert_close(log_probs[0], wanted[place], atol=1e-5, rtol=1e-4)
            log_probs, paged = rows.step(symbol[None], paged)
            torch.testing.assert_close(log_probs[0], wanted[place], atol=1e-5, rtol=1e-4)


def test_without_it_nothing_changes():
    assert all(type(layer.attention) is MultiHead for layer in network().body.stack.layers)


# ---------------------------------------------------------------- documents
def test_documents_begin_after_the_last_empty_line():
    symbols = torch.tensor([[5, 4, 4, 4, 6, 4, 7, 4, 4, 8], [4, 4, 5, 6, 7, 8, 9, 5, 4, 5]])
    assert document_numbers(symbols, 4).tolist() == [
        [0, 0, 0, 0, 1, 1, 1, 1, 1, 2],
        [0, 0, 1, 1, 1, 1, 1, 1, 1, 1],
    ]


def test_no_place_sees_another_document():
    net = network(documents="blank", positions="rotary")  # rotary positions are relative
    assert isinstance(net.body, DocumentBody)
    first, second = [5, 6, 4, 4], [7, 8, 9, 10]
    together = net(torch.tensor([first + second]))
    torch.testing.assert_close(together[:, :4], net(torch.tensor([first])), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(together[:, 4:], net(torch.tensor([second])), atol=1e-5, rtol=1e-4)
    crossing = network(positions="rotary")(torch.tensor([first + second]))
    assert not torch.allclose(crossing[:, 4:], together[:, 4:], atol=1e-3)


def test_a_masked_model_knows_documents_where_their_ends_are_hidden():
    net = network("masked", documents="blank", positions="rotary")
    true = torch.tensor([[1, 5, 6, 4, 4, 7, 8, 9]])
    shown = true.masked_fill(torch.tensor([[False] * 3 + [True] + [False] * 4]), 0)
    lengths = torch.tensor([8])
    whole = net.read(shown, lengths, true)
    other = net.read(torch.cat((true[:, :5] * 0 + 11, shown[:, 5:]), 1), lengths, true)
    torch.testing.assert_close(whole[:, 5:], other[:, 5:])  # whatever the first document shows
    assert not torch.allclose(whole[:, 5:], net.read(shown, lengths)[:, 5:])  # its end cannot be seen there


TEXT = "the teacher gives\nan example\n\nthe student\nthanks\n\n" * 30


@pytest.mark.parametrize("model", ["transformer", "masked"])
def test_a_run_has_both_and_comes_back(model, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    given = {**SIZES, "steps": 4, "valid_every": 2, "batch_tokens": 96, "device": "cpu"}
    m = an.LanguageModel(model, qk_norm=True, documents="blank", optimizer="muon", **given)
    m.fit(tmp_path / "text.txt", out=tmp_path / "run", verbose=False)
    loaded = an.load(tmp_path / "run")
    assert loaded.score(tmp_path / "text.txt") == m.score(tmp_path / "text.txt")
    if model == "transformer":
        assert loaded.sample("the ", seed=3, length=20) == m.sample("the ", seed=3, length=20)
    with pytest.raises(AnaphoraError, match="documents = 'blank' cannot be exported"):
        m.export(tmp_path / "out", to="hf")


def test_a_model_with_normalised_queries_has_no_form_of_others(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    given = {**SIZES, "steps": 1, "valid_every": 1, "batch_tokens": 96, "device": "cpu", "tokens": "bpe"}
    m = an.LanguageModel("transformer", qk_norm=True, vocab_size=60, activation="gelu", **given)
    m.fit(tmp_path / "text.txt", out=tmp_path / "run", verbose=False)
    with pytest.raises(AnaphoraError, match="qk_norm = true has no form"):
        m.export(tmp_path / "out", to="hf")


def test_lines_are_by_themselves_anyway():
    with pytest.raises(SettingsError, match="documents is about running text"):
        an.LanguageModel("transformer", documents="blank", lines=True)
    with pytest.raises(SettingsError, match="documents has no effect on the preset lstm"):
        an.LanguageModel("lstm", documents="blank")


def test_gradients_flow_within_documents_only():
    net = network(documents="blank").train()
    vectors = net.body.embedding.weight
    symbols = torch.tensor([[5, 6, 4, 4, 7, 8]])
    hidden, _ = net.read(symbols)
    (gradient,) = torch.autograd.grad(F.mse_loss(hidden[0, 5], torch.zeros(8)), vectors)
    assert gradient[7].any()
    assert not gradient[5].any()
    assert json.dumps(document_numbers(symbols, 4).tolist()) == "[[0, 0, 0, 0, 1, 1]]"
