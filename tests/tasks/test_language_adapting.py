"""Dynamic evaluation and the neural cache equal plain loops over symbols."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from tasks_command import finish

import anaphora as an
from anaphora.errors import SettingsError
from anaphora.settings.language import ScoreOptions
from anaphora.tasks.adapting import adapted_log_probs, segments

TEXT = (
    "the teacher gives an example to the student\nan egg is no example\nthe student thanks the teacher\n" * 8
)
SMALL = {"steps": 3, "valid_every": 3, "batch_tokens": 128, "hidden": 8, "length": 4, "device": "cpu"}
PRESETS = {
    "lstm": {"embedding": 6, "bptt": 16},
    "mixture": {"model": "lstm", "mixtures": 3, "embedding": 6, "bptt": 16},
    "gru": {"embedding": 6, "bptt": 16, "lines": True},
    "transformer": {"context": 12, "layers": 1, "heads": 2, "feedforward": 8},
}


@pytest.fixture(scope="module", params=list(PRESETS))
def trained(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapting")
    (folder / "text.txt").write_text(TEXT)
    model = an.LanguageModel(**{"model": request.param, **SMALL, **PRESETS[request.param]})
    return model.fit(folder / "text.txt", out=folder / "run", verbose=False)


def rows_of(model):
    if model.settings_.lines:
        return [[*model.tokenizer_.encode(line), model.end] for line in TEXT.splitlines()[:4]], model.begin
    return [model.tokenizer_.encode(TEXT[:90])], model.begin


def plain_loop(model, rows, begin, *, steps, rate=0.0, decay=0.0, cache=0, flatness=0.0, weight=0.1):
    """Symbol by symbol in float64 from the equations alone; weights move by their own arithmetic."""
    net = model.model_
    weights = list(net.parameters())
    first, squares, count = [w.detach().clone() for w in weights], [torch.zeros_like(w) for w in weights], 0
    context, remembered, found = net.body.context, [], []
    for row in rows:
        state, values, at = None, [], 0
        while at < len(row):
            piece = row[at : at + (min(steps, context - context // 2) if context else steps)]
            end = at + len(piece)
            start = max(0, end - context) if context else at
            read = [begin, *row][start:end]
            hidden, reading = net.read(torch.tensor([read]), None if context else state)
            state = reading.carried
            if not context:
                state = type(state)(tuple(one.detach() for one in state.states))
            logs = net.output(hidden[0]).log_softmax(-1)
            loss = 0.0
            for place, symbol in enumerate(piece, at - start):
                log_p = logs[place, symbol]
                loss = loss - log_p
                p, h = log_p.exp().item(), hidden[0, place].detach().double()
                last = remembered[-cache:] if cache else []
                if last:
                    votes = torch.tensor([math.exp(flatness * float(h @ other)) for other, _ in last])
                    right = sum(float(v) for v, (_, name) in zip(votes, last, strict=True) if name == symbol)
                    p = (1 - weight) * p + weight * right / float(votes.sum())
                values.append(math.log(p))
                remembered.append((h, symbol))
            if rate:
                net.zero_grad()
                (loss / len(piece)).backward()
                count += 1
                with torch.no_grad():
                    for w, w0, v in zip(weights, first, squares, strict=True):
                        g = torch.zeros_like(w) if w.grad is None else w.grad
                        v += (g * g - v) / count
                        w += decay * (w0 - w) - rate * g / (v.sqrt() + 1e-5)
            at = end
        found.append(np.array(values))
    with torch.no_grad():
        for w, w0 in zip(weights, first, strict=True):
            w.copy_(w0)
            w.grad = None
    return found


@pytest.mark.parametrize(
    "how",
    [
        {"dynamic": 0.01, "dynamic_steps": 5, "dynamic_decay": 0.1},
        {"cache": 7, "cache_flatness": 0.5, "cache_weight": 0.3},
        {"dynamic": 0.01, "dynamic_steps": 6, "cache": 11},
    ],
    ids=lambda how: "-".join(how),
)
def test_it_equals_a_plain_loop(trained, how):
    options = ScoreOptions(**how)
    rows, begin = rows_of(trained)
    before = {name: value.clone() for name, value in trained.model_.state_dict().items()}
    found = adapted_log_probs(trained.model_.eval(), rows, [begin] * len(rows), options)
    wanted = plain_loop(
        trained,
        rows,
        begin,
        steps=options.dynamic_steps if options.dynamic else 256,
        rate=options.dynamic,
        decay=options.dynamic_decay if options.dynamic else 0.0,
        cache=options.cache,
        flatness=options.cache_flatness,
        weight=options.cache_weight,
    )
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-4)
    assert all(torch.equal(value, before[name]) for name, value in trained.model_.state_dict().items())


def test_a_text_that_repeats_itself_gets_cheaper(trained, tmp_path):
    (tmp_path / "dev.txt").write_text(TEXT)
    usual = trained.score(tmp_path / "dev.txt")
    moved = trained.score(tmp_path / "dev.txt", dynamic=0.003)
    remembered = trained.score(tmp_path / "dev.txt", cache=500)
    assert moved["perplexity"] < 0.9 * usual["perplexity"]
    assert remembered["perplexity"] < usual["perplexity"]
    assert moved["symbols"] == remembered["symbols"] == usual["symbols"]
    assert trained.score(tmp_path / "dev.txt") == usual


def test_what_cannot_learn_is_one_sentence(tmp_path):
    (tmp_path / "dev.txt").write_text(TEXT)
    counts = an.LanguageModel("ngram").fit(tmp_path / "dev.txt", out=tmp_path / "counts")
    with pytest.raises(SettingsError, match="dynamic has no effect on the preset ngram"):
        counts.score(tmp_path / "dev.txt", dynamic=0.1)
    with pytest.raises(SettingsError, match="dynamic_steps is about dynamic: set dynamic as well"):
        counts.score(tmp_path / "dev.txt", dynamic_steps=3)


def test_a_learning_rate_that_ruins_the_model_is_refused(trained, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT[:200])
    before = trained.score(tmp_path / "text.txt")
    for rate in (1e9, 1e30):
        with pytest.raises(SettingsError, match=r"dynamic = 1e\+\d+ is too large: with it the loss is"):
            trained.score(tmp_path / "text.txt", dynamic=rate)
    assert trained.score(tmp_path / "text.txt") == before


def test_a_masked_model_is_not_said_to_write(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    small = [
        "--hidden=8",
        "--layers=1",
        "--steps=1",
        "--batch-tokens=128",
        "--set=heads=2",
        "--set=context=12",
    ]
    said = finish(tmp_path, "train", "language", "text.txt", "--model", "masked", *small, "-o", "run")
    assert "train classify DATA --init run" in said
    assert "sample run" not in said
    assert "predict run" not in said


def test_the_command_takes_them(tmp_path):
    (tmp_path / "dev.txt").write_text(TEXT)
    model = an.LanguageModel("lstm", **{**SMALL, **PRESETS["lstm"]})
    model.fit(tmp_path / "dev.txt", out=tmp_path / "run", verbose=False)
    words = ("score", "run", "dev.txt", "--json")
    said = finish(tmp_path, *words, "--set", "cache=50", "--set", "dynamic=0.001")
    found, _ = json.JSONDecoder().raw_decode(said)
    wanted = model.score(tmp_path / "dev.txt", cache=50, dynamic=0.001)
    assert found["perplexity"] == pytest.approx(wanted["perplexity"], rel=1e-4)
    assert "Did you mean cache?" in finish(tmp_path, *words, "--set", "cach=50", code=2)


@pytest.mark.parametrize("context", [None, 4, 7])
def test_segments_cover_every_symbol_once_in_order(context):
    rows, begins = [list(range(10, 33)), [50]], [1, 2]
    seen = {0: [], 1: []}
    for one in segments(rows, begins, context=context, steps=5):
        assert context is None or len(one.table) <= context + 1
        seen[one.row] += one.table[1 + one.counted :].tolist()
    assert [seen[0], seen[1]] == rows
